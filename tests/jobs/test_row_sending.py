"""What a sending task does, without a Spark around it."""

from collections.abc import Iterator

import pyarrow as pa
import pytest

from rocketpipe import Admin
from rocketpipe.clock import SystemClock
from rocketpipe.errors import InvalidMessage
from rocketpipe.spark.jobs.lifeline import Lifeline, TaskLine
from rocketpipe.spark.jobs.row_sending import (
    NAME,
    PROBLEM,
    ROW,
    UNIT,
    Sending,
    check_batches,
    send_batches,
)
from rocketpipe.spark.write_options import WriteOptions
from rocketpipe.testing import EmbeddedCluster
from tests.spark.topics import make_topic

A, B = "A" * 20, "B" * 20


def batch(
    unit: str, bodies: list[bytes | None], problems: dict[int, str] | None = None
) -> pa.RecordBatch:
    count = len(bodies)
    return pa.record_batch(
        {
            "body": pa.array(bodies, pa.binary()),
            PROBLEM: pa.array([(problems or {}).get(n) for n in range(count)], pa.string()),
            UNIT: pa.array([unit] * count),
            ROW: pa.array(range(count), pa.int64()),
            NAME: pa.array([f"{unit[0]}{n}" for n in range(count)]),
        }
    )


def same(rows: pa.RecordBatch) -> pa.RecordBatch:
    return rows


def sending(cluster: EmbeddedCluster, topic: str, **settings: object) -> Sending:
    options = WriteOptions.parse({"namesrv": cluster.namesrv, "topic": topic}, is_stream=False)
    return Sending(options=options, number=same, **settings)  # type: ignore[arg-type]


def stored(cluster: EmbeddedCluster, topic: str) -> dict[str, bytes]:
    with Admin(namesrv=cluster.namesrv) as admin:
        found = [
            admin.message_at(queue, offset)
            for queue in admin.subscribe_queues(topic)
            for offset in range(admin.max_offset(queue))
        ]
    return {each.message_id: each.body for each in found}


@pytest.fixture
def line() -> Iterator[Lifeline]:
    with Lifeline("127.0.0.1", "127.0.0.1") as line:
        yield line


def test_rows_are_sent_under_their_ids_but_those_that_are_stored(
    embedded_cluster: EmbeddedCluster, line: Lifeline
) -> None:
    topic = make_topic(embedded_cluster, "rows")
    batches = [batch(A, [b"0", b"1", b"2"]), batch(B, [b"3", b"4"])]
    how = sending(embedded_cluster, topic, done=frozenset({B}), stored={A: frozenset({1})})
    with TaskLine(line.address) as task:
        sent = send_batches(iter(batches), how, task)
    assert (sent.rows, sent.skipped, sent.bytes, sent.is_stopped) == (2, 3, 2, False)
    assert sent.units == {A: 3, B: 2}
    assert sum(sent.queues.values()) == 2
    assert stored(embedded_cluster, topic) == {f"{A}{0:012X}": b"0", f"{A}{2:012X}": b"2"}
    assert line.rows == 2


def test_a_task_whose_line_is_cut_ends_in_order(
    embedded_cluster: EmbeddedCluster, line: Lifeline
) -> None:
    topic = make_topic(embedded_cluster, "cut")

    def batches() -> Iterator[pa.RecordBatch]:
        yield batch(A, [b"x"] * 10)
        line.let_go()
        yield batch(B, [b"y"] * 10)

    with TaskLine(line.address) as task:
        sent = send_batches(batches(), sending(embedded_cluster, topic), task)
    # What was sent is acknowledged and counted; no unit counts as done, as rows may be left.
    assert (sent.rows, sent.is_stopped, sent.units) == (10, True, {})
    assert len(stored(embedded_cluster, topic)) == 10


def test_not_faster_than_the_rate(embedded_cluster: EmbeddedCluster, line: Lifeline) -> None:
    topic = make_topic(embedded_cluster, "rate")
    clock = SystemClock()
    started = clock.monotonic()
    with TaskLine(line.address) as task:
        how = sending(embedded_cluster, topic, rate=200.0)
        assert send_batches(iter([batch(A, [b"x"] * 100)]), how, task).rows == 100
    # The last piece, of a fifth of a second, leaves when those before it have had their time.
    assert clock.monotonic() - started >= 0.29


def test_a_bad_row_is_named_before_anything_of_its_batch_is_sent(
    embedded_cluster: EmbeddedCluster, line: Lifeline
) -> None:
    topic = make_topic(embedded_cluster, "bad")
    how = sending(embedded_cluster, topic)
    for rows, text in (
        (batch(A, [b"x", None]), "A1: the body is null"),
        (batch(A, [b"x", b"y"], {1: "not today"}), "A1: not today"),
    ):
        with TaskLine(line.address) as task, pytest.raises(InvalidMessage, match=text):
            send_batches(iter([rows]), how, task)
    assert stored(embedded_cluster, topic) == {}


def test_a_check_finds_every_bad_row(embedded_cluster: EmbeddedCluster) -> None:
    topic = make_topic(embedded_cluster, "check")
    bodies = [None if n % 3 == 0 else b"x" for n in range(100)]
    sent = check_batches(iter([batch(A, bodies, {1: "p"})]), sending(embedded_cluster, topic))
    assert (sent.rows, sent.bad) == (65, 35)
    assert sent.bad_rows[:3] == ("A0: the body is null", "A1: p", "A3: the body is null")
    assert len(sent.bad_rows) == 20
    assert stored(embedded_cluster, topic) == {}
