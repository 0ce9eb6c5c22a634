"""Why a body can't be read, and what schemas may be."""

import pytest

from rocketpipe.errors import InvalidSetting
from rocketpipe.spark.jobs.bodies import reason, spark_schema

SCHEMA = spark_schema(
    '{"type":"struct","fields":['
    '{"name":"id","type":"long","nullable":false,"metadata":{}},'
    '{"name":"price","type":"double","nullable":true,"metadata":{}},'
    '{"name":"paid","type":"boolean","nullable":true,"metadata":{}},'
    '{"name":"lines","type":{"type":"array","elementType":"long","containsNull":true},'
    '"nullable":true,"metadata":{}}]}'
)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"\xff", "the body is not UTF-8: byte 0"),
        (b"{", "not JSON: Expecting property name enclosed in double quotes"),
        (b"[" * 100_000, "not JSON: maximum recursion depth exceeded while decoding a JSON array"),
        (b"3", "not a JSON object, but a number"),
        (b'"x"', "not a JSON object, but a text"),
        (b'{"id": true}', "field 'id' is a truth value, not bigint"),
        (b'{"id": 1.5}', "field 'id' is a number, not bigint"),
        (b'{"price": "x"}', "field 'price' is a text, not double"),
        (b'{"paid": 1}', "field 'paid' is a number, not boolean"),
        (b'{"lines": {}}', "field 'lines' is an object, not array<bigint>"),
        (
            b'{"lines": ["x"]}',
            "does not fit the schema "
            "struct<id:bigint,price:double,paid:boolean,lines:array<bigint>>",
        ),
    ],
)  # fmt: skip
def test_the_reason_names_what_does_not_fit(body: bytes, why: str) -> None:
    assert reason(body, SCHEMA).startswith(why)


def test_any_field_may_be_missing() -> None:
    assert all(field.nullable for field in SCHEMA.fields)


@pytest.mark.parametrize(
    "text", ['{"type":', '{"type":"long"}', '{"type":"struct","fields":[]}', "{}"]
)
def test_what_is_no_schema_is_refused(text: str) -> None:
    with pytest.raises(InvalidSetting, match="schema"):
        spark_schema(text)
