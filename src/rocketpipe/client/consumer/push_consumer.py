"""The push consumer: hands every message to a listener, and has those that fail come again."""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from rocketpipe.client.checks import RETRY_PREFIX
from rocketpipe.client.consumer.base import BaseConsumer
from rocketpipe.client.consumer.concurrent import Concurrent
from rocketpipe.client.consumer.listeners import Listener
from rocketpipe.client.consumer.offsets import LocalOffsets, OffsetStore
from rocketpipe.client.consumer.orderly import Orderly
from rocketpipe.client.consumer.popping import (
    PopQueue,
    PopReader,
    Receipts,
    any_queue_of_each,
    require_pop,
)
from rocketpipe.client.consumer.process_queue import Assigned, Cache, ProcessQueue
from rocketpipe.client.consumer.pulling import Pulled
from rocketpipe.client.consumer.queue_locks import RENEW_INTERVAL, QueueLocks
from rocketpipe.client.consumer.rebalancing import Choose
from rocketpipe.client.consumer.send_back import SendBack
from rocketpipe.client.consumer.settings import PushConsumerSettings, consumer_settings
from rocketpipe.client.consumer.subscriptions import Expression, retry_topic, subscription
from rocketpipe.client.environment import Environment
from rocketpipe.client.namespace import without_namespace
from rocketpipe.client.route import subscribe_queues
from rocketpipe.errors import InvalidSetting, OffsetGap
from rocketpipe.message import MessageQueue, StoredMessage
from rocketpipe.wire.bodies.consumer_info import ConsumeMessageDirectlyResult, ConsumeResult
from rocketpipe.wire.bodies.heartbeat import ConsumeType, MessageModel, SubscriptionData
from rocketpipe.wire.properties import RETRY_TOPIC

log = logging.getLogger(__name__)


class AsyncPushConsumer(BaseConsumer):
    """Gives messages to a listener as they come.

    async def on_messages(messages: list[StoredMessage]) -> None:
        ...

    async with AsyncPushConsumer(
        "billing", on_messages, subscriptions={"orders": "paid"}, namesrv="127.0.0.1:9876"
    ):
        await asyncio.Event().wait()

    The listener is a coroutine function, or a plain one, which is called in threads. When it
    returns, its messages are consumed; those for which it raises an error or returns Retry come
    again later, and after `max_reconsume_times` they go to the dead letters, topic `%DLQ%<group>`.
    A message may be given more than once: always so when a consumer is killed at work. Settings
    are those of PushConsumerSettings, by name or as such an object.
    """

    _consume_type = ConsumeType.CONSUME_PASSIVELY

    def __init__(
        self,
        consumer_group: str | PushConsumerSettings,
        listener: Listener,
        *,
        subscriptions: Mapping[str, Expression] | None = None,
        environment: Environment | None = None,
        **settings: Any,
    ) -> None:
        self.settings = consumer_settings(PushConsumerSettings, consumer_group, settings)
        super().__init__(self.settings, environment)
        if not callable(listener):
            raise InvalidSetting(f"the listener {listener!r:.100} can't be called")
        for topic, expression in (subscriptions or {}).items():
            subscription(topic, expression, version=0)
            self._wishes[topic] = expression
        self._listener = listener
        span_max = None if self.settings.orderly else self.settings.queue_span_max
        self._cache = Cache(self.settings, span_max)
        self._open = asyncio.Event()  # while it is not suspended
        self._open.set()

    async def suspend(self) -> None:
        """Pull no more for now; what is here already still goes to the listener."""
        self._lifecycle.require_running()
        self._open.clear()

    async def resume(self) -> None:
        """Pull again."""
        self._lifecycle.require_running()
        self._open.set()

    # What the base asks.

    def _prepare(self, ending: AsyncExitStack) -> None:
        settings, instance = self.settings, self._instance
        send_back = SendBack(instance, settings, self._group)
        self._locks = QueueLocks(instance, self._group)
        self._consumption: Concurrent | Orderly
        if settings.orderly:
            self._consumption = Orderly(
                *(settings, self._listener, send_back, self._background), is_held=self._is_locked
            )
            if self._needs_locks:
                self._background.every(RENEW_INTERVAL, self._renew_locks)
        else:
            receipts = Receipts(instance, self._group, send_back)
            self._consumption = Concurrent(
                *(settings, self._listener, receipts if settings.pop else send_back),
                self._background,
            )
        ending.push_async_callback(self._consumption.close)
        if not settings.is_broadcasting and not settings.pop:
            topic = retry_topic(self._group)
            self._subscriptions[topic] = subscription(topic, "*", version=self._started_ms)

    @property
    def _model(self) -> MessageModel:
        return self.settings.model

    def _offset_store(self) -> OffsetStore:
        if not self.settings.is_broadcasting:
            return super()._offset_store()
        folder = self.settings.offset_folder
        root = Path(folder) if folder is not None else Path.home() / ".rocketmq_offsets"
        return LocalOffsets(root, self._instance.stable_client_id, self._group)

    def _chooses(self) -> Choose | None:
        if self.settings.pop:
            return any_queue_of_each
        return set if self.settings.is_broadcasting else None

    def _gate(self, queue: MessageQueue) -> asyncio.Event:
        return self._open

    def _commit_offset(self, assigned: Assigned) -> int | None:
        return None if self.settings.pop else assigned.process_queue.commit_offset

    def _take(self, queue: ProcessQueue, messages: list[StoredMessage]) -> None:
        self._consumption.take(queue, self._as_the_user_knows(queue, messages))

    def _as_the_user_knows(
        self, queue: ProcessQueue, messages: list[StoredMessage]
    ) -> list[StoredMessage]:
        if self.settings.namespace or queue.queue.topic.startswith(RETRY_PREFIX):
            return list(map(self._as_the_user_knows_it, messages))
        return messages

    def _as_the_user_knows_it(self, message: StoredMessage) -> StoredMessage:
        """One that comes again has the topic it first had, and none has a namespace."""
        topic = message.topic
        if topic.startswith(RETRY_PREFIX):
            topic = message.properties.get(RETRY_TOPIC, topic)
        return replace(message, topic=without_namespace(self.settings.namespace, topic))

    def _moved(self, queue: ProcessQueue, pulled: Pulled) -> None:
        if pulled.is_reset:
            self._background.spawn(self._reset_offsets({queue.queue: pulled.next_offset}))
            return
        # It has to go on, as nobody is there to ask; but nobody shall say that it was hidden.
        reason = pulled.remark or pulled.status.name
        gap = OffsetGap(queue.queue, queue.next_offset, pulled.next_offset, reason)
        log.error("group %s goes on after a gap: %s", self._group, gap)
        self._background.spawn(self._pass_over(queue, gap))

    async def _pass_over(self, queue: ProcessQueue, gap: OffsetGap) -> None:
        """Go on after a gap, once all that came before it is consumed: it would be lost there."""
        await self._cache.wait_consumed(queue)
        if not queue.is_dropped:
            await self._reset_offsets({queue.queue: gap.found})

    async def _come_to_rest(self, assigned: Assigned) -> None:
        try:
            async with asyncio.timeout(self.settings.close_timeout):
                await self._consumption.stop(assigned.process_queue)
        except TimeoutError:
            queue = assigned.process_queue.queue
            log.warning("%s: it is left while the listener works on messages of it", queue)
            self._locks.forget(queue)  # not before the lock has run out may another have it

    def _running_properties(self) -> dict[str, str]:
        return {
            "PROP_CONSUMEORDERLY": str(self.settings.orderly).lower(),
            "PROP_THREADPOOL_CORE_SIZE": str(self.settings.workers),
        }

    async def _consume_directly(self, message: StoredMessage) -> ConsumeMessageDirectlyResult:
        now = asyncio.get_running_loop().time
        begin = now()
        remark = None
        try:
            message = self._as_the_user_knows_it(message)
            outcome = await self._consumption.workers.call([message])
            result = ConsumeResult.CR_SUCCESS if outcome is None else ConsumeResult.CR_LATER
        except Exception as error:
            result = ConsumeResult.CR_THROW_EXCEPTION
            remark = f"{type(error).__name__}: {error}"
        return ConsumeMessageDirectlyResult(
            consume_result=result,
            order=self.settings.orderly,
            remark=remark,
            spent_time_mills=round((now() - begin) * 1000),
        )

    # Popping.

    async def _meet(self, data: SubscriptionData) -> None:
        await super()._meet(data)
        route = self._instance.routes.find(data.topic)
        if self.settings.pop and route is not None:
            for queue in any_queue_of_each(subscribe_queues(route)):
                await require_pop(self._instance, self._group, queue)

    async def _acquire(self, queue: MessageQueue) -> bool:
        if not self.settings.pop:
            return await super()._acquire(queue)
        if queue not in self._assigned:
            pop_queue = PopQueue(queue, 0, self._cache)
            reader = PopReader(
                *(self._instance, self.settings, self._group, self._cache, pop_queue),
                lambda: self._subscription(queue),
                gate=self._open,
                take=self._take_popped,
            )
            task = asyncio.get_running_loop().create_task(reader.run())
            self._assigned[queue] = Assigned(pop_queue, self._open, task)
        return True

    def _take_popped(
        self, queue: PopQueue, messages: list[StoredMessage], visible_at: float
    ) -> None:
        assert isinstance(self._consumption, Concurrent)
        self._consumption.take(queue, self._as_the_user_knows(queue, messages), visible_at)

    # Locks, when orderly.

    @property
    def _needs_locks(self) -> bool:
        return self.settings.orderly and not self.settings.is_broadcasting

    def _is_locked(self, queue: MessageQueue) -> bool:
        return not self._needs_locks or self._locks.is_held(queue)

    async def _may_take(self, queue: MessageQueue) -> bool:
        return not self._needs_locks or await self._locks.lock(queue)

    async def _left(self, queue: MessageQueue) -> None:
        if isinstance(self._consumption, Orderly) and self._consumption.is_at_work(queue):
            self._locks.forget(queue)
        else:
            await self._locks.unlock(queue)

    async def _renew_locks(self) -> None:
        lost = await self._locks.renew()
        assert isinstance(self._consumption, Orderly)
        self._consumption.go_on()
        for queue in lost:
            log.warning("group %s: the lock of %s is another's now", self._group, queue)
            await self._release(queue)
        if lost:
            self._rebalancer.soon()
