"""Pops, acknowledgements and changed invisible times: what each does to offsets and checkpoints."""

import asyncio
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from struct import Struct
from typing import NamedTuple

from rocketpipe.broker.message_filter import MessageFilter
from rocketpipe.broker.offsets import ConsumerOffsets
from rocketpipe.broker.page_cache import is_in_memory
from rocketpipe.broker.pop.checkpoints import Checkpoint, Key, QueueOf
from rocketpipe.broker.pop.held_pops import ANY_QUEUE
from rocketpipe.broker.pop.offsets import PopOffsets
from rocketpipe.broker.pop.ordered import OrderedPops, Unknown
from rocketpipe.broker.pop.revive_log import Popped, ReviveLog
from rocketpipe.broker.settings import BrokerSettings
from rocketpipe.broker.store.message_store import MessageStore
from rocketpipe.broker.store.values import PutResult, QueueRead, ReadStatus
from rocketpipe.broker.topics import TopicConfigs
from rocketpipe.clock import Clock
from rocketpipe.codes import ResponseCode
from rocketpipe.remoting.dispatch import Refusal
from rocketpipe.wire.pop_receipt import (
    NORMAL,
    ORDERED,
    RETRY_PREFIX,
    RETRY_V1,
    RETRY_V2,
    Receipt,
    kind_of,
    message_offset_info,
    order_count_info,
    pop_retry_topic,
    start_offset_info,
)
from rocketpipe.wire.properties import POP_CK
from rocketpipe.wire.record import decode_records, encode_record
from rocketpipe.wire.requests.pop import PopMessage, PopMessageReply

FROM_OLDEST = 0  # the init mode; others begin with the newest

_QUEUE_OFFSET = Struct(">20xq")  # of a record
_OUT_OF_QUEUE = (ReadStatus.OFFSET_TOO_SMALL, ReadStatus.OFFSET_OVERFLOW_BADLY)

# Puts a record, and calls back with what became of it.
_Put = Callable[[Callable[[PutResult], None]], None]


class _Part(NamedTuple):
    """What a pop found in one queue."""

    queue: QueueOf
    start: int
    offsets: list[int]
    read: QueueRead


class _Pop:
    """A pop on its way through the queues."""

    def __init__(self, wanted: PopMessage, bytes_max: int, pop_time: int) -> None:
        self.wanted = wanted
        self.is_ordered = bool(wanted.order)
        self.pop_time = pop_time
        self.count_left = wanted.max_msg_nums
        self.bytes_left = bytes_max
        self.rest = 0  # messages that are there, and were not taken
        self.parts: list[_Part] = []
        self.counts: list[str] = []  # how often the messages of ordered pops were popped before


class Answer(NamedTuple):
    header: PopMessageReply
    records: bytes
    messages: int


class Pops:
    """Gives messages away and takes acknowledgements (PopMessageProcessor, AckMessageProcessor)."""

    def __init__(
        self,
        settings: BrokerSettings,
        store: MessageStore,
        topics: TopicConfigs,
        offsets: ConsumerOffsets,
        log: ReviveLog,
        ordered: OrderedPops,
        clock: Clock,
        dice: random.Random,
    ) -> None:
        self.offsets = PopOffsets(settings, store, offsets)
        self._settings = settings
        self._store = store
        self._topics = topics
        self._committed = offsets
        self._log = log
        self._ordered = ordered
        self._clock = clock
        self._dice = dice

    # Giving away.

    async def pop(self, wanted: PopMessage, message_filter: MessageFilter) -> Answer:
        """Messages and what names them; the messages are safe with whoever gets them."""
        settings = self._settings
        bytes_max = settings.max_transfer_bytes_on_message_in_memory
        pop = _Pop(wanted, bytes_max, self._clock.wall_ms())
        for queue in self._queues(wanted):
            self._pop_queue(pop, queue, message_filter)
        if not pop.is_ordered:
            await self._remember(pop)
        header = PopMessageReply(
            pop_time=pop.pop_time,
            invisible_time=wanted.invisible_time,
            revive_qid=ORDERED if pop.is_ordered else 0,
            rest_num=pop.rest,
            start_offset_info=";".join(
                start_offset_info(kind_of(queue.topic), queue.queue_id, start)
                for queue, start, _, _ in pop.parts
            ),
            msg_offset_info=";".join(
                message_offset_info(kind_of(queue.topic), queue.queue_id, offsets)
                for queue, _, offsets, _ in pop.parts
            ),
            order_count_info=";".join(pop.counts) if pop.is_ordered else None,
        )
        records = b"".join(self._records(pop, part) for part in pop.parts)
        return Answer(header, records, sum(len(part.offsets) for part in pop.parts))

    def has_messages(
        self, group: str, topic: str, queue_id: int, *, is_ordered: bool, attempt_id: str | None
    ) -> bool:
        """Whether there is something to pop, filters aside."""
        return any(
            not (is_ordered and self._ordered.is_blocked(queue, attempt_id))
            and self._store.max_offset(queue.topic, queue.queue_id)
            > max(0, self.offsets.query(queue))
            for queue in [*self._own_queues(group, topic, queue_id), *self._retries(group, topic)]
        )

    def _queues(self, wanted: PopMessage) -> list[QueueOf]:
        """Where to look, in this order: now and then for retries first, lest they wait for ever."""
        group, topic = wanted.consumer_group, wanted.topic
        queues = list(self._own_queues(group, topic, wanted.queue_id))
        if wanted.order:
            return queues
        retries = list(self._retries(group, topic))
        is_retry_first = self._dice.randrange(100) < self._settings.pop_from_retry_probability
        return retries + queues if is_retry_first else queues + retries

    def _own_queues(self, group: str, topic: str, queue_id: int) -> Iterator[QueueOf]:
        if queue_id >= 0:
            yield QueueOf(group, topic, queue_id)
            return
        config = self._topics.table.get(topic)
        count = config.read_queue_nums if config is not None else 0
        first = self._dice.randrange(count) if count else 0
        for each in range(count):
            yield QueueOf(group, topic, (first + each) % count)

    def _retries(self, group: str, topic: str) -> Iterator[QueueOf]:
        settings = self._settings
        kinds = [RETRY_V2] if settings.enable_retry_topic_v2 else [RETRY_V1]
        if settings.enable_retry_topic_v2 and settings.retrieve_message_from_pop_retry_topic_v1:
            kinds.append(RETRY_V1)
        for kind in kinds:
            name = pop_retry_topic(group, topic, kind)
            if name in self._topics.table:
                yield from self._own_queues(group, name, ANY_QUEUE)

    def _pop_queue(self, pop: _Pop, queue: QueueOf, message_filter: MessageFilter) -> None:
        wanted = pop.wanted
        if self._committed.take_reset(*queue) is not None:
            self.offsets.reset(queue)
            self._ordered.reset(queue)
        start = self._start(queue, wanted.init_mode)
        if pop.is_ordered and self._ordered.is_blocked(queue, wanted.attempt_id):
            return  # and who waits is woken when it no longer is
        if self._has_too_many_in_flight(queue):
            return
        if pop.count_left <= 0 or pop.bytes_left <= 0:
            pop.rest += max(0, self._store.max_offset(queue.topic, queue.queue_id) - start)
            return
        read = self._read(pop, queue, start, message_filter)
        if read.status in _OUT_OF_QUEUE:
            self._go_on(pop, queue, start, read.next_offset)
            start = read.next_offset
            read = self._read(pop, queue, start, message_filter)
        pop.rest += max(0, read.max_offset - read.next_offset)
        if read.status is ReadStatus.FOUND:
            offsets = list(_queue_offsets(read))
            pop.count_left -= len(offsets)
            pop.bytes_left -= len(read.records)
            pop.parts.append(_Part(queue, start, offsets, read))
            if pop.is_ordered:
                self._block(pop, queue, offsets)
        elif read.next_offset > start:
            self._go_on(pop, queue, start, read.next_offset)

    def _start(self, queue: QueueOf, init_mode: int) -> int:
        offset = self.offsets.query(queue)
        if offset < 0:
            offset = self._first_offset(queue, init_mode)
            self.offsets.begin(queue, offset)
        return offset

    def _first_offset(self, queue: QueueOf, init_mode: int) -> int:
        """Where a new group begins (PopMessageProcessor.getInitOffset)."""
        _, topic, queue_id = queue
        store, first = self._store, self._store.min_offset(queue.topic, queue.queue_id)
        if init_mode == FROM_OLDEST or topic.startswith(RETRY_PREFIX):
            return first
        if self._settings.init_pop_offset_by_check_msg_in_mem and first == 0:
            place = store.physical_offset_at(topic, queue_id, 0)
            if place >= 0 and is_in_memory(store, self._settings, place):
                return 0  # a young queue: none is missed that came while its topic was being made
        return max(0, store.max_offset(topic, queue_id) - 1)

    def _has_too_many_in_flight(self, queue: QueueOf) -> bool:
        settings = self._settings
        return (
            settings.enable_pop_message_threshold
            and self._log.checkpoints.in_flight(queue) > settings.pop_inflight_message_threshold
        )

    def _read(
        self, pop: _Pop, queue: QueueOf, start: int, message_filter: MessageFilter
    ) -> QueueRead:
        return self._store.read(
            queue.topic,
            queue.queue_id,
            start,
            count_max=pop.count_left,
            bytes_max=pop.bytes_left,
            accepts=message_filter.accepts,
            matches=message_filter.matches,
        )

    def _go_on(self, pop: _Pop, queue: QueueOf, start: int, next_offset: int) -> None:
        if pop.is_ordered:
            self._committed.commit(*queue, next_offset)
        else:
            self.offsets.skip(queue, start, next_offset)

    def _block(self, pop: _Pop, queue: QueueOf, offsets: Sequence[int]) -> None:
        counts = self._ordered.popped(
            queue,
            offsets,
            pop_time=pop.pop_time,
            invisible_time=pop.wanted.invisible_time,
            attempt_id=pop.wanted.attempt_id,
        )
        pop.counts.append(order_count_info(queue.queue_id, offsets, counts))

    async def _remember(self, pop: _Pop) -> None:
        """Store a checkpoint for what was found in each queue, all before they are given away."""
        if not pop.parts:
            return
        checkpoints = self._log.checkpoints
        while any(Key(part.queue, part.start, pop.pop_time) in checkpoints for part in pop.parts):
            pop.pop_time += 1  # after a reset to and fro in one millisecond
        results = await asyncio.gather(
            *(_result(self._checkpoint(pop, part)) for part in pop.parts)
        )
        for result in results:
            _require_stored(result)

    def _checkpoint(self, pop: _Pop, part: _Part) -> _Put:
        queue, start, offsets, read = part
        # At once, for others may pop before the record is stored.
        step = self.offsets.step(queue, start, read.next_offset)

        def put(stored: Callable[[PutResult], None]) -> None:
            def done(result: PutResult) -> None:
                if result.is_stored:
                    self.offsets.recorded(step, result.queue_offset, result.end_offset)
                else:
                    self.offsets.failed(step)
                stored(result)

            key = Key(queue, start, pop.pop_time)
            checkpoint = Checkpoint(key, pop.wanted.invisible_time, offsets)
            self._log.pop(checkpoint, Popped(read.next_offset, step.is_first), done)

        return put

    def _records(self, pop: _Pop, part: _Part) -> bytes:
        """As they are stored; those of retries as if they were of the topic that was asked for."""
        queue, start, _, read = part
        kind = kind_of(queue.topic)
        if kind == NORMAL or self._settings.pop_response_return_actual_retry_topic:
            return read.records
        records = []
        for message in decode_records(read.records, decompressing=False):
            receipt = Receipt(
                start,
                pop.pop_time,
                pop.wanted.invisible_time,
                0,
                kind,
                self._settings.broker_name,
                queue.queue_id,
                message.queue_offset,
            )
            properties = {**message.properties, POP_CK: str(receipt)}
            records.append(
                encode_record(replace(message, topic=pop.wanted.topic, properties=properties))
            )
        return b"".join(records)

    # Taking acknowledgements.

    async def acknowledge(self, key: Key, offsets: Iterable[int]) -> None:
        """These messages of a pop are consumed; those it does not wait for are of no interest."""
        checkpoint = self._log.checkpoints.find(key)
        if checkpoint is None:
            return  # its time is up, or it is all done
        wanted = self._log.checkpoints.claim(checkpoint, offsets)
        if wanted:
            result = await _result(lambda stored: self._log.settle(checkpoint, wanted, stored))
            _require_stored(result)

    def acknowledge_ordered(self, queue: QueueOf, offset: int, pop_time: int) -> bool:
        """Whether others may pop from the queue now; Refusal for a message that was not popped."""
        old = self._committed.query(*queue)
        if offset < old:
            return False
        next_offset = self._ordered.acknowledge(queue, offset, pop_time, old)
        if next_offset is Unknown.OTHER_POP:
            return False
        if isinstance(next_offset, Unknown):
            group, topic, queue_id = queue
            raise Refusal(
                ResponseCode.MESSAGE_ILLEGAL,
                f"offset is illegal, key:{topic}@{group}@{queue_id}, old:{old}, "
                f"commit:{offset}, next:-1",
            )
        if not self._committed.is_reset(*queue):
            self._committed.commit(*queue, next_offset)
        return not self._ordered.is_blocked(queue, None)

    # Changing invisible times.

    async def change_invisible_time(self, key: Key, offset: int, invisible_time: int) -> int:
        """The new time of the pop that has the message from now on."""
        checkpoints = self._log.checkpoints
        known = checkpoints.find(key)
        if known is None or not checkpoints.claim(known, [offset]):
            # Apache's makes it come again, though it was acknowledged or came again already.
            raise Refusal(
                ResponseCode.NO_MESSAGE, f"message {offset} is not invisible by this receipt"
            )
        pop_time = self._clock.wall_ms()
        while Key(key.queue, offset, pop_time) in checkpoints:
            pop_time += 1
        changed = Checkpoint(Key(key.queue, offset, pop_time), invisible_time, [offset])
        popped = Popped(taken_of=known)
        _require_stored(await _result(lambda stored: self._log.pop(changed, popped, stored)))
        return pop_time

    def change_ordered_invisible_time(
        self, queue: QueueOf, offset: int, pop_time: int, invisible_time: int
    ) -> int:
        """The invisible time that the pop now has for it; 0 when it was acknowledged before."""
        if offset < self._committed.query(*queue):
            return 0
        visible_at_ms = self._clock.wall_ms() + invisible_time
        self._ordered.set_visible_at(queue, offset, pop_time, visible_at_ms)
        return visible_at_ms - pop_time


def _queue_offsets(read: QueueRead) -> Iterator[int]:
    place = 0
    for size in read.sizes:
        yield _QUEUE_OFFSET.unpack_from(read.records, place)[0]
        place += size


def _result(put: _Put) -> asyncio.Future[PutResult]:
    """What a put calls back with, as a future; it was put when this returns."""
    future: asyncio.Future[PutResult] = asyncio.get_running_loop().create_future()
    put(lambda result: None if future.done() else future.set_result(result))
    return future


def _require_stored(result: PutResult) -> None:
    if not result.is_stored:
        raise Refusal(ResponseCode.SYSTEM_BUSY, f"{result.status.name}: {result.reason}")
