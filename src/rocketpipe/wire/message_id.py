"""Message ids: of a place in a commit log, unique ones made by producers, and recall handles.

The first two are hex digits, 32 with an IPv4 address or 56 with an IPv6 one, and look alike.
"""

from base64 import b64decode, urlsafe_b64encode
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from itertools import count, islice
from struct import Struct
from typing import NamedTuple

from rocketpipe.compiled import compiled
from rocketpipe.errors import InvalidMessage, MalformedRecord
from rocketpipe.host import unpack_host
from rocketpipe.message import offset_message_id
from rocketpipe.wire.java_text import read_integer

__all__ = [
    "OffsetMessageId",
    "RecallHandle",
    "UniqueId",
    "UniqueIdGenerator",
    "offset_message_id",
    "offset_message_ids",
    "parse_offset_message_id",
    "parse_recall_handle",
    "parse_unique_id",
    "recall_handle_parts",
]


class OffsetMessageId(NamedTuple):
    """Where a message is stored."""

    store_host: str
    physical_offset: int


def parse_offset_message_id(text: str) -> OffsetMessageId:
    """The place that `offset_message_id` made an id of."""
    data = _unhex(text)
    return OffsetMessageId(unpack_host(data[:-8]), int.from_bytes(data[-8:], "big", signed=True))


def offset_message_ids(prefix: str, offsets: tuple[int, ...]) -> str:
    """The ids of messages of one broker, with commas between; the prefix is its host in hex."""
    if compiled is not None:
        ids = compiled.offset_ids(prefix, offsets)
        if ids is not None:
            return ids
    return ",".join([f"{prefix}{offset:016X}" for offset in offsets])


class UniqueId(NamedTuple):
    """What a producer's id tells: who made it, and when in that month."""

    ip: str
    pid: int  # its low 16 bits
    process_unique: int
    month_ms: int  # since the first of the month, in the producer's own time zone
    counter: int


_UNIQUE_TAIL = Struct(">HiIH")
_HEX = [f"{number:02X}" for number in range(256)]  # twice as fast as to format each


def parse_unique_id(text: str) -> UniqueId:
    """The parts of an id that a `UniqueIdGenerator`, ours or Java's, made."""
    data = _unhex(text)
    ip, tail = data[: -_UNIQUE_TAIL.size], data[-_UNIQUE_TAIL.size :]
    return UniqueId(str(ip_address(ip)), *_UNIQUE_TAIL.unpack(tail))


class UniqueIdGenerator:
    """Makes ids that no other call makes: `next_id = UniqueIdGenerator(...)`, then `next_id()`.

    An id is an address, a process, the time since the month began and a counter of 16 bits, as in
    Java's MessageClientIDSetter. But what overflows the counter goes on to count up the process's
    int. Thus no id depends on time to be unique: not with a clock that steps back, nor when a new
    month begins, nor for many ids in one millisecond. Drawing the number is one atomic step, so
    threads may share a generator. A fork copies it: make a new one in the child.
    """

    def __init__(self, ip: bytes, pid: int, process_unique: int, now_ms: Callable[[], int]) -> None:
        if len(ip) not in (4, 16):
            raise ValueError(f"an IP address of {len(ip)} bytes")
        self._prefix = (ip + (pid & 0xFFFF).to_bytes(2, "big")).hex().upper()
        self._numbers = count((process_unique & 0xFFFFFFFF) << 16)
        self._now_ms = now_ms
        self._month = (0, 0)

    def __call__(self) -> str:
        number = next(self._numbers)
        return f"{self._head(number)}{number & 0xFFFF:04X}"

    def many(self, quantity: int) -> list[str]:
        """So many ids, much cheaper than one by one: they share all but the counter."""
        numbers = list(islice(self._numbers, quantity))
        if not numbers or numbers[0] >> 16 != numbers[-1] >> 16:  # the counter overflows in between
            return [f"{self._head(number)}{number & 0xFFFF:04X}" for number in numbers]
        head = self._head(numbers[0])
        if compiled is not None and numbers[-1] - numbers[0] == quantity - 1:
            return compiled.counted_ids(head, numbers[0] & 0xFFFF, quantity)
        return [f"{head}{_HEX[number >> 8 & 0xFF]}{_HEX[number & 0xFF]}" for number in numbers]

    def _head(self, number: int) -> str:
        """The id of this number, but for the counter at its end."""
        now_ms = self._now_ms()
        start_ms, end_ms = self._month
        if not start_ms <= now_ms < end_ms:
            start_ms, end_ms = self._month = _month_around(now_ms)
        return f"{self._prefix}{number >> 16 & 0xFFFFFFFF:08X}{now_ms - start_ms:08X}"


def _month_around(now_ms: int) -> tuple[int, int]:
    """Where its month begins and ends; in local time, by which Java's tools read an id's time."""
    local = datetime.fromtimestamp(now_ms / 1000, UTC).astimezone()
    # Without a time zone `timestamp` takes the local one, as it is on that day of the year.
    first = local.replace(tzinfo=None, day=1, hour=0, minute=0, second=0, microsecond=0)
    next_first = (first + timedelta(days=31)).replace(day=1)
    return int(first.timestamp() * 1000), int(next_first.timestamp() * 1000)


class RecallHandle(NamedTuple):
    """What takes back a timer message before it is delivered (RecallMessageHandle.HandleV1)."""

    topic: str
    broker_name: str
    timestamp_ms: int  # one after the time of delivery, as a broker hands it out
    unique_id: str

    def encode(self) -> str:
        """The text a producer gets for its message, and gives back to recall it."""
        text = f"v1 {self.topic} {self.broker_name} {self.timestamp_ms} {self.unique_id}"
        if len(text.split()) != 5:
            raise InvalidMessage(f"no part of a recall handle may be empty or have a space: {self}")
        try:
            return urlsafe_b64encode(text.encode()).decode()
        except UnicodeEncodeError as error:
            raise InvalidMessage(f"recall handle {self}: {error}") from error


def parse_recall_handle(handle: str) -> RecallHandle:
    """What a handle stands for; like Java, with or without base64's padding."""
    try:
        version, topic, broker_name, timestamp, unique_id = recall_handle_parts(handle)
        timestamp_ms = read_integer(timestamp, bits=64)
    except ValueError as error:
        raise MalformedRecord(f"not a recall handle: {handle!r:.200}") from error
    if version != "v1":
        raise MalformedRecord(f"a recall handle of version {version!r:.200}")
    return RecallHandle(topic, broker_name, timestamp_ms, unique_id)


def recall_handle_parts(handle: str) -> list[str]:
    """The parts of what may be a handle, as a broker looks at them one by one; or ValueError."""
    padded = handle + "=" * (-len(handle) % 4)
    return b64decode(padded, altchars=b"-_", validate=True).decode().split(" ")


def _unhex(text: str) -> bytes:
    # bytes.fromhex alone would also take spaces between the digits.
    if len(text) in (32, 56) and text.isalnum():
        try:
            return bytes.fromhex(text)
        except ValueError:
            pass
    raise MalformedRecord(f"not a message id of 32 or 56 hex digits: {text!r:.200}")
