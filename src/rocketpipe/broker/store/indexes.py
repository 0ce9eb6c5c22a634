"""All that is derived from the log, the queues and the key index, and how it is kept in step.

A checkpoint says up to which offset of the log the files of queues and index are complete and on
disk, and how many entries each then had. After a crash they are taken up as they were then, and
the log is read again from there on; without a checkpoint, or with files missing, from its start.
"""

import asyncio
import json
import logging
import zlib
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rocketpipe.broker.store.atomic_file import AtomicFile
from rocketpipe.broker.store.consume_queue import ENTRY, ENTRY_BYTES, ConsumeQueue
from rocketpipe.broker.store.disk import Disk
from rocketpipe.broker.store.key_index import KeyIndex
from rocketpipe.broker.store.open_files import OpenFiles
from rocketpipe.broker.store.settings import StoreSettings

_log = logging.getLogger(__name__)

_QUEUES_PER_TURN = 64
_VERSION = 2  # of the checkpoint; one of another version is not used

SyncLog = Callable[[], Awaitable[None]]


class Placed(NamedTuple):
    """Records of one put in their place in the log, and what queues and index keep of them."""

    queue: ConsumeQueue | None  # None: they have no place in any queue
    queue_offset: int  # of the first
    size: int  # of all
    store_timestamp_ms: int
    entries: bytes  # one of each record, as queues keep them
    keyed: bytes  # as the key index takes them

    @property
    def quantity(self) -> int:
        """How many records there are."""
        return len(self.entries) // ENTRY_BYTES


def messages_of(arrivals: Iterable[Placed]) -> Iterator[tuple[int, int, int]]:
    """Queue offset, tags code and offset in the log of each message."""
    for placed in arrivals:
        for queue_offset, entry in enumerate(
            ENTRY.iter_unpack(placed.entries), placed.queue_offset
        ):
            physical_offset, _, tags_code = entry
            yield queue_offset, tags_code, physical_offset


# Is told of messages once they can be read: topic, queue id and those of one queue together, in the
# order of the log. Most who listen wait for nothing at the moment, and need not look at each.
ArrivalListener = Callable[[str, int, Sequence[Placed]], None]


class Indexes:
    """The queues and the key index of a store."""

    def __init__(
        self, folder: Path, settings: StoreSettings, *, disk: Disk, files: OpenFiles
    ) -> None:
        self._folder = folder / "consumequeue"
        self._settings = settings
        self._disk = disk
        self._files = files
        self._checkpoint = AtomicFile(folder / "checkpoint", disk=disk)
        self._deletions = AtomicFile(folder / "config" / "deletedTopics.json", disk=disk)
        self.queues: dict[tuple[str, int], ConsumeQueue] = {}
        self.keys = KeyIndex(
            folder / "index",
            disk=disk,
            files=files,
            slots=settings.index_slots,
            entries_max=settings.index_entries_max,
        )
        self._unsynced: set[Path] = set()  # files; also from a checkpoint that failed
        self.deleted: dict[str, int] = {}
        """Topics that were deleted, and how far the log reached then: what it holds of them before
        that is not read again."""
        self.offset = 0
        """How far of the log is in here."""
        self.checkpoint_offset = 0
        """How far of it is in the files, as of the last checkpoint."""
        self.store_timestamp_ms = 0
        """When the newest message was stored."""

    def restore(self, log_min: int, log_max: int) -> bool:
        """Take up what the checkpoint says; False when all is to be built anew from the log."""
        self.deleted = self._deletions.load(json.loads) or {}
        state = self._checkpoint.load(_unseal)
        if state is None or not state["offset"] <= log_max:
            return self._start_anew("no checkpoint fits the log")
        if state["segment_entries"] != self._settings.consume_queue_segment_entries:
            return self._start_anew("the files of queues have another size now")
        self.offset = self.checkpoint_offset = state["offset"]
        self.store_timestamp_ms = state["store_timestamp_ms"]
        for topic, queues in state["queues"].items():
            if self.deleted.get(topic, 0) > state["deleted"].get(topic, 0):
                self._disk.remove_folder(self._folder / topic)
                continue  # deleted, and then there was no time for another checkpoint
            for queue_id, (min_offset, max_offset) in queues.items():
                queue = self._add_queue(topic, int(queue_id), min_offset, max_offset)
                if not queue.has_files():
                    return self._start_anew(f"{queue.folder} lacks files")
        if not self.keys.restore(state["index"], was_closed=state["is_closing"]):
            return self._start_anew("the key index lacks files")
        self.remove_before(log_min)
        return True

    def queue(self, topic: str, queue_id: int) -> ConsumeQueue:
        """The queue, a new one if there is none yet."""
        return self.queues.get((topic, queue_id)) or self._add_queue(topic, queue_id, 0, 0)

    def add_all(self, written: Iterable[Placed]) -> None:
        """Make records of the log known to their queues and to the key index."""
        of_one_time: list[bytes] = []  # for the key index, which takes many at once as it takes one
        for queue, _, _, store_timestamp_ms, entries, keyed in written:
            if queue is not None:
                queue.append(entries)
            if store_timestamp_ms != self.store_timestamp_ms:
                self.keys.add(b"".join(of_one_time), self.store_timestamp_ms)
                of_one_time.clear()
                self.store_timestamp_ms = store_timestamp_ms
            of_one_time.append(keyed)
        self.keys.add(b"".join(of_one_time), self.store_timestamp_ms)

    async def checkpoint(self, sync_log: SyncLog, *, is_closing: bool = False) -> None:
        """Bring the files up to where the log is now."""
        # All of this is of one moment, whatever is put while the files are written and synced.
        offset = self.offset
        queues: dict[str, dict[int, tuple[int, int]]] = defaultdict(dict)
        for (topic, queue_id), queue in self.queues.items():
            queues[topic][queue_id] = (queue.min_offset, queue.max_offset)
        state = {
            "version": _VERSION,
            "segment_entries": self._settings.consume_queue_segment_entries,
            "offset": offset,
            "store_timestamp_ms": self.store_timestamp_ms,
            "queues": queues,
            "index": self.keys.snapshot(),
            "deleted": self.deleted,
            "is_closing": is_closing,
        }
        data = _seal(state)
        await sync_log()
        self.keys.write_out(self._unsynced, is_closing=is_closing)
        for count, queue in enumerate(list(self.queues.values()), 1):
            queue.write_out(self._unsynced)
            if not count % _QUEUES_PER_TURN:
                await asyncio.sleep(0)
        written = sorted(self._unsynced)
        for path in written:
            await self._sync(path)
        for folder in sorted({path.parent for path in written}):
            await self._disk.sync_folder(folder)
            await self._disk.sync_folder(folder.parent)
        await self._checkpoint.write(data)
        self.checkpoint_offset = offset
        self._unsynced.difference_update(written)

    def write_out(self) -> None:
        """Write what is in memory to the files, to have the memory for more."""
        self.keys.write_out(self._unsynced)
        for queue in self.queues.values():
            queue.write_out(self._unsynced)

    async def delete_topic(self, topic: str, sync_log: SyncLog, *, log_min: int) -> None:
        """Forget the queues of a topic, also when all is built anew."""
        remembered = {name: end for name, end in self.deleted.items() if end > log_min}
        self.deleted = {**remembered, topic: self.offset}
        await self._deletions.write(json.dumps(self.deleted).encode())
        for key in [key for key in self.queues if key[0] == topic]:
            self.queues.pop(key).remove()
        self._disk.remove_folder(self._folder / topic)
        await self.checkpoint(sync_log)

    def remove_before(self, physical_offset: int) -> None:
        """Forget what stood before that offset in the log, which has deleted it."""
        for queue in self.queues.values():
            queue.remove_before(physical_offset)
        self.keys.remove_before(physical_offset)

    async def cut(self, physical_offset: int) -> None:
        """Forget what stands from that offset on in the log, which is going to end there."""
        if any(end > physical_offset for end in self.deleted.values()):
            # Else what comes to stand there would count as deleted.
            capped = {topic: min(end, physical_offset) for topic, end in self.deleted.items()}
            await self._deletions.write(json.dumps(capped).encode())
            self.deleted = capped
        if not physical_offset:
            self._clear()
            return
        self.offset = min(self.offset, physical_offset)  # first: whatever fails now is done again
        for key, queue in list(self.queues.items()):
            queue.cut(physical_offset)
            if not queue.max_offset:
                self.queues.pop(key).remove()
        self.keys.cut(physical_offset)

    def _clear(self) -> None:
        self._files.close_all()
        self.queues.clear()
        self.keys.clear()
        self._disk.remove_folder(self._folder)
        self.offset = self.checkpoint_offset = self.store_timestamp_ms = 0

    def _start_anew(self, reason: str) -> bool:
        _log.info("building queues and key index from the log: %s", reason)
        self._clear()
        return False

    def _add_queue(
        self, topic: str, queue_id: int, min_offset: int, max_offset: int
    ) -> ConsumeQueue:
        queue = self.queues[topic, queue_id] = ConsumeQueue(
            self._folder / topic / str(queue_id),
            topic,
            queue_id,
            disk=self._disk,
            files=self._files,
            segment_entries=self._settings.consume_queue_segment_entries,
            min_offset=min_offset,
            max_offset=max_offset,
        )
        return queue

    async def _sync(self, path: Path) -> None:
        try:
            # Opened for this alone: others open and close theirs meanwhile.
            file = self._disk.open(path)
        except FileNotFoundError:
            return  # deleted meanwhile
        try:
            await file.sync()
        finally:
            file.close()


def _seal(state: dict[str, Any]) -> bytes:
    data = json.dumps(state).encode()
    return b"%08x %s" % (zlib.crc32(data), data)


def _unseal(sealed: bytes) -> dict[str, Any]:
    crc, _, data = sealed.partition(b" ")
    if crc != b"%08x" % zlib.crc32(data):
        raise ValueError("its CRC does not match")
    state: dict[str, Any] = json.loads(data)
    if state["version"] != _VERSION:
        raise ValueError(f"its version is {state['version']}")
    return state
