"""How a send proceeds: attempt after attempt under one deadline, until one works or none can.

It decides and does nothing itself: it yields what it wants done, and is sent how that ended. So
there is one retry loop for all the ways to send, and its tests need no loop and no broker.
"""

from collections.abc import Callable, Collection, Generator, Iterable
from random import Random
from typing import NamedTuple

from rocketpipe.client.queue_choice import Choice, Outcome
from rocketpipe.client.settings import ProducerSettings
from rocketpipe.codes import ResponseCode
from rocketpipe.errors import (
    BrokerError,
    ConnectFailed,
    ConnectionLost,
    MQError,
    NoNameServer,
    NoRoute,
    RemotingError,
    SendFailed,
)
from rocketpipe.message import Attempt, SendResult, SendStatus

# What a broker may say of itself, and another broker may not. (Java's retryResponseCodes.)
RETRY_CODES = frozenset(
    {
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.NO_PERMISSION,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
        ResponseCode.GO_AWAY,
    }
)

# Given the brokers that failed already, the worst last: where to go next, and how many brokers
# there are to choose from.
Choose = Callable[[Collection[str]], tuple[Choice, int]]


class Try(NamedTuple):
    """Send it to this queue; answer with how that ended."""

    choice: Choice
    timeout: float


class Pause(NamedTuple):
    """Wait for so long; answer with None."""

    seconds: float


class Look(NamedTuple):
    """Ask anew where the topic's brokers are, for so long at most; answer with None."""

    timeout: float


class Ended(NamedTuple):
    """How an attempt ended: with what the broker stored, or with an error."""

    attempt: Attempt
    result: SendResult | None  # its attempts are still to be filled in


SendFlow = Generator[Try | Pause | Look, Ended | None, SendResult]


def send_flow(
    topic: str,
    choose: Choose,
    now: Callable[[], float],
    *,
    deadline: float,
    settings: ProducerSettings,
    dice: Random,
) -> SendFlow:
    """Yield what to do next; return the result, or raise SendFailed."""
    attempts: list[Attempt] = []
    failed: dict[str, bool] = {}  # brokers in the order they failed, and whether they were busy
    stored: SendResult | None = None  # but not as safely as the user wants it
    attempts_max = 1 + settings.retry_times
    pause = settings.busy_pause
    while True:
        left = deadline - now()
        if left <= 0:
            reason = "and no time was left for another"
            break
        # Who was only busy has had its pause, so it comes before those that failed otherwise.
        choice, brokers = choose(sorted(failed, key=failed.__getitem__, reverse=True))
        # Time is shared for the sake of the others: an only broker may take all of it. To ask it
        # again while it is slow would store the message again, and leave it less time to answer.
        shares = 1 if brokers == 1 else attempts_max - len(attempts)
        ended = yield Try(choice, _share(left, shares, settings))
        assert ended is not None
        attempts.append(ended.attempt)
        if ended.result is not None:
            stored = ended.result
            if (
                stored.status is SendStatus.SEND_OK
                or not settings.retry_another_broker_when_not_store_ok
            ):
                return with_attempts(stored, attempts)
        elif not may_retry(ended.attempt.error):
            reason = "which no other broker would take differently"
            break
        if len(attempts) == attempts_max:
            reason = "which is as many as allowed"
            break
        # The last to fail stands last, also if it had failed before.
        failed.pop(choice.queue.broker_name, None)
        failed[choice.queue.broker_name] = was_busy = is_busy(ended.attempt.error)
        if was_busy:
            # Not all who were told so at once should come back at once.
            yield Pause(min(pause * dice.uniform(0.5, 1.5), (deadline - now()) / 2))
            pause *= 2
        elif len(failed) >= brokers and _is_gone(ended.attempt.error):
            # There is nobody left but those that are gone. Perhaps others came meanwhile, or these
            # came back elsewhere.
            yield Look((deadline - now()) / (1 + attempts_max - len(attempts)))
    if stored is not None:
        return with_attempts(stored, attempts)
    raise SendFailed(topic, reason, attempts) from (attempts[-1].error if attempts else None)


def with_attempts(result: SendResult, attempts: Iterable[Attempt]) -> SendResult:
    """The same result, with how it came about."""
    # Not _replace, which takes twice as long; the attempts stand last.
    return SendResult._make((*result[:-1], tuple(attempts)))


def may_retry(error: MQError | None) -> bool:
    """Whether another broker, or the same one later, could make a difference."""
    if isinstance(error, BrokerError):
        return error.code in RETRY_CODES
    return isinstance(error, RemotingError | NoRoute)


def is_busy(error: MQError | None) -> bool:
    return isinstance(error, BrokerError) and error.code == ResponseCode.SYSTEM_BUSY


def is_surely_not_stored(error: MQError | None) -> bool:
    """Whether an attempt that ended so has left nothing at the broker: it was not reached, or did
    not want to begin."""
    return is_busy(error) or isinstance(error, ConnectFailed | NoRoute)


def _is_gone(error: MQError | None) -> bool:
    return isinstance(error, ConnectFailed | ConnectionLost)


def blame(error: MQError | None) -> Outcome:
    """How far an error is the broker's own, for the policy to judge."""
    if error is None:
        return Outcome.OK
    if isinstance(error, ConnectFailed | NoRoute | NoNameServer):
        return Outcome.UNREACHABLE  # perhaps only since nobody says where it is
    if isinstance(error, BrokerError):
        if is_busy(error):
            return Outcome.BUSY
        return Outcome.REFUSED if error.code in RETRY_CODES else Outcome.MESSAGE_REFUSED
    return Outcome.LOST if isinstance(error, RemotingError) else Outcome.ABANDONED


def _share(left: float, shares: int, settings: ProducerSettings) -> float:
    match settings.attempt_timeout:
        case None:
            return left
        case "fair":
            return left / shares
        case seconds:
            assert not isinstance(seconds, str)
            return min(seconds, left)
