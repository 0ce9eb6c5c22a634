"""What planning makes of a cluster's answers, also of wrong and missing ones."""

from bisect import bisect_left
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketpipe.codes import ResponseCode
from rocketpipe.errors import BrokerError, BrokersFailed, InvalidSetting, OffsetGap, RequestTimeout
from rocketpipe.message import MessageQueue, StoredMessage
from rocketpipe.spark import cluster_view
from rocketpipe.spark.cluster_view import ClusterView
from rocketpipe.spark.planning import Held
from rocketpipe.spark.positions import OFFSET, TIME, Position, Positions
from rocketpipe.spark.read_options import ReadOptions
from tests.stored_message import stored_message

A, B = MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-b", 0)
TIMEOUT = RequestTimeout("h:1", "ask", 1.0)


class FakeAdmin:
    """Answers what it is told to answer, after as many failures as it is told to have."""

    def __init__(self, **settings: Any) -> None:
        self.failures: list[Exception] = []
        self.asked = 0
        self.names = ("orders", "bills", "%RETRY%group", "TBW102", "shop%orders", "shop%bills")
        self.times: list[int] = []  # when the messages of a queue were stored
        self.guess = 0  # what a search by time answers

    def topics(self) -> tuple[str, ...]:
        self.asked += 1
        if self.failures:
            raise self.failures.pop(0)
        return self.names

    def system_topics(self) -> frozenset[str]:
        return frozenset({"TBW102"})

    def search_offset(self, queue: MessageQueue, timestamp_ms: int) -> int:
        return self.guess

    def message_at(self, queue: MessageQueue, offset: int) -> StoredMessage:
        return stored_message(store_timestamp_ms=self.times[offset])


@pytest.fixture(autouse=True)
def fake_admin() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cluster_view, "Admin", FakeAdmin)
        patch.setattr(cluster_view, "_FIRST_PAUSE", 0.0001)
        yield


def view(**options: str) -> tuple[ClusterView, Any]:
    if not options.keys() & {"topic", "topicPattern"}:
        options["topic"] = "orders"
    made = ClusterView(ReadOptions.parse({"namesrv": "h:1", **options}))
    return made, made._admin


@pytest.mark.parametrize(
    ("options", "topics"),
    [
        ({"topic": "a,b"}, ("a", "b")),
        ({"topicPattern": ".*"}, ("bills", "orders", "shop%bills", "shop%orders")),
        ({"topicPattern": "%RETRY%.*"}, ("%RETRY%group",)),
        ({"topicPattern": "order"}, ()),  # the whole name, not a part of it
        ({"topicPattern": ".*", "namespace": "shop"}, ("bills", "orders")),
    ],
)
def test_topics(options: dict[str, str], topics: tuple[str, ...]) -> None:
    cluster, _ = view(**options)
    assert cluster.topics() == topics


@pytest.mark.parametrize(
    "error",
    [
        TIMEOUT,
        BrokerError(ResponseCode.SYSTEM_BUSY, "busy", "h:1"),
        BrokersFailed("ask", (("broker-a", TIMEOUT),), ()),
    ],
)
def test_what_passes_is_tried_again(error: Exception) -> None:
    cluster, admin = view(topicPattern="orders", retries="3")
    admin.failures = [error] * 3
    assert cluster.topics() == ("orders",)
    admin.failures = [error] * 4
    with pytest.raises(type(error)):
        cluster.topics()
    assert admin.asked == 8


def test_a_refusal_is_not_tried_again() -> None:
    cluster, admin = view(topicPattern="orders")
    admin.failures = [BrokerError(ResponseCode.NO_PERMISSION, "never", "h:1")]
    with pytest.raises(BrokerError, match="never"):
        cluster.topics()
    assert admin.asked == 1


@given(st.lists(st.integers(0, 30), max_size=30).map(sorted), st.integers(0, 31), st.data())
def test_a_search_by_time_is_exact_whatever_the_broker_says(
    times: list[int], wanted: int, data: st.DataObject
) -> None:
    cluster, admin = view(startingOffsetsByTimestampStrategy="latest")
    admin.times = times
    admin.guess = data.draw(st.integers(-1, len(times) + 1))
    positions = Positions(Position(TIME, wanted))
    found = cluster.resolve(positions, {A: Held(0, len(times))}, is_start=True)
    assert found == {A: bisect_left(times, wanted)}


def test_no_message_of_that_time_or_later() -> None:
    cluster, admin = view()
    admin.times, admin.guess = [5], 1
    positions, held = Positions(Position(TIME, 6)), {A: Held(0, 1)}
    with pytest.raises(InvalidSetting, match="has no message that was stored at 6 or later"):
        cluster.resolve(positions, held, is_start=True)
    assert cluster.resolve(positions, held, is_start=False) == {A: 1}


def test_offsets_that_are_gone_or_not_there_yet() -> None:
    held = {A: Held(10, 20)}

    def at(offset: int, **options: str) -> int:
        cluster, _ = view(**options)
        return cluster.resolve(Positions(Position(OFFSET, offset)), held, is_start=True)[A]

    assert (at(10), at(20)) == (10, 20)
    with pytest.raises(OffsetGap, match="failOnDataLoss"):
        at(9)
    assert at(9, failOnDataLoss="false") == 10
    with pytest.raises(InvalidSetting, match=r"offset 21 of queue 0 .*: it has 10 up to 20"):
        at(21)
    cluster, _ = view()
    named = Positions(Position("earliest"), {B: Position(OFFSET, 1)})
    with pytest.raises(InvalidSetting, match="name queue 0 of topic 'orders' on broker-b, which"):
        cluster.resolve(named, held, is_start=True)
