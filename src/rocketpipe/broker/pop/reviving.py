"""Stores again what was popped and not acknowledged in time (PopReviveService)."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from rocketpipe.broker.offsets import ConsumerOffsets
from rocketpipe.broker.pop.checkpoints import Checkpoint, QueueOf
from rocketpipe.broker.pop.revive_log import ReviveLog
from rocketpipe.broker.putting import Puts, as_future, redraft
from rocketpipe.broker.settings import BrokerSettings
from rocketpipe.broker.store.message_store import MessageStore
from rocketpipe.broker.store.values import PutResult, ReadStatus
from rocketpipe.broker.topics import TopicConfigs
from rocketpipe.clock import Clock
from rocketpipe.message import StoredMessage
from rocketpipe.wire.pop_receipt import NORMAL, RETRY_V1, RETRY_V2, kind_of, pop_retry_topic
from rocketpipe.wire.properties import (
    FIRST_POP_TIME,
    PROPERTIES_BYTES_MAX,
    encode_properties,
)
from rocketpipe.wire.record import decode_record

log = logging.getLogger(__name__)

CHUNK_CHECKPOINTS = 32
AFTER_REFUSAL_MS = 10_000  # as Apache's first
WAIT_MAX = 60.0  # a clock that is set forth makes messages visible: look again at least so often


class Reviver:
    """Works through the checkpoints whose time is up."""

    def __init__(
        self,
        settings: BrokerSettings,
        store: MessageStore,
        puts: Puts,
        topics: TopicConfigs,
        offsets: ConsumerOffsets,
        revive_log: ReviveLog,
        clock: Clock,
    ) -> None:
        # Told of a topic and a group with messages that come again.
        self.on_revived: Callable[[str, str], None] = lambda topic, group: None
        self._settings = settings
        self._store = store
        self._puts = puts
        self._topics = topics
        self._offsets = offsets
        self._log = revive_log
        self._clock = clock
        self._stored: deque[tuple[int, Checkpoint, list[int]]] = deque()  # not safe yet
        self._sooner = asyncio.Event()
        self._wakes_at_ms: int | None = None
        store.on_written.append(lambda _: self._settle_what_is_safe())

    def may_be_due(self, at_ms: int) -> None:
        """There is a checkpoint whose time is up then."""
        if self._wakes_at_ms is None or at_ms < self._wakes_at_ms:
            self._sooner.set()

    async def revive_forever(self) -> None:
        checkpoints = self._log.checkpoints
        while True:
            self._sooner.clear()
            due = checkpoints.take_due(self._clock.wall_ms(), count_max=CHUNK_CHECKPOINTS)
            await asyncio.gather(*map(self._revive, due))
            while (oldest := self._log.needs_moving) is not None:
                result = await self._result(oldest)
                if not result.is_stored:
                    break
            self._wakes_at_ms = checkpoints.next_due_ms()
            wait = WAIT_MAX
            if self._wakes_at_ms is not None:
                wait = min(wait, (self._wakes_at_ms - self._clock.wall_ms()) / 1000)
            if wait > 0:
                try:
                    async with asyncio.timeout(wait):
                        await self._sooner.wait()
                except TimeoutError:
                    pass

    def _result(self, oldest: Checkpoint) -> asyncio.Future[PutResult]:
        future: asyncio.Future[PutResult] = asyncio.get_running_loop().create_future()
        self._log.move(oldest, lambda result: None if future.done() else future.set_result(result))
        return future

    async def _revive(self, checkpoint: Checkpoint) -> None:
        queue = checkpoint.key.queue
        offsets = sorted(checkpoint.unacked - checkpoint.claimed)
        # Whether or not its group is known: a crash may have been faster than the saving of a new
        # one. With a group that is deleted, its checkpoints are.
        ends = await asyncio.gather(*(self._store_again(checkpoint, offset) for offset in offsets))
        done = {offset: end for offset, end in zip(offsets, ends, strict=True) if end is not None}
        if done:
            self._tell(queue)
            self._stored.append((max(done.values()), checkpoint, list(done)))
            self._settle_what_is_safe()
        if len(done) < len(offsets):
            until_ms = self._clock.wall_ms() + AFTER_REFUSAL_MS
            self._log.checkpoints.put_off(checkpoint, until_ms)

    def _settle_what_is_safe(self) -> None:
        """Note what is stored again, once no crash can take it: a crash in between makes it two."""
        safe = self._store.flushed_offset
        while self._stored and self._stored[0][0] <= safe:
            _, checkpoint, offsets = self._stored.popleft()
            self._log.checkpoints.settle(checkpoint, offsets)
            self._log.settle(checkpoint, offsets, lambda _: None)

    async def _store_again(self, checkpoint: Checkpoint, offset: int) -> int | None:
        """Up to where the log must be safe for it to be; None when it could not be stored."""
        queue = checkpoint.key.queue
        read = self._store.read(queue.topic, queue.queue_id, offset, count_max=1, bytes_max=1)
        if read.status is not ReadStatus.FOUND or read.next_offset != offset + 1:
            log.warning("message %d of %s is gone, and can't come again", offset, queue)
            return 0
        retry_topic = self._retry_topic(queue)
        if retry_topic is None:
            return None
        message = decode_record(read.records, decompressing=False)
        draft = redraft(
            message,
            topic=retry_topic,
            queue_id=0,
            properties=_with_first_pop_time(message, checkpoint.key.pop_time),
            store_host=self._log.store_host,
            reconsume_times=message.reconsume_times + 1,
            prepared_transaction_offset=0,
        )
        result = await as_future(self._puts.put_now, draft)
        if not result.is_stored:
            log.error("message %d of %s comes again later: %s", offset, queue, result.reason)
            return None
        return result.end_offset

    def _retry_topic(self, queue: QueueOf) -> str | None:
        """Where its messages come again, made if it is not there; None when it can't be."""
        if kind_of(queue.topic) != NORMAL:
            return queue.topic
        kind = RETRY_V2 if self._settings.enable_retry_topic_v2 else RETRY_V1
        name = pop_retry_topic(queue.group, queue.topic, kind)
        if name not in self._topics.table:
            if self._topics.create_inner(name) is None:
                return None
            if self._offsets.query(queue.group, name, 0) < 0:
                self._offsets.commit(queue.group, name, 0, 0)
        return name

    def _tell(self, queue: QueueOf) -> None:
        topic = queue.topic
        for kind in (RETRY_V1, RETRY_V2):
            topic = topic.removeprefix(pop_retry_topic(queue.group, "", kind))
        self.on_revived(topic, queue.group)


def _with_first_pop_time(message: StoredMessage, pop_time: int) -> str:
    """Its properties, and that one too if there is room: it must not keep a message from coming."""
    text = encode_properties({FIRST_POP_TIME: str(pop_time), **message.properties})
    if len(text.encode()) > PROPERTIES_BYTES_MAX:
        return encode_properties(message.properties)
    return text
