"""The store of a broker: puts messages into the log, and reads them by queue, key and place."""

import asyncio
import logging
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

from rocketpipe.broker.store.commit_log import CommitLog
from rocketpipe.broker.store.consume_queue import ENTRY, ConsumeQueue
from rocketpipe.broker.store.disk import Disk, Lock
from rocketpipe.broker.store.housekeeping import Housekeeping
from rocketpipe.broker.store.indexes import ArrivalListener, Indexes, Placed
from rocketpipe.broker.store.layout import Place, lay_out
from rocketpipe.broker.store.log_copy import LogCopy
from rocketpipe.broker.store.log_scan import LogScan
from rocketpipe.broker.store.log_writer import FILLER_BYTES, LogWriter
from rocketpipe.broker.store.open_files import OpenFiles
from rocketpipe.broker.store.plain_puts import PlainPlace, lay_out_plain
from rocketpipe.broker.store.queue_read import read_queue, record_at, store_time_at
from rocketpipe.broker.store.record_facts import is_in_queue, is_legal_topic, key_hash
from rocketpipe.broker.store.recovery import recover
from rocketpipe.broker.store.replay import Replay
from rocketpipe.broker.store.settings import StoreSettings
from rocketpipe.broker.store.values import (
    Done,
    KeyQuery,
    MessageDraft,
    PutResult,
    PutStatus,
    QueueRead,
    ReadStatus,
)
from rocketpipe.clock import Clock
from rocketpipe.compiled import PlainSend, SentRow
from rocketpipe.errors import InvalidMessage, MalformedRecord, StoreError, StoreLocked
from rocketpipe.lazy_dataclass import dataclass
from rocketpipe.wire.record import record_properties

_log = logging.getLogger(__name__)

# Is told what became of plain sends, a row for each.
Stored = Callable[[list[SentRow], PutResult], None]


@dataclass(slots=True)
class StoreStats:
    """What a store has done since it was opened; counters that only grow."""

    messages_put: int = 0
    bytes_put: int = 0
    puts_refused: int = 0
    messages_read: int = 0
    bytes_read: int = 0
    reads_found: int = 0
    reads_missed: int = 0


class MessageStore:
    """Everything a broker stores, in one folder that no other broker may open meanwhile.

    All of it runs in one thread, that of the event loop; nothing here may be called from another.
    """

    def __init__(self, folder: Path, settings: StoreSettings, *, disk: Disk, clock: Clock) -> None:
        self.folder = folder
        self.settings = settings
        self.stats = StoreStats()
        # Told of messages that can now be read.
        self.on_arrival: list[ArrivalListener] = []
        # Told how far the log now reaches (max_physical_offset), once for many messages, and again
        # when more of it is safe.
        self.on_written: list[Callable[[int], None]] = []
        self._disk = disk
        self._clock = clock
        self._abort = folder / "abort"
        self._files = OpenFiles(disk)
        self._log = CommitLog(
            folder / "commitlog",
            disk=disk,
            files=self._files,
            segment_bytes=settings.commit_log_segment_bytes,
        )
        self._indexes = Indexes(folder, settings, disk=disk, files=self._files)
        self._queues = self._indexes.queues
        self._deleting: set[str] = set()
        self._newest_ms = 0  # when the newest message was stored, or will be
        self._replay = Replay(self._log, self._indexes, settings)
        self._was_opened = False
        # Those below exist while the store is open.
        self.log_copy: LogCopy
        self._lock: Lock | None = None
        self._writer: LogWriter | None = None
        self._housekeeping: Housekeeping | None = None

    async def open(self, *, is_copy: bool = False) -> None:
        """Lock the folder, recover what a crash may have left, and be ready.

        `is_copy` is for a slave, whose master can give it again what was damaged. StoreLocked when
        another broker has it; StoreError when the folder can't be used. What was closed is not
        opened again: make a new one.
        """
        assert not self._was_opened
        self._was_opened = True
        try:
            self._disk.make_folder(self.folder)
            self._lock = self._disk.lock(self.folder / "lock")
        except BlockingIOError as error:
            raise StoreLocked(f"{self.folder} is open in another broker") from error
        except OSError as error:
            raise StoreError(f"{self.folder} can't be used: {error}") from error
        try:
            if self._abort.name in self._disk.names(self.folder):
                _log.warning("%s was not closed in order; recovering", self.folder)
            self._disk.open(self._abort, create=True).close()
            await recover(self._log, self._indexes, self._replay, is_copy=is_copy)
            # The folder of the log must be found again after a power loss, as well as its files.
            await self._disk.sync_folder(self.folder)
            await self._disk.sync_folder(self.folder.parent)
        except OSError as error:
            self.kill()
            raise StoreError(f"{self.folder} can't be recovered: {error}") from error
        except BaseException:
            self.kill()
            raise
        self._newest_ms = self._indexes.store_timestamp_ms
        self._writer = LogWriter(
            self._log,
            self.settings,
            clock=self._clock,
            written=self._take_written,
            refused=self._take_back,
            synced=self._tell_progress,
        )
        self._housekeeping = Housekeeping(
            self.folder,
            self._log,
            self._indexes,
            self._writer,
            self.settings,
            disk=self._disk,
            clock=self._clock,
        )
        self.log_copy = LogCopy(self._log, self._indexes, self._housekeeping, self._clock)

    async def close(self) -> None:
        """Finish what was put, sync everything and let go of the folder."""
        if self._writer is None or self._housekeeping is None:
            return
        writer, self._writer = self._writer, None
        try:
            await self._housekeeping.stop()
            await writer.close()
            await self._housekeeping.checkpoint(is_closing=True)
            self._disk.remove(self._abort)
            await self._disk.sync_folder(self.folder)
        except OSError as error:
            _log.error("%s could not be closed in order: %s", self.folder, error)
        finally:
            self.kill()

    def kill(self) -> None:
        """Let go of everything at once, as a crash would: nothing more is written, nobody told."""
        if self._housekeeping is not None:
            self._housekeeping.kill()
        if self._writer is not None:
            self._writer.kill()
            self._writer = None
        self._log.close()
        self._files.close_all()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    # Writing

    def put(self, message: MessageDraft, done: Done) -> None:
        """Store a message; `done` is called once, when it is as safe as the settings promise.

        A refusal calls `done` before this returns.
        """
        try:
            properties = message.properties.encode()
        except UnicodeEncodeError as error:
            self._refuse(done, PutStatus.MESSAGE_ILLEGAL, f"properties: {error}")
            return
        self._put(message, properties, done)

    def put_batch(self, batch: MessageDraft, done: Done) -> None:
        """Store the messages of a wire batch, which is the draft's body: all of them or none.

        They take consecutive places of one queue. Properties and flag of each are its own; the
        draft's are not used.
        """
        self._put(batch, None, done)

    async def put_and_wait(self, message: MessageDraft) -> PutResult:
        """What `put` gives to its callback: for all but the hottest paths."""
        future: asyncio.Future[PutResult] = asyncio.get_running_loop().create_future()
        self.put(message, lambda result: None if future.done() else future.set_result(result))
        return await future

    def _put(self, message: MessageDraft, properties: bytes | None, done: Done) -> None:
        """Store a message; without properties, a batch."""
        topic, queue_id = message.topic, message.queue_id
        writer, housekeeping = self._writer, self._housekeeping
        if writer is None or housekeeping is None or writer.failure or housekeeping.trouble:
            self._refuse(done, PutStatus.SERVICE_NOT_AVAILABLE, self.refusal or "")
            return
        settings = self.settings
        if writer.is_full:
            self._refuse(done, PutStatus.OS_PAGE_CACHE_BUSY, "the disk takes too long")
            return
        if topic in self._deleting:
            self._refuse(done, PutStatus.SERVICE_NOT_AVAILABLE, "the topic is being deleted")
            return
        if len(message.body) > settings.message_bytes_max:
            self._refuse(done, PutStatus.MESSAGE_ILLEGAL, "the body is too long")
            return
        queue = self._queues.get((topic, queue_id))
        if queue is None:
            if not is_legal_topic(topic):
                self._refuse(done, PutStatus.MESSAGE_ILLEGAL, "the topic can't be stored")
                return
            queue = self._indexes.queue(topic, queue_id)
        step = 1 if is_in_queue(message.sys_flag) else 0
        first_offset = queue.next_offset if step else 0
        # Never earlier than the message before it, for times are searched for by halves.
        now_ms = max(self._clock.wall_ms(), self._newest_ms)
        start = writer.next_offset
        while True:
            place = Place(queue.topic_bytes, first_offset, step, start, now_ms)
            try:
                records, offsets, entries, keyed = lay_out(message, properties, place, settings)
            except (InvalidMessage, MalformedRecord) as error:
                self._refuse(done, PutStatus.MESSAGE_ILLEGAL, str(error))
                return
            size = len(records)
            if size + FILLER_BYTES > settings.commit_log_segment_bytes:
                self._refuse(done, PutStatus.MESSAGE_ILLEGAL, "larger than a segment of the log")
                return
            room = writer.make_room(size)
            if room == start:
                break
            start = room  # in a new segment: the records say where they stand, so once more

        self._newest_ms = now_ms
        if step:
            queue.next_offset += len(offsets)
        placed = Placed(queue if step else None, first_offset, size, now_ms, entries, keyed)
        result = PutResult(PutStatus.PUT_OK, offsets, first_offset, now_ms, size)
        writer.add(records, placed, result, done, waits=message.wait_store_ok)

    def put_plain(
        self, sends: Sequence[PlainSend], born_host: bytes, store_host: bytes, stored: Stored
    ) -> int:
        """Store the first of these messages, as far as nothing is unusual; how many that were.

        For those that `put` is to be asked instead. `stored` is called as its `done` is.
        """
        writer, housekeeping = self._writer, self._housekeeping
        if writer is None or housekeeping is None or self._deleting:
            return 0
        if writer.failure or housekeeping.trouble or writer.is_full:
            return 0
        start, now_ms = writer.next_offset, max(self._clock.wall_ms(), self._newest_ms)
        place = PlainPlace(start, start + writer.room_left, now_ms, born_host, store_host)
        records, placed, rows = lay_out_plain(
            sends, self._queues, place, self.settings.message_bytes_max
        )
        if rows:
            self._newest_ms = now_ms
            size = sum(map(len, records))
            result = PutResult(PutStatus.PUT_OK, (start,), rows[0][3], now_ms, size)
            writer.add_many(records, placed, result, partial(stored, rows))
        return len(rows)

    def _refuse(self, done: Done, status: PutStatus, reason: str) -> None:
        self.stats.puts_refused += 1
        done(PutResult(status, reason=reason))

    def _take_written(self, written: list[Placed]) -> None:
        self._indexes.add_all(written)
        self._indexes.offset = self._log.max_offset
        self.stats.messages_put += sum([placed.quantity for placed in written])
        self.stats.bytes_put += sum([placed.size for placed in written])
        if self.on_arrival:
            self._announce(written)
        self._tell_progress()

    def _take_back(self, refused: list[Placed]) -> None:
        self.stats.puts_refused += sum([placed.quantity for placed in refused])
        for placed in refused:
            if placed.queue is not None:
                placed.queue.next_offset = placed.queue.max_offset

    def _announce(self, written: Iterable[Placed]) -> None:
        of_queues: dict[ConsumeQueue, list[Placed]] = {}
        for placed in written:
            if placed.queue is not None:
                of_queues.setdefault(placed.queue, []).append(placed)
        for queue, arrivals in of_queues.items():
            for listener in self.on_arrival:
                try:
                    listener(queue.topic, queue.queue_id, arrivals)
                except Exception:
                    _log.exception("a listener failed")

    def _tell_progress(self) -> None:
        for listener in self.on_written:
            try:
                listener(self._log.max_offset)
            except Exception:
                _log.exception("a listener failed")

    # Reading

    def has(self, topic: str, queue_id: int, offset: int) -> bool:
        """Whether a queue has a message at that offset."""
        queue = self._queues.get((topic, queue_id))
        return queue is not None and queue.min_offset <= offset < queue.max_offset

    def read(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        *,
        count_max: int,
        bytes_max: int,
        accepts: Callable[[int], bool] | None = None,
        matches: Callable[[Mapping[str, str]], bool] | None = None,
    ) -> QueueRead:
        """The records of a queue from an offset on; `accepts` chooses by tags code, or `matches`
        by properties.

        At least one is given if there is one, however large. Bounded also in what it skips, so
        NO_MATCHED_MESSAGE does not mean that nothing else would match: read on at next_offset.
        """
        queue = self._queues.get((topic, queue_id))
        if queue is None:
            return QueueRead(ReadStatus.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0)
        found = read_queue(
            self._log,
            queue,
            offset,
            count_max=count_max,
            bytes_max=bytes_max,
            accepts=accepts,
            matches=matches,
        )
        stats = self.stats
        if found.sizes:
            stats.reads_found += 1
            stats.messages_read += len(found.sizes)
            stats.bytes_read += len(found.records)
        else:
            stats.reads_missed += 1
        return found

    def record_at(self, physical_offset: int) -> bytes | None:
        """The record that starts there; None where none does."""
        return record_at(self._log, physical_offset)

    def properties_at(self, physical_offset: int) -> dict[str, str] | None:
        """The properties of the record that starts there; None where none does."""
        record = record_at(self._log, physical_offset)
        return None if record is None else record_properties(record)

    def query(
        self, topic: str, key: str, *, count_max: int, begin_ms: int = 0, end_ms: int = 1 << 62
    ) -> KeyQuery:
        """The records with that unique id or key, stored in that span of time, newest first.

        Found by hash, as in RocketMQ: now and then one of another key is among them.
        """
        records: list[bytes] = []
        keys = self._indexes.keys
        for offset in keys.find(key_hash(topic, key), begin_ms=begin_ms, end_ms=end_ms):
            if len(records) >= count_max:
                break
            record = record_at(self._log, offset)
            if record is not None and begin_ms <= store_time_at(self._log, offset) <= end_ms:
                records.append(record)
        return KeyQuery(records, *keys.last_update)

    # Offsets and times

    def topics(self) -> list[str]:
        """The topics that have, or had, a message here."""
        return sorted({topic for topic, _ in self._queues})

    def queue_ids(self, topic: str) -> list[int]:
        """The queues of the topic that have, or had, a message; in order."""
        return sorted(queue_id for name, queue_id in self._queues if name == topic)

    def min_offset(self, topic: str, queue_id: int) -> int:
        """The offset of the oldest message the queue still has; 0 for an unknown queue."""
        queue = self._queues.get((topic, queue_id))
        return queue.min_offset if queue is not None else 0

    def max_offset(self, topic: str, queue_id: int) -> int:
        """The offset the queue's next message will get; 0 for an unknown queue."""
        queue = self._queues.get((topic, queue_id))
        return queue.max_offset if queue is not None else 0

    def offset_by_time(
        self,
        topic: str,
        queue_id: int,
        timestamp_ms: int,
        boundary: Literal["lower", "upper"] = "lower",
    ) -> int:
        """The first offset stored at that time or later, max_offset when there is none.

        With "upper", the last one stored at that time or before, 0 when there is none. In between
        two messages, the upper is thus before the lower (ConsumeQueue.binarySearchInQueueByTime).
        """
        queue = self._queues.get((topic, queue_id))
        if queue is None:
            return 0
        offsets = range(queue.min_offset, queue.max_offset)

        def store_time(offset: int) -> int:
            return self.store_time_at(topic, queue_id, offset)

        if boundary == "lower":
            return queue.min_offset + bisect_left(offsets, timestamp_ms, key=store_time)
        later = bisect_right(offsets, timestamp_ms, key=store_time)
        return queue.min_offset + later - 1 if later else 0

    def store_time_at(self, topic: str, queue_id: int, offset: int) -> int:
        """When that message was stored, in ms; -1 where there is none."""
        return store_time_at(self._log, self.physical_offset_at(topic, queue_id, offset))

    def earliest_store_time(self, topic: str, queue_id: int) -> int:
        """When the oldest message of the queue was stored, in ms; -1 when it has none."""
        return self.store_time_at(topic, queue_id, self.min_offset(topic, queue_id))

    def physical_offset_at(self, topic: str, queue_id: int, offset: int) -> int:
        """Where in the log that message is; -1 where there is none."""
        entry = self.entry_at(topic, queue_id, offset)
        return entry[0] if entry is not None else -1

    def entry_at(self, topic: str, queue_id: int, offset: int) -> tuple[int, int, int] | None:
        """Offset in the log, size and tags code of that message; None where there is none."""
        queue = self._queues.get((topic, queue_id))
        return queue.entry(offset) if queue is not None else None

    def entries(
        self, topic: str, queue_id: int, offset: int, count_max: int
    ) -> list[tuple[int, int, int]]:
        """What `entry_at` gives, of some messages from an offset on; of none at the queue's end."""
        queue = self._queues.get((topic, queue_id))
        if queue is None or not queue.min_offset <= offset < queue.max_offset:
            return []
        return list(ENTRY.iter_unpack(queue.entries(offset, count_max)))

    async def delete_topic(self, topic: str) -> None:
        """Drop the queues of a topic for good: its messages stay in the log, but are not read."""
        if self._writer is None or self._housekeeping is None:
            raise StoreError("the store is closed")
        if not self.queue_ids(topic):
            return  # nor is it remembered: anybody may ask to delete any name
        # Its queues begin at 0 again, which the log must not say before the deletion is safe.
        self._deleting.add(topic)
        try:
            await self._housekeeping.delete_topic(topic)
        except OSError as error:
            raise StoreError(f"topic {topic!r} could not be deleted: {error}") from error
        finally:
            self._deleting.discard(topic)

    # The log as a whole, and its copy on a slave

    @property
    def newest_store_time(self) -> int:
        """When the newest message was stored, in ms; never less than of any before it."""
        return self._newest_ms

    @property
    def min_physical_offset(self) -> int:
        """Where the log begins: older segments have been deleted."""
        return self._log.min_offset

    @property
    def max_physical_offset(self) -> int:
        """Where the log ends; all before it is in the hands of the kernel."""
        return self._log.max_offset

    @property
    def flushed_offset(self) -> int:
        """How far the log would survive a power loss."""
        return self._log.flushed_offset

    @property
    def last_segment_offset(self) -> int:
        """Where the newest segment begins, and a new slave's log with it."""
        starts = self._log.segment_starts
        return starts[-1] if starts else self._log.max_offset

    def log_slice(self, offset: int, bytes_max: int) -> bytes:
        """Raw bytes of the log from an offset on; empty at its end, never beyond a segment's.

        With sync flush its end is where what was synced ends: a slave must not have what we could
        lose, and then write otherwise, for its log would never be a copy of ours again.
        """
        log = self._log
        end = log.flushed_offset if self.settings.flush_disk_type == "sync" else log.max_offset
        if not log.min_offset <= offset < end:
            return b""
        size = min(bytes_max, log.segment_end(offset) - offset, end - offset)
        return self._log.read(offset, size).ljust(size, b"\0")  # a hole is copied as zeros

    def append_raw(self, offset: int, data: bytes) -> None:
        """On a slave: append what the master's `log_slice` gave, exactly at max_physical_offset.

        Records can be read once they are whole. An empty store takes any segment's start.
        """
        log = self._log
        if self._writer is None:
            raise StoreError("the store is closed")
        if not log.max_offset and offset:
            log.start_at(offset)
            self._indexes.offset = offset
        if offset != log.max_offset:
            raise StoreError(f"bytes for {offset} of the log, which ends at {log.max_offset}")
        try:
            while data:
                room = log.segment_end(log.max_offset) - log.max_offset
                room = room or self.settings.commit_log_segment_bytes
                log.write(data[:room])
                data = data[room:]
        except OSError as error:
            raise StoreError(f"the log can't be written: {error}") from error
        finally:
            self._writer.start_over()
        scan = LogScan(log, self._indexes.offset, is_growing=True)
        for found in scan:
            placed = self._replay.take(found)
            if placed is not None:
                self._announce([placed])
        self._indexes.offset = scan.position
        self._newest_ms = self._indexes.store_timestamp_ms
        self._tell_progress()

    # How it is doing

    def busy_seconds(self) -> float:
        """How long the oldest put has waited for the disk to take it; 0.0 when none waits."""
        return self._writer.busy_seconds() if self._writer is not None else 0.0

    @property
    def refusal(self) -> str | None:
        """Why puts are refused at the moment: disk full or failed, or closed; None when not."""
        if self._writer is None or self._housekeeping is None:
            return "the store is closed"
        return self._writer.failure or self._housekeeping.trouble

    def disk_used_ratio(self) -> float:
        """How full the disk is, from 0 to 1."""
        return self._disk.usage(self.folder).used_ratio
