"""How a command's own fields are declared, written and read: once, for both ends.

A request names its code and its reply, so one generic `request()` in the client serves every
command and one table in the broker dispatches them all. The requests themselves are in
`requests/`.
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, fields
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
        ext_fields = {}
        for slot in _codec(type(self)):
            value = getattr(self, slot.attribute)
            if value is not None:
                ext_fields[slot.name] = slot.write(value)
        return ext_fields

    @classmethod
    def from_ext_fields(cls, ext_fields: Mapping[str, str]) -> Self:
        """Read the fields; those we do not know are ignored, as Java does."""
        values = {}
        for slot in _codec(cls):
            text = ext_fields.get(slot.name)
            if text is not None:
                try:
                    values[slot.attribute] = slot.read(text)
                except ValueError as error:
                    raise MalformedHeader(f"{cls.__name__}: {slot.name} is {error}") from None
            elif slot.is_required:
                raise MalformedHeader(f"{cls.__name__}: {slot.name} is missing")
        return cls(**values)

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
    is_required: bool


_codecs: dict[type, tuple[_Slot, ...]] = {}


def _codec(header: type[Header]) -> tuple[_Slot, ...]:
    """How each field of a header is written and read, worked out once from its declaration."""
    codec = _codecs.get(header)
    if codec is None:
        hints = get_type_hints(header, include_extras=True)
        declared = fields(header)  # type: ignore[arg-type]  # only its subclasses are dataclasses
        codec = tuple(_slot(header, each, hints[each.name]) for each in declared)
        _codecs[header] = codec
    return codec


def _slot(header: type[Header], declared: Field[Any], hint: Any) -> _Slot:
    name = header.short_names.get(declared.name) or wire_name(declared.name, hint)
    write, read = _KINDS[_kind(hint)]
    return _Slot(declared.name, name, write, read, is_required=declared.default is MISSING)


def _kind(hint: Any) -> Any:
    if hint in _KINDS:
        return hint
    inner = (part for part in get_args(hint) if part is not type(None))  # of Annotated or a union
    return _kind(next(inner))


# Annotated types compare by their arguments, so they can be looked up like plain ones.
_KINDS: Mapping[Any, tuple[Callable[[Any], str], Callable[[str], Any]]] = {
    str: (str, str),
    int: (str, partial(read_integer, bits=32)),
    Long: (str, partial(read_integer, bits=64)),
    bool: (write_bool, read_bool),
}
