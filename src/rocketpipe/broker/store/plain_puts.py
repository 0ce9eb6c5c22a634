"""Records of plain sends, many at once: `layout.lay_out` says what is in them, and why."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rocketpipe.broker.store.consume_queue import ConsumeQueue
from rocketpipe.broker.store.indexes import Placed
from rocketpipe.compiled import PlainSend, SentRow, compiled
from rocketpipe.wire.sys_flag import TRANSACTION_MASK


class PlainPlace(NamedTuple):
    """What the records have in common, and where in the log there is room for them."""

    start: int
    end: int
    store_timestamp_ms: int
    born_host: bytes
    store_host: bytes


def lay_out_plain(
    sends: Sequence[PlainSend],
    queues: Mapping[tuple[str, int], ConsumeQueue],
    place: PlainPlace,
    body_bytes_max: int,
) -> tuple[list[bytes], list[Placed], list[SentRow]]:
    """The records of the first of these, up to one that is not plain, or finds no room.

    Their queues count them already.
    """
    offset, end, now_ms, born_host, store_host = place
    records: list[bytes] = []
    placed: list[Placed] = []
    rows: list[SentRow] = []
    if compiled is None:
        return records, placed, rows
    for _, opaque, topic, queue_id, flag, sys_flag, born_ms, times, key, texts, body in sends:
        queue = queues.get((topic, queue_id))
        if queue is None or len(body) > body_bytes_max or sys_flag & TRANSACTION_MASK:
            break
        found = compiled.lay_out(
            body,
            texts,
            flag,
            queue.topic_bytes,
            queue_id,
            queue.next_offset,
            1,
            offset,
            sys_flag,
            born_ms,
            born_host,
            now_ms,
            store_host,
            times,
            0,
        )
        if found is None:
            break
        record, _, entries, keyed = found
        size = len(record)
        if offset + size > end:
            break
        records.append(record)
        placed.append(Placed(queue, queue.next_offset, size, now_ms, entries, keyed))
        rows.append((opaque, offset, queue_id, queue.next_offset, key))
        queue.next_offset += 1
        offset += size
    return records, placed, rows
