"""`publish`: files of Parquet, CSV or JSON to a topic, each row once, also across stops and kills.

A row has the same message id in every run of a job (`publish_rows.py`).
What a job has done is in a small file (`publish_state.py`): the files and their sizes, which must
not change, and the blocks that are done. A run that goes on leaves these out. Of other blocks some
rows may have been stored when the last run ended; they are found in the topic by their ids, and
left out as well.
"""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any

from pyspark.sql import SparkSession

from rocketpipe.clock import SystemClock
from rocketpipe.errors import InvalidSetting
from rocketpipe.spark.jobs.failures import one_line_errors
from rocketpipe.spark.jobs.progress import OnProgress, Progress
from rocketpipe.spark.jobs.publish_rows import (
    FORMATS,
    Numbering,
    file_sizes,
    job_digits,
    messages,
    read_files,
)
from rocketpipe.spark.jobs.publish_state import PublishState, state_file
from rocketpipe.spark.jobs.row_sending import Sending, Sent
from rocketpipe.spark.jobs.sending import connection_options, queues_of, send_rows, stored_rows
from rocketpipe.spark.write_options import WriteOptions

__all__ = ["PublishReport", "PublishSettings", "publish"]

CLOCKS_APART_MS = 300_000  # that a broker's clock may be behind ours


@dataclass(frozen=True, kw_only=True)
class PublishSettings:
    """What to publish where. `target` are options of `df.write.format("rocketmq")`."""

    target: Mapping[str, str] = field(repr=False)  # with the topic
    files: tuple[str, ...]  # or folders, or patterns
    format: str | None = None  # by the names of the files
    schema: str | None = None  # of CSV and JSON, as DDL
    reading: Mapping[str, str] = field(default_factory=dict)  # options of Spark's reader
    body: str | None = None  # a column; without it the whole row, as JSON
    keys: tuple[str, ...] = ()  # columns
    tag: str | None = None  # a column, as are the next three
    properties: Mapping[str, str] = field(default_factory=dict)  # columns by name
    sharding_key: str | None = None
    delay_level: str | None = None
    deliver_at: str | None = None
    rate: float | None = None  # rows a second, of all tasks
    dry_run: bool = False  # check every row, and send none
    job_id: str | None = None  # of a job that can be continued, by this name
    state: str | None = None  # a folder for what such a job has sent

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
        """Where it goes, as `target` says."""
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
    frame = read_files(spark, settings)
    sizes = file_sizes(spark, frame)
    columns = messages(frame, settings)
    folder = Path(settings.state) if settings.state else None
    state = PublishState.open(
        state_file(job_id, folder), settings.mapping, sizes, clock.wall_ms(), settings.dry_run
    )
    begins = job_digits(job_id)
    stored: Mapping[str, frozenset[int]] = {}
    if state.has_begun and not state.is_done:
        since = state.started_ms - CLOCKS_APART_MS
        source = connection_options(settings.target)
        stored = stored_rows(spark, source, settings.topic, since, begins, state.done)
    tasks = max(1, min(columns.rdd.getNumPartitions(), spark.sparkContext.defaultParallelism))
    sending = Sending(
        options=options,
        number=Numbering(begins, sorted(sizes)),
        is_dry=settings.dry_run,
        rate=settings.rate / tasks if settings.rate is not None else None,
        done=frozenset(state.done),
        stored=stored,
        queues=queues,
    )

    def on_sent(rows: int, sent: Sent) -> None:
        if not settings.dry_run:
            state.add(sent.units)
        if on_progress is not None:
            rows = max(rows, sent.rows)  # a dry run tells of whole tasks
            on_progress(Progress(rows, rows / (clock.monotonic() - started)))

    if not settings.dry_run:
        state.begin()
    sent, stopped = send_rows(columns, sending, on_sent, stop)
    if not stopped and not settings.dry_run:
        state.finish()
    return PublishReport(
        job_id, settings.topic, settings.dry_run, sent, clock.monotonic() - started, stopped
    )
