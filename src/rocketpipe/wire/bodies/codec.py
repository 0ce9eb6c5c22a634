"""How a body and its JSON become each other, worked out once per class from its annotations.

A body is a frozen dataclass. Its members' names on the wire are the fields' names in camelCase; an
exception is spelled out: `client_id: Annotated[str, "clientID"]`. An annotation may be:

    str int float bool      as they are; a float may come as a whole number
    an Enum                 by its value: a name for a StrEnum, a number for an IntFlag
    tuple[X, ...]           a Java list, or a set of objects, whose order then means nothing
    frozenset[X]            a Java set of what can be sorted, and is, for one text per value
    dict[K, X]              a Java map; K may be str, int or a dataclass (see fastjson)
    a dataclass             an object; members we don't know are ignored
    object                  any JSON, kept as it is
    X | None                left out when None

A member that is missing or null takes the field's default; a field without one is required.
"""

import dataclasses
import re
import types
from collections.abc import Callable
from enum import Enum, IntFlag
from functools import cache
from typing import Annotated, Any, NamedTuple, Self, cast, get_args, get_origin, get_type_hints

from rocketpipe.errors import MalformedBody
from rocketpipe.wire.fastjson import dumps, loads
from rocketpipe.wire.frame import RemotingCommand
from rocketpipe.wire.naming import wire_name


class Body:
    """A value that travels as one JSON object. Subclasses are frozen dataclasses."""

    __slots__ = ()

    @classmethod
    def decode(cls, body: bytes) -> Self:
        """Read a command's body, or raise MalformedBody naming the member that is wrong."""
        return cls.from_json(loads(body))

    def encode(self, *, standard: bool = False) -> bytes:
        """Write it as Java does; `standard` as `fastjson.dumps` has it."""
        return dumps(self.to_json(), standard=standard)

    @classmethod
    def from_answer(cls, answer: RemotingCommand) -> Self:
        return cls.decode(answer.body)

    @classmethod
    def from_json(cls, value: object) -> Self:
        return cast("Self", _codec(cast("Any", cls)).read(value))

    def to_json(self) -> dict[str, object]:
        return cast("dict[str, object]", _codec(cast("Any", type(self))).write(self))


class _Codec(NamedTuple):
    read: Callable[[Any], Any]
    write: Callable[[Any], Any]


class _Member(NamedTuple):
    java_name: str
    name: str
    codec: _Codec
    is_required: bool


@cache
def _codec(hint: Any) -> _Codec:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _codec(arguments[0])
    if origin is types.UnionType:
        (inner,) = (argument for argument in arguments if argument is not types.NoneType)
        return _codec(inner)  # None itself never comes here: it is a missing member
    if origin is tuple:
        return _sequence_codec(tuple, tuple, arguments[0])
    if origin is frozenset:
        return _sequence_codec(frozenset, sorted, arguments[0])
    if origin is dict:
        return _map_codec(*arguments)
    if dataclasses.is_dataclass(hint):
        return _object_codec(cast("type", hint))
    if hint is object:
        return _Codec(_unchanged, _unchanged)
    if issubclass(hint, Enum):
        return _enum_codec(hint)
    return _scalar_codec(hint)


def _object_codec(cls: type) -> _Codec:
    # Java writes an object's members in alphabetical order.
    members = sorted(_members(cls))

    def read(value: object) -> object:
        _check(value, dict)
        arguments = {}
        for java_name, name, codec, is_required in members:
            member = cast("dict[object, object]", value).get(java_name)
            if member is not None:
                try:
                    arguments[name] = codec.read(member)
                except MalformedBody as error:
                    raise MalformedBody(f"{cls.__name__}.{java_name}: {error}") from None
            elif is_required:
                raise MalformedBody(f"{cls.__name__}.{java_name} is missing")
        return cls(**arguments)

    def write(body: object) -> dict[str, object]:
        return {
            java_name: codec.write(value)
            for java_name, name, codec, _ in members
            if (value := getattr(body, name)) is not None
        }

    return _Codec(read, write)


def _members(cls: Any) -> list[_Member]:
    hints = get_type_hints(cls, include_extras=True)
    return [
        _Member(
            wire_name(field.name, hints[field.name]),
            field.name,
            _codec(hints[field.name]),
            field.default is field.default_factory is dataclasses.MISSING,
        )
        for field in dataclasses.fields(cls)
    ]


def _sequence_codec(
    made: Callable[[Any], Any], ordered: Callable[[Any], Any], item_hint: Any
) -> _Codec:
    item = _codec(item_hint)

    def read(value: object) -> object:
        _check(value, list)
        return made(map(item.read, cast("list[object]", value)))

    return _Codec(read, lambda value: [item.write(each) for each in ordered(value)])


def _map_codec(key_hint: Any, value_hint: Any) -> _Codec:
    key, item = _key_codec(key_hint), _codec(value_hint)

    def read(value: object) -> object:
        _check(value, dict)
        members = cast("dict[object, object]", value).items()
        return {key.read(name): item.read(member) for name, member in members}

    return _Codec(
        read, lambda value: {key.write(name): item.write(each) for name, each in value.items()}
    )


def _key_codec(hint: Any) -> _Codec:
    key = _codec(hint)
    if hint is int:
        return _Codec(_read_integer_key, key.write)
    if dataclasses.is_dataclass(hint):
        return _Codec(
            lambda items: key.read(dict(_check(items, frozenset))),
            lambda value: frozenset(key.write(value).items()),
        )
    return key


def _read_integer_key(key: object) -> int:
    """A number, in quotes or not: the same Java map is written either way."""
    if isinstance(key, str) and re.fullmatch("-?[0-9]{1,19}", key):
        return int(key)
    return cast("int", _check(key, int))


def _enum_codec(enum: type[Enum]) -> _Codec:
    kind = int if issubclass(enum, IntFlag) else str

    def read(value: object) -> Enum:
        try:
            return enum(_check(value, kind))
        except ValueError:
            raise MalformedBody(f"{value!r:.40} is no {enum.__name__}") from None

    return _Codec(read, lambda member: member.value)


def _scalar_codec(kind: type) -> _Codec:
    if kind is float:
        return _Codec(_read_float, _unchanged)
    if kind in (str, int, bool):
        return _Codec(lambda value: _check(value, kind), _unchanged)
    raise TypeError(f"{kind} has no JSON form")


def _read_float(value: object) -> float:
    return float(cast("float", value if type(value) is int else _check(value, float)))


def _check(value: Any, kind: type) -> Any:
    if type(value) is not kind:  # exactly: a bool is no number
        raise MalformedBody(f"expected {kind.__name__}, got {type(value).__name__}")
    return value


def _unchanged(value: object) -> object:
    return value
