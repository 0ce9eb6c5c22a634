"""Finds the whole records of a log, whatever else a crash or a bad disk has left in it.

A record is whole when its sizes add up, its body matches its CRC, and it says itself that it
stands where it stands. That last number makes it possible to find the next record behind a damaged
one: something that looks like a record, in the very place it claims, is one.

What can't be noticed here, because no checksum of RocketMQ's covers it: a changed flag, birth,
host, store time, count of deliveries or half message's place, some bits of sysFlag, and properties
of the same length. A changed topic, queue id or queue offset is noticed by who counts the messages
of each queue (see replay.py).
"""

from collections.abc import Iterator
from typing import NamedTuple

from rocketpipe.broker.store.commit_log import CommitLog
from rocketpipe.broker.store.record_facts import looks_torn
from rocketpipe.errors import MalformedRecord
from rocketpipe.host import unpack_host
from rocketpipe.wire.hashing import body_crc
from rocketpipe.wire.record import (
    MAGIC_AT,
    MAGIC_V1,
    PHYSICAL_OFFSET_AT,
    RECORD_BYTES_MIN,
    RecordParts,
    blank_size,
    split_record,
)

_WINDOW_BYTES = 1 << 20
_MAGIC_START = MAGIC_V1.to_bytes(4, "big", signed=True)[:3]  # that of V2 ends in another byte
_LOOK_BYTES = PHYSICAL_OFFSET_AT + 8  # from the start of a record to the end of that number


class ScannedRecord(NamedTuple):
    """A record of the log. With `is_damaged` its frame is whole, but what it holds is not."""

    offset: int
    parts: RecordParts
    topic: bytes
    properties: bytes
    is_damaged: bool


class Damage(NamedTuple):
    """Bytes that are no record, in front of one that is."""

    start: int
    end: int


class LogScan:
    """Goes through a log from an offset on; afterwards `position` is the end of what is whole."""

    def __init__(self, log: CommitLog, start: int, *, is_growing: bool = False) -> None:
        self.position = start
        self._is_growing = is_growing  # whether the rest of what looks torn may still come
        self._log = log
        self._window = b""
        self._window_start = 0

    def __iter__(self) -> Iterator[ScannedRecord | Damage]:
        while self.position < self._log.max_offset:
            record = self._record_at(self.position)
            if record is not None and not record.is_damaged:
                self.position += record.parts.size
                yield record
            elif self._is_blank(self.position):
                self.position = self._log.segment_end(self.position)
            elif self._is_growing and self._is_cut_short(self.position):
                return
            else:
                found = self._next_whole(self.position + 1)
                if found is None:
                    return
                start, self.position = self.position, found
                if record is not None and start + record.parts.size == found:
                    yield record
                else:
                    yield Damage(start, found)

    def _record_at(self, offset: int) -> ScannedRecord | None:
        room = self._log.segment_end(offset) - offset
        place = self._show(offset, RECORD_BYTES_MIN)
        size = int.from_bytes(self._window[place : place + 4], "big")
        if not RECORD_BYTES_MIN <= size <= room:
            return None
        place = self._show(offset, size)
        try:
            parts = split_record(self._window, place)
            # These know impossible ports.
            unpack_host(parts.born_host)
            unpack_host(parts.store_host)
        except MalformedRecord:
            return None
        if parts.physical_offset != offset:
            return None
        window = self._window
        topic = window[parts.topic_start : parts.topic_end]
        properties = window[parts.properties_start : place + size]
        body = window[parts.body_start : parts.body_end]
        is_damaged = body_crc(body) != parts.body_crc or looks_torn(properties)
        return ScannedRecord(offset, parts, topic, properties, is_damaged)

    def _is_blank(self, offset: int) -> bool:
        place = self._show(offset, 8)
        return blank_size(self._window, place) == self._log.segment_end(offset) - offset

    def _is_cut_short(self, offset: int) -> bool:
        place = self._show(offset, _LOOK_BYTES)
        head = self._window[place : place + _LOOK_BYTES]
        if len(head) < _LOOK_BYTES:
            return True
        claimed = int.from_bytes(head[PHYSICAL_OFFSET_AT:], "big")
        size = int.from_bytes(head[:4], "big")
        return claimed == offset and offset + size > self._log.max_offset

    def _next_whole(self, offset: int) -> int | None:
        while offset < self._log.max_offset:
            data = self._log.read(offset, _WINDOW_BYTES)
            magic = data.find(_MAGIC_START, MAGIC_AT)
            while magic >= 0:
                place = magic - MAGIC_AT
                number = data[place + PHYSICAL_OFFSET_AT : place + _LOOK_BYTES]
                if int.from_bytes(number, "big") == offset + place:
                    record = self._record_at(offset + place)
                    if record is not None and not record.is_damaged:
                        return offset + place
                magic = data.find(_MAGIC_START, magic + 1)
            if len(data) < _WINDOW_BYTES:  # the end of the segment, or of what there is of it
                offset = self._log.segment_end(offset)
            else:
                offset += len(data) - _LOOK_BYTES + 1
        return None

    def _show(self, offset: int, size: int) -> int:
        """Have `size` bytes from `offset` on in the window, if there are; return their place."""
        place = offset - self._window_start
        if place < 0 or place + size > len(self._window):
            self._window = self._log.read(offset, max(size, _WINDOW_BYTES))
            self._window_start = offset
            return 0
        return place
