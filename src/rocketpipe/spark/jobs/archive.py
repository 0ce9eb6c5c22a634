"""`archive`: topics to a Parquet or Delta table, by topic and date, each message once.

`archive_table.py` says how files come into the table, `bodies.py` what becomes of a body.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from threading import Event
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.streaming.query import StreamingQuery

from rocketpipe.clock import SystemClock
from rocketpipe.errors import InvalidSetting
from rocketpipe.spark.jobs.archive_delta import check_delta
from rocketpipe.spark.jobs.archive_state import State
from rocketpipe.spark.jobs.archive_table import QUARANTINE, ArchiveTable
from rocketpipe.spark.jobs.bodies import (
    AVRO,
    BINARY,
    JSON,
    KINDS,
    BodyKind,
    inferred_schema,
    spark_schema,
)
from rocketpipe.spark.jobs.failures import one_line_errors
from rocketpipe.spark.jobs.progress import OnProgress, Progress, lag_of
from rocketpipe.spark.read_options import ReadOptions
from rocketpipe.spark.stream_reader import HAS_LIMITS

__all__ = ["ArchiveReport", "ArchiveSettings", "archive", "settle", "start_archive"]

POLL_SECONDS = 0.5  # between two looks at a query
PARQUET, DELTA = FORMATS = ("parquet", "delta")

# What a table is made of: another start with other values would mix two tables.
_TIED_OPTIONS = ("topic", "topicPattern", "assign", "tags", "sql", "namespace")


@dataclass(frozen=True, kw_only=True)
class ArchiveSettings:
    """What to archive, and how. `source` are options of `format("rocketmq")`."""

    source: Mapping[str, str] = field(repr=False)
    table: str
    format: str = PARQUET
    body: str = BINARY
    schema: str | None = None  # json: inferred if it is not given; avro: an Avro schema
    keep_body: bool = False  # beside what was made of it
    once: bool = False  # what is there now, instead of going on
    interval: float = 1.0  # seconds between the starts of two micro-batches
    rows_per_batch: int = 200_000  # at most, of a micro-batch
    file_bytes: int = 128 << 20  # about how large files of the table are
    file_age: float = 600.0  # seconds after which a file is published however small it is

    def __post_init__(self) -> None:
        if self.body not in KINDS:
            raise InvalidSetting(f"body is {self.body!r}: it must be one of {', '.join(KINDS)}")
        if self.format not in FORMATS:
            raise InvalidSetting(
                f"format is {self.format!r}: it must be one of {', '.join(FORMATS)}"
            )
        if self.format == DELTA:
            check_delta()
        if not self.table:
            raise InvalidSetting("table is empty: name a folder")
        if self.schema is not None and self.body not in (JSON, AVRO):
            raise InvalidSetting(f"a schema is for bodies of JSON or Avro, not for {self.body}")
        if self.schema is None and self.body == AVRO:
            raise InvalidSetting("schema is missing: bodies of Avro can't be read without theirs")
        for name in ("interval", "file_age", "rows_per_batch", "file_bytes"):
            if getattr(self, name) <= 0:
                raise InvalidSetting(f"{name} is {getattr(self, name)}: it must be above 0")
        # By the option's name, before anything is started.
        ReadOptions.parse(self.source).for_stream()

    @property
    def tied(self) -> dict[str, Any]:
        """What a table keeps, but for the schema."""
        given = {name.lower(): value for name, value in self.source.items()}
        options = {name: given.get(name.lower()) for name in _TIED_OPTIONS}
        return {
            **options,
            "format": self.format,
            "body": self.body,
            "keep_body": self.keep_body,
        }


@dataclass(frozen=True)
class ArchiveReport:
    """What one run did, and what the table holds in all."""

    table: str
    archived: int
    quarantined: int
    files: int  # published
    seconds: float
    lag: int | None  # what waits in the queues, as the last micro-batch saw it
    archived_in_all: int
    quarantined_in_all: int

    @property
    def read(self) -> int:
        """How many messages, whatever became of them."""
        return self.archived + self.quarantined

    @property
    def quarantine(self) -> str:
        """The table of those that could not be read, with the reasons."""
        return f"{self.table.rstrip('/')}/{QUARANTINE}"


@one_line_errors()
def start_archive(spark: SparkSession, settings: ArchiveSettings) -> StreamingQuery:
    """The query, running. When it has ended, `settle` publishes what still waits."""
    table = _table(spark, settings)
    return _start(spark, settings, table, _open(spark, settings, table))


@one_line_errors()
def settle(spark: SparkSession, settings: ArchiveSettings) -> State:
    """Publish all that an archive has read, when its query has ended."""
    table = _table(spark, settings)
    _open(spark, settings, table)
    table.roll(everything=True)
    assert table.state is not None
    return table.state


@one_line_errors()
def archive(
    spark: SparkSession,
    settings: ArchiveSettings,
    on_progress: OnProgress | None = None,
    *,
    stop: Event | None = None,
) -> ArchiveReport:
    """Archive what is there (`once`), or all that comes until `stop` is set."""
    clock = SystemClock()
    started = clock.monotonic()
    table = _table(spark, settings)
    kind = _open(spark, settings, table)
    before = table.state
    assert before is not None
    lag = None
    try:
        query = _start(spark, settings, table, kind)
        try:
            while not query.awaitTermination(POLL_SECONDS):  # type: ignore[arg-type]
                lag = _tell(query, table, before, clock.monotonic() - started, on_progress)
                table.roll_if_idle()
                if stop is not None and stop.is_set():
                    break
        finally:
            query.stop()
        lag = _tell(query, table, before, clock.monotonic() - started, on_progress)
        table.roll(everything=True)
    except Exception:
        if before.number == 0:
            table.discard()
        raise
    after = table.state
    assert after is not None
    return ArchiveReport(
        table=settings.table,
        archived=after.archived - before.archived,
        quarantined=after.quarantined - before.quarantined,
        files=after.published - before.published,
        seconds=clock.monotonic() - started,
        lag=lag,
        archived_in_all=after.archived,
        quarantined_in_all=after.quarantined,
    )


def _tell(
    query: StreamingQuery,
    table: ArchiveTable,
    before: State,
    seconds: float,
    on_progress: OnProgress | None,
) -> int | None:
    state, last = table.state, query.lastProgress
    assert state is not None
    rows = state.archived + state.quarantined - before.archived - before.quarantined
    lag = lag_of(last) if last is not None else None
    if on_progress is not None:
        on_progress(Progress(rows, rows / seconds, lag))
    return lag


def _table(spark: SparkSession, settings: ArchiveSettings) -> ArchiveTable:
    return ArchiveTable(
        spark, settings.table, settings.file_bytes, settings.file_age, settings.format == DELTA
    )


def _open(spark: SparkSession, settings: ArchiveSettings, table: ArchiveTable) -> BodyKind:
    """The table, tied to its settings, and how its bodies are read."""
    state = table.read_state()
    schema = settings.schema
    if state is None:
        if settings.body == JSON:
            text = schema or inferred_schema(spark, dict(settings.source))
            schema = spark_schema(text).json()
            if settings.format == DELTA:
                check_delta(schema)
        table.open({**settings.tied, "schema": schema})
        return BodyKind(settings.body, schema)
    for name, value in settings.tied.items():
        if state.settings.get(name) != value:
            raise InvalidSetting(
                f"{settings.table} was archived with {name} {_shown(state.settings.get(name))}, "
                f"not {_shown(value)}: use another folder for another archive"
            )
    kept = state.settings["schema"]
    if (
        schema is not None
        and (spark_schema(schema).json() if settings.body == JSON else schema) != kept
    ):
        raise InvalidSetting(
            f"{settings.table} was archived with another schema: use another folder, or leave the "
            "schema out to go on with that one"
        )
    table.open(state.settings)
    return BodyKind(settings.body, kept)


def _utc_date(moment: Column) -> Column:
    """Whatever the time zone of the session."""
    return fn.date_from_unix_date(fn.floor(fn.unix_millis(moment) / 86_400_000).cast("int"))


def _shown(value: Any) -> str:
    return "none" if value is None else str(value)


def _start(
    spark: SparkSession, settings: ArchiveSettings, table: ArchiveTable, kind: BodyKind
) -> StreamingQuery:
    options = dict(settings.source)
    if not any(name.lower().startswith("starting") for name in options):
        options["startingOffsets"] = "earliest"
    if HAS_LIMITS:
        options.setdefault("maxOffsetsPerTrigger", str(settings.rows_per_batch))
    messages = spark.readStream.format("rocketmq").options(**options).load()
    wanted = list(messages.columns)
    if kind.column != "body":
        if not settings.keep_body:
            wanted.remove("body")
        wanted.append(kind.column)
    wanted.remove("topic")  # it is in the name of the folder

    def add(frame: DataFrame, batch: int) -> None:
        parsed = kind.parse(frame.withColumn("date", _utc_date(fn.col("storeTimestamp"))))
        table.add_batch(parsed, batch, wanted)
        table.roll()

    trigger: dict[str, Any] = (
        {"availableNow": True}
        if settings.once
        else {"processingTime": f"{settings.interval} seconds"}
    )
    return (
        messages.writeStream.foreachBatch(add)
        .option("checkpointLocation", table.checkpoint)
        .queryName("rocketpipe archive")
        .trigger(**trigger)
        .start()
    )
