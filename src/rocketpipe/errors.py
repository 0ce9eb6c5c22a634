"""Every exception rocketpipe raises, in one tree that answers: whose fault, and may I try again?

MQError
├── ClientError           our side: bad message, bad state, no route; trying again will not help
│   ├── InvalidSetting    a setting or an address that can't be used
│   ├── InvalidMessage    a message, or a part of one, that may not be sent
│   ├── IllegalState      not started yet, closed already, or started in another process
│   ├── NoRoute           the NameServer knows no broker that takes messages of this topic
│   └── NotFound          what was asked for does not exist
├── RemotingError         the wire: no connection, no answer in time, bytes that make no sense
│   ├── NoNameServer      no NameServer answered
│   ├── ConnectFailed     nobody answered at that address, or not as we expect
│   ├── ConnectionLost    the connection closed before the answer came
│   ├── RequestTimeout    no answer within the deadline
│   ├── ReplyTimeout      a request was sent, and nobody replied in time
│   ├── TooManyRequests   the caps on requests in flight or bytes waiting left no room in time
│   └── MalformedData     bytes that break the protocol
│       ├── MalformedFrame    a frame or its header
│       ├── MalformedHeader   the custom header of a command: a field missing or of the wrong type
│       ├── MalformedBody     the body of a command
│       └── MalformedRecord   a stored message, a batch, a property string or an id
├── BrokerError           the broker answered, and said no; carries its ResponseCode
├── BrokersFailed         some of several servers did not do their part; carries each one's error
├── OffsetGap             messages that a consumer should read next are not there any more
├── SendFailed            a send that came to nothing; carries all its attempts
├── BulkFailed            which messages of a bulk send were the first to fail; carries their error
├── JobError              a Spark job can't start or go on, told in one line
└── StoreError            a broker's folder can't be used: damaged, or not ours
    └── StoreLocked       another broker has it open

Facts travel as attributes and as `args`, so that errors survive pickling; `__str__` makes the
sentence.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rocketpipe.codes import response_name

if TYPE_CHECKING:
    from rocketpipe.message import Attempt, MessageQueue


class MQError(Exception):
    """Anything that rocketpipe raises on purpose."""


class ClientError(MQError):
    """Our side: trying the same again will not help."""


class InvalidSetting(ClientError):
    """A setting or an address that can't be used."""


class InvalidMessage(ClientError):
    """A message, or a part of one, that may not be sent."""


class IllegalState(ClientError):
    """Used before it was started, after it was closed, or in another process than it was made."""


class NoRoute(ClientError):
    """The NameServers know no broker that takes messages of this topic."""

    def __init__(self, topic: str, addresses: Sequence[str], reason: str) -> None:
        super().__init__(topic, addresses, reason)
        self.topic = topic
        self.addresses = addresses
        self.reason = reason

    def __str__(self) -> str:
        asked = ", ".join(self.addresses)
        return f"no route to topic {self.topic!r}: {self.reason} (asked NameServer {asked})"


class NotFound(ClientError):
    """What was asked for does not exist."""

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(what, reason)
        self.what = what
        self.reason = reason

    def __str__(self) -> str:
        return f"there is no {self.what}: {self.reason}"


class RemotingError(MQError):
    """The wire: no connection, no answer in time, or bytes that make no sense."""


class NoNameServer(RemotingError):
    """None of the NameServers answered; `failures` has an address and an error for each."""

    def __init__(self, question: str, failures: Sequence[tuple[str, MQError]]) -> None:
        super().__init__(question, failures)
        self.question = question
        self.failures = failures

    def __str__(self) -> str:
        each = "; ".join(str(error) for _, error in self.failures)
        return f"no NameServer answered when asked for {self.question}: {each}"


class ConnectFailed(RemotingError):
    """Nobody answered at that address, or not as we expect."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(address, reason)
        self.address = address
        self.reason = reason

    def __str__(self) -> str:
        return f"cannot connect to {self.address}: {self.reason}"


class ConnectionLost(RemotingError):
    """The connection closed before the answer came: the request may or may not have been obeyed."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(address, reason)
        self.address = address
        self.reason = reason

    def __str__(self) -> str:
        return f"lost the connection to {self.address}: {self.reason}"


class RequestTimeout(RemotingError):
    """No answer within the deadline: the request may or may not have been obeyed."""

    def __init__(self, address: str, request: str, timeout: float) -> None:
        super().__init__(address, request, timeout)
        self.address = address
        self.request = request
        self.timeout = timeout

    def __str__(self) -> str:
        return f"{self.request} to {self.address}: no answer within {self.timeout:.3g} s"


class ReplyTimeout(RemotingError):
    """A request was sent and stored, but no reply to it came: it may still be answered, in vain."""

    def __init__(self, topic: str, correlation_id: str, timeout: float) -> None:
        super().__init__(topic, correlation_id, timeout)
        self.topic = topic
        self.correlation_id = correlation_id
        self.timeout = timeout

    def __str__(self) -> str:
        return (
            f"a request to topic {self.topic!r} was sent, but no reply came within "
            f"{self.timeout:.3g} s (correlation id {self.correlation_id})"
        )


class TooManyRequests(RemotingError):
    """Too much was on its way to this address already, and no room came free in time."""

    def __init__(self, address: str, request: str, reason: str) -> None:
        super().__init__(address, request, reason)
        self.address = address
        self.request = request
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.request} to {self.address} was not sent: {self.reason}"


class MalformedData(RemotingError):
    """Bytes that break the protocol."""


class MalformedFrame(MalformedData):
    """A frame or its header that can't be read; the connection it came on is of no more use."""


class MalformedHeader(MalformedData):
    """A command's own fields: one is missing, or is not of its type."""


class MalformedBody(MalformedData):
    """A command's body that is not what the command promises."""


class MalformedRecord(MalformedData):
    """A stored message, a batch, a property string or a message id that can't be read."""


class BrokerError(MQError):
    """The broker or NameServer answered, and said no."""

    def __init__(
        self, code: int, remark: str | None, address: str, doing: str | None = None
    ) -> None:
        super().__init__(code, remark, address, doing)
        self.code = code
        self.remark = remark
        self.address = address
        self.doing = doing  # what it was asked for, where the asker says so

    def __str__(self) -> str:
        answer = f"{self.address} answered {response_name(self.code)}: {self.remark or 'no remark'}"
        return answer if self.doing is None else f"{self.doing}: {answer}"


class BrokersFailed(MQError):
    """Some of several brokers, or NameServers, did not do their part; the others did.

    `failures` has a name and an error for each.
    """

    def __init__(
        self, doing: str, failures: Sequence[tuple[str, MQError]], done: Sequence[str]
    ) -> None:
        super().__init__(doing, failures, done)
        self.doing = doing
        self.failures = failures
        self.done = done

    def __str__(self) -> str:
        each = "; ".join(f"{name}: {_without(self.doing, error)}" for name, error in self.failures)
        done = f" (done by {', '.join(self.done)})" if self.done else ""
        count = f"{len(self.failures)} of {len(self.failures) + len(self.done)}"
        return f"{self.doing} failed on {count}: {each}{done}"


def _without(doing: str, error: MQError) -> str:
    return str(error).removeprefix(f"{doing}: ")


class OffsetGap(MQError):
    """A queue does not hold the offset that was to be read next: it goes on, or ends, elsewhere."""

    def __init__(self, queue: "MessageQueue", wanted: int, found: int, reason: str) -> None:
        super().__init__(queue, wanted, found, reason)
        self.queue = queue
        self.wanted = wanted
        self.found = found
        self.reason = reason

    def __str__(self) -> str:
        queue = self.queue
        how = "goes on at" if self.found > self.wanted else "ends at"
        return (
            f"queue {queue.queue_id} of topic {queue.topic!r} at {queue.broker_name}: offset "
            f"{self.wanted} was to be read next, but the queue {how} {self.found} ({self.reason})"
        )


class SendFailed(MQError):
    """A send that came to nothing: every attempt, in order, with its own error."""

    def __init__(self, topic: str, reason: str, attempts: "Sequence[Attempt]") -> None:
        super().__init__(topic, reason, attempts)
        self.topic = topic
        self.reason = reason
        self.attempts = tuple(attempts)

    @property
    def code(self) -> int | None:
        """What the broker answered to the last attempt, if it did."""
        error = self.attempts[-1].error if self.attempts else None
        return error.code if isinstance(error, BrokerError) else None

    def __str__(self) -> str:
        tries = len(self.attempts)
        count = "1 attempt" if tries == 1 else f"{tries} attempts"
        each = " ".join(f"({n}) {attempt}." for n, attempt in enumerate(self.attempts, 1))
        return f"send to topic {self.topic!r} failed after {count}, {self.reason}. {each}".rstrip()


class BulkFailed(MQError):
    """A bulk send that did not send everything: the first messages to fail, and why."""

    def __init__(self, topic: str, message_ids: Sequence[str], error: Exception) -> None:
        super().__init__(topic, message_ids, error)
        self.topic = topic
        self.message_ids = message_ids
        self.error = error

    def __str__(self) -> str:
        first, count = self.message_ids[0], len(self.message_ids)
        what = f"message {first}" if count == 1 else f"{count} messages from {first} on"
        return f"{what} to topic {self.topic!r}: {self.error}"


class JobError(MQError):
    """A Spark job can't start or go on; the text is one line for whoever started it."""


class StoreError(MQError):
    """A broker's folder can't be used."""


class StoreLocked(StoreError):
    """Another broker has the folder open."""
