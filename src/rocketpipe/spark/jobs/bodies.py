"""What `archive` makes of a body: binary, text, JSON or Avro; and why it can't, where it can't.

A schema is text: Spark's DDL (`id BIGINT, amount DOUBLE`), Spark's own JSON of a schema, or, for
Avro, an Avro schema. It is settled before the first message is read, given or inferred, and kept
with the table: a schema that changed with each start would make of one table several.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.types import BooleanType, DataType, StringType, StructField, StructType

from rocketpipe.errors import InvalidSetting, JobError
from rocketpipe.spark.jobs.failures import one_line
from rocketpipe.spark.read_options import STREAM_ONLY

BINARY, TEXT, JSON, AVRO = "binary", "text", "json", "avro"
KINDS = (BINARY, TEXT, JSON, AVRO)
SAMPLE_PER_QUEUE = 200  # messages that a schema is inferred from

REASON = "reason"
_PARSED, _CORRUPT, _INSIDE, _END = "_parsed", "_corrupt", "_inside", "_end"


@dataclass(frozen=True)
class BodyKind:
    """How bodies are read; `schema` is text, as the table keeps it."""

    name: str
    schema: str | None = None

    @property
    def column(self) -> str:
        """The column that a body becomes."""
        return {BINARY: "body", TEXT: "text"}.get(self.name, "value")

    def parse(self, frame: DataFrame) -> DataFrame:
        """With the column, and `reason`: null, or why the body can't be read so."""
        if self.name == BINARY:
            return frame.withColumn(REASON, fn.lit(None).cast("string"))
        if self.name == TEXT:
            return frame.withColumn("text", fn.col("body").cast("string")).withColumn(
                REASON, fn.when(~fn.is_valid_utf8(fn.col("text")), fn.lit(NOT_UTF8))
            )
        assert self.schema is not None
        if self.name == AVRO:
            from rocketpipe.spark.jobs.avro_bodies import parse_avro

            return parse_avro(frame, self.schema)
        return _parse_json(frame, spark_schema(self.schema))


NOT_UTF8 = "the body is not UTF-8"


def _parse_json(frame: DataFrame, schema: StructType) -> DataFrame:
    # Spark reads one JSON value and no further: of `{...} {...}` it would take the first without a
    # word. So the body is put in the middle of an object, whose end is only found if nothing but
    # one value stands there.
    text = fn.col("body").cast("string")
    around = fn.concat(fn.lit(f'{{"{_INSIDE}": '), text, fn.lit(f', "{_END}": true}}'))
    inside = StructType(
        [
            StructField(_INSIDE, schema),
            StructField(_END, BooleanType()),
            StructField(_CORRUPT, StringType()),
        ]
    )
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    parsed = fn.col(_PARSED)
    is_bad = (
        ~fn.is_valid_utf8(text)
        | parsed[_INSIDE].isNull()
        | parsed[_END].isNull()
        | parsed[_CORRUPT].isNotNull()
    )
    told = schema.json()
    # Python looks only at those that are bad.
    why = fn.udf(
        lambda body: reason(bytes(body), StructType.fromJson(json.loads(told))),
        "string",
        useArrow=False,  # which would want pandas, for a few rows
    )
    return (
        frame.withColumn(_PARSED, fn.from_json(around, inside, options))
        .withColumn(REASON, fn.when(is_bad, why("body")))
        .withColumn("value", parsed[_INSIDE])
        .drop(_PARSED)
    )


def reason(body: bytes, schema: StructType) -> str:
    """Why a body that Spark can't read is not JSON of this schema."""
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        return f"{NOT_UTF8}: byte {error.start}"
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        return f"not JSON: {error}"
    if not isinstance(value, dict):
        return f"not a JSON object, but {_kind(value)}"
    for field in schema.fields:
        found = value.get(field.name)
        if found is not None and not _fits(found, field.dataType):
            return f"field {field.name!r} is {_kind(found)}, not {field.dataType.simpleString()}"
    return f"does not fit the schema {schema.simpleString()}"


def _fits(value: Any, kind: DataType) -> bool:
    """Whether JSON of this kind may be of that type; what is deeper nobody asks."""
    name = kind.typeName()
    if name in ("byte", "short", "integer", "long"):
        return isinstance(value, int) and not isinstance(value, bool)
    if name in ("float", "double", "decimal"):
        return isinstance(value, int | float) and not isinstance(value, bool)
    expected = {"boolean": bool, "struct": dict, "map": dict, "array": list}.get(name)
    if expected is not None:
        return isinstance(value, expected)
    return name == "string"  # of dates and times no text says whether it is one


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "a text", bool: "a truth value"}
    return "null" if value is None else names.get(type(value), "a number")


# Schemas.


def spark_schema(text: str) -> StructType:
    """InvalidSetting unless it is DDL, or Spark's JSON of a struct."""
    try:
        if text.lstrip().startswith("{"):
            schema: Any = StructType.fromJson(json.loads(text))
        else:
            schema = StructType.fromDDL(text)
    except (PySparkException, ValueError, KeyError, TypeError, AssertionError) as error:
        why = one_line(error)
        raise InvalidSetting(
            f"schema {text!r:.200} is neither DDL nor Spark's JSON: {why}"
        ) from None
    if not isinstance(schema, StructType) or not schema.fields:
        raise InvalidSetting(f"schema {text!r:.200} has no fields: write 'id BIGINT, name STRING'")
    return _all_nullable(schema)


def _all_nullable(schema: StructType) -> StructType:
    """JSON may leave out any field, and Spark would trust that it does not."""
    return StructType([StructField(each.name, each.dataType) for each in schema.fields])


def inferred_schema(spark: SparkSession, source: dict[str, str]) -> str:
    """Spark's JSON of a schema that the first messages of each queue fit; JobError if none do."""
    options = {
        name: value
        for name, value in source.items()
        if name.lower() not in _OF_STREAMS and not name.lower().startswith("starting")
    }
    frame = spark.read.format("rocketmq").options(**options).schema("body binary").load()
    bodies = frame.rdd.mapPartitions(_first_bodies).collect()
    if not bodies:
        raise JobError("there is no message yet to infer a schema from: give a schema")
    texts = spark.sparkContext.parallelize(bodies, 1)
    found = spark.read.option("columnNameOfCorruptRecord", _CORRUPT).json(texts).schema
    fields = [field for field in found.fields if field.name != _CORRUPT]
    if not fields:
        raise JobError(
            f"none of the first {len(bodies)} bodies is a JSON object: give a schema, or archive "
            "them as text or binary"
        )
    return StructType(fields).json()


_OF_STREAMS = frozenset(name.lower() for name in (*STREAM_ONLY, "group"))


def _first_bodies(rows: Iterable[Any]) -> Iterator[str]:
    return (bytes(row.body).decode(errors="replace") for row in islice(rows, SAMPLE_PER_QUEUE))
