"""Bodies of Avro: values as fastavro reads them, types as Spark has them."""

import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from fastavro import parse_schema, schemaless_writer

from rocketpipe.errors import InvalidSetting
from rocketpipe.spark.jobs.avro_bodies import Reader, avro_kind


def record(*fields: Any) -> str:
    named = [{"name": f"f{n}", "type": each} for n, each in enumerate(fields)]
    return json.dumps({"type": "record", "name": "r", "fields": named})


def written(schema: str, value: dict[str, Any]) -> bytes:
    stream = io.BytesIO()
    schemaless_writer(stream, parse_schema(json.loads(schema)), value)
    return stream.getvalue()


INNER = {"type": "record", "name": "inner", "fields": [{"name": "x", "type": "int"}]}
KINDS = [
    ("boolean", True, "boolean", True),
    ("int", 1, "int", 1),
    ("long", 1 << 40, "bigint", 1 << 40),
    ("double", 1.5, "double", 1.5),
    ("bytes", b"\x00", "binary", b"\x00"),
    ("string", "ü", "string", "ü"),
    (["null", "string"], None, "string", None),
    ({"type": "enum", "name": "e", "symbols": ["A", "B"]}, "B", "string", "B"),
    ({"type": "fixed", "name": "x", "size": 2}, b"ab", "binary", b"ab"),
    ({"type": "array", "items": "int"}, [1, 2], "array<int>", [1, 2]),
    ({"type": "map", "values": "long"}, {"a": 1}, "map<string,bigint>", [("a", 1)]),
    (INNER, {"x": 1}, "struct<x:int>", {"x": 1}),
    ({"type": "int", "logicalType": "date"}, date(2026, 1, 2), "date", date(2026, 1, 2)),
    (
        {"type": "long", "logicalType": "timestamp-millis"},
        datetime(2026, 1, 2, tzinfo=UTC),
        "timestamp",
        datetime(2026, 1, 2, tzinfo=UTC),
    ),
    (
        {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2},
        Decimal("1.25"),
        "decimal(6,2)",
        Decimal("1.25"),
    ),
    (
        {"type": "string", "logicalType": "uuid"},
        UUID(int=5),
        "string",
        "00000000-0000-0000-0000-000000000005",
    ),
]


@pytest.mark.parametrize(("avro", "value", "kind", "read"), KINDS, ids=lambda each: str(each)[:30])
def test_each_type_has_its_own(avro: Any, value: Any, kind: str, read: Any) -> None:
    schema = record(avro)
    assert avro_kind(schema).spark.simpleString() == f"struct<f0:{kind}>"
    values, reasons = Reader(schema).read(pa.array([written(schema, {"f0": value})]))
    assert (values.to_pylist(), reasons.to_pylist()) == ([{"f0": read}], [None])


def test_what_is_not_one_datum_has_a_reason() -> None:
    schema = record("string", "long")
    good = written(schema, {"f0": "abc", "f1": 5})
    values, reasons = Reader(schema).read(pa.array([good, good[:-1], good + b"\x00", b""]))
    assert [value is None for value in values.to_pylist()] == [False, True, True, True]
    assert reasons[0].as_py() is None
    assert "1 bytes are left" in reasons[2].as_py()
    assert all("not Avro of this schema" in each.as_py() for each in list(reasons)[1:])


def test_a_named_type_can_be_used_again_but_not_in_itself() -> None:
    assert avro_kind(record(INNER, "inner")).spark.simpleString() == (
        "struct<f0:struct<x:int>,f1:struct<x:int>>"
    )
    with pytest.raises(InvalidSetting, match="contains itself"):
        avro_kind(record(["null", "r"]))


@pytest.mark.parametrize(
    "schema",
    [
        "",
        "{}",
        '"string"',
        record(["int", "string"]),
        record({"type": "int", "logicalType": "time-millis"}),
    ],
)
def test_what_no_table_can_hold_is_refused(schema: str) -> None:
    with pytest.raises(InvalidSetting, match="schema"):
        avro_kind(schema)
