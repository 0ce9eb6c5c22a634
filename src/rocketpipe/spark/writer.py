"""The sink: rows of a DataFrame become messages, and a task is done when all are acknowledged.

A message that was sent can't be taken back. So a task that is tried again sends what it had sent
before once more, under the same ids (`row_ids.py`): at least once on the wire, and exactly once
for whoever drops what has an id that he knows.
"""

import logging
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from rocketpipe.client.encoded import Encoded
from rocketpipe.errors import BulkFailed, InvalidMessage, InvalidSetting, MQError
from rocketpipe.message import SendResult
from rocketpipe.spark.row_encoder import RowEncoder
from rocketpipe.spark.row_ids import row_of, task_digits
from rocketpipe.spark.sink_columns import check_columns
from rocketpipe.spark.write_options import WriteOptions
from rocketpipe.sync.producer import BulkSender, Producer

log = logging.getLogger(__name__)


def batch_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> DataSourceArrowWriter:
    """What `df.write.format("rocketmq")` writes with; InvalidSetting if it can't."""
    if overwrite:
        raise InvalidSetting('a topic can\'t be overwritten: write with mode("append")')
    parsed = WriteOptions.parse(options, is_stream=False)
    check_columns(schema, has_topic=parsed.topic is not None)
    return BatchWriter(parsed)


def stream_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> DataSourceStreamWriter:
    """What `df.writeStream.format("rocketmq")` writes with; InvalidSetting if it can't."""
    if overwrite:
        raise InvalidSetting(
            'a topic can\'t be overwritten: use outputMode("append") or ("update"), not "complete"'
        )
    parsed = WriteOptions.parse(options, is_stream=True)
    check_columns(schema, has_topic=parsed.topic is not None)
    try:
        from rocketpipe.spark.stream_writer import StreamWriter
    except ImportError:
        raise InvalidSetting("streams can be written from PySpark 4.1 on") from None
    return StreamWriter(parsed)


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """What one task has sent, all of it acknowledged."""

    rows: int = 0
    body_bytes: int = 0  # as encoded, before any compression
    requests: int = 0
    retries: int = 0
    requests_by_broker: Mapping[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        each = ", ".join(f"{name} {n}" for name, n in sorted(self.requests_by_broker.items()))
        requests = f"{self.requests} requests ({each or 'none'}), {self.retries} retries"
        return f"{self.rows} rows, {self.body_bytes} bytes, {requests}"


class BatchWriter(DataSourceArrowWriter):
    """A copy of it, pickled, writes each partition; another hears how all that ended."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        # Each task gets it with the writer: a task that is tried again is known by it.
        self._job_id = options.job_id or uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        partition = this_task().partitionId()
        task = task_digits("job", self._job_id, partition)
        return write_rows(iterator, self._options, task, partition)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        report_commit("job", messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        report_abort("job", messages)


def write_rows(
    batches: Iterator[pa.RecordBatch], options: WriteOptions, task: str, partition: int
) -> Written:
    """Send all rows of a task; an error says which row it was about."""
    with Producer(options.producer) as producer:
        encoder = RowEncoder(task, options.topic, options.producer, cache(producer.publish_queues))
        tally = _Tally(options)
        try:
            encoded = map(tally.counted, map(encoder.encode, batches))
            for results in BulkSender(producer).send_each(encoded):
                tally.add_results(results)
        except InvalidMessage as error:
            raise InvalidMessage(f"partition {partition}, {error}") from None
        except BulkFailed as error:
            raise _failed(partition, error) from None
    return tally.written(encoder.rows)


def total(messages: Sequence[WriterCommitMessage | None]) -> Written:
    """What all tasks together have written; of one that failed nobody knows."""
    done = [each for each in messages if isinstance(each, Written)]
    return Written(
        sum(each.rows for each in done),
        sum(each.body_bytes for each in done),
        sum(each.requests for each in done),
        sum(each.retries for each in done),
        sum((Counter(each.requests_by_broker) for each in done), Counter()),
    )


class _Tally:
    """Counts what was sent and how that went."""

    def __init__(self, options: WriteOptions) -> None:
        self._accepted = options.accepted_statuses
        self._bytes = self._requests = self._retries = 0
        self._brokers: Counter[str] = Counter()

    def counted(self, parcels: list[Encoded]) -> list[Encoded]:
        """The same; their bytes are counted now."""
        self._bytes += sum(len(each.body) for each in parcels)
        return parcels

    def add_results(self, results: Sequence[SendResult]) -> None:
        """MQError for a status that the user does not accept."""
        for result in results:
            self._requests += 1
            self._retries += len(result.attempts) - 1
            self._brokers[result.queue.broker_name] += 1
            if result.status not in self._accepted:
                error = MQError(
                    f"{result.queue.broker_name} answered {result.status.name}, which is not among "
                    "acceptedStatuses: it has the message, but not as safe as that"
                )
                raise BulkFailed(result.queue.topic, result.message_ids, error)

    def written(self, rows: int) -> Written:
        return Written(rows, self._bytes, self._requests, self._retries, dict(self._brokers))


def _failed(partition: int, error: BulkFailed) -> MQError:
    rows = [row_of(each) for each in error.message_ids]
    which = f"row {rows[0]}" if len(rows) == 1 else f"{len(rows)} rows from {min(rows)} on"
    return MQError(f"partition {partition}, {which}: {error}")


def report_commit(what: str, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Log what all tasks together have sent."""
    with _heard():
        log.info("%s written: %s", what, total(messages))


@contextmanager
def _heard() -> Iterator[None]:
    """Let what is logged at INFO reach stderr meanwhile, unless somebody has said where logs go.

    Spark commits in a process of its own, which knows nothing of the driver's logging, and what
    nobody has configured shows warnings only. That process serves others after us: so it is left
    as it was.
    """
    if log.hasHandlers():
        yield
        return
    level, handler = log.level, logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.setLevel(level)
        log.removeHandler(handler)


def report_abort(what: str, messages: Sequence[WriterCommitMessage | None]) -> None:
    """All that can be done: a message that was sent can't be taken back."""
    done = sum(isinstance(each, Written) for each in messages)
    log.warning(
        "%s not written: %d of %d tasks had finished, with %s. What was sent stays sent, but if it "
        "is tried again under the same id, its messages have the same ids as well",
        *(what, done, len(messages), total(messages)),
    )


def this_task() -> TaskContext:
    """Whatever Spark knows about the task in which this is called."""
    context = TaskContext.get()
    assert context is not None, "Spark writes in tasks"
    return context
