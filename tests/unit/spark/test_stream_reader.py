"""Where each micro-batch ends, with a cluster that is only pretended."""

import importlib
import json
import pickle
import sys
from collections.abc import Mapping
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from rocketpipe.errors import NoRoute, OffsetGap, RequestTimeout
from rocketpipe.message import MessageQueue
from rocketpipe.spark import stream_reader
from rocketpipe.spark.offsets import Offsets, to_json
from rocketpipe.spark.planning import NOTHING, Held, QueueRange
from rocketpipe.spark.positions import LATEST, Positions
from rocketpipe.spark.schema import all_columns
from rocketpipe.spark.stream_reader import RocketMQStreamReader

A, B, C = (MessageQueue("orders", "broker-a", number) for number in range(3))


class FakeCluster:
    """Stands for ClusterView."""

    def __init__(self) -> None:
        self.queues = {A: Held(0, 100), B: Held(0, 10)}
        self.asked = 0
        self.error: Exception | None = None
        self.committed: Offsets = {}
        self.commits = 0

    def __call__(self, options: object) -> "FakeCluster":
        return self

    def __enter__(self) -> "FakeCluster":
        return self

    def topics(self) -> tuple[str, ...]:
        return ("orders",)

    def held(self, topics: tuple[str, ...]) -> dict[MessageQueue, Held]:
        self.asked += 1
        if self.error is not None:
            raise self.error
        return dict(self.queues)

    def resolve(
        self, positions: Positions, held: Mapping[MessageQueue, Held], *, is_start: bool
    ) -> Offsets:
        is_latest = positions.others.kind == LATEST
        return {queue: now.end if is_latest else now.first for queue, now in held.items()}

    def commit(self, offsets: Offsets) -> None:
        self.commits += 1
        if self.error is not None:
            raise self.error
        self.committed = offsets


class FakeClock:
    now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        raise AssertionError("nobody asks")


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    fake = FakeCluster()
    monkeypatch.setattr(stream_reader, "ClusterView", fake)
    return fake


clock = FakeClock()


def reader(**options: str) -> RocketMQStreamReader:
    given = {"namesrv": "h:1", "topic": "orders", "startingOffsets": "earliest", **options}
    made = stream_reader.stream_reader(given, all_columns(with_properties=True))
    made._clock = clock
    return made


def at(a: int, b: int) -> dict[str, Any]:
    return to_json({A: a, B: b})


def test_a_stream_begins_at_the_end_unless_told(cluster: FakeCluster) -> None:
    mine = reader()
    assert mine.initialOffset() == at(0, 0)
    given = {"namesrv": "h:1", "topic": "orders"}
    other = stream_reader.stream_reader(given, all_columns(with_properties=True))
    assert other.initialOffset() == at(100, 10)
    cluster.queues[A] = Held(0, 120)
    assert other.initialOffset() == at(100, 10)  # asked again, the same


def test_all_that_is_there_is_read_without_a_limit(cluster: FakeCluster) -> None:
    mine = reader()
    assert mine.getDefaultReadLimit() == ReadAllAvailable()
    assert mine.latestOffset(at(0, 0), ReadAllAvailable()) == at(100, 10)
    assert mine.reportLatestOffset() == at(100, 10)
    assert mine.partitions(at(0, 0), at(100, 10)) == [QueueRange(A, 0, 100), QueueRange(B, 0, 10)]


def test_the_cluster_is_asked_once_in_a_while(cluster: FakeCluster) -> None:
    mine = reader(offsetsInterval="10s")
    for _ in range(50):
        mine.latestOffset(at(100, 10), ReadAllAvailable())
        mine.reportLatestOffset()
    assert cluster.asked == 1
    clock.now += 10
    cluster.queues[A] = Held(0, 101)
    assert mine.latestOffset(at(100, 10), ReadAllAvailable()) == at(101, 10)


def test_an_idle_stream_gives_the_same_text(cluster: FakeCluster) -> None:
    mine = reader(maxOffsetsPerTrigger="7")
    same = json.dumps(at(100, 10))
    assert json.dumps(mine.latestOffset(at(100, 10), ReadMaxRows(7))) == same


def test_a_limit_of_rows(cluster: FakeCluster) -> None:
    mine = reader(maxOffsetsPerTrigger="11")
    assert mine.getDefaultReadLimit() == ReadMaxRows(11)
    assert mine.latestOffset(at(0, 0), ReadMaxRows(11)) == at(10, 1)
    assert mine.latestOffset(at(10, 1), ReadAllAvailable()) == at(100, 10)  # Trigger.Once


def test_older_releases_do_not_say_where_a_batch_starts(cluster: FakeCluster) -> None:
    mine = reader(maxOffsetsPerTrigger="11")
    mine.initialOffset()
    assert mine.latestOffset() == at(10, 1)
    mine.partitions(at(0, 0), at(10, 1))
    assert mine.latestOffset() == at(20, 2)


def test_older_releases_do_not_say_where_a_restarted_query_is(cluster: FakeCluster) -> None:
    """A limit from the first message on might end before it, and have it read everything again."""
    mine = reader(maxOffsetsPerTrigger="11", minOffsetsPerTrigger="11", offsetsInterval="1ms")
    assert mine.latestOffset() == at(100, 10)
    mine.partitions(at(90, 9), at(100, 10))
    cluster.queues[A] = Held(0, 200)
    clock.now += 1
    assert mine.latestOffset() == at(111, 10)


def test_too_few_rows_wait_for_more_but_not_for_ever(cluster: FakeCluster) -> None:
    mine = reader(minOffsetsPerTrigger="50", maxTriggerDelay="1m", offsetsInterval="1ms")
    assert mine.getDefaultReadLimit() == ReadMinRows(50)
    assert mine.latestOffset(at(0, 0), ReadMinRows(50)) == at(100, 10)
    cluster.queues[A] = Held(0, 130)
    clock.now += 30
    assert mine.latestOffset(at(100, 10), ReadMinRows(50)) == at(100, 10)
    clock.now += 31
    assert mine.latestOffset(at(100, 10), ReadMinRows(50)) == at(130, 10)
    clock.now += 30
    cluster.queues[A] = Held(0, 180)
    assert mine.latestOffset(at(130, 10), ReadMinRows(50)) == at(180, 10)


def test_available_now_ends_where_it_was_told_and_keeps_its_limit(cluster: FakeCluster) -> None:
    mine = reader(maxOffsetsPerTrigger="100", minOffsetsPerTrigger="90", offsetsInterval="1ms")
    mine.prepareForTriggerAvailableNow()
    cluster.queues = {A: Held(0, 500), B: Held(0, 500), C: Held(0, 5)}
    clock.now += 1
    first = mine.latestOffset(at(0, 0), ReadMaxRows(100))
    assert first == at(91, 9)
    assert mine.latestOffset(first, ReadMaxRows(100)) == at(100, 10)
    assert mine.latestOffset(at(100, 10), ReadMaxRows(100)) == at(100, 10)
    for _ in range(3):  # behind the target already: it never goes back, and that is no loss
        clock.now += 3600
        assert mine.latestOffset(at(200, 10), ReadMaxRows(100)) == at(200, 10)


def test_new_queues_are_found_and_those_of_a_lost_broker_kept(cluster: FakeCluster) -> None:
    mine = reader(offsetsInterval="1ms")
    mine.latestOffset(at(0, 0), ReadAllAvailable())
    cluster.queues = {A: Held(0, 101), C: Held(3, 7)}
    clock.now += 1
    end = mine.latestOffset(at(100, 10), ReadAllAvailable())
    assert end == to_json({A: 101, B: 10, C: 7})
    assert mine.partitions(at(100, 10), end) == [QueueRange(A, 100, 101), QueueRange(C, 3, 7)]


def test_a_topic_without_a_route_is_waited_for_once_it_was_there(cluster: FakeCluster) -> None:
    mine = reader(offsetsInterval="1ms")
    cluster.error = NoRoute("orders", ["h:1"], "no")
    with pytest.raises(NoRoute):
        mine.initialOffset()
    cluster.error = None
    mine.initialOffset()
    clock.now += 1
    cluster.error = NoRoute("orders", ["h:1"], "no")
    assert mine.latestOffset(at(5, 5), ReadAllAvailable()) == at(5, 5)


def test_a_queue_that_ends_before_we_begin_is_a_loss_if_it_stays_so(cluster: FakeCluster) -> None:
    for fails in ("true", "false"):
        mine = reader(failOnDataLoss=fails, offsetsInterval="1ms", pullTimeout="30s")
        assert mine.latestOffset(at(150, 0), ReadAllAvailable()) == at(150, 10)
        clock.now += 29
        assert mine.latestOffset(at(150, 10), ReadAllAvailable()) == at(150, 10)
        clock.now += 2
        if fails == "true":
            with pytest.raises(OffsetGap, match="failOnDataLoss"):
                mine.latestOffset(at(150, 10), ReadAllAvailable())
        else:
            end = mine.latestOffset(at(150, 10), ReadAllAvailable())
            assert end == at(100, 10)
            assert mine.partitions(at(150, 10), end) == [NOTHING]


def test_deleted_offsets_follow_fail_on_data_loss(cluster: FakeCluster) -> None:
    cluster.queues[A] = Held(50, 100)
    with pytest.raises(OffsetGap):
        reader().partitions(at(0, 10), at(100, 10))
    assert reader(failOnDataLoss="false").partitions(at(0, 10), at(100, 10)) == [
        QueueRange(A, 50, 100)
    ]


def test_partitions_are_split_as_asked(cluster: FakeCluster) -> None:
    assert len(reader(minPartitions="11").partitions(at(0, 0), at(100, 10))) == 11
    parts = reader(maxRecordsPerPartition="30").partitions(at(0, 0), at(100, 10))
    assert [part.size for part in parts if isinstance(part, QueueRange)] == [25, 25, 25, 25, 10]


def test_a_group_is_told_how_far_it_is(cluster: FakeCluster) -> None:
    reader().commit(at(1, 1))
    assert cluster.committed == {}
    mine = reader(group="lag-watchers")
    mine.commit(at(7, 8))
    assert cluster.committed == {A: 7, B: 8}
    cluster.error = RequestTimeout("h:1", "commit", 1.0)
    mine.commit(at(9, 9))  # nobody but those who watch is hurt


def test_a_group_is_told_of_a_batch_when_spark_asks_what_comes_after_it(
    cluster: FakeCluster,
) -> None:
    mine = reader(group="lag-watchers", maxOffsetsPerTrigger="11")
    start = mine.initialOffset()
    end = mine.latestOffset(start, ReadMaxRows(11))
    mine.partitions(start, end)
    assert cluster.commits == 0  # what is planned is not finished
    for _ in range(80):
        mine.latestOffset(end, ReadMaxRows(11))
    assert cluster.committed == {A: 10, B: 1}
    mine.commit(end)
    assert cluster.commits == 1
    cluster.error = RequestTimeout("h:1", "commit", 1.0)
    for _ in range(80):
        mine.latestOffset(at(20, 2), ReadMaxRows(11))
    assert cluster.commits == 2  # a stream without work does not ask a broker that is away for ever
    cluster.error = None
    mine.latestOffset(at(30, 3), ReadMaxRows(11))
    assert cluster.committed == {A: 30, B: 3}


def test_a_group_is_told_at_a_restart_what_it_may_have_missed(cluster: FakeCluster) -> None:
    mine = reader(group="lag-watchers")
    mine.latestOffset(at(100, 10), ReadAllAvailable())
    assert cluster.committed == {A: 100, B: 10}


def test_older_releases_have_finished_a_batch_when_they_ask_for_the_next(
    cluster: FakeCluster,
) -> None:
    mine = reader(group="lag-watchers")
    mine.initialOffset()
    mine.latestOffset()
    mine.partitions(at(0, 0), at(100, 10))
    assert cluster.commits == 0
    mine.latestOffset()
    assert cluster.committed == {A: 100, B: 10}
    restarted = reader(group="lag-watchers")
    cluster.committed = {}
    restarted.latestOffset()  # nobody tells what was finished before
    assert cluster.committed == {}


def test_a_reader_can_be_pickled_before_it_is_used(cluster: FakeCluster) -> None:
    given = {"namesrv": "h:1", "topic": "orders"}
    made = stream_reader.stream_reader(given, all_columns(with_properties=True))
    assert pickle.loads(pickle.dumps(made))._options == made._options


def test_pyspark_before_4_2_gets_a_reader_without_limits(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which has no module for them, and asks without arguments."""
    monkeypatch.setitem(sys.modules, "pyspark.sql.streaming.datasource", None)
    older = importlib.reload(stream_reader)
    try:
        monkeypatch.setattr(older, "ClusterView", cluster)
        assert not older.HAS_LIMITS
        given = {"namesrv": "h:1", "topic": "orders", "maxOffsetsPerTrigger": "11"}
        given["startingOffsets"] = "earliest"
        mine = older.stream_reader(given, all_columns(with_properties=True))
        assert mine.initialOffset() == at(0, 0)
        assert mine.latestOffset() == at(10, 1)
        assert mine.partitions(at(0, 0), at(10, 1)) == [QueueRange(A, 0, 10), QueueRange(B, 0, 1)]
    finally:
        monkeypatch.undo()
        importlib.reload(stream_reader)
