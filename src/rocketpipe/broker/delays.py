"""Messages that wait: by delay level, each level a queue of SCHEDULE_TOPIC_XXXX.

A message of level n is stored in queue n - 1 with its real topic and queue as properties. All of a
queue wait equally long, so its messages fall due in the order of the queue, and whoever delivers
them needs to look at the first one only. How far each level is, is saved now and then: after a
crash the last few are delivered again.
"""

import asyncio
import logging
from dataclasses import replace

from rocketpipe.broker.names import SCHEDULE_TOPIC
from rocketpipe.broker.putting import Puts, as_future, redraft
from rocketpipe.broker.saving import SavedTable
from rocketpipe.broker.settings import BrokerSettings
from rocketpipe.broker.store.atomic_file import AtomicFile
from rocketpipe.broker.store.message_store import MessageStore
from rocketpipe.broker.store.values import PutResult, PutStatus, ReadStatus
from rocketpipe.broker.waiting import real_place
from rocketpipe.clock import Clock
from rocketpipe.errors import MalformedData
from rocketpipe.message import StoredMessage
from rocketpipe.wire.bodies.offsets import DelayOffsetWrapper
from rocketpipe.wire.bodies.topics import DataVersion
from rocketpipe.wire.record import decode_records

log = logging.getLogger(__name__)

CHUNK_MESSAGES = 32
CHUNK_BYTES = 256 * 1024
AFTER_REFUSAL = 0.1  # seconds; as RocketMQ's DELAY_FOR_A_WHILE
WAIT_MAX = 60.0  # a clock that is set forth makes messages due: look again at least so often


class DelayedMessages:
    """Delivers what is due, level by level, in order (ScheduleMessageService)."""

    def __init__(
        self,
        settings: BrokerSettings,
        store: MessageStore,
        puts: Puts,
        file: AtomicFile,
        clock: Clock,
    ) -> None:
        self.offsets: dict[int, int] = {}  # by level: what comes next
        self.data_version = DataVersion(timestamp=clock.wall_ms())
        self.saved = SavedTable(file, lambda: self.wrapper().encode())
        self._levels = settings.store.delay_levels
        self._store = store
        self._puts = puts
        self._clock = clock
        self._arrivals = [asyncio.Event() for _ in self._levels]
        self._is_changed = False

    def load(self) -> None:
        if saved := self.saved.load(DelayOffsetWrapper.decode):
            self.offsets = saved.offset_table
            self.data_version = saved.data_version or self.data_version

    def replace_all(self, copied: DelayOffsetWrapper) -> None:
        """Become the copy of another broker's: what a slave does."""
        if copied.offset_table != self.offsets:
            self.offsets = copied.offset_table
            self.data_version = copied.data_version or self.data_version
            self.saved.changed()

    def wrapper(self) -> DelayOffsetWrapper:
        """How far each level is, as it is saved and told to slaves."""
        return DelayOffsetWrapper(offset_table=self.offsets, data_version=self.data_version)

    def save_if_changed(self) -> None:
        """Save what was delivered since last time: called now and then, and at the end."""
        if self._is_changed:
            self._is_changed = False
            self.data_version = replace(
                self.data_version,
                timestamp=self._clock.wall_ms(),
                counter=self.data_version.counter + 1,
            )
            self.saved.changed()

    async def deliver_forever(self) -> None:
        """Deliver on all levels until cancelled."""
        self._store.on_arrival.append(self._arrived)
        try:
            async with asyncio.TaskGroup() as group:
                for level in range(1, len(self._levels) + 1):
                    group.create_task(self._deliver_level(level))
        finally:
            self._store.on_arrival.remove(self._arrived)

    def _arrived(self, topic: str, queue_id: int, _: object) -> None:
        if topic == SCHEDULE_TOPIC and queue_id < len(self._arrivals):
            self._arrivals[queue_id].set()

    async def _deliver_level(self, level: int) -> None:
        arrival = self._arrivals[level - 1]
        while True:
            arrival.clear()
            wait = await self._deliver_due(level)
            if wait is None:
                await arrival.wait()
            else:
                await asyncio.sleep(min(wait, WAIT_MAX))

    async def _deliver_due(self, level: int) -> float | None:
        """Deliver some that are due; how long to wait for the next, None if there is none."""
        offset = self.offsets.get(level, 0)
        read = self._store.read(
            SCHEDULE_TOPIC, level - 1, offset, count_max=CHUNK_MESSAGES, bytes_max=CHUNK_BYTES
        )
        if read.status is not ReadStatus.FOUND:
            if read.next_offset != offset and read.status is not ReadStatus.NO_MATCHED_LOGIC_QUEUE:
                # Deleted by age, or never written in a log that was lost: go where messages are.
                log.warning("delay level %d goes on at %d", level, read.next_offset)
                self._advance(level, read.next_offset)
                return 0.0
            return None
        now_ms = self._clock.wall_ms()
        delay_ms = round(self._levels[level - 1] * 1000)
        results: list[asyncio.Future[PutResult]] = []
        wait = 0.0
        for message in decode_records(read.records, decompressing=False):
            wait_ms = message.store_timestamp_ms + delay_ms - now_ms
            # Who would wait for longer than the level says does so by a clock that was set back: as
            # nobody knows how long it waited already, it comes now.
            if 0 < wait_ms <= delay_ms:
                wait = wait_ms / 1000
                break
            results.append(self._deliver(message))
        for done, result in enumerate(await asyncio.gather(*results)):
            if not result.is_stored and result.status is not PutStatus.MESSAGE_ILLEGAL:
                self._advance(level, offset + done)
                return AFTER_REFUSAL
        self._advance(level, offset + len(results))
        return wait

    def _deliver(self, message: StoredMessage) -> asyncio.Future[PutResult]:
        try:
            topic, queue_id = real_place(message.properties)
        except MalformedData as error:
            log.error("a delayed message is given up: %s", error)
            future: asyncio.Future[PutResult] = asyncio.get_running_loop().create_future()
            future.set_result(PutResult(PutStatus.MESSAGE_ILLEGAL))
            return future
        return as_future(self._puts.put_now, redraft(message, topic=topic, queue_id=queue_id))

    def _advance(self, level: int, offset: int) -> None:
        if self.offsets.get(level) != offset:
            self.offsets[level] = offset
            self._is_changed = True
