"""Which DataFrames can be written is known before anything runs."""

import pytest
from pyspark.sql.types import StructType

from rocketpipe.errors import InvalidSetting
from rocketpipe.spark.sink_columns import check_columns

EVERY = (
    "body binary, topic string, tags string, keys array<string>, properties map<string,string>, "
    "delayLevel int, deliverAt timestamp, shardingKey string, queueId int, brokerName string"
)


def check(ddl: str, *, has_topic: bool = True) -> None:
    # As Spark's parser would make it, which needs a JVM.
    fields = [
        {"name": name, "type": _type(kind), "nullable": True, "metadata": {}}
        for name, kind in (each.strip().split(" ", 1) for each in _split(ddl))
    ]
    check_columns(StructType.fromJson({"type": "struct", "fields": fields}), has_topic=has_topic)


def _split(ddl: str) -> list[str]:
    return ddl.replace("map<string,string>", "map").split(", ")


def _type(kind: str) -> object:
    text = "string"
    if kind == "map":
        return {"type": "map", "keyType": text, "valueType": text, "valueContainsNull": True}
    if kind.startswith("array<"):
        return {"type": "array", "elementType": kind[6:-1], "containsNull": True}
    return {"int": "integer", "bigint": "long", "smallint": "short"}.get(kind, kind)


@pytest.mark.parametrize(
    "ddl",
    [
        EVERY,
        "body string",
        "body binary, keys string",
        "body binary, delayLevel bigint, queueId smallint, brokerName string",
    ],
)
def test_these_can_be_written(ddl: str) -> None:
    check(ddl)


@pytest.mark.parametrize(
    ("ddl", "reason"),
    [
        ("value binary", "column 'value' can't be written: body, topic, tags"),
        ("Body binary", "column 'Body' can't be written"),
        ("body binary, offset bigint", "column 'offset'"),
        ("tags string", "no column 'body'"),
        ("body int", "column 'body' is int: it must be binary or a string"),
        (
            "body binary, keys array<integer>",
            "'keys' is array<int>: it must be an array of strings",
        ),
        ("body binary, tags binary", "'tags' is binary: it must be a string"),
        ("body binary, properties string", "'properties' is string: it must be a map"),
        ("body binary, delayLevel double", "it must be a whole number"),
        ("body binary, deliverAt date", "it must be a timestamp"),
        ("body binary, queueId int", "only together"),
        ("body binary, brokerName string", "only together"),
        ("body binary, body string", "a column is there twice"),
    ],
)
def test_these_cannot(ddl: str, reason: str) -> None:
    with pytest.raises(InvalidSetting) as caught:
        check(ddl)
    assert reason in str(caught.value)


def test_a_topic_is_an_option_or_a_column() -> None:
    check("body binary, topic string", has_topic=False)
    with pytest.raises(InvalidSetting, match="no topic: give the option topic, or a column"):
        check("body binary", has_topic=False)
