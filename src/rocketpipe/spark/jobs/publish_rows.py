"""Rows of files as messages, and what each is known by.

A row is known by its file, the block of the file that Spark reads in one go, and its number there;
so it has the same message id in every run of a job. Blocks are cut at multiples of BLOCK_BYTES,
whatever the cluster and whichever files are read together (see `_fix_blocks`).
"""

import hashlib
import re
from typing import TYPE_CHECKING
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.types import StringType, StructField, StructType

from rocketpipe.errors import InvalidSetting, JobError
from rocketpipe.spark.jobs.bodies import spark_schema
from rocketpipe.spark.jobs.row_sending import NAME, PROBLEM, ROW, UNIT

if TYPE_CHECKING:
    from rocketpipe.spark.jobs.publish import PublishSettings

FORMATS = ("parquet", "csv", "json")
BLOCK_BYTES = 16 << 20

_JOB_DIGITS, _FILE_DIGITS, _BLOCK_DIGITS = 10, 5, 5  # of a unit's 20
_PATH, _START, _CORRUPT = "_path", "_start", "_corrupt_record"


def job_digits(job_id: str) -> str:
    """What all message ids of a job begin with."""
    return hashlib.sha256(job_id.encode()).hexdigest()[:_JOB_DIGITS].upper()


class Numbering:
    """Gives rows their units and numbers, in a task."""

    def __init__(self, begins: str, paths: list[str]) -> None:
        self._begins = begins
        self._block_bytes = BLOCK_BYTES
        self._numbers = {path: number for number, path in enumerate(paths)}
        self._counts: dict[tuple[str, int], int] = {}

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        units, rows, names = [], [], []
        paths = [file_name(each) for each in batch.column(_PATH).to_pylist()]
        starts = batch.column(_START).to_pylist()
        for path, start in zip(paths, starts, strict=True):
            row = self._counts.get((path, start), 0)
            self._counts[path, start] = row + 1
            file, block = self._numbers[path], start // self._block_bytes
            units.append(f"{self._begins}{file:0{_FILE_DIGITS}X}{block:0{_BLOCK_DIGITS}X}")
            rows.append(row)
            at = f" of the block at byte {start}" if start else ""
            names.append(f"{path.rpartition('/')[2]}, row {row}{at}")
        return (
            batch.drop_columns([_PATH, _START])
            .append_column(UNIT, pa.array(units, pa.string()))
            .append_column(ROW, pa.array(np.array(rows, np.int64)))
            .append_column(NAME, pa.array(names, pa.string()))
        )


def file_name(uri: str) -> str:
    """A file by one name, as Spark has several: with `file:/` or `file:///`, encoded or not."""
    return re.sub("^file:/+", "/", unquote(uri))


def read_files(spark: SparkSession, settings: "PublishSettings") -> DataFrame:
    """The rows of all files, with what tells where each stands."""
    _fix_blocks(spark)
    kind = settings.format or _format(settings.files)
    options = dict(settings.reading)
    if kind == "csv":
        options.setdefault("header", "true")
    reader = spark.read.format(kind).options(**options)
    schema = spark_schema(settings.schema) if settings.schema else None
    if kind == "parquet":
        if schema is not None:
            raise InvalidSetting("schema is for CSV and JSON: files of Parquet have theirs")
        frame = reader.load(list(settings.files))
    else:
        if schema is None:
            found = reader.load(list(settings.files)).schema
            schema = StructType([each for each in found.fields if each.name != _CORRUPT])
            if not schema.fields:
                raise JobError(f"{settings.files[0]} has no row that is {kind.upper()}")
        # Without this column a line that can't be read would become a row of nulls.
        schema = StructType([*schema.fields, StructField(_CORRUPT, StringType())])
        reader = reader.options(mode="PERMISSIVE", columnNameOfCorruptRecord=_CORRUPT)
        frame = reader.schema(schema).load(list(settings.files))
    return frame.select(
        "*",
        fn.col("_metadata.file_path").alias(_PATH),
        fn.col("_metadata.file_block_start").alias(_START),
    )


def _fix_blocks(spark: SparkSession) -> None:
    """Spark cuts files into pieces of min(maxPartitionBytes, max(openCost, all bytes / number of
    partitions)): with one partition the second is at least as large as any file, so that only the
    first counts, and only for files that are larger."""
    spark.conf.set("spark.sql.files.maxPartitionBytes", str(BLOCK_BYTES))
    spark.conf.set("spark.sql.files.minPartitionNum", "1")


def _format(files: tuple[str, ...]) -> str:
    names = [each.rstrip("/").lower().removesuffix(".gz") for each in files]
    for kind, endings in {
        "parquet": (".parquet",),
        "csv": (".csv",),
        "json": (".json", ".jsonl", ".ndjson"),
    }.items():
        if all(name.endswith(endings) for name in names):
            return kind
    raise InvalidSetting(
        "format is missing: the names of the files do not tell parquet, csv or json"
    )


def file_sizes(spark: SparkSession, frame: DataFrame) -> dict[str, int]:
    """Each file as Spark names it, with its size."""
    jvm = spark._jvm
    assert jvm is not None
    sizes = {}
    for uri in frame.inputFiles():
        path = jvm.org.apache.hadoop.fs.Path(jvm.java.net.URI(uri))
        system = path.getFileSystem(spark._jsc.hadoopConfiguration())
        name = file_name(uri)
        if name in sizes:
            raise JobError(f"{name} is there twice, or has a name that Spark confuses with another")
        sizes[name] = int(system.getFileStatus(path).getLen())
    if len(sizes) >= 1 << 4 * _FILE_DIGITS:
        raise JobError(f"{len(sizes)} files are too many for one job")
    return sizes


def messages(frame: DataFrame, settings: "PublishSettings") -> DataFrame:
    """The sink's columns, and what can't be one of them."""
    known = [each for each in frame.columns if each not in (_PATH, _START, _CORRUPT)]
    problems: list[Column] = []
    if _CORRUPT in frame.columns:
        line = fn.substring(_CORRUPT, 1, 80)
        text = fn.concat(fn.lit("this line can't be read: "), line)
        problems.append(fn.when(fn.col(_CORRUPT).isNotNull(), text))

    def column(option: str, name: str) -> Column:
        if name not in known:
            raise InvalidSetting(
                f"{option}: there is no column {name!r}; there are {', '.join(known)}"
            )
        return fn.col(f"`{name}`")

    def cast(option: str, name: str, kind: str) -> Column:
        value = column(option, name)
        made = value.try_cast(kind)
        text = fn.concat(fn.lit(f"column {name} is "), value.cast("string"), fn.lit(f", no {kind}"))
        problems.append(fn.when(value.isNotNull() & made.isNull(), text))
        return made

    made: dict[str, Column] = {}
    if settings.body is None:
        made["body"] = fn.to_json(fn.struct(*(fn.col(f"`{each}`") for each in known)))
    else:
        body = column("body", settings.body)
        is_binary = frame.schema[settings.body].dataType.typeName() == "binary"
        made["body"] = body if is_binary else body.cast("string")
    if settings.keys:
        keys = [column("key", each).cast("string") for each in settings.keys]
        made["keys"] = fn.filter(fn.array(*keys), lambda key: key.isNotNull())
    if settings.tag is not None:
        made["tags"] = column("tag", settings.tag).cast("string")
    if settings.properties:
        pairs = [
            fn.struct(
                fn.lit(name).alias("key"), column("property", each).cast("string").alias("value")
            )
            for name, each in settings.properties.items()
        ]
        filled = fn.filter(fn.array(*pairs), lambda pair: pair["value"].isNotNull())
        made["properties"] = fn.map_from_entries(filled)
    if settings.sharding_key is not None:
        made["shardingKey"] = column("sharding key", settings.sharding_key).cast("string")
    if settings.delay_level is not None:
        made["delayLevel"] = cast("delay level", settings.delay_level, "int")
    if settings.deliver_at is not None:
        made["deliverAt"] = cast("deliver at", settings.deliver_at, "timestamp")
    problem = fn.coalesce(*problems) if problems else fn.lit(None)
    return frame.select(
        *(value.alias(name) for name, value in made.items()),
        problem.cast("string").alias(PROBLEM),
        _PATH,
        _START,
    )
