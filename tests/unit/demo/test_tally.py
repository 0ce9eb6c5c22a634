"""The senders' own counts, and what they make of a broker."""

import pytest

from rocketpipe.codes import ResponseCode
from rocketpipe.demo.tally import RECENT_SECONDS, Tally, quantile
from rocketpipe.errors import (
    BrokerError,
    ConnectFailed,
    MQError,
    NoRoute,
    RequestTimeout,
    SendFailed,
)
from rocketpipe.message import Attempt, MessageQueue, SendResult, SendStatus

QUEUE = MessageQueue("orders", "broker-a", 0)
BUSY = BrokerError(ResponseCode.SYSTEM_BUSY, "busy", "127.0.0.1:1")
DOWN = ConnectFailed("127.0.0.1:1", "refused")
SILENT = RequestTimeout("127.0.0.1:1", "SEND_MESSAGE_V2", 1.0)


class Time:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def result(attempts: int) -> SendResult:
    attempt = Attempt(QUEUE, "127.0.0.1:1", 0, 0.1, SendStatus.SEND_OK, None, "in turn", ())
    rest = (SendStatus.SEND_OK, "ID", "", QUEUE, 7, None, None, "DefaultRegion", True)
    return SendResult(*rest, (attempt,) * attempts)


def state(*attempts: tuple[float, MQError | None], isolated: int = 0) -> str:
    tally = Tally(Time())
    for elapsed, error in attempts:
        tally.attempted("broker-a", elapsed, error)
    (broker,) = tally.brokers(["broker-a"], {"broker-a": isolated} if isolated else {}, 3)
    return broker.state


def test_sends_are_counted_by_topic() -> None:
    tally = Tally(Time())
    totals = tally.topics["orders"]
    totals.sends = 4
    tally.acknowledged("orders", result(1), 0.1)
    tally.acknowledged("orders", result(2), 0.2)
    tally.failed("orders", SendFailed("orders", "no", []))
    assert (totals.acknowledged, totals.failed, totals.retried, totals.on_their_way) == (2, 1, 1, 1)
    assert totals.message_ids == ["ID", "ID"]
    assert totals.latencies == [0.1, 0.2]
    assert tally.errors == {"SendFailed": 1}


@pytest.mark.parametrize(
    ("attempts", "expected"),
    [
        ([], "unused"),
        ([(0.002, None)], "available"),
        ([(0.6, None), (0.002, None), (0.7, None)], "slow"),
        ([(0.001, BUSY), (0.002, None)], "busy"),
        ([(0.001, DOWN)], "down"),
        ([(0.001, NoRoute("orders", (), "gone"))], "down"),
        ([(0.002, None), (0.001, DOWN)], "down"),
        ([(0.001, DOWN), (0.002, None)], "just back"),
        ([(1.0, SILENT)], "silent"),
        ([(1.0, SILENT), (0.002, None)], "loses answers"),
    ],
)
def test_what_a_broker_looks_like(
    attempts: list[tuple[float, MQError | None]], expected: str
) -> None:
    assert state(*attempts) == expected
    assert state(*attempts, isolated=2) == f"{expected}, isolated 2/3"


def test_shares_are_of_what_was_stored_in_the_last_seconds() -> None:
    time = Time()
    tally = Tally(time)
    tally.attempted("broker-b", 0.5, None)
    time.now += RECENT_SECONDS + 0.1
    for _ in range(3):
        tally.attempted("broker-a", 0.01, None)
    tally.attempted("broker-c", 0.03, None)
    tally.attempted("broker-c", 0.5, BUSY)
    a, b, c = tally.brokers(["broker-a"], {}, 3)
    assert [each.name for each in (a, b, c)] == ["broker-a", "broker-b", "broker-c"]
    assert (a.share, b.share, c.share) == (0.75, 0, 0.25)
    assert a.per_second == 3 / RECENT_SECONDS
    assert (b.p50, c.p50, c.p99) == (None, 0.03, 0.03)


@pytest.mark.parametrize(
    ("share", "expected"), [(0.0, 1.0), (0.5, 50.0), (0.99, 99.0), (0.991, 100.0), (1.0, 100.0)]
)
def test_quantiles_by_nearest_rank(share: float, expected: float) -> None:
    assert quantile([float(each) for each in range(100, 0, -1)], share) == expected


def test_nothing_has_no_quantile() -> None:
    assert quantile([], 0.5) is None
