"""Message ids: of a place in a commit log, unique ones made by producers, and recall handles.

The first two are hex digits, 32 with an IPv4 address or 56 with an IPv6 one, and look alike.
"""

import time
from base64 import b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from collections.abc import Callable
from ipaddress import ip_address
from struct import Struct
from threading import Lock
from typing import NamedTuple

from rocketpipe.errors import InvalidMessage, MalformedRecord
from rocketpipe.host import unpack_host
from rocketpipe.message import offset_message_id

__all__ = [
    "OffsetMessageId",
    "RecallHandle",
    "UniqueId",
    "UniqueIdGenerator",
    "offset_message_id",
    "parse_offset_message_id",
    "parse_recall_handle",
    "parse_unique_id",
]


class OffsetMessageId(NamedTuple):
    """Where a message is stored."""

    store_host: str
    physical_offset: int


def parse_offset_message_id(text: str) -> OffsetMessageId:
    """The place that `offset_message_id` made an id of."""
    data = _unhex(text)
    return OffsetMessageId(unpack_host(data[:-8]), int.from_bytes(data[-8:], "big", signed=True))


class UniqueId(NamedTuple):
    """What a producer's id tells: who made it, and when in that month."""

    ip: str
    pid: int  # its low 16 bits
    process_unique: int
    month_ms: int  # since the first of the month, in the producer's own time zone
    counter: int


_UNIQUE_TAIL = Struct(">HiIH")


def parse_unique_id(text: str) -> UniqueId:
    """The parts of an id that a `UniqueIdGenerator`, ours or Java's, made."""
    data = _unhex(text)
    ip, tail = data[: -_UNIQUE_TAIL.size], data[-_UNIQUE_TAIL.size :]
    return UniqueId(str(ip_address(ip)), *_UNIQUE_TAIL.unpack(tail))


class UniqueIdGenerator:
    """Makes ids no other call made: `next_id = UniqueIdGenerator(...)`, then `next_id()`.

    An id is the process, the milliseconds since the month began and a counter of 16 bits, as in
    Java's MessageClientIDSetter. Time and counter are here one number that only grows, and a new
    month counts as a new process; so ids stay unique when the clock steps back, when more than
    65,536 are made in a millisecond, and from month to month. A fork copies a generator: make a
    new one in the child.
    """

    def __init__(self, ip: bytes, pid: int, process_unique: int, now_ms: Callable[[], int]) -> None:
        if len(ip) not in (4, 16):
            raise ValueError(f"an IP address of {len(ip)} bytes")
        self._process = ip + (pid & 0xFFFF).to_bytes(2, "big")
        self._process_unique = process_unique
        self._now_ms = now_ms
        self._lock = Lock()
        self._last = -1
        self._start_month(now_ms())

    def __call__(self) -> str:
        now_ms = self._now_ms()
        with self._lock:
            if now_ms >= self._next_month_ms:
                self._process_unique += 1
                self._last = -1
                self._start_month(now_ms)
            self._last = last = max(self._last + 1, (now_ms - self._month_start_ms) << 16)
            return f"{self._prefix}{last:012X}"

    def _start_month(self, now_ms: int) -> None:
        # Local time, since Java's tools turn an id back to its time by their own time zone.
        year, month, *_ = time.localtime(now_ms / 1000)
        self._month_start_ms = _month_start_ms(year, month)
        self._next_month_ms = _month_start_ms(year, month + 1)
        unique = (self._process_unique & 0xFFFFFFFF).to_bytes(4, "big")
        self._prefix = (self._process + unique).hex().upper()


def _month_start_ms(year: int, month: int) -> int:
    return int(time.mktime((year, month, 1, 0, 0, 0, 0, 0, -1))) * 1000


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
        return urlsafe_b64encode(text.encode()).decode()


def parse_recall_handle(handle: str) -> RecallHandle:
    """What a handle stands for; like Java, with or without base64's padding."""
    try:
        padded = handle + "=" * (-len(handle) % 4)
        text = b64decode(padded, altchars=b"-_", validate=True).decode()
        version, topic, broker_name, timestamp, unique_id = text.split(" ")
        timestamp_ms = int(timestamp)
    except (Base64Error, ValueError) as error:
        raise MalformedRecord(f"not a recall handle: {handle!r:.200}") from error
    if version != "v1":
        raise MalformedRecord(f"a recall handle of version {version!r:.200}")
    return RecallHandle(topic, broker_name, timestamp_ms, unique_id)


def _unhex(text: str) -> bytes:
    # bytes.fromhex alone would also take spaces between the digits.
    if len(text) in (32, 56) and text.isalnum():
        try:
            return bytes.fromhex(text)
        except ValueError:
            pass
    raise MalformedRecord(f"not a message id of 32 or 56 hex digits: {text!r:.200}")
