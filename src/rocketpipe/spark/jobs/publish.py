"""`publish`: files of Parquet, CSV or JSON to a topic, each row once, also across stops and kills.

A row is known by its file, the block of the file that Spark reads in one go, and its number there;
so it has the same message id in every run of a job. Blocks are cut at multiples of BLOCK_BYTES,
whatever the cluster and whichever files are read together (see `_fix_blocks`).

What a job has done is in a small file (`publish_state.py`): the files and their sizes, which must
not change, and the blocks that are done. A run that goes on leaves these out. Of other blocks some
rows may have been stored when the last run ended; they are found in the topic by their ids, and
left out as well.
"""

import hashlib
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.types import StringType, StructField, StructType

from rocketpipe.clock import SystemClock
from rocketpipe.errors import InvalidSetting, JobError
from rocketpipe.spark.jobs.bodies import spark_schema
from rocketpipe.spark.jobs.failures import one_line_errors
from rocketpipe.spark.jobs.progress import OnProgress, Progress
from rocketpipe.spark.jobs.publish_state import PublishState, state_file
from rocketpipe.spark.jobs.sending import (
    NAME,
    PROBLEM,
    ROW,
    UNIT,
    Sending,
    Sent,
    connection_options,
    queues_of,
    send_rows,
    stored_rows,
)
from rocketpipe.spark.write_options import WriteOptions

FORMATS = ("parquet", "csv", "json")
BLOCK_BYTES = 16 << 20
CLOCKS_APART_MS = 300_000  # that a broker's clock may be behind ours

_JOB_DIGITS, _FILE_DIGITS, _BLOCK_DIGITS = 10, 5, 5  # of a unit's 20
_PATH, _START, _CORRUPT = "_path", "_start", "_corrupt_record"


@dataclass(frozen=True, kw_only=True)
class PublishSettings:
    """What to publish where. `target` are options of `df.write.format("rocketmq")`."""

    target: Mapping[str, str] = field(repr=False)  # with the topic
    files: tuple[str, ...]
    format: str | None = None  # by the names of the files
    schema: str | None = None  # of CSV and JSON, as DDL
    reading: Mapping[str, str] = field(default_factory=dict)  # options of Spark's reader
    body: str | None = None  # a column; without it the whole row, as JSON
    keys: tuple[str, ...] = ()
    tag: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)  # columns by name
    sharding_key: str | None = None
    delay_level: str | None = None
    deliver_at: str | None = None
    rate: float | None = None  # rows a second, of all tasks
    dry_run: bool = False
    job_id: str | None = None
    state: str | None = None  # a folder

    def __post_init__(self) -> None:
        if not self.files:
            raise InvalidSetting("files is empty: name what to publish")
        if self.format is not None and self.format not in FORMATS:
            raise InvalidSetting(
                f"format is {self.format!r}: it must be one of {', '.join(FORMATS)}"
            )
        if self.rate is not None and not self.rate > 0:
            raise InvalidSetting(f"rate is {self.rate}: it must be above 0")
        if self.delay_level is not None and self.deliver_at is not None:
            raise InvalidSetting("delay_level and deliver_at contradict: give one of them")
        if WriteOptions.parse(self.target, is_stream=False).topic is None:
            raise InvalidSetting("option topic is missing: name the topic to publish to")
        if "jobid" in {name.lower() for name in self.target}:
            raise InvalidSetting("option jobId: give job_id instead")

    @property
    def mapping(self) -> dict[str, Any]:
        """What messages are made of; it may not change within a job."""
        return {
            "topic": self.topic,
            "body": self.body,
            "keys": list(self.keys),
            "tag": self.tag,
            "properties": dict(self.properties),
            "sharding_key": self.sharding_key,
            "delay_level": self.delay_level,
            "deliver_at": self.deliver_at,
        }

    @property
    def topic(self) -> str:
        return next(value for name, value in self.target.items() if name.lower() == "topic")


@dataclass(frozen=True)
class PublishReport:
    """What one run sent."""

    job_id: str
    topic: str
    dry_run: bool
    sent: Sent
    seconds: float
    stopped: bool  # before the end: the same job id goes on


@one_line_errors()
def publish(
    spark: SparkSession,
    settings: PublishSettings,
    on_progress: OnProgress | None = None,
    *,
    stop: Event | None = None,
) -> PublishReport:
    """Send all rows that the job has not sent yet; or, in a dry run, check them all."""
    clock = SystemClock()
    started = clock.monotonic()
    job_id = settings.job_id or uuid.uuid4().hex[:12]
    options = WriteOptions.parse(settings.target, is_stream=False)
    queues = queues_of(options, [settings.topic])
    frame = _read(spark, settings)
    sizes = _sizes(spark, frame)
    columns = _messages(frame, settings)
    folder = Path(settings.state) if settings.state else None
    state = PublishState.open(
        state_file(job_id, folder), settings.mapping, sizes, clock.wall_ms(), settings.dry_run
    )
    begins = _digits(hashlib.sha256(job_id.encode()).hexdigest(), _JOB_DIGITS)
    stored: Mapping[str, frozenset[int]] = {}
    if state.has_begun and not state.is_done:
        since = state.started_ms - CLOCKS_APART_MS
        source = connection_options(settings.target)
        stored = stored_rows(spark, source, settings.topic, since, begins, state.done)
    tasks = max(1, min(columns.rdd.getNumPartitions(), spark.sparkContext.defaultParallelism))
    sending = Sending(
        options=options,
        number=Numbering(begins, sorted(sizes), BLOCK_BYTES),
        is_dry=settings.dry_run,
        rate=settings.rate / tasks if settings.rate is not None else None,
        done=frozenset(state.done),
        stored=stored,
        queues=queues,
    )

    def on_sent(sent: Sent) -> None:
        if not settings.dry_run:
            state.add(sent.units)
        if on_progress is not None:
            rows = sent.rows + sent.skipped
            on_progress(Progress(rows, rows / max(0.001, clock.monotonic() - started)))

    if not settings.dry_run:
        state.begin()
    sent, stopped = send_rows(columns, sending, on_sent, stop)
    if not stopped and not settings.dry_run:
        state.finish()
    return PublishReport(
        job_id, settings.topic, settings.dry_run, sent, clock.monotonic() - started, stopped
    )


class Numbering:
    """Gives rows their units and numbers, in a task."""

    def __init__(self, begins: str, paths: list[str], block_bytes: int) -> None:
        self._begins = begins
        self._block_bytes = block_bytes
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


def _read(spark: SparkSession, settings: PublishSettings) -> DataFrame:
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


def _sizes(spark: SparkSession, frame: DataFrame) -> dict[str, int]:
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


def _messages(frame: DataFrame, settings: PublishSettings) -> DataFrame:
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


def _digits(text: str, count: int) -> str:
    return text[:count].upper()
