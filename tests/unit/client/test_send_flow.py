"""The send flow by itself: no loop, no broker, and the time is a number."""

import random
from collections.abc import Collection
from typing import Any

import pytest

from rocketpipe.client.policy import Choice, Outcome
from rocketpipe.client.send_flow import (
    RETRY_CODES,
    Ended,
    Look,
    Pause,
    SendFlow,
    Try,
    blame,
    is_busy,
    may_retry,
    send_flow,
)
from rocketpipe.client.settings import ProducerSettings
from rocketpipe.codes import ResponseCode
from rocketpipe.errors import (
    BrokerError,
    ClientError,
    ConnectFailed,
    ConnectionLost,
    IllegalState,
    InvalidMessage,
    MalformedHeader,
    MQError,
    NoNameServer,
    NoRoute,
    RequestTimeout,
    SendFailed,
    TooManyRequests,
)
from rocketpipe.message import Attempt, MessageQueue, SendResult, SendStatus

BUSY = BrokerError(ResponseCode.SYSTEM_BUSY, "[TIMEOUT_CLEAN_QUEUE]", "a:10911")
LOST = ConnectionLost("a:10911", "the peer closed it")
ILLEGAL = BrokerError(ResponseCode.MESSAGE_ILLEGAL, "the message is illegal", "a:10911")


class Driver:
    """Runs a flow by hand; brokers a and b are offered in turn, as long as none has failed."""

    def __init__(self, *, brokers: int = 3, deadline: float = 3.0, **settings: Any):
        self.now = 0.0
        self.avoided: list[list[str]] = []
        self.brokers = brokers
        self.dice = random.Random(1)
        self.flow: SendFlow = send_flow(
            "orders",
            self.choose,
            lambda: self.now,
            deadline=deadline,
            settings=ProducerSettings("group", namesrv="n:9876", **settings),
            dice=self.dice,
        )

    def choose(self, failed: Collection[str]) -> tuple[Choice, int]:
        self.avoided.append(list(failed))
        broker = "ab"[len(self.avoided) % 2 - 1]
        queue = MessageQueue("orders", broker, len(self.avoided))
        return Choice(queue, "in turn", ()), self.brokers

    def begin(self) -> Try:
        return self._try(next(self.flow))

    def fail(self, error: MQError, *, took: float = 0.0) -> Try:
        return self._try(self.go_on(error=error, took=took))

    def go_on(
        self,
        *,
        error: MQError | None = None,
        status: SendStatus | None = None,
        took: float = 0.0,
    ) -> Try | Pause | Look:
        self.now += took
        return self.flow.send(self._ended(error, status, took))

    def end(
        self,
        *,
        error: MQError | None = None,
        status: SendStatus | None = None,
        took: float = 0.0,
    ) -> SendResult:
        with pytest.raises(StopIteration) as stopped:
            self.go_on(error=error, status=status, took=took)
        result = stopped.value.value
        assert isinstance(result, SendResult)
        return result

    def fail_for_good(self, error: MQError, *, took: float = 0.0) -> SendFailed:
        with pytest.raises(SendFailed) as failed:
            self.go_on(error=error, took=took)
        return failed.value

    def _try(self, step: Try | Pause | Look) -> Try:
        assert isinstance(step, Try)
        self.step = step
        return step

    def _ended(self, error: MQError | None, status: SendStatus | None, took: float) -> Ended:
        choice = self.step.choice
        attempt = Attempt(
            choice.queue,
            f"{choice.queue.broker_name}:10911",
            1_750_000_000_000,
            took,
            status,
            error,
            choice.reason,
            choice.passed_over,
        )
        if status is None:
            return Ended(attempt, None)
        offset = len(self.avoided)
        stored = SendResult(
            status, "id", "at", choice.queue, offset, None, None, "DefaultRegion", True, ()
        )
        return Ended(attempt, stored)


def test_one_attempt_is_enough_when_it_works() -> None:
    driver = Driver()
    step = driver.begin()
    assert step.choice.queue.broker_name == "a"
    result = driver.end(status=SendStatus.SEND_OK, took=0.25)
    assert result.status is SendStatus.SEND_OK
    assert [(each.queue.broker_name, each.elapsed) for each in result.attempts] == [("a", 0.25)]
    assert driver.avoided == [[]]


def test_a_failed_attempt_is_followed_by_another_that_avoids_its_broker() -> None:
    driver = Driver()
    driver.begin()
    assert driver.fail(LOST).choice.queue.broker_name == "b"
    result = driver.end(status=SendStatus.SEND_OK)
    assert driver.avoided == [[], ["a"]]
    assert [each.error for each in result.attempts] == [LOST, None]


def test_the_broker_that_failed_last_stands_last_among_those_to_avoid() -> None:
    driver = Driver(retry_times=3)
    driver.begin()
    for _ in range(3):
        driver.fail(LOST)
    assert driver.avoided == [[], ["a"], ["a", "b"], ["b", "a"]]


@pytest.mark.parametrize("retry_times", [0, 1, 5])
def test_there_are_as_many_attempts_as_allowed(retry_times: int) -> None:
    driver = Driver(retry_times=retry_times)
    driver.begin()
    for _ in range(retry_times):
        driver.fail(LOST)
    failed = driver.fail_for_good(LOST)
    assert len(failed.attempts) == 1 + retry_times
    assert failed.reason == "which is as many as allowed"
    assert failed.__cause__ is LOST


RETRYABLE = [BrokerError(code, "no", "a:10911") for code in RETRY_CODES]


@pytest.mark.parametrize(
    "error",
    [
        *(each for each in RETRYABLE if not is_busy(each)),
        ConnectFailed("a:10911", "refused"),
        LOST,
        RequestTimeout("a:10911", "SEND_MESSAGE_V2", 1.0),
        TooManyRequests("a:10911", "SEND_MESSAGE_V2", "65535 requests"),
        MalformedHeader("queueId is missing"),
        NoRoute("orders", ["n:9876"], "broker 'a' has no master there"),
        NoNameServer("the route", ()),
    ],
    ids=repr,
)
def test_an_error_that_another_broker_may_not_have_is_tried_again(error: MQError) -> None:
    driver = Driver()
    driver.begin()
    driver.fail(error)
    driver.end(status=SendStatus.SEND_OK)


@pytest.mark.parametrize(
    "error",
    [
        ILLEGAL,
        BrokerError(ResponseCode.TOPIC_EXIST_ALREADY, "?", "a:10911"),
        BrokerError(9999, "never heard of", "a:10911"),
        InvalidMessage("too large"),
        IllegalState("closed"),
    ],
    ids=repr,
)
def test_an_error_about_the_message_or_ourselves_ends_it(error: MQError) -> None:
    driver = Driver()
    driver.begin()
    failed = driver.fail_for_good(error)
    assert failed.reason == "which no other broker would take differently"
    assert [each.error for each in failed.attempts] == [error]


def test_the_codes_to_try_again_at_are_javas() -> None:
    assert sorted(RETRY_CODES) == [1, 2, 14, 16, 17, 204, 205, 1500]


# Time.


def test_a_fair_share_leaves_time_for_the_attempts_to_come() -> None:
    driver = Driver()
    assert driver.begin().timeout == pytest.approx(1.0)
    assert driver.fail(LOST, took=0.4).timeout == pytest.approx(1.3)
    assert driver.fail(LOST, took=1.3).timeout == pytest.approx(1.3)


def test_an_only_broker_may_take_all_the_time() -> None:
    driver = Driver(brokers=1)
    assert driver.begin().timeout == pytest.approx(3.0)
    silent = RequestTimeout("a:10911", "SEND_MESSAGE_V2", 1.0)
    assert driver.fail(silent, took=1.0).timeout == pytest.approx(2.0)


@pytest.mark.parametrize("error", [LOST, ConnectFailed("a:10911", "connection refused")])
def test_when_all_brokers_are_gone_it_looks_for_others_before_it_goes_on(error: MQError) -> None:
    driver = Driver(brokers=2)
    driver.begin()
    driver.fail(error)  # the other one may still be there
    look = driver.go_on(error=error)
    assert isinstance(look, Look)
    assert 0 < look.timeout < 3.0
    assert driver.brokers == 2
    assert isinstance(driver.flow.send(None), Try)


def test_nor_does_it_look_after_the_last_attempt() -> None:
    driver = Driver(brokers=1, retry_times=0)
    driver.begin()
    with pytest.raises(SendFailed):
        driver.go_on(error=LOST)


def test_an_attempt_may_be_given_a_number_of_seconds_but_never_more_than_are_left() -> None:
    driver = Driver(attempt_timeout=2.0)
    assert driver.begin().timeout == pytest.approx(2.0)
    assert driver.fail(LOST, took=2.0).timeout == pytest.approx(1.0)


def test_an_attempt_may_be_given_all_the_time_as_in_java() -> None:
    driver = Driver(attempt_timeout=None)
    assert driver.begin().timeout == pytest.approx(3.0)
    assert driver.fail(LOST, took=0.5).timeout == pytest.approx(2.5)


def test_there_is_no_attempt_after_the_deadline() -> None:
    driver = Driver()
    driver.begin()
    failed = driver.fail_for_good(LOST, took=3.0)
    assert failed.reason == "and no time was left for another"
    assert len(failed.attempts) == 1


def test_a_deadline_that_is_over_leaves_no_attempt_at_all() -> None:
    driver = Driver(deadline=0.0)
    with pytest.raises(SendFailed, match="after 0 attempts, and no time was left"):
        driver.begin()
    assert driver.avoided == []


# A busy broker.


def pause_after_busy(driver: Driver) -> float:
    step = driver.go_on(error=BUSY)
    assert isinstance(step, Pause)
    driver.now += step.seconds
    driver._try(driver.flow.send(None))
    return step.seconds


def test_after_a_busy_broker_there_is_a_pause_with_jitter_that_doubles() -> None:
    pauses: list[list[float]] = []
    for seed in range(200):
        driver = Driver(retry_times=3, busy_pause=0.1, deadline=60.0)
        driver.dice.seed(seed)
        driver.begin()
        pauses.append([pause_after_busy(driver) for _ in range(3)])
    for nth, expected in enumerate((0.1, 0.2, 0.4)):
        these = [each[nth] for each in pauses]
        assert expected / 2 <= min(these) < expected * 0.6
        assert expected * 1.4 < max(these) <= expected * 1.5


def test_a_pause_leaves_at_least_half_of_the_time_to_the_attempt_that_follows() -> None:
    driver = Driver(busy_pause=60.0)
    driver.begin()
    assert pause_after_busy(driver) == pytest.approx(1.5)
    assert pause_after_busy(driver) == pytest.approx(0.75)


def test_the_last_attempt_is_followed_by_no_pause() -> None:
    driver = Driver(retry_times=0)
    driver.begin()
    driver.fail_for_good(BUSY)


@pytest.mark.parametrize(
    ("first", "second", "worst_last"),
    [
        (LOST, LOST, ["a", "b"]),
        (LOST, BUSY, ["b", "a"]),
        (BUSY, LOST, ["a", "b"]),
        (BUSY, BUSY, ["a", "b"]),
    ],
)
def test_who_was_only_busy_is_asked_again_before_who_failed(
    first: MQError, second: MQError, worst_last: list[str]
) -> None:
    driver = Driver()
    driver.begin()
    for error in (first, second):
        step = driver.go_on(error=error)
        driver._try(driver.flow.send(None) if isinstance(step, Pause) else step)
    assert driver.avoided[-1] == worst_last


def test_only_a_busy_broker_is_given_a_pause() -> None:
    assert [is_busy(error) for error in (BUSY, ILLEGAL, LOST, None)] == [True, False, False, False]


# Statuses.

NOT_OK = [status for status in SendStatus if status is not SendStatus.SEND_OK]


@pytest.mark.parametrize("status", NOT_OK)
def test_any_status_is_a_result_unless_the_user_wants_better(status: SendStatus) -> None:
    driver = Driver()
    driver.begin()
    assert driver.end(status=status).status is status


@pytest.mark.parametrize("status", NOT_OK)
def test_who_wants_better_gets_another_broker(status: SendStatus) -> None:
    driver = Driver(retry_another_broker_when_not_store_ok=True)
    driver.begin()
    step = driver.go_on(status=status)
    driver._try(step)
    assert driver.avoided == [[], ["a"]]
    result = driver.end(status=SendStatus.SEND_OK)
    assert [each.status for each in result.attempts] == [status, SendStatus.SEND_OK]


def test_a_message_that_is_stored_somewhere_is_not_a_failure() -> None:
    driver = Driver(retry_another_broker_when_not_store_ok=True)
    driver.begin()
    driver._try(driver.go_on(status=SendStatus.FLUSH_DISK_TIMEOUT))
    driver._try(driver.go_on(status=SendStatus.SLAVE_NOT_AVAILABLE))
    result = driver.end(error=LOST)
    assert result.status is SendStatus.SLAVE_NOT_AVAILABLE  # the last that was stored
    assert result.queue.broker_name == "b"
    assert len(result.attempts) == 3


def test_nor_is_it_when_time_runs_out_or_the_next_broker_refuses_for_good() -> None:
    ends: list[dict[str, Any]] = [{"took": 3.0, "error": LOST}, {"error": ILLEGAL}]
    for end in ends:
        driver = Driver(retry_another_broker_when_not_store_ok=True)
        driver.begin()
        driver._try(driver.go_on(status=SendStatus.FLUSH_SLAVE_TIMEOUT))
        result = driver.end(**end)
        assert result.status is SendStatus.FLUSH_SLAVE_TIMEOUT
        assert len(result.attempts) == 2


# What is said in the end.


def test_a_failure_tells_its_story_in_one_paragraph() -> None:
    driver = Driver(retry_times=1)
    driver.begin()
    driver.fail(ConnectFailed("a:10911", "connection refused"), took=0.002)
    failed = driver.fail_for_good(RequestTimeout("b:10911", "SEND_MESSAGE_V2", 1.5), took=1.5)
    assert str(failed) == (
        "send to topic 'orders' failed after 2 attempts, which is as many as allowed. "
        "(1) a queue 1 (in turn), 2 ms: cannot connect to a:10911: connection refused. "
        "(2) b queue 2 (in turn), 1500 ms: SEND_MESSAGE_V2 to b:10911: no answer within 1.5 s."
    )


def test_the_code_of_a_failure_is_that_of_the_last_answer() -> None:
    driver = Driver()
    driver.begin()
    driver.fail(LOST)
    assert driver.fail_for_good(ILLEGAL).code == ResponseCode.MESSAGE_ILLEGAL
    driver = Driver(retry_times=0)
    driver.begin()
    assert driver.fail_for_good(LOST).code is None


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (None, Outcome.OK),
        (ConnectFailed("a:10911", "refused"), Outcome.UNREACHABLE),
        (NoRoute("orders", ["n:9876"], "no master"), Outcome.UNREACHABLE),
        (NoNameServer("the route", ()), Outcome.UNREACHABLE),
        (LOST, Outcome.LOST),
        (RequestTimeout("a:10911", "SEND_MESSAGE_V2", 1.0), Outcome.LOST),
        (MalformedHeader("queueId is missing"), Outcome.LOST),
        (BUSY, Outcome.BUSY),
        (BrokerError(ResponseCode.SERVICE_NOT_AVAILABLE, "", "a"), Outcome.REFUSED),
        (ILLEGAL, Outcome.MESSAGE_REFUSED),
        (InvalidMessage("too large"), Outcome.ABANDONED),
        (ClientError("the caller gave up"), Outcome.ABANDONED),
    ],
    ids=repr,
)
def test_a_broker_is_blamed_for_what_is_its_own_fault(
    error: MQError | None, outcome: Outcome
) -> None:
    assert blame(error) is outcome


def test_nothing_is_no_error_to_try_again_at() -> None:
    assert not may_retry(None)
