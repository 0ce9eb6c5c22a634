"""The Spark side of a run: messages and attempts stream into tables while they come."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from threading import Event, Thread
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from rocketpipe.errors import JobError
from rocketpipe.report.facts import MicroBatch
from rocketpipe.spark.jobs.archive import ArchiveSettings, settle, start_archive
from rocketpipe.spark.jobs.attempts import RECORDS
from rocketpipe.spark.jobs.failures import one_line, one_line_errors
from rocketpipe.spark.jobs.progress import lag_of

MESSAGES, ATTEMPTS = "messages", "attempts"
INTERVALS = {MESSAGES: 2.0, ATTEMPTS: 3.0}  # seconds between the starts of two micro-batches
POLL_SECONDS = 0.5
DRAIN_SECONDS_MAX = 300.0  # a second or two, but a busy machine may take its time

# What both kinds of event say in their bodies; what one does not say is null.
BODY = """customer string, sequence bigint, order string, step string, at_ms bigint, total double,
    items array<struct<product: string, count: int>>, note string,
    action string, product string, page string"""


class Pipeline:
    """Two queries, and what is known of them. Most methods block; `rows`, `batches` and `check` are
    for any time."""

    def __init__(
        self,
        spark: SparkSession,
        source: Mapping[str, str],
        topics: Sequence[str],
        recorded: Path,
        folder: Path,
    ) -> None:
        self.messages = folder / MESSAGES
        self.attempts = folder / ATTEMPTS
        self.rows = {MESSAGES: 0, ATTEMPTS: 0}
        self.batches: list[MicroBatch] = []
        self._spark = spark
        self._recorded = recorded
        self._checkpoint = folder / ".checkpoints" / ATTEMPTS
        self._archive = ArchiveSettings(
            source={**source, "topic": ",".join(topics), "startingOffsets": "earliest"},
            table=str(self.messages),
            body="json",
            schema=BODY,
            interval=INTERVALS[MESSAGES],
        )
        self._queries: dict[str, StreamingQuery] = {}
        self._seen: dict[str, int] = {}
        self._failure: Exception | None = None
        self._stopping = Event()
        self._poller = Thread(target=self._poll, name="rocketpipe-demo-pipeline", daemon=True)

    @one_line_errors()
    def start(self) -> None:
        self._recorded.mkdir(parents=True, exist_ok=True)  # Spark wants to see it
        self._queries[MESSAGES] = start_archive(self._spark, self._archive)
        self._queries[ATTEMPTS] = (
            self._spark.readStream.schema(RECORDS)
            .parquet(str(self._recorded))
            .writeStream.format("parquet")
            .option("path", str(self.attempts))
            .option("checkpointLocation", str(self._checkpoint))
            .queryName("rocketpipe demo attempts")
            .trigger(processingTime=f"{INTERVALS[ATTEMPTS]} seconds")
            .start()
        )
        self._poller.start()

    def check(self) -> None:
        """JobError if a query has failed; this does not block."""
        if self._failure is not None:
            raise JobError(one_line(self._failure)) from self._failure

    def drain(self) -> None:
        """Returns when all that is there is in the tables, and the queries have ended."""
        failures: list[BaseException] = []

        def wait(query: StreamingQuery) -> None:
            try:
                query.processAllAvailable()
            except Exception as error:
                failures.append(error)

        waiting = [Thread(target=wait, args=[each], daemon=True) for each in self._queries.values()]
        for thread in waiting:
            thread.start()
        for thread in waiting:
            thread.join(DRAIN_SECONDS_MAX)
            if thread.is_alive():
                raise JobError(f"Spark is not done after {DRAIN_SECONDS_MAX:.0f} s")
        if failures:
            raise JobError(one_line(failures[0])) from failures[0]
        self.stop()
        settle(self._spark, self._archive)

    def stop(self) -> None:
        """End the queries, done or not."""
        self._stopping.set()
        if self._poller.is_alive():
            self._poller.join()
        self._look()
        for query in self._queries.values():
            query.stop()

    def _poll(self) -> None:
        while not self._stopping.wait(POLL_SECONDS):
            try:
                self._look()
            except Exception:  # Java is ending; whoever ends it knows why
                return

    def _look(self) -> None:
        for name, query in self._queries.items():
            for progress in query.recentProgress:
                if progress.batchId > self._seen.get(name, -1) and progress.numInputRows:
                    self._seen[name] = progress.batchId
                    self.rows[name] += progress.numInputRows
                    self.batches.append(_micro_batch(name, progress))
            self._failure = self._failure or query.exception()


def _micro_batch(name: str, progress: Any) -> MicroBatch:
    time = datetime.fromisoformat(progress.timestamp)
    return MicroBatch(
        time_ms=round(time.timestamp() * 1000) + progress.batchDuration,
        rows=progress.numInputRows,
        rows_per_second=progress.processedRowsPerSecond,
        lag=lag_of(progress, before=True) if name == MESSAGES else None,
        query=name,
    )
