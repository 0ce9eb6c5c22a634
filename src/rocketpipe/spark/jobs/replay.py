"""`replay`: stored messages sent again, marked, so that a second run sends nothing twice.

A replayed message carries three properties: REPLAY_ID, the replay's; REPLAY_OF, the id of the
message it repeats; and REPLAY_FROM, the very place where that one is stored. Before it sends
anything, a run reads from the target topics which places were replayed under its id already. By
default the id follows from the topics alone, from where to where, whatever the range or filter: so
no message is replayed twice unless somebody asks for it with an id of another name.

Body, tags, keys, sharding key and the user's properties are kept. RocketMQ's own properties are
not: a delay that is over, or a transaction that was committed, is no part of the message.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from threading import Event

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from rocketpipe.client.admin.groups import DLQ_PREFIX
from rocketpipe.client.checks import RETRY_PREFIX
from rocketpipe.clock import SystemClock
from rocketpipe.errors import InvalidSetting, JobError
from rocketpipe.spark.jobs.failures import one_line_errors
from rocketpipe.spark.jobs.progress import OnProgress, Progress
from rocketpipe.spark.jobs.row_sending import NAME, PROBLEM, ROW, UNIT, Sending, Sent
from rocketpipe.spark.jobs.sending import connection_options, queues_of, send_rows
from rocketpipe.spark.read_options import ReadOptions
from rocketpipe.spark.row_ids import task_digits
from rocketpipe.spark.write_options import WriteOptions
from rocketpipe.wire import properties as names

__all__ = ["ReplayReport", "ReplaySettings", "replay"]

REPLAY_ID, REPLAY_OF, REPLAY_FROM = "REPLAY_ID", "REPLAY_OF", "REPLAY_FROM"
CLOCKS_APART_MS = 300_000  # that brokers' clocks may differ

_QUEUE, _ORIGIN, _TARGET = "_queue", "_origin", "_target"
_COLUMNS = (
    "topic string, brokerName string, queueId int, queueOffset bigint, messageId string, "
    "tags string, keys array<string>, body binary, properties map<string,string>, "
    "storeTimestamp timestamp"
)


@dataclass(frozen=True, kw_only=True)
class ReplaySettings:
    """What to send again, and where. `source` are options of a batch read, `target` of a write."""

    source: Mapping[str, str] = field(repr=False)
    target: Mapping[str, str] = field(repr=False)
    to: str | None = None  # a topic; dead letters and retries go to where they were sent first
    replay_id: str | None = None  # under which nothing is sent twice; None: by the topics
    rate: float | None = None  # messages a second, of all tasks
    dry_run: bool = False  # count, and send nothing

    def __post_init__(self) -> None:
        read = ReadOptions.parse(self.source).for_batch()
        WriteOptions.parse(self.target, is_stream=False)
        if self.rate is not None and not self.rate > 0:
            raise InvalidSetting(f"rate is {self.rate}: it must be above 0")
        if self.to is None and not (
            read.topics and all(each.startswith((DLQ_PREFIX, RETRY_PREFIX)) for each in read.topics)
        ):
            raise InvalidSetting(
                "to is missing: only dead letters (%DLQ%...) and retries (%RETRY%...) know where "
                "they belong"
            )
        if self.replay_id is not None and (not self.replay_id.strip() or "\x01" in self.replay_id):
            raise InvalidSetting("replay_id is blank: leave it out, or give it a name")

    @property
    def id(self) -> str:
        """The one given, or one that the same replay has each time."""
        if self.replay_id is not None:
            return self.replay_id
        read = ReadOptions.parse(self.source)
        queues = [str(each) for each in read.assigned]
        text = json.dumps([sorted(read.topics), read.topic_pattern, queues, self.to])
        return hashlib.sha256(text.encode()).hexdigest()[:12]


@dataclass(frozen=True)
class ReplayReport:
    """What one run sent; `already` were replayed under this id before."""

    replay_id: str
    selected: int
    already: int
    dry_run: bool
    targets: Mapping[str, int]  # selected messages by the topic they go to
    sent: Sent
    seconds: float
    stopped: bool


@one_line_errors()
def replay(
    spark: SparkSession,
    settings: ReplaySettings,
    on_progress: OnProgress | None = None,
    *,
    stop: Event | None = None,
) -> ReplayReport:
    """Send what was selected and was not sent under this id before; a dry run only counts."""
    clock = SystemClock()
    started = clock.monotonic()
    options = WriteOptions.parse(settings.target, is_stream=False)
    selected = _selected(spark, settings)
    targets, since_ms = _targets(selected)
    if None in targets:
        raise JobError(
            f"{targets[None]} messages do not say where they belong (no property "
            f"{names.RETRY_TOPIC}): name a topic"
        )
    chosen = {str(topic): count for topic, count in targets.items()}
    queues = queues_of(options, chosen)
    total, already, rest = sum(chosen.values()), 0, selected
    if total:
        done = _replayed(spark, settings, list(chosen), since_ms).cache()
        # Broadcast, so that what is left stays in the order of its queues.
        rest = selected.join(fn.broadcast(done), _ORIGIN, "left_anti")
        if not done.isEmpty():
            already = selected.join(fn.broadcast(done), _ORIGIN, "left_semi").count()

    def on_sent(rows: int, sent: Sent) -> None:
        if on_progress is not None:
            rows = max(rows, sent.rows)  # a dry run tells of whole tasks
            rate = rows / (clock.monotonic() - started)
            on_progress(Progress(rows, rate, total=total - already))

    tasks = max(1, min(rest.rdd.getNumPartitions(), spark.sparkContext.defaultParallelism))
    sending = Sending(
        options=options,
        number=Numbering(settings.id),
        is_dry=settings.dry_run,
        rate=settings.rate / tasks if settings.rate is not None else None,
        queues=queues,
    )
    sent, stopped = send_rows(_messages(rest, settings.id), sending, on_sent, stop)
    return ReplayReport(
        replay_id=settings.id,
        selected=total,
        already=already,
        dry_run=settings.dry_run,
        targets=chosen,
        sent=sent,
        seconds=clock.monotonic() - started,
        stopped=stopped,
    )


class Numbering:
    """Gives a message that is sent again its id: it follows from the place of the first."""

    def __init__(self, replay_id: str) -> None:
        self._replay_id = replay_id
        self._digits = cache(lambda queue: task_digits("replay", replay_id, queue))

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        queues = batch.column(_QUEUE).to_pylist()
        origins = batch.column(_ORIGIN)
        return (
            batch.drop_columns([_QUEUE, _ORIGIN])
            .append_column(UNIT, pa.array([self._digits(each) for each in queues], pa.string()))
            .append_column(NAME, origins)
        )

    def __reduce__(self) -> tuple[type["Numbering"], tuple[str]]:
        return Numbering, (self._replay_id,)


def _selected(spark: SparkSession, settings: ReplaySettings) -> DataFrame:
    """What is to be sent again, with the place it comes from and the topic it goes to."""
    frame = spark.read.format("rocketmq").options(**settings.source).schema(_COLUMNS).load()
    queue = fn.concat_ws("/", "topic", "brokerName", "queueId")
    if settings.to is not None:
        target = fn.lit(settings.to)
    else:
        namespace = ReadOptions.parse(settings.source).connection.namespace
        target = fn.col("properties")[names.RETRY_TOPIC]
        if namespace:
            target = fn.regexp_replace(target, f"^{namespace}%", "")
    return (
        # Of a topic that is replayed to itself, not what this replay has sent.
        frame.where(~fn.col("properties")[REPLAY_ID].eqNullSafe(settings.id))
        .withColumn(_QUEUE, queue)
        .withColumn(_ORIGIN, fn.concat_ws("/", _QUEUE, "queueOffset"))
        .withColumn(_TARGET, target)
    )


def _targets(selected: DataFrame) -> tuple[dict[str | None, int], int]:
    """How many messages go to each topic, and when the oldest was stored."""
    rows = (
        selected.groupBy(_TARGET)
        .agg(fn.count("*").alias("n"), fn.min(fn.unix_millis("storeTimestamp")).alias("since"))
        .collect()
    )
    since = min((row.since for row in rows if row.since is not None), default=0)
    return {row[_TARGET]: row.n for row in rows}, max(0, since - CLOCKS_APART_MS)


def _replayed(
    spark: SparkSession, settings: ReplaySettings, topics: list[str], since_ms: int
) -> DataFrame:
    """The places of messages that were sent again under this id."""
    options = {
        **connection_options(settings.target),
        "topic": ",".join(topics),
        "startingTimestamp": str(since_ms),
        "startingOffsetsByTimestampStrategy": "latest",
    }
    reader = spark.read.format("rocketmq").options(**options)
    properties = fn.col("properties")
    return (
        reader.schema("properties map<string,string>")
        .load()
        .where(properties[REPLAY_ID] == settings.id)
        .select(properties[REPLAY_FROM].alias(_ORIGIN))
        .distinct()
    )


def _messages(frame: DataFrame, replay_id: str) -> DataFrame:
    """The sink's columns."""
    dropped = sorted({*names.RESERVED_NAMES, REPLAY_ID, REPLAY_OF, REPLAY_FROM})
    kept = fn.map_filter(
        "properties", lambda name, value: ~name.isin(dropped) & (fn.trim(value) != "")
    )
    marks = {
        REPLAY_ID: fn.lit(replay_id),
        REPLAY_OF: fn.col("messageId"),
        REPLAY_FROM: fn.col(_ORIGIN),
    }
    pairs = [each for name, value in marks.items() for each in (fn.lit(name), value)]
    return frame.select(
        fn.col(_TARGET).alias("topic"),
        "body",
        "tags",
        "keys",
        fn.map_concat(kept, fn.create_map(*pairs)).alias("properties"),
        fn.col("properties")[names.SHARDING_KEY].alias("shardingKey"),
        fn.lit(None).cast("string").alias(PROBLEM),
        _QUEUE,
        _ORIGIN,
        fn.col("queueOffset").alias(ROW),
    )
