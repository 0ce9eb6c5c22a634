"""The limits of connections: nothing from outside, and nothing on its way out, is unbounded."""

from rocketpipe.errors import InvalidSetting
from rocketpipe.lazy_dataclass import dataclass
from rocketpipe.wire.frame import FRAME_BYTES_MAX, SerializeType


@dataclass(frozen=True, slots=True, kw_only=True)
class RemotingSettings:
    """RocketMQ's defaults, where it has them."""

    serialize_type: SerializeType = SerializeType.JSON  # of our requests' headers
    frame_bytes_max: int = FRAME_BYTES_MAX  # of a whole frame, its length included
    requests_in_flight_max: int = 65535  # ours that wait for an answer, and the peer's at work
    write_buffer_bytes_max: int = 16 * 1024 * 1024  # more waits, or stops us reading from the peer
    connections_max: int = 65535  # that a server keeps open; more are closed
    idle_timeout: float = 120.0  # a connection on which nothing moves for so long is closed
    close_timeout: float = 1.0  # how long a closing connection may take to write what it holds

    def __post_init__(self) -> None:
        if not isinstance(self.serialize_type, SerializeType):
            raise InvalidSetting(f"serialize_type is {self.serialize_type!r}: not a SerializeType")
        for name in (
            "frame_bytes_max",
            "requests_in_flight_max",
            "write_buffer_bytes_max",
            "connections_max",
        ):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise InvalidSetting(f"{name} is {value!r}: it must be a whole number above 0")
        for name in ("idle_timeout", "close_timeout"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not value > 0:
                raise InvalidSetting(f"{name} is {value!r}: it must be a number of seconds above 0")
        if self.frame_bytes_max >= 1 << 31:
            raise InvalidSetting("frame_bytes_max must be below 2 GiB: a frame's length is an int")
