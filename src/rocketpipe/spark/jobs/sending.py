"""How jobs send rows: each under an id that it has in every run, and none that was stored before.

A frame to be sent has the sink's columns (docs/spark-writing.md), and `problem`: why this row can't
be a message, null for almost all. In a task each row gets three more (`Sending.number`):

- `unit`: 20 hex digits, what the ids of some rows begin with; `row`: its number among them
- `name`: what people call it

What a task did comes back through an accumulator when it has ended; meanwhile it tells how many
rows are acknowledged, and can be stopped, through `lifeline.py`.
"""

import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from threading import Event, Thread

import pyarrow as pa
from pyspark import AccumulatorParam, SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from rocketpipe.client.namespace import with_namespace
from rocketpipe.message import MessageQueue
from rocketpipe.spark.jobs.lifeline import Lifeline, TaskLine
from rocketpipe.spark.jobs.row_sending import UNIT, Sending, Sent, check_batches, send_batches
from rocketpipe.spark.row_ids import TASK_DIGITS
from rocketpipe.spark.write_options import WriteOptions
from rocketpipe.sync.admin import Admin

POLL_SECONDS = 0.5
STOP_POLLS = 60  # for tasks to end in order; then they are cancelled


class _Adding(AccumulatorParam[Sent]):
    def zero(self, value: Sent) -> Sent:
        return Sent()

    def addInPlace(self, value1: Sent, value2: Sent) -> Sent:
        return value1 + value2


def send_rows(
    frame: DataFrame,
    sending: Sending,
    on_sent: Callable[[int, Sent], None],
    stop: Event | None = None,
) -> tuple[Sent, bool]:
    """Send them all; what was sent, and whether that was stopped before the end.

    `on_sent` hears now and then how many rows are acknowledged, and what the tasks did that have
    ended. An error leaves sent what was sent.
    """
    context = frame.sparkSession.sparkContext
    tally = context.accumulator(Sent(), _Adding())
    failures: list[BaseException] = []
    with _lifeline(context) as line:
        address = line.address

        def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            with TaskLine(address) as ours:
                tally.add(
                    check_batches(batches, sending)
                    if sending.is_dry
                    else send_batches(batches, sending, ours)
                )
            return iter(())

        def run() -> None:
            try:
                context.setJobGroup(address.token, "rocketpipe", interruptOnCancel=True)
                frame.mapInArrow(task, "nothing int").collect()
            except BaseException as error:
                failures.append(error)

        thread = Thread(target=run, daemon=True)
        thread.start()
        polls_left = STOP_POLLS
        while thread.is_alive():
            thread.join(POLL_SECONDS)
            on_sent(line.rows, tally.value)
            if stop is not None and stop.is_set():
                line.let_go()
                polls_left -= 1
                if not polls_left:  # a dry run, or tasks that could not reach us
                    context.cancelJobGroup(address.token)
    on_sent(line.rows, tally.value)
    is_stopped = tally.value.is_stopped or polls_left <= 0
    if failures and not is_stopped:
        raise failures[0]
    return tally.value, is_stopped


def _lifeline(context: SparkContext) -> Lifeline:
    if str(context.master).startswith("local"):
        return Lifeline("127.0.0.1", "127.0.0.1")
    host = context.getConf().get("spark.driver.host") or socket.gethostname()
    return Lifeline(context.getConf().get("spark.driver.bindAddress") or host, host)


def queues_of(options: WriteOptions, topics: Iterable[str]) -> dict[str, Sequence[MessageQueue]]:
    """The queues of each; NoRoute if there is no such topic: a job makes none."""
    producer = options.producer
    with Admin(
        namesrv=producer.namesrv,
        credentials=producer.credentials,
        tls=producer.tls,
        request_timeout=producer.request_timeout,
    ) as admin:
        return {
            topic: [
                replace(each, topic=topic)
                for each in admin.publish_queues(with_namespace(producer.namespace, topic))
            ]
            for topic in topics
        }


def stored_rows(
    spark: SparkSession,
    source: Mapping[str, str],
    topic: str,
    since_ms: int,
    begins: str,
    done: Iterable[str],
) -> dict[str, frozenset[int]]:
    """The rows that a topic holds already, by unit: of messages since then whose ids begin so.

    Of units that are done nobody needs to know.
    """
    options = {
        **source,
        "topic": topic,
        "startingTimestamp": str(since_ms),
        "startingOffsetsByTimestampStrategy": "latest",
    }
    ids = spark.read.format("rocketmq").options(**options).schema("messageId string").load()
    ids = ids.where(fn.col("messageId").startswith(begins))
    ids = ids.withColumn(UNIT, fn.substring("messageId", 1, TASK_DIGITS))
    known = spark.createDataFrame([(unit,) for unit in done], f"{UNIT} string")
    found: dict[str, set[int]] = {}
    for row in ids.join(fn.broadcast(known), UNIT, "left_anti").collect():
        unit, number = row.messageId[:TASK_DIGITS], row.messageId[TASK_DIGITS:]
        try:
            found.setdefault(unit, set()).add(int(number, 16))
        except ValueError:
            pass  # another's id that happens to begin like ours
    return {unit: frozenset(rows) for unit, rows in found.items()}


def connection_options(target: Mapping[str, str]) -> dict[str, str]:
    """What of a sink's options a source takes as well."""
    return {
        name: value
        for name, value in target.items()
        if not name.lower().startswith("producer.")
        and name.lower() not in ("topic", "acceptedstatuses")
    }
