"""Every exception rocketpipe raises, in one tree that answers: whose fault, and may I try again?

MQError
├── ClientError           our side: bad message, bad state, no route; trying again will not help
│   ├── InvalidSetting    a setting or an address that can't be used
│   └── InvalidMessage    a message, or a part of one, that may not be sent
├── RemotingError         the wire: no connection, no answer in time, bytes that make no sense
│   ├── ConnectFailed     nobody answered at that address, or not as we expect
│   ├── ConnectionLost    the connection closed before the answer came
│   ├── RequestTimeout    no answer within the deadline
│   ├── TooManyRequests   the caps on requests in flight or bytes waiting left no room in time
│   └── MalformedData     bytes that break the protocol
│       ├── MalformedFrame    a frame or its header
│       ├── MalformedHeader   the custom header of a command: a field missing or of the wrong type
│       ├── MalformedBody     the body of a command
│       └── MalformedRecord   a stored message, a batch, a property string or an id
└── BrokerError           the broker answered, and said no; carries its ResponseCode

Facts travel as attributes and as `args`, so that errors survive pickling; `__str__` makes the
sentence.
"""

from rocketpipe.codes import response_name


class MQError(Exception):
    """Anything that rocketpipe raises on purpose."""


class ClientError(MQError):
    """Our side: trying the same again will not help."""


class InvalidSetting(ClientError):
    """A setting or an address that can't be used."""


class InvalidMessage(ClientError):
    """A message, or a part of one, that may not be sent."""


class RemotingError(MQError):
    """The wire: no connection, no answer in time, or bytes that make no sense."""


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

    def __init__(self, code: int, remark: str | None, address: str) -> None:
        super().__init__(code, remark, address)
        self.code = code
        self.remark = remark
        self.address = address

    def __str__(self) -> str:
        return f"{self.address} answered {response_name(self.code)}: {self.remark or 'no remark'}"
