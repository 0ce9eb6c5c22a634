"""The pull consumer: its user asks for messages, and says where to go on and what is consumed."""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, TypeVar

from rocketpipe.client.consumer.base import BaseConsumer
from rocketpipe.client.consumer.process_queue import Assigned, ProcessQueue
from rocketpipe.client.consumer.pulling import Pulled, broker_address
from rocketpipe.client.consumer.ranges import RangeReader
from rocketpipe.client.consumer.settings import PullConsumerSettings, consumer_settings
from rocketpipe.client.consumer.subscriptions import SQL92, Expression, subscription
from rocketpipe.client.environment import Environment
from rocketpipe.client.lifecycle import State
from rocketpipe.client.setting_checks import check_seconds
from rocketpipe.errors import IllegalState, InvalidSetting, OffsetGap
from rocketpipe.message import MessageQueue, StoredMessage
from rocketpipe.wire.bodies.heartbeat import ConsumeType, SubscriptionData

log = logging.getLogger(__name__)

T = TypeVar("T")

POLL_TIMEOUT = 5.0  # Java's


@dataclass(slots=True, eq=False)
class _Shelf:
    """The messages of a queue that wait for `poll`, and how far its user is."""

    process_queue: ProcessQueue
    given_to: int  # the offset after the last that poll gave
    consumed_to: int  # everything before it is consumed
    messages: deque[StoredMessage] = field(default_factory=deque)

    @property
    def commit_offset(self) -> int:
        if not self.messages and self.consumed_to == self.given_to:
            return self.process_queue.next_offset  # with what a filter left out since
        return self.consumed_to

    @property
    def position(self) -> int:
        """What poll gives next."""
        return self.messages[0].queue_offset if self.messages else self.process_queue.next_offset


class AsyncPullConsumer(BaseConsumer):
    """Reads messages when asked to.

    async with AsyncPullConsumer("billing", namesrv="127.0.0.1:9876") as consumer:
        await consumer.subscribe("orders", "paid || refunded")
        async for message in consumer:
            ...

    It shares the queues of the topics it subscribes to with the other members of its group, or it
    is told which to read by `assign`. Settings are those of PullConsumerSettings, by name or as
    such an object. What `poll` or the loop gave counts as consumed once it is asked for more, and
    on closing, unless the `async with` is left by an error; with `auto_commit` off, when `commit`
    is called.
    """

    _consume_type = ConsumeType.CONSUME_ACTIVELY

    def __init__(
        self,
        consumer_group: str | PullConsumerSettings,
        *,
        environment: Environment | None = None,
        **settings: Any,
    ) -> None:
        self.settings = consumer_settings(PullConsumerSettings, consumer_group, settings)
        super().__init__(self.settings, environment)
        self._shelves: dict[MessageQueue, _Shelf] = {}
        self._turns: deque[MessageQueue] = deque()  # queues with messages, in the order of turns
        self._paused: set[MessageQueue] = set()
        self._given: dict[str, SubscriptionData] = {}  # by topic, of `assign`
        self._gaps: dict[MessageQueue, OffsetGap] = {}
        self._arrived = asyncio.Event()  # something for poll to look at
        self._is_failing = False

    async def close(self) -> None:
        """Store how far it is, and leave the group. Closing twice is no error."""
        if self._lifecycle.state is State.RUNNING and not self._is_failing:
            self._count_as_consumed()
        await super().close()
        self._arrived.set()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._keep_last_poll(kind)
        await self.close()

    def _keep_last_poll(self, kind: type[BaseException] | None) -> None:
        """An error ends the use of this consumer: what poll gave last shall come again."""
        self._is_failing = kind is not None

    # Which queues.

    async def subscribe(self, topic: str, expression: Expression = "*") -> None:
        """Read this topic as a member of the group: all messages, those with tags such as
        `TagA || TagB`, or those that Sql92(...) accepts. In place of what was wanted of it before.
        """
        if self._given:
            raise IllegalState("this consumer was given its queues by assign: it can't subscribe")
        await super().subscribe(topic, expression)

    async def assign(self, queues: Iterable[MessageQueue], expression: Expression = "*") -> None:
        """Read these queues and no others, whoever else reads them, from where the group is."""
        self._lifecycle.require_running()
        if self._subscriptions:
            raise IllegalState("this consumer subscribes to topics: it can't be given queues")
        version = self._instance.environment.clock.wall_ms()
        wanted = [self._wire_queue(queue) for queue in queues]
        topics = {queue.topic for queue in wanted}
        given = {each: subscription(each, expression, version=version) for each in topics}
        for queue in {(queue.topic, queue.broker_name): queue for queue in wanted}.values():
            await self._require_filter(queue, given[queue.topic])
        await asyncio.gather(*map(self._release, list(self._assigned)))
        self._given = given
        outcomes = await asyncio.gather(*map(self._acquire, wanted), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    async def _require_filter(self, queue: MessageQueue, data: SubscriptionData) -> None:
        """BrokerError if the queue's broker does not understand what is to be filtered."""
        if data.expression_type == SQL92:
            address = await broker_address(self._instance, queue)
            await self._require_understood(data, [address])

    # Messages.

    async def poll(
        self, *, timeout: float = POLL_TIMEOUT, messages_max: int | None = None
    ) -> list[StoredMessage]:
        """Messages of any of its queues, in order for each queue; none if none came in time.

        OffsetGap when messages that were to come next are gone, unless `skip_gaps` is set: again
        and again, until `seek` says where to go on, or the queue is paused or not ours any more.
        """
        self._lifecycle.require_running()
        if timeout != 0:
            check_seconds("timeout", timeout)
        if self.settings.auto_commit:
            self._count_as_consumed()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        while True:
            self._look_at_gaps()
            messages = self._give(messages_max or self.settings.poll_messages_max)
            left = deadline - loop.time()
            if messages or left <= 0:
                return messages
            self._arrived.clear()
            try:
                async with asyncio.timeout(left):
                    await self._arrived.wait()
            except TimeoutError:
                pass
            self._lifecycle.require_running()

    def __aiter__(self) -> AsyncIterator[StoredMessage]:
        return self

    async def __anext__(self) -> StoredMessage:
        while not self._is_closed():
            try:
                messages = await self.poll(messages_max=1)
            except IllegalState:
                if not self._is_closed():
                    raise
                break
            if messages:
                return messages[0]
        raise StopAsyncIteration

    def _is_closed(self) -> bool:
        return self._lifecycle.state is State.CLOSED

    def pull_range(
        self,
        queue: MessageQueue,
        start: int,
        end: int,
        *,
        expression: Expression = "*",
        skip_gaps: bool | None = None,
    ) -> AsyncIterator[bytes]:
        """The stored messages of a queue from offset `start` up to, and without, `end`.

        Whole answers, as `rocketpipe.wire.record.decode_records` reads them, in order; several
        pulls are on their way at once. Nothing is assigned for it, and nothing committed. With
        tags, brokers compare hashes only: who reads has to compare tags. OffsetGap when an offset
        is not there, unless gaps are to be skipped.
        """
        return _each(self._pull_range(queue, start, end, expression, skip_gaps))

    def _pull_range(
        self,
        queue: MessageQueue,
        start: int,
        end: int,
        expression: Expression,
        skip_gaps: bool | None,
        *,
        bytes_min: int = 1,
    ) -> AsyncGenerator[list[bytes], None]:
        """The same answers, so many bytes at once."""
        self._lifecycle.require_running()
        wire = self._wire_queue(queue)
        reader = RangeReader(
            *(self._puller, self.settings, wire),
            subscription(wire.topic, expression, version=0),
            skip_gaps=self.settings.skip_gaps if skip_gaps is None else skip_gaps,
            require_filter=self._require_filter,
        )
        return reader.read(start, end, bytes_min=bytes_min)

    # Offsets.

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on with this offset of a queue."""
        self._lifecycle.require_running()
        if type(offset) is not int or offset < 0:
            raise InvalidSetting(f"offset {offset!r}: it must be a whole number from 0")
        wire = self._wire_queue(queue)
        if wire not in self._assigned:
            raise IllegalState(f"{queue} is not one of the queues that this consumer reads")
        await self._restart(wire, offset)

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        """Go on with the first message that a queue has."""
        self._lifecycle.require_running()
        await self.seek(queue, await self._ends.min_offset(self._wire_queue(queue)))

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Go on with the next message that comes to a queue."""
        self._lifecycle.require_running()
        await self.seek(queue, await self._ends.max_offset(self._wire_queue(queue)))

    async def seek_to_time(self, queue: MessageQueue, timestamp_ms: int) -> None:
        """Go on with the first message of a queue that was stored at this time or later."""
        self._lifecycle.require_running()
        wire = self._wire_queue(queue)
        await self.seek(queue, await self._ends.offset_at(wire, timestamp_ms))

    async def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Give no messages of these queues, until they are resumed."""
        self._lifecycle.require_running()
        for queue in map(self._wire_queue, queues):
            self._paused.add(queue)
            if queue in self._assigned:
                self._assigned[queue].gate.clear()

    async def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Give messages of these queues again."""
        self._lifecycle.require_running()
        for queue in map(self._wire_queue, queues):
            self._paused.discard(queue)
            if queue in self._assigned:
                self._assigned[queue].gate.set()
        self._arrived.set()

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Store these offsets for the group; by default, all that poll gave is consumed.

        Returns when the brokers have them.
        """
        self._lifecycle.require_running()
        if offsets is not None:
            await self._offsets.write({self._wire_queue(q): at for q, at in offsets.items()})
            return
        self._count_as_consumed()
        consumed = {queue: shelf.commit_offset for queue, shelf in self._shelves.items()}
        await self._offsets.write(consumed)

    async def offsets(self) -> dict[MessageQueue, int]:
        """Of each queue that it reads, the offset that poll gives next."""
        self._lifecycle.require_running()
        return {self._users_queue(queue): each.position for queue, each in self._shelves.items()}

    async def committed(self, queue: MessageQueue) -> int | None:
        """The offset that is stored for the group; None if there is none."""
        self._lifecycle.require_running()
        return await self._offsets.read(self._wire_queue(queue))

    async def lag(self) -> dict[MessageQueue, int]:
        """Of each queue that it reads, how many messages poll has not given yet."""
        self._lifecycle.require_running()
        shelves = dict(self._shelves)
        ends = await asyncio.gather(*map(self._ends.max_offset, shelves))
        return {
            self._users_queue(queue): max(0, end - shelves[queue].position)
            for queue, end in zip(shelves, ends, strict=True)
        }

    # What the base asks.

    def _prepare(self, ending: AsyncExitStack) -> None:
        pass  # it does nothing but what it is asked

    def _gate(self, queue: MessageQueue) -> asyncio.Event:
        gate = super()._gate(queue)
        if queue in self._paused:
            gate.clear()
        return gate

    def _subscription(self, queue: MessageQueue) -> SubscriptionData | None:
        return self._subscriptions.get(queue.topic) or self._given.get(queue.topic)

    def _begin(self, queue: MessageQueue, offset: int) -> Assigned:
        assigned = super()._begin(queue, offset)
        self._shelves[queue] = _Shelf(assigned.process_queue, offset, offset)
        return assigned

    async def _end_reader(self, assigned: Assigned) -> None:
        self._shelves.pop(assigned.process_queue.queue, None)
        self._gaps.pop(assigned.process_queue.queue, None)
        await super()._end_reader(assigned)

    def _commit_offset(self, assigned: Assigned) -> int | None:
        shelf = self._shelves.get(assigned.process_queue.queue)
        if shelf is None or not self.settings.auto_commit:
            return None
        return shelf.commit_offset

    def _take(self, queue: ProcessQueue, messages: list[StoredMessage]) -> None:
        shelf = self._shelves[queue.queue]
        if queue.queue not in self._turns:
            self._turns.append(queue.queue)
        shelf.messages += messages
        self._arrived.set()

    def _moved(self, queue: ProcessQueue, pulled: Pulled) -> None:
        if pulled.is_reset:
            self._background.spawn(self._restart(queue.queue, pulled.next_offset))
            return
        users = self._users_queue(queue.queue)
        reason = pulled.remark or pulled.status.name
        self._gaps[queue.queue] = OffsetGap(users, queue.next_offset, pulled.next_offset, reason)
        self._arrived.set()

    def _look_at_gaps(self) -> None:
        """OffsetGap if a queue can't go on; it does where gaps are to be skipped."""
        for queue, gap in list(self._gaps.items()):
            # What was before the gap comes first: to go on beyond it would leave that out.
            if queue in self._paused or self._shelves[queue].messages:
                continue
            if not self.settings.skip_gaps:
                raise OffsetGap(*gap.args)
            log.warning("group %s goes on after a gap: %s", self._group, gap)
            del self._gaps[queue]
            self._background.spawn(self._restart(queue, gap.found))

    def _give(self, messages_max: int) -> list[StoredMessage]:
        """Some of what is there, from one queue after another."""
        messages: list[StoredMessage] = []
        for _ in range(len(self._turns)):
            queue = self._turns.popleft()
            shelf = self._shelves.get(queue)
            if shelf is None or not shelf.messages:
                continue  # it is another's by now
            if queue not in self._paused:
                count = min(messages_max - len(messages), len(shelf.messages))
                given = [shelf.messages.popleft() for _ in range(count)]
                if given:
                    shelf.process_queue.done(given)
                    shelf.given_to = given[-1].queue_offset + 1
                    messages += given
            if shelf.messages:
                self._turns.append(queue)
        if self.settings.namespace:
            messages = [
                replace(each, topic=self._users_queue(each.queue).topic) for each in messages
            ]
        return messages

    def _count_as_consumed(self) -> None:
        for shelf in self._shelves.values():
            shelf.consumed_to = shelf.given_to


async def _each(lists: AsyncGenerator[list[T], None]) -> AsyncIterator[T]:
    async with aclosing(lists):
        async for some in lists:
            for each in some:
                yield each
