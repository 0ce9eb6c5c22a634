r"""Settings as `key=value` lines, the bodies of 25, 26, 318 and 319: Java's properties format.

Java reads them with Properties.load, where a backslash escapes, but writes them bare
(MixAll.properties2String), in UTF-8. Written here, only what would be misread is escaped, so that
readers which know no escapes also get most values right: `127.0.0.1:9876` stays what it is.
"""

import re
from collections.abc import Mapping
from typing import Final

from rocketpipe.errors import MalformedBody

_ENTRY: Final = re.compile(
    r"""[ \t\f\r\n]*+(?:
        [#!][^\r\n]*+
      | (?P<key>(?:[^\\=:\ \t\f\r\n]|\\(?:\r\n|.|\Z))*+)
        [ \t\f]*+[=:]?+[ \t\f]*+
        (?P<value>(?:[^\\\r\n]|\\(?:\r\n|.|\Z))*+)
    )""",
    re.VERBOSE | re.DOTALL,
)
# A backslash before the end of a line joins it to the next, without the blanks that begin that one.
# `\u` without four digits is no escape: Java refuses it in what it reads, and writes it bare.
_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(?:\r\n|\r|\n|\Z)[ \t\f]*+|([^u]))", re.DOTALL)
_ESCAPED: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_KEY_UNSAFE: Final = re.compile(r"[\\=: \t\f\r\n]|^[#!]|[^ -~]")
_VALUE_UNSAFE: Final = re.compile(r"[\\\t\f\r\n]|^ |[^ -~]")
_ESCAPES: Final = {char: "\\" + letter for letter, char in _ESCAPED.items()}


def parse_config(text: bytes) -> dict[str, str]:
    """The settings in a text; of a key given twice, the last."""
    try:
        entries = _ENTRY.finditer(text.decode("utf-8"))
        return {
            _unescaped(entry["key"]): _unescaped(entry["value"])
            for entry in entries
            if entry["key"]
        }
    except UnicodeError as error:
        raise MalformedBody(f"settings that are not text: {error}") from error


def format_config(settings: Mapping[str, str]) -> bytes:
    """The text of settings, one per line."""
    lines = (
        f"{_KEY_UNSAFE.sub(_escape, key)}={_VALUE_UNSAFE.sub(_escape, value)}\n"
        for key, value in settings.items()
    )
    return "".join(lines).encode("ascii")


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    plain = _ESCAPE.sub(_unescape, text)
    # Java strings are UTF-16: two escapes may be the halves of one character.
    return plain.encode("utf-16-le", "surrogatepass").decode("utf-16-le")


def _unescape(escape: re.Match[str]) -> str:
    if escape[1]:
        return chr(int(escape[1], 16))
    return _ESCAPED.get(escape[2], escape[2]) if escape[2] else ""


def _escape(unsafe: re.Match[str]) -> str:
    char = unsafe[0]
    if char in _ESCAPES:
        return _ESCAPES[char]
    if " " <= char <= "~":
        return "\\" + char
    units = char.encode("utf-16-be").hex()
    return "".join(f"\\u{units[i : i + 4]}" for i in range(0, len(units), 4))
