"""RocketMQ's JSON dialect, which is fastjson's: JSON in which a key may be a number or an object.

Java's maps keep the type of their keys. A broker's addresses by id are `{0:"127.0.0.1:10911"}`; a
table by queue is `{{"brokerName":"b","queueId":0,"topic":"t"}:{"maxOffset":9},...}`. Such keys are
read as an int and as the frozenset of the object's items, and these two are written so again.

Most bodies have no such key, and json reads them. The rest goes through a reader of our own, which
takes single quotes and bare names as well, as fastjson does. Neither trusts its input: what comes
out is at most `DEPTH_MAX` deep and holds no number that Java could not have written. Whatever can't
be read is a MalformedBody.
"""

import json
import math
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, cast

from rocketpipe.errors import MalformedBody

DEPTH_MAX: Final = 64  # RocketMQ's own bodies are at most eight deep

Key = str | int | frozenset[tuple[object, object]]


def loads(body: bytes) -> object:
    """The value of a text in the dialect; of a member given twice, the last."""
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise MalformedBody(f"not UTF-8 at byte {error.start}") from error
    if "\\u" not in text:  # an escape may be half of a surrogate pair, which json lets pass
        with suppress(ValueError, RecursionError):
            value: object = _STRICT.decode(text)
            if _is_shallow(value):
                return value
    return _Reader(text).document()


def dumps(value: object, *, standard: bool = False) -> bytes:
    """The text of a value, without the members that are None.

    `standard` quotes number keys and sorts the members, as a NameServer writes a route for clients
    of version 401 and later. An object key has no standard form and stays what it is.
    """
    parts: list[str] = []
    _write(value, parts.append, standard)
    return "".join(parts).encode("utf-8")


def _integer(text: str) -> int:
    if len(text) <= 20 and -(2**63) <= (number := int(text)) < 2**63:
        return number
    raise MalformedBody(f"{text[:20]}... is more than a Java long")


def _finite(text: str) -> float:
    if math.isinf(number := float(text)):
        raise MalformedBody(f"{text[:20]} is more than a Java double")
    return number


def _refused(text: str) -> object:
    raise ValueError(f"{text} is not JSON")


_STRICT: Final = json.JSONDecoder(
    strict=False,  # control characters in strings pass, as they do in our reader and in fastjson
    parse_int=_integer,
    parse_float=_finite,
    parse_constant=_refused,
)


def _is_shallow(value: object) -> bool:
    """Whether objects and arrays are nested no deeper than they may be."""
    level: list[Any] = [[value]]
    for _ in range(DEPTH_MAX + 1):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, (dict, list))
        ]
        if not level:
            return True
    return False


# One token and the white space before it. The possessive quantifiers never look back, so that no
# text takes more than linear time.
_TOKEN: Final = re.compile(
    r"""[ \t\r\n]*+(?:
        (?P<mark>[{}\[\],:])
      | (?P<string>"[^"\\]*+(?:\\.[^"\\]*+)*+"|'[^'\\]*+(?:\\.[^'\\]*+)*+')
      | (?P<number>-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?)
      | (?P<name>[A-Za-z_$][A-Za-z0-9_$]*+)
      | (?P<end>\Z)
      | (?P<unknown>.)
    )""",
    re.VERBOSE | re.DOTALL,
)
_FLAT_OBJECT: Final = re.compile(r"[^{}\[\]\\]*+\}")  # from behind its opening brace
_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(.))", re.DOTALL)
_ESCAPED: Final = dict(
    zip("\"'\\/bfnrtv01234567", "\"'\\/\b\f\n\r\t\v\0\1\2\3\4\5\6\7", strict=True)
)
_CONSTANTS: Final = {"true": True, "false": False, "null": None}


class _Reader:
    """Reads the dialect in one pass, token by token."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self._kind = ""
        self._token = ""

    def document(self) -> object:
        self._advance()
        value = self._value(0)
        self._advance()
        if self._kind != "end":
            raise self._unexpected()
        return value

    def _value(self, depth: int) -> object:
        """The value that begins with the current token."""
        match self._kind, self._token:
            case "string", token:
                return self._unescaped(token[1:-1])
            case "number", token:
                return _integer(token) if token.lstrip("-").isdecimal() else _finite(token)
            case "name", ("true" | "false" | "null") as token:
                return _CONSTANTS[token]
            case "mark", ("{" | "[") if depth == DEPTH_MAX:
                raise MalformedBody(f"more than {DEPTH_MAX} levels deep")
            case "mark", "{":
                return self._object(depth + 1)
            case "mark", "[":
                return self._array(depth + 1)
        raise self._unexpected()

    def _object(self, depth: int) -> dict[Key, object]:
        # Nearly every object in a large table is flat and plain JSON, and json is much faster.
        if flat := _FLAT_OBJECT.match(self._text, self._position):
            with suppress(ValueError):
                plain, _ = _STRICT.raw_decode("{" + flat[0])
                self._position = flat.end()
                return cast("dict[Key, object]", plain)
        result: dict[Key, object] = {}
        self._advance()
        while not self._is_at("}"):
            key = self._key(depth)
            self._advance()
            if not self._is_at(":"):
                raise self._unexpected()
            self._advance()
            result[key] = self._value(depth)
            self._end_item("}")
        return result

    def _array(self, depth: int) -> list[object]:
        result: list[object] = []
        self._advance()
        while not self._is_at("]"):
            result.append(self._value(depth))
            self._end_item("]")
        return result

    def _key(self, depth: int) -> Key:
        if self._kind == "name":
            return self._token
        value = self._value(depth)
        if isinstance(value, str | int):
            return value
        if isinstance(value, dict):
            with suppress(TypeError):  # a list or an object in it can't be hashed
                return frozenset(value.items())
        raise MalformedBody(
            f"a key is neither text, nor a whole number, nor a flat object{self._at()}"
        )

    def _end_item(self, closing: str) -> None:
        """Pass the comma, if there is one, and stop at the next item or at the closing bracket."""
        self._advance()
        if self._is_at(","):
            self._advance()
        elif not self._is_at(closing):
            raise self._unexpected()

    def _unescaped(self, token: str) -> str:
        if "\\" not in token:
            return token
        try:
            text = _ESCAPE.sub(_unescape, token)
            # A character beyond U+FFFF is escaped as two halves: join them, and refuse a lone one.
            return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
        except (KeyError, UnicodeDecodeError) as error:
            raise MalformedBody(f"an escape that means nothing{self._at()}") from error

    def _advance(self) -> None:
        match = _TOKEN.match(self._text, self._position)
        assert match  # "unknown" takes any character, and "end" what is behind the last
        assert match.lastgroup
        self._kind = match.lastgroup
        self._token = match[self._kind]
        self._position = match.end()

    def _is_at(self, mark: str) -> bool:
        return self._token == mark and self._kind == "mark"

    def _unexpected(self) -> MalformedBody:
        what = "the text ends" if self._kind == "end" else f"unexpected {self._token[:20]!r}"
        return MalformedBody(what + self._at())

    def _at(self) -> str:
        return f" at character {self._position}"


def _unescape(escape: re.Match[str]) -> str:
    code = escape[1] or escape[2]
    return chr(int(code, 16)) if code else _ESCAPED[escape[3]]


_quoted: Final = json.JSONEncoder(ensure_ascii=False).encode


def _write(value: object, out: Callable[[str], None], standard: bool) -> None:
    match value:
        case None:
            out("null")
        case bool():
            out("true" if value else "false")
        case str():
            out(_quoted(value))
        case int():
            out(int.__repr__(value))
        case float():
            if not math.isfinite(value):
                raise ValueError(f"{value} has no JSON form")
            out(float.__repr__(value))
        case dict():
            _write_object(value, out, standard)
        case list() | tuple():
            separator = "["
            for item in value:
                out(separator)
                _write(item, out, standard)
                separator = ","
            out("]" if value else "[]")
        case _:
            raise TypeError(f"{type(value).__name__} has no JSON form")


def _write_object(value: dict[Key, object], out: Callable[[str], None], standard: bool) -> None:
    members = [(key, member) for key, member in value.items() if member is not None]
    if standard:
        members.sort(key=lambda member: str(member[0]))
    separator = "{"
    for key, member in members:
        out(separator)
        match key:
            case str():
                out(_quoted(key))
            case int():
                out(f'"{key:d}"' if standard else f"{key:d}")
            case frozenset():
                _write(dict(sorted(key, key=str)), out, standard)
            case _:
                raise TypeError(f"{type(key).__name__} can't be a key")
        out(":")
        _write(member, out, standard)
        separator = ","
    out("}" if members else "{}")
