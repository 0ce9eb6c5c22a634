"""Reads records out of the log, by their entries in a queue: whole ones, as a pull answers them."""

import logging
import struct
from collections.abc import Callable, Mapping, Sequence
from struct import Struct

from rocketpipe.broker.store.commit_log import CommitLog
from rocketpipe.broker.store.consume_queue import ENTRY, ConsumeQueue
from rocketpipe.broker.store.values import QueueRead, ReadStatus
from rocketpipe.compiled import compiled
from rocketpipe.wire.record import (
    BORN_TIMESTAMP_AT,
    RECORD_BYTES_MIN,
    has_born_host_v6,
    is_record_magic,
    record_properties,
)

_log = logging.getLogger(__name__)

_SKIPPED_BYTES_MAX = 16 << 20  # of records that had to be read to know that nobody wants them
_ENTRIES_SCANNED = 800  # RocketMQ's bound when a filter skips much: 16,000 bytes of entries
# Records of one queue lie between those of others. Reading what is between is cheaper than asking
# the kernel once more, up to about so much.
_GAP_BYTES_MAX = 8 * 1024
_SPAN_BYTES_MAX = 1 << 20

_SIZE_MAGIC_PLACE = Struct(">ii20xq")  # size, magic and offset in the log, at a record's start
_SIZE_PLACE = Struct(">i24xq")
_HEAD_BYTES = 76  # enough to find the store timestamp, whatever the hosts are


def read_queue(
    log: CommitLog,
    queue: ConsumeQueue,
    offset: int,
    *,
    count_max: int,
    bytes_max: int,
    accepts: Callable[[int], bool] | None,
    matches: Callable[[Mapping[str, str]], bool] | None,
) -> QueueRead:
    """The records from an offset of the queue on (DefaultMessageStore.getMessage)."""
    min_offset, max_offset = queue.min_offset, queue.max_offset
    if not max_offset:
        return QueueRead(ReadStatus.NO_MESSAGE_IN_QUEUE, 0, min_offset, max_offset)
    if offset < min_offset:
        return QueueRead(ReadStatus.OFFSET_TOO_SMALL, min_offset, min_offset, max_offset)
    if offset == max_offset:
        return QueueRead(ReadStatus.OFFSET_OVERFLOW_ONE, offset, min_offset, max_offset)
    if offset > max_offset:
        return QueueRead(ReadStatus.OFFSET_OVERFLOW_BADLY, max_offset, min_offset, max_offset)

    is_filtered = accepts is not None or matches is not None
    scanned = max(_ENTRIES_SCANNED, count_max) if is_filtered else count_max
    entries = queue.entries(offset, scanned)
    if matches is not None:
        found, scanned = _read_matching(log, entries, count_max, bytes_max, matches)
        status = ReadStatus.FOUND if found else ReadStatus.NO_MATCHED_MESSAGE
        sizes = tuple(map(len, found))
        records = b"".join(found)
        return QueueRead(status, offset + scanned, min_offset, max_offset, records, sizes)
    if accepts is None:
        records, sizes = _read_plain(log, entries, bytes_max)
        if sizes:
            next_offset = offset + len(sizes)
            return QueueRead(ReadStatus.FOUND, next_offset, min_offset, max_offset, records, sizes)
    offsets, sizes, scanned = _choose(entries, count_max, bytes_max, accepts)
    next_offset = offset + scanned
    if not sizes:
        return QueueRead(ReadStatus.NO_MATCHED_MESSAGE, next_offset, min_offset, max_offset)
    records, sizes = _read_records(log, offsets, sizes)
    status = ReadStatus.FOUND if records else ReadStatus.MESSAGE_WAS_REMOVING
    return QueueRead(status, next_offset, min_offset, max_offset, records, sizes)


def _read_plain(log: CommitLog, entries: bytes, bytes_max: int) -> tuple[bytes, tuple[int, ...]]:
    """The records that fit, and their sizes, if all are whole and where they should be: nearly
    always. Else none, or where nothing is compiled."""
    if compiled is None:
        return b"", ()
    chosen = compiled.choose_spans(entries, bytes_max, _GAP_BYTES_MAX, _SPAN_BYTES_MAX)
    if chosen is None:
        return b"", ()
    spans, sizes = chosen
    parts = []
    first = 0
    for start, span_bytes, count in spans:
        of_span = entries[first * ENTRY.size : (first + count) * ENTRY.size]
        part = compiled.cut_span(log.read(start, span_bytes), of_span)
        if part is None:
            return b"", ()
        parts.append(part)
        first += count
    return parts[0] if len(parts) == 1 else b"".join(parts), sizes


def _choose(
    entries: bytes, count_max: int, bytes_max: int, accepts: Callable[[int], bool] | None
) -> tuple[Sequence[int], tuple[int, ...], int]:
    """Offsets and sizes of those that are wanted and fit, and how many entries that took."""
    if accepts is None and entries:  # then there are not more than wanted
        all_offsets, all_sizes, _ = zip(*ENTRY.iter_unpack(entries), strict=True)
        if 0 not in all_sizes and sum(all_sizes) <= bytes_max:
            return all_offsets, all_sizes, len(all_sizes)  # nearly always, and many times faster
    offsets: list[int] = []
    sizes: list[int] = []
    total = scanned = 0
    for physical_offset, size, tags_code in ENTRY.iter_unpack(entries):
        if size and (accepts is None or accepts(tags_code)):
            total += size
            if sizes and (total > bytes_max or len(sizes) >= count_max):
                break
            offsets.append(physical_offset)
            sizes.append(size)
        scanned += 1
    return offsets, tuple(sizes), scanned


def _read_matching(
    log: CommitLog,
    entries: bytes,
    count_max: int,
    bytes_max: int,
    matches: Callable[[Mapping[str, str]], bool],
) -> tuple[list[bytes], int]:
    """The records whose properties match and that fit, and how many entries that took."""
    found: list[bytes] = []
    total = skipped = scanned = 0
    for offset, size, _ in ENTRY.iter_unpack(entries):
        record = record_at(log, offset) if size else None
        if record is not None and matches(record_properties(record)):
            total += size
            if found and (total > bytes_max or len(found) >= count_max):
                break
            found.append(record)
        else:
            skipped += size
        scanned += 1
        if skipped > _SKIPPED_BYTES_MAX:
            break
    return found, scanned


def record_at(log: CommitLog, offset: int) -> bytes | None:
    """The record that starts there; None where none does."""
    if not log.min_offset <= offset < log.max_offset:
        return None
    data = log.read(offset, 4096)
    if len(data) < RECORD_BYTES_MIN:
        return None
    size, magic, place = _SIZE_MAGIC_PLACE.unpack_from(data)
    if place != offset or not is_record_magic(magic):
        return None
    if size > len(data):
        data = log.read(offset, size)
    return data[:size] if RECORD_BYTES_MIN <= size <= len(data) else None


def store_time_at(log: CommitLog, offset: int) -> int:
    """When the record that starts there was stored, in ms; -1 where none does."""
    if not log.min_offset <= offset < log.max_offset:
        return -1
    head = log.read(offset, _HEAD_BYTES)
    if len(head) < _HEAD_BYTES:
        return -1
    _, magic, place = _SIZE_MAGIC_PLACE.unpack_from(head)
    if place != offset or not is_record_magic(magic):
        return -1
    at = BORN_TIMESTAMP_AT + 8 + (20 if has_born_host_v6(head) else 8)
    return int.from_bytes(head[at : at + 8], "big", signed=True)


def _read_records(
    log: CommitLog, offsets: Sequence[int], sizes: tuple[int, ...]
) -> tuple[bytes, tuple[int, ...]]:
    """The records at these places, and their sizes; those that are damaged are left out."""
    start = offsets[0]
    span_bytes = offsets[-1] + sizes[-1] - start
    between_bytes = span_bytes - sum(sizes)
    if between_bytes <= _GAP_BYTES_MAX * len(sizes) and span_bytes <= _SPAN_BYTES_MAX:
        span = log.read(start, span_bytes)
        places = [offset - start for offset in offsets]
        if len(span) == span_bytes and _are_whole(span, places, offsets, sizes):
            if not between_bytes:
                return span, sizes
            pairs = zip(places, sizes, strict=True)
            return b"".join([span[place : place + size] for place, size in pairs]), sizes
    return _read_one_by_one(log, list(zip(offsets, sizes, strict=True)))


def _are_whole(
    span: bytes, places: Sequence[int], offsets: Sequence[int], sizes: Sequence[int]
) -> bool:
    """Whether the records at these places are those of the entries, as they nearly always are."""
    try:
        heads = [_SIZE_PLACE.unpack_from(span, place) for place in places]
    except struct.error:
        return False
    return heads == list(zip(sizes, offsets, strict=True))


def _read_one_by_one(
    log: CommitLog, chosen: Sequence[tuple[int, int]]
) -> tuple[bytes, tuple[int, ...]]:
    """The same where records are far apart, cross the end of a segment, or are damaged."""
    parts = []
    sizes = []
    first = 0
    while first < len(chosen):
        start, size = chosen[first]
        end = start + size
        last = first + 1
        while last < len(chosen):
            offset, size = chosen[last]
            if offset - end > _GAP_BYTES_MAX or offset + size - start > _SPAN_BYTES_MAX:
                break
            end = offset + size
            last += 1
        span = log.read(start, end - start)
        for offset, size in chosen[first:last]:
            place = offset - start
            record = span[place : place + size]
            # The entry and the record vouch for each other.
            if len(record) == size and _SIZE_MAGIC_PLACE.unpack_from(record)[::2] == (size, offset):
                parts.append(record)
                sizes.append(size)
            elif offset < log.segment_end(start):
                _log.error("the log has no record of %d bytes at %d, left out", size, offset)
            else:
                break  # the span ended with its segment: the next one begins with this record
            first += 1
    return b"".join(parts), tuple(sizes)
