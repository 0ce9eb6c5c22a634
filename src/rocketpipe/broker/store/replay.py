"""Reads the log again and makes queues and key index out of it: after a crash, and on a slave.

Damage is met here, and never in silence. Bytes that are no record are skipped when whole records
follow: those are kept, and the queues have a gap where the lost ones were. When none follows, it is
the torn end of what was being written, and is cut off.

A record that is whole must also be the next one of its queue. If it is not, and nothing was lost
before it that explains a gap, then its topic, queue id or queue offset was damaged, for these no
checksum covers; it is left out. What can't be told: where the log no longer begins at 0 and all is
built anew, any offset may be the first of a queue.
"""

import logging

from rocketpipe.broker.store.commit_log import CommitLog
from rocketpipe.broker.store.consume_queue import ENTRY
from rocketpipe.broker.store.indexes import Indexes, Placed
from rocketpipe.broker.store.key_index import KEYED
from rocketpipe.broker.store.log_scan import Damage, ScannedRecord
from rocketpipe.broker.store.record_facts import (
    is_in_queue,
    is_legal_topic,
    key_hashes,
    tags_code_of,
)
from rocketpipe.broker.store.settings import StoreSettings

_log = logging.getLogger(__name__)


class Replay:
    """Adds what a scan of the log finds to the indexes."""

    def __init__(self, log: CommitLog, indexes: Indexes, settings: StoreSettings) -> None:
        self._log = log
        self._indexes = indexes
        self._settings = settings
        self._has_gaps = False
        self._topics: dict[bytes, str | None] = {}

    def take(self, found: ScannedRecord | Damage) -> Placed | None:
        """Add a record; what was added, or None if it can't be read."""
        if isinstance(found, Damage):
            _log.error(
                "the log is damaged from %d to %d; what follows is kept", found.start, found.end
            )
            self._has_gaps = True
            return None
        offset, parts, topic_bytes, properties, is_damaged = found
        topic = self._topic(topic_bytes)
        if topic is None:
            self._leave_out(found, "its topic makes no sense")
            return None
        is_deleted = offset < self._indexes.deleted.get(topic, 0)  # but still found by key
        if is_deleted or not is_in_queue(parts.sys_flag):
            queue = None
        elif self._is_next(topic, parts.queue_id, parts.queue_offset):
            queue = self._indexes.queue(topic, parts.queue_id)
            queue.skip_to(parts.queue_offset, offset)
        else:
            self._leave_out(found, f"it is not the next one of its queue of {topic}")
            return None
        if is_damaged:
            if queue is not None:
                queue.skip_to(parts.queue_offset + 1, offset + parts.size)
            self._leave_out(found, "its body does not match its CRC, or its properties are torn")
            return None
        code = tags_code_of(topic, properties, parts.store_timestamp_ms, self._settings)
        hashes = key_hashes(topic, properties, parts.sys_flag)
        placed = Placed(
            queue,
            parts.queue_offset,
            parts.size,
            parts.store_timestamp_ms,
            ENTRY.pack(offset, parts.size, code),
            b"".join([KEYED.pack(each, offset) for each in hashes]),
        )
        self._indexes.add_all([placed])
        if queue is not None:
            queue.next_offset = queue.max_offset
        return placed

    def _is_next(self, topic: str, queue_id: int, queue_offset: int) -> bool:
        queue = self._indexes.queues.get((topic, queue_id))
        expected = queue.max_offset if queue is not None else 0
        is_begin_gone = self._log.min_offset > 0
        may_skip = self._has_gaps or (queue is None and is_begin_gone)
        return queue_offset == expected or (queue_offset > expected and may_skip)

    def _leave_out(self, found: ScannedRecord, why: str) -> None:
        _log.error("the record at %d of the log is damaged and lost: %s", found.offset, why)
        self._has_gaps = True

    def _topic(self, data: bytes) -> str | None:
        if data not in self._topics:
            try:
                topic: str | None = data.decode()
            except UnicodeDecodeError:
                topic = None
            if topic is not None and not is_legal_topic(topic):
                topic = None
            self._topics[data] = topic
        return self._topics[data]
