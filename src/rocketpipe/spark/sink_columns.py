"""Which columns can be written, and of which types: settled when a query is planned."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegralType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from rocketpipe.errors import InvalidSetting


def check_columns(schema: StructType, *, has_topic: bool) -> None:
    """InvalidSetting unless rows of this schema can become messages.

    `has_topic` says that an option names the topic of all of them.
    """
    for field in schema.fields:
        kind = COLUMNS.get(field.name)
        if kind is None:
            raise InvalidSetting(
                f"column {field.name!r} can't be written: {', '.join(COLUMNS)} can; "
                "select or rename the columns first"
            )
        if not kind.takes(field.dataType):
            found = field.dataType.simpleString()
            raise InvalidSetting(f"column {field.name!r} is {found}: it must be {kind.name}")
    names = schema.fieldNames()
    if len(set(names)) < len(names):
        raise InvalidSetting(f"a column is there twice: {', '.join(names)}")
    if "body" not in names:
        raise InvalidSetting("there is no column 'body': it is what messages are made of")
    if "topic" not in names and not has_topic:
        raise InvalidSetting("no topic: give the option topic, or a column 'topic'")
    if ("queueId" in names) != ("brokerName" in names):
        raise InvalidSetting("columns 'queueId' and 'brokerName' name a queue only together")


class _Kind(NamedTuple):
    name: str
    takes: Callable[[DataType], bool]


def _is_text(kind: DataType) -> bool:
    return isinstance(kind, StringType)


def _is_texts(kind: DataType) -> bool:
    return isinstance(kind, ArrayType) and _is_text(kind.elementType)


_TEXT = _Kind("a string", _is_text)
_WHOLE = _Kind("a whole number", lambda kind: isinstance(kind, IntegralType))

COLUMNS: Mapping[str, _Kind] = MappingProxyType(
    {
        "body": _Kind("binary or a string", lambda kind: isinstance(kind, BinaryType | StringType)),
        "topic": _TEXT,
        "tags": _TEXT,
        "keys": _Kind(
            "an array of strings, or a string", lambda kind: _is_text(kind) or _is_texts(kind)
        ),
        "properties": _Kind(
            "a map of strings to strings",
            lambda kind: (
                isinstance(kind, MapType) and _is_text(kind.keyType) and _is_text(kind.valueType)
            ),
        ),
        "delayLevel": _WHOLE,
        "deliverAt": _Kind("a timestamp", lambda kind: isinstance(kind, TimestampType)),
        "shardingKey": _TEXT,
        "queueId": _WHOLE,
        "brokerName": _TEXT,
    }
)
