"""Bodies of Avro, one datum each without a header, read with fastavro in Spark's Python workers.

Spark's own `from_avro` is in a jar that PySpark does not bring along; fastavro is a wheel.
"""

import io
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as t

from rocketpipe.errors import InvalidSetting, JobError

DECIMAL_DIGITS_MAX = 38

Convert = Callable[[Any], Any]


def _same(value: Any) -> Any:
    return value


class Kind(NamedTuple):
    """A type of Avro's in Spark and in Arrow, and what makes of fastavro's values Arrow's."""

    spark: t.DataType
    arrow: pa.DataType
    convert: Convert = _same


_BINARY, _TEXT = Kind(t.BinaryType(), pa.binary()), Kind(t.StringType(), pa.string())
_MOMENT = Kind(t.TimestampType(), pa.timestamp("us", tz="UTC"))
_LOCAL_TIME = Kind(t.TimestampNTZType(), pa.timestamp("us"))
_PRIMITIVES: dict[str, Kind] = {
    "boolean": Kind(t.BooleanType(), pa.bool_()),
    "int": Kind(t.IntegerType(), pa.int32()),
    "long": Kind(t.LongType(), pa.int64()),
    "float": Kind(t.FloatType(), pa.float32()),
    "double": Kind(t.DoubleType(), pa.float64()),
    "bytes": _BINARY,
    "fixed": _BINARY,
    "string": _TEXT,
    "enum": _TEXT,
}
_LOGICAL: dict[tuple[str, str], Kind] = {
    ("int", "date"): Kind(t.DateType(), pa.date32()),
    ("long", "timestamp-millis"): _MOMENT,
    ("long", "timestamp-micros"): _MOMENT,
    ("long", "local-timestamp-millis"): _LOCAL_TIME,
    ("long", "local-timestamp-micros"): _LOCAL_TIME,
    ("string", "uuid"): Kind(t.StringType(), pa.string(), str),
}


def parse_avro(frame: DataFrame, schema: str) -> DataFrame:
    """With a column `value`, and `reason`: null, or why a body can't be read by this schema."""
    kind = avro_kind(schema).spark
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
        self._kind = avro_kind(schema)
        self._schema = parsed_schema(schema)

    def read(self, bodies: pa.BinaryArray) -> tuple[pa.Array, pa.Array]:
        """A value or a reason for each."""
        values, reasons = [], []
        for body in bodies:
            value, reason = self._read(body.as_py())
            values.append(value)
            reasons.append(reason)
        return pa.array(values, self._kind.arrow), pa.array(reasons, pa.string())

    def _read(self, body: bytes) -> tuple[Any, str | None]:
        from fastavro import schemaless_reader

        stream = io.BytesIO(body)
        try:
            value = self._kind.convert(schemaless_reader(stream, self._schema, None))
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


def avro_kind(text: str) -> Kind:
    """What a record becomes; InvalidSetting for anything else."""
    kind = _Kinds().of(parsed_schema(text))
    if not isinstance(kind.spark, t.StructType):
        raise InvalidSetting(f"schema is of {kind.spark.simpleString()}: it must be of a record")
    return kind


class _Kinds:
    """Translates one schema, whose named types may be used again."""

    def __init__(self) -> None:
        self._named: dict[str, Kind | None] = {}

    def of(self, schema: Any) -> Kind:
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
            return _array(self.of(schema["items"]))
        if name == "map":
            return _map(self.of(schema["values"]))
        found = _scalar(name, schema)
        if "name" in schema:
            self._named[schema["name"]] = found
        return found

    def _record(self, schema: Mapping[str, Any]) -> Kind:
        name = schema["name"]
        self._named[name] = None
        fields = {each["name"]: self.of(each["type"]) for each in schema["fields"]}

        def convert(value: Mapping[str, Any]) -> dict[str, Any]:
            return {field: kind.convert(value[field]) for field, kind in fields.items()}

        made = self._named[name] = Kind(
            t.StructType([t.StructField(field, kind.spark) for field, kind in fields.items()]),
            pa.struct([(field, kind.arrow) for field, kind in fields.items()]),
            convert,
        )
        return made

    def _union(self, members: list[Any]) -> Kind:
        others = [each for each in members if each not in ("null", {"type": "null"})]
        if len(others) != 1:
            raise InvalidSetting(
                "schema: a union of several types has no type in Spark's tables; one of null and "
                "another has"
            )
        kind = self.of(others[0])
        return kind._replace(convert=lambda value: None if value is None else kind.convert(value))


def _array(kind: Kind) -> Kind:
    return Kind(
        t.ArrayType(kind.spark),
        pa.list_(kind.arrow),
        lambda values: [kind.convert(each) for each in values],
    )


def _map(kind: Kind) -> Kind:
    return Kind(
        t.MapType(t.StringType(), kind.spark),
        pa.map_(pa.string(), kind.arrow),
        lambda values: [(key, kind.convert(value)) for key, value in values.items()],
    )


def _scalar(name: str, schema: Mapping[str, Any]) -> Kind:
    logical = str(schema.get("logicalType", ""))
    if (name, logical) in _LOGICAL:
        return _LOGICAL[name, logical]
    if logical == "decimal":
        precision, scale = int(schema["precision"]), int(schema.get("scale", 0))
        if precision > DECIMAL_DIGITS_MAX:
            raise InvalidSetting(f"schema: a decimal of {precision} digits has no type in Spark")
        return Kind(t.DecimalType(precision, scale), pa.decimal128(precision, scale))
    if logical.startswith("time-") or name not in _PRIMITIVES:
        raise InvalidSetting(f"schema: {logical or name} has no type in Spark's tables")
    return _PRIMITIVES[name]
