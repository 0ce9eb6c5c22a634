"""Bodies of Avro, one datum each without a header, read with fastavro in Spark's Python workers.

Spark's own `from_avro` is in a jar that PySpark does not bring along; fastavro is a wheel.
"""

import io
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as t
from pyspark.sql.pandas.types import to_arrow_type

from rocketpipe.errors import InvalidSetting, JobError

Convert = Callable[[Any], Any]

_PRIMITIVES: dict[str, t.DataType] = {
    "boolean": t.BooleanType(),
    "int": t.IntegerType(),
    "long": t.LongType(),
    "float": t.FloatType(),
    "double": t.DoubleType(),
    "bytes": t.BinaryType(),
    "fixed": t.BinaryType(),
    "string": t.StringType(),
    "enum": t.StringType(),
}
_LOGICAL: dict[tuple[str, str], t.DataType] = {
    ("int", "date"): t.DateType(),
    ("long", "timestamp-millis"): t.TimestampType(),
    ("long", "timestamp-micros"): t.TimestampType(),
    ("long", "local-timestamp-millis"): t.TimestampNTZType(),
    ("long", "local-timestamp-micros"): t.TimestampNTZType(),
}


def parse_avro(frame: DataFrame, schema: str) -> DataFrame:
    """With a column `value`, and `reason`: null, or why a body can't be read by this schema."""
    kind, _ = avro_type(schema)
    columns = t.StructType(
        [
            *frame.schema.fields,
            t.StructField("value", kind),
            t.StructField("reason", t.StringType()),
        ]
    )

    def parse(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        reader = Reader(schema)
        for batch in batches:
            values, reasons = reader.read(batch.column("body"))
            names = [*batch.schema.names, "value", "reason"]
            yield pa.RecordBatch.from_arrays([*batch.columns, values, reasons], names)

    return frame.mapInArrow(parse, columns)


class Reader:
    """Reads columns of bodies."""

    def __init__(self, schema: str) -> None:
        kind, self._convert = avro_type(schema)
        self._type = to_arrow_type(kind)
        self._schema = parsed_schema(schema)

    def read(self, bodies: pa.BinaryArray) -> tuple[pa.Array, pa.Array]:
        """A value or a reason for each."""
        values, reasons = [], []
        for body in bodies:
            value, reason = self._read(body.as_py())
            values.append(value)
            reasons.append(reason)
        return pa.array(values, self._type), pa.array(reasons, pa.string())

    def _read(self, body: bytes) -> tuple[Any, str | None]:
        from fastavro import schemaless_reader

        stream = io.BytesIO(body)
        try:
            value = self._convert(schemaless_reader(stream, self._schema, None))
        except Exception as error:  # fastavro raises whatever the bytes lead it to
            return None, f"not Avro of this schema: {type(error).__name__} {error}".rstrip()
        if left := len(body) - stream.tell():
            return None, f"not Avro of this schema: {left} bytes are left at the end"
        return value, None


def parsed_schema(text: str) -> Any:
    """JobError without fastavro, InvalidSetting for what is no schema."""
    try:
        from fastavro import parse_schema
    except ImportError:
        raise JobError("bodies of Avro need fastavro: pip install 'rocketpipe[avro]'") from None
    try:
        return parse_schema(json.loads(text))
    except Exception as error:  # of JSON, and all that fastavro has
        why = str(error) or type(error).__name__
        raise InvalidSetting(f"schema is no Avro schema: {why}") from None


def avro_type(text: str) -> tuple[t.DataType, Convert]:
    """The type in Spark of a record, and what makes of fastavro's values those that Arrow takes."""
    kind, convert = _Types().of(parsed_schema(text))
    if not isinstance(kind, t.StructType):
        raise InvalidSetting(f"schema is of {kind.simpleString()}: it must be of a record")
    return kind, convert


class _Types:
    """Translates one schema, whose named types may be used again."""

    def __init__(self) -> None:
        self._named: dict[str, tuple[t.DataType, Convert] | None] = {}

    def of(self, schema: Any) -> tuple[t.DataType, Convert]:
        if isinstance(schema, list):
            return self._union(schema)
        if isinstance(schema, str):
            schema = {"type": schema}
        name = schema["type"]
        if not isinstance(name, str):
            return self.of(name)
        if name in self._named:
            known = self._named[name]
            if known is None:
                raise InvalidSetting(f"schema: {name!r} contains itself, which no table can")
            return known
        if name == "record":
            return self._record(schema)
        if name == "array":
            kind, convert = self.of(schema["items"])
            return t.ArrayType(kind), lambda values: [convert(each) for each in values]
        if name == "map":
            kind, convert = self.of(schema["values"])
            return t.MapType(t.StringType(), kind), lambda values: [
                (key, convert(value)) for key, value in values.items()
            ]
        found = self._scalar(name, schema)
        if "name" in schema:
            self._named[schema["name"]] = found
        return found

    def _scalar(self, name: str, schema: Mapping[str, Any]) -> tuple[t.DataType, Convert]:
        logical = schema.get("logicalType")
        if (name, logical) in _LOGICAL:
            return _LOGICAL[name, str(logical)], _same
        if logical == "decimal":
            return t.DecimalType(int(schema["precision"]), int(schema.get("scale", 0))), _same
        if logical == "uuid":
            return t.StringType(), str
        if (logical is not None and logical.startswith("time-")) or name not in _PRIMITIVES:
            raise InvalidSetting(f"schema: {logical or name} has no type in Spark's tables")
        return _PRIMITIVES[name], _same

    def _record(self, schema: Mapping[str, Any]) -> tuple[t.DataType, Convert]:
        name = schema["name"]
        self._named[name] = None
        fields = {each["name"]: self.of(each["type"]) for each in schema["fields"]}
        kind = t.StructType([t.StructField(field, each) for field, (each, _) in fields.items()])

        def convert(value: Mapping[str, Any]) -> dict[str, Any]:
            return {field: make(value[field]) for field, (_, make) in fields.items()}

        self._named[name] = kind, convert
        return kind, convert

    def _union(self, members: list[Any]) -> tuple[t.DataType, Convert]:
        others = [each for each in members if each != "null" and each != {"type": "null"}]
        if len(others) != 1:
            raise InvalidSetting(
                "schema: a union of several types has no type in Spark's tables; one of null and "
                "another has"
            )
        kind, convert = self.of(others[0])
        return kind, lambda value: None if value is None else convert(value)


def _same(value: Any) -> Any:
    return value
