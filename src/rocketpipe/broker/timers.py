"""Messages that wait until a time of their own, in queue 0 of rmq_sys_wheel_timer.

`waiting.py` puts them there; its queue has the time at which each is due as its tags code, and the
wheel (`timer_wheel.py`) has their places by that time. What is due is stored once more, in its real
topic and queue. A recall is a timer as well, in the slot of the one that it takes back.

What is promised:
- Nothing comes before its time, and all comes: at the end of the slot in which its time is, which
  is at most `timer_precision` later, or when the broker is there again. Timers of one slot come in
  the order in which they were sent.
- A broker that was killed delivers nothing twice. What it delivered says which timer it was (the
  field that names a transaction's half message names the end of the timer's record), and is found
  by its unique id. So all that is due from before the restart is looked up, and the checkpoint only
  saves most of that work; it is made when all that it says is safe on disk. What a power loss takes
  from the end of the log was never delivered, whoever may have read it: it is delivered again.
- A slave has the timers, as they are in the log, and copies the checkpoint. It delivers when it is
  started as a master.
- Beyond `timer_roll_window_slots` a timer is stored anew, lest the log delete it by age. When it
  is deleted all the same, for want of space, it is lost, and an error logged.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Sequence
from collections.abc import Set as AbstractSet

from rocketpipe.broker.names import TIMER_TOPIC
from rocketpipe.broker.putting import Puts, as_future, redraft
from rocketpipe.broker.saving import SavedTable
from rocketpipe.broker.settings import BrokerSettings
from rocketpipe.broker.store.atomic_file import AtomicFile
from rocketpipe.broker.store.message_store import MessageStore
from rocketpipe.broker.store.values import MessageDraft, PutStatus
from rocketpipe.broker.timer_wheel import Slot, TimerWheel
from rocketpipe.broker.waiting import real_place
from rocketpipe.clock import Clock
from rocketpipe.errors import MalformedData
from rocketpipe.message import StoredMessage
from rocketpipe.wire.bodies.timers import TimerCheckpoint
from rocketpipe.wire.java_text import read_integer
from rocketpipe.wire.properties import (
    TIMER_DEL_UNIQKEY,
    TIMER_DEQUEUE_MS,
    TIMER_ENQUEUE_MS,
    TIMER_OUT_MS,
    TIMER_ROLL_TIMES,
    UNIQ_KEY,
    encode_properties,
)
from rocketpipe.wire.record import decode_record

log = logging.getLogger(__name__)

CHUNK_MESSAGES = 32  # that are put at once
CHUNK_BYTES = 1024 * 1024
READ_PER_TURN = 100  # before others have a turn
ENTRIES_PER_TURN = 10_000
COPIES_MAX = 1000  # records of one unique id that are looked at
AFTER_REFUSAL = 0.1
WAIT_MAX = 60.0  # a clock that is set forth makes messages due: look again at least so often


class TimedMessages:
    """Delivers what is due, slot by slot (TimerMessageStore)."""

    def __init__(
        self,
        settings: BrokerSettings,
        store: MessageStore,
        puts: Puts,
        file: AtomicFile,
        clock: Clock,
    ) -> None:
        self.checkpoint = TimerCheckpoint()
        self.saved = SavedTable(file, lambda: self.checkpoint.encode())
        self._precision_ms = round(settings.store.timer_precision * 1000)
        self._store = store
        self._puts = puts
        self._clock = clock
        self._arrival = asyncio.Event()
        self._wheel = TimerWheel(self._precision_ms)
        self._next_offset = 0  # what is not in the wheel yet
        self._is_changed = False  # since the checkpoint
        self._delivering: Slot | None = None
        self._doubtful_until_ms = 0  # what is due later was not delivered before we came
        self._unsaved: TimerCheckpoint | None = None

    # What is saved.

    def load(self) -> None:
        self.checkpoint = self.saved.load(TimerCheckpoint.decode) or self.checkpoint

    def replace_all(self, copied: TimerCheckpoint) -> None:
        """Become the copy of another broker's, once all it speaks of is safe here, too."""
        is_ours = copied.log_offset is not None and copied.log_offset <= self._store.flushed_offset
        if is_ours and copied != self.checkpoint:
            self.checkpoint = copied
            self.saved.changed()

    def save_if_changed(self) -> None:
        """Save what was done since last time, as far as the disk has it."""
        for _ in range(2):  # what could not be saved last time, and what is new
            if self._unsaved is None and self._is_changed:
                self._is_changed = False
                self._unsaved = self._progress()
            unsaved = self._unsaved
            if unsaved is None or (unsaved.log_offset or 0) > self._store.flushed_offset:
                return
            self.checkpoint, self._unsaved = unsaved, None
            self.saved.changed()

    def _progress(self) -> TimerCheckpoint:
        wheel, slot = self._wheel, self._delivering
        dues = [wheel.look_at_ms, slot and slot.due_ms]
        firsts = [wheel.first_offset, slot and slot.first_offset, self._next_offset]
        due_ms = min((due for due in dues if due is not None), default=self._clock.wall_ms())
        return TimerCheckpoint(
            last_read_time_ms=due_ms - self._precision_ms,  # for a slot begins so much before it
            first_waiting_offset=min(first for first in firsts if first is not None),
            queue_offset=self._next_offset,
            log_offset=self._store.max_physical_offset,
        )

    # How it is doing.

    @property
    def waiting(self) -> int:
        """How many timers wait, and takers back of them."""
        return self._wheel.count

    @property
    def seconds_behind(self) -> int:
        """For how long something has been due."""
        due_ms = self._delivering.due_ms if self._delivering else self._wheel.look_at_ms
        return max(0, self._clock.wall_ms() - due_ms) // 1000 if due_ms is not None else 0

    @property
    def messages_behind(self) -> int:
        """How many timers are not in the wheel yet."""
        return max(0, self._store.max_offset(TIMER_TOPIC, 0) - self._next_offset)

    # Delivering.

    async def deliver_forever(self) -> None:
        """Take what arrives, and deliver what is due, until cancelled."""
        self._start_anew()
        self._store.on_arrival.append(self._arrived)
        try:
            while True:
                self._arrival.clear()
                await self._take_arrivals()
                self._delivering = self._wheel.pop_due(self._clock.wall_ms())
                if self._delivering is None:
                    await self._wait()
                else:
                    await self._deliver(self._delivering)
                    self._delivering = None
                    self._is_changed = True
        finally:
            self._store.on_arrival.remove(self._arrived)

    def _start_anew(self) -> None:
        if self.checkpoint.queue_offset > self._store.max_offset(TIMER_TOPIC, 0):
            self.checkpoint = TimerCheckpoint()  # of another log
        self._wheel = TimerWheel(self._precision_ms)
        self._next_offset = self.checkpoint.first_waiting_offset
        self._is_changed = False
        self._delivering = self._unsaved = None
        self._doubtful_until_ms = self._store.newest_store_time

    def _arrived(self, topic: str, *_: object) -> None:
        if topic == TIMER_TOPIC:
            self._arrival.set()

    async def _take_arrivals(self) -> None:
        """Have all timers of the queue in the wheel."""
        saved = self.checkpoint
        before = self._next_offset
        self._next_offset = max(self._next_offset, self._store.min_offset(TIMER_TOPIC, 0))
        while entries := self._store.entries(TIMER_TOPIC, 0, self._next_offset, ENTRIES_PER_TURN):
            for queue_offset, (_, size, code) in enumerate(entries, self._next_offset):
                is_done = queue_offset < saved.queue_offset and abs(code) <= saved.last_read_time_ms
                if size and not is_done:  # one without a size is lost
                    self._wheel.add(queue_offset, abs(code), takes_back=code < 0)
            self._next_offset += len(entries)
            if len(entries) == ENTRIES_PER_TURN:
                await asyncio.sleep(0)
        self._is_changed |= self._next_offset != before

    async def _wait(self) -> None:
        look_at_ms = self._wheel.look_at_ms
        timeout = None
        if look_at_ms is not None:
            timeout = min(max(0, look_at_ms - self._clock.wall_ms()) / 1000, WAIT_MAX)
        try:
            async with asyncio.timeout(timeout):
                await self._arrival.wait()
        except TimeoutError:
            pass

    async def _deliver(self, slot: Slot) -> None:
        taken_back = set()
        drafts: list[MessageDraft] = []
        async for due_ms, message in self._read_all(slot.recalls):
            if due_ms < _out_ms(message):
                drafts += self._drafts(due_ms, message)
            else:
                taken_back.add(message.properties[TIMER_DEL_UNIQKEY])
        async for due_ms, message in self._read_all(slot.timers):
            drafts += self._drafts(due_ms, message, taken_back)
            if len(drafts) >= CHUNK_MESSAGES or sum(len(d.body) for d in drafts) >= CHUNK_BYTES:
                await self._put(drafts)
                drafts = []
        await self._put(drafts)

    async def _read_all(
        self, queue_offsets: Iterable[int]
    ) -> AsyncIterator[tuple[int, StoredMessage]]:
        for count, queue_offset in enumerate(queue_offsets, 1):
            found = self._read(queue_offset)
            if found is not None:
                yield found
            if not count % READ_PER_TURN:
                await asyncio.sleep(0)

    def _read(self, queue_offset: int) -> tuple[int, StoredMessage] | None:
        """When the timer at that place is due, and the message; None if it can't be read."""
        entry = self._store.entry_at(TIMER_TOPIC, 0, queue_offset)
        record = self._store.record_at(entry[0]) if entry is not None else None
        message = _decoded(record) if record is not None else None
        if entry is None or message is None:
            log.error("timer %d is lost: the log no longer has it, or not whole", queue_offset)
            return None
        return abs(entry[2]), message

    def _drafts(
        self, due_ms: int, message: StoredMessage, taken_back: AbstractSet[str] = frozenset()
    ) -> list[MessageDraft]:
        """What is to be stored of a timer that is due: nothing, or the message in a new place."""
        properties = dict(message.properties)
        if due_ms < _out_ms(message):  # it has only come to the end of the window
            topic, queue_id = TIMER_TOPIC, 0
            times = properties.get(TIMER_ROLL_TIMES, "0")
            properties[TIMER_ROLL_TIMES] = str(int(times) + 1 if times.isdigit() else 1)
        elif properties.get(UNIQ_KEY) in taken_back:
            return []
        else:
            try:
                topic, queue_id = real_place(properties)
            except MalformedData as error:
                log.error("a timer is given up: %s", error)
                return []
        if due_ms <= self._doubtful_until_ms and self._was_delivered(message, topic, due_ms):
            return []
        enqueued_ms = message.store_timestamp_ms // self._precision_ms * self._precision_ms
        properties |= {
            TIMER_ENQUEUE_MS: str(enqueued_ms),
            TIMER_DEQUEUE_MS: str(self._clock.wall_ms()),
        }
        draft = redraft(
            message,
            topic=topic,
            queue_id=queue_id,
            properties=encode_properties(properties),
            prepared_transaction_offset=_mark(message),
        )
        return [draft]

    def _was_delivered(self, message: StoredMessage, topic: str, due_ms: int) -> bool:
        """Whether it was stored in its new place before we came."""
        unique_id = message.properties.get(UNIQ_KEY, "")
        found = self._store.query(topic, unique_id, count_max=COPIES_MAX, begin_ms=due_ms)
        return any(
            copy is not None
            and copy.prepared_transaction_offset == _mark(message)
            and TIMER_DEQUEUE_MS in copy.properties
            for copy in map(_decoded, found.records)
        )

    async def _put(self, drafts: Sequence[MessageDraft]) -> None:
        """Store them all, however long the store refuses to."""
        while drafts:
            results = await asyncio.gather(
                *(as_future(self._puts.put_now, draft) for draft in drafts)
            )
            refused = [
                (draft, result)
                for draft, result in zip(drafts, results, strict=True)
                if not result.is_stored
            ]
            drafts = []
            for draft, result in refused:
                if result.status is PutStatus.MESSAGE_ILLEGAL:
                    log.error("a timer of topic %s is given up: %s", draft.topic, result.reason)
                else:
                    drafts.append(draft)
            if drafts:
                await asyncio.sleep(AFTER_REFUSAL)


def _decoded(record: bytes) -> StoredMessage | None:
    """The message as it is stored; None if it is damaged."""
    try:
        return decode_record(record, decompressing=False)
    except MalformedData:
        return None


def _out_ms(message: StoredMessage) -> int:
    """The slot of a timer; 0 when it has none."""
    try:
        return read_integer(message.properties.get(TIMER_OUT_MS, ""), 64)
    except ValueError:
        return 0


def _mark(message: StoredMessage) -> int:
    """What a delivered message says of its timer: where its record ends, which is never 0."""
    return message.physical_offset + message.store_size
