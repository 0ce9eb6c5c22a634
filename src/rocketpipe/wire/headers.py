"""How a command's own fields are declared, written and read: once, for both ends.

A request names its code and its reply, so one generic `request()` in the client serves every
command and one table in the broker dispatches them all. The requests themselves are in
`requests/`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, fields
from functools import partial
from typing import (
    Annotated,
    Any,
    ClassVar,
    Generic,
    NamedTuple,
    Protocol,
    Self,
    TypeVar,
    get_args,
    get_type_hints,
)

from rocketpipe.codes import RequestCode, ResponseCode
from rocketpipe.errors import MalformedHeader
from rocketpipe.lazy_dataclass import dataclass
from rocketpipe.wire.frame import RemotingCommand
from rocketpipe.wire.java_text import read_bool, read_integer, write_bool
from rocketpipe.wire.naming import wire_name

Long = Annotated[int, 64]  # Java's long; a plain int is Java's int, of 32 bits


class Header:
    """The fields of a command. Subclasses are frozen, keyword-only dataclasses of str, int, Long
    and bool. A field with a default may be missing; `None` is left out when written."""

    __slots__ = ()

    # The other spelling of some fields: SEND_MESSAGE_V2 and its kin name them by single letters.
    short_names: ClassVar[Mapping[str, str]] = {}

    def to_ext_fields(self) -> dict[str, str]:
        return _codec(type(self)).write(self)

    @classmethod
    def ext_fields_of(cls, **values: Any) -> dict[str, str]:
        """What `to_ext_fields` of a header with these values gives, at half the price of making
        one; those it can't be made without must be given."""
        return _codec(cls).write_values(**values)

    @classmethod
    def from_ext_fields(cls, ext_fields: Mapping[str, str]) -> Self:
        """Read the fields; those we do not know are ignored, as Java does."""
        header: Self = _codec(cls).read(ext_fields)
        return header

    @classmethod
    def from_answer(cls, answer: RemotingCommand) -> Self:
        return cls.from_ext_fields(answer.ext_fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class Done(Header):
    """An answer that says nothing but that it was done."""


class RawBody(bytes):
    """An answer whose body is not JSON: stored messages, or text."""

    @classmethod
    def from_answer(cls, answer: RemotingCommand) -> Self:
        return cls(answer.body)


class Reply(Protocol):
    """What an answer holds: a header's fields, or a body."""

    @classmethod
    def from_answer(cls, answer: RemotingCommand) -> Self: ...


R_co = TypeVar("R_co", bound=Reply, covariant=True)


class Request(Header, Generic[R_co]):
    """A header that asks for something."""

    __slots__ = ()

    code: RequestCode
    reply: type[R_co]
    # The codes that are an answer and not a refusal.
    accepts: ClassVar[frozenset[int]] = frozenset({ResponseCode.SUCCESS})

    def to_command(self, body: bytes = b"") -> RemotingCommand:
        return RemotingCommand(self.code, self.to_ext_fields(), body)


class _Slot(NamedTuple):
    attribute: str
    name: str
    write: Callable[[Any], str]
    read: Callable[[str], Any]
    default: Any

    @property
    def is_required(self) -> bool:
        return self.default is MISSING

    @property
    def is_integer(self) -> bool:
        return self.read in (_read_int, _read_long)


class _Codec(NamedTuple):
    write: Callable[[Any], dict[str, str]]
    write_values: Callable[..., dict[str, str]]
    read: Callable[[Mapping[str, str]], Any]


_codecs: dict[type, _Codec] = {}


def _codec(header: type[Header]) -> _Codec:
    codec = _codecs.get(header)
    if codec is None:
        codec = _codecs[header] = _compile(header, _slots(header))
    return codec


def _slots(header: type[Header]) -> tuple[_Slot, ...]:
    """How each field of a header is written and read, worked out from its declaration."""
    hints = get_type_hints(header, include_extras=True)
    declared = fields(header)  # type: ignore[arg-type]  # only its subclasses are dataclasses
    return tuple(_slot(header, each, hints[each.name]) for each in declared)


def _slot(header: type[Header], declared: Field[Any], hint: Any) -> _Slot:
    name = header.short_names.get(declared.name) or wire_name(declared.name, hint)
    return _Slot(declared.name, name, *_KINDS[_kind(hint)], declared.default)


def _compile(header: type[Header], slots: Sequence[_Slot]) -> _Codec:
    """Functions for this very header, spelled out and compiled, as dataclasses make theirs.

    One header is written and one read for every message sent; a loop over the slots takes nearly
    twice as long.
    """
    scope: dict[str, Any] = {"header": header, "missing": _missing, "malformed": _malformed}
    write, read, values = ["ext_fields = {}"], ["get = ext_fields.get"], []
    for slot in slots:
        field, name = slot.attribute, slot.name
        scope |= {
            f"write_{field}": slot.write,
            f"read_{field}": slot.read,
            f"default_{field}": slot.default,
        }
        is_text = slot.write is str and slot.read is str
        write += (
            f"if {field} is not None:",
            f"    ext_fields[{name!r}] = " + (field if is_text else f"write_{field}({field})"),
        )
        values.append(field if slot.is_required else f"{field}=default_{field}")
        absent = f"{field} = default_{field}"
        if slot.is_required:
            absent = f"raise missing(header, {name!r})"
        read += (f"{field} = get({name!r})", f"if {field} is None:", f"    {absent}")
        if slot.is_integer:  # nearly all of them are short and plain: then no call is needed
            read += (
                f"elif len({field}) < 10 and {field}.isdigit() and {field}.isascii():",
                f"    {field} = int({field})",
            )
        if not is_text:
            read += (
                "else:",
                f"    try: {field} = read_{field}({field})",
                "    except ValueError as error:",
                f"        raise malformed(header, {name!r}, error) from None",
            )
    write.append("return ext_fields")
    given = ", ".join(f"{slot.attribute}={slot.attribute}" for slot in slots)
    read.append(f"return header({given})")
    lines = (
        "def write(self):",
        *(f"    {slot.attribute} = self.{slot.attribute}" for slot in slots),
        *(f"    {line}" for line in write),
        f"def write_values({', '.join(['*', *values] if values else [])}):",
        *(f"    {line}" for line in write),
        "def read(ext_fields):",
        *(f"    {line}" for line in read),
    )
    exec("\n".join(lines), scope)
    return _Codec(scope["write"], scope["write_values"], scope["read"])


def _missing(header: type[Header], name: str) -> MalformedHeader:
    return MalformedHeader(f"{header.__name__}: {name} is missing")


def _malformed(header: type[Header], name: str, error: ValueError) -> MalformedHeader:
    return MalformedHeader(f"{header.__name__}: {name} is {error}")


def _kind(hint: Any) -> Any:
    if hint in _KINDS:
        return hint
    inner = (part for part in get_args(hint) if part is not type(None))  # of Annotated or a union
    return _kind(next(inner))


_read_int, _read_long = partial(read_integer, bits=32), partial(read_integer, bits=64)

# Annotated types compare by their arguments, so they can be looked up like plain ones.
_KINDS: Mapping[Any, tuple[Callable[[Any], str], Callable[[str], Any]]] = {
    str: (str, str),
    int: (str, _read_int),
    Long: (str, _read_long),
    bool: (write_bool, read_bool),
}
