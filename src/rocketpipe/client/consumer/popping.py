"""POP, from 5.0 on: a broker shares out messages, not queues, and each is acknowledged by itself.

A message that was popped is invisible to the rest of the group for some time; if it is not
acknowledged by then it comes again, to any member. So there are no offsets to store, no locks and
nothing to rebalance: every member pops from every broker of a topic.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import cast

from rocketpipe.client.consumer.process_queue import Cache, ProcessQueue
from rocketpipe.client.consumer.pulling import broker_address
from rocketpipe.client.consumer.queue_reader import ERROR_PAUSE
from rocketpipe.client.consumer.send_back import FIRST_DELAY_LEVEL, SendBack
from rocketpipe.client.consumer.settings import FIRST, PushConsumerSettings
from rocketpipe.client.consumer.subscriptions import wanted
from rocketpipe.client.instance import ClientInstance
from rocketpipe.errors import MalformedHeader, MQError
from rocketpipe.message import MessageQueue, StoredMessage
from rocketpipe.wire.bodies.heartbeat import SubscriptionData
from rocketpipe.wire.pop_receipt import NORMAL, Receipt, real_topic, start_offsets
from rocketpipe.wire.properties import POP_CK
from rocketpipe.wire.record import decode_records
from rocketpipe.wire.requests.pop import (
    AckMessage,
    ChangeMessageInvisibletime,
    PollingInfo,
    PopMessage,
    PopMessageReply,
)

log = logging.getLogger(__name__)

ANY_QUEUE = -1
MESSAGES_MAX = 32  # for one pop: brokers refuse to give more
FROM_OLDEST, FROM_NEWEST = 0, 1
# The delay levels 1 to 18, in seconds.
DELAYS = (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)


class PopQueue(ProcessQueue):
    """What was popped from a broker and is not done yet, of whatever queues."""

    _popped = 0

    def put(self, messages: Sequence[StoredMessage], next_offset: int = 0) -> None:
        self._change(len(messages), sum(len(message.body) for message in messages))

    def done(self, messages: Sequence[StoredMessage]) -> None:
        if not self.is_dropped:
            self._change(-len(messages), -sum(len(message.body) for message in messages))

    def drop(self) -> None:
        if not self.is_dropped:
            self._change(-self._popped, -self.bytes)
            self.is_dropped = True

    def _change(self, count: int, size: int) -> None:
        self._popped += count
        self.bytes += size
        self._cache.count(count, size)

    @property
    def count(self) -> int:
        return self._popped


class PopReader:
    """Pops from one broker for as long as it runs."""

    def __init__(
        self,
        instance: ClientInstance,
        settings: PushConsumerSettings,
        group: str,
        cache: Cache,
        process_queue: PopQueue,
        subscription: Callable[[], SubscriptionData | None],
        *,
        gate: asyncio.Event,
        take: Callable[[PopQueue, list[StoredMessage], float], None],
    ) -> None:
        self._instance = instance
        self._settings = settings
        self._group = group
        self._cache = cache
        self._process_queue = process_queue
        self._subscription = subscription
        self._gate = gate
        self._take = take

    async def run(self) -> None:
        queue = self._process_queue
        while not queue.is_dropped:
            await self._gate.wait()
            await self._cache.wait_for_room(queue)
            subscription = self._subscription()
            if subscription is None:
                return
            try:
                await self._pop(subscription)
            except MQError as error:
                log.info("pop of %s: %s", queue.queue, error)
                self._instance.routes.refresh_soon(queue.queue.topic)
                await asyncio.sleep(ERROR_PAUSE)
            except Exception:
                log.exception("pop of %s", queue.queue)
                await asyncio.sleep(ERROR_PAUSE)

    async def _pop(self, subscription: SubscriptionData) -> None:
        settings, queue = self._settings, self._process_queue.queue
        request = PopMessage(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=ANY_QUEUE,
            max_msg_nums=min(MESSAGES_MAX, settings.pull_batch_size),
            invisible_time=round(settings.invisible_time * 1000),
            poll_time=round(settings.suspend_timeout * 1000),
            born_time=self._instance.environment.clock.wall_ms(),
            init_mode=FROM_OLDEST if settings.consume_from == FIRST else FROM_NEWEST,
            exp_type=subscription.expression_type,
            exp=subscription.sub_string,
            order=False,
            broker_name=queue.broker_name,
        )
        address = await broker_address(self._instance, queue)
        answer = await self._instance.connections.request(
            address, request, timeout=settings.pull_timeout
        )
        if answer.header is None or self._process_queue.is_dropped:
            return
        found = decode_records(answer.body, broker_name=queue.broker_name)
        give_receipts(found, answer.header, queue.broker_name)
        messages = wanted(subscription, found)
        visible_at = asyncio.get_running_loop().time() + settings.invisible_time
        self._process_queue.put(messages)
        self._take(self._process_queue, messages, visible_at)


def give_receipts(
    messages: Sequence[StoredMessage], header: PopMessageReply, broker_name: str
) -> None:
    """Each gets the receipt by which it is acknowledged; those that come again have one already.

    MQClientAPIImpl.processPopResponse and ExtraInfoUtil.buildExtraInfo.
    """
    starts = start_offsets(header.start_offset_info or "")
    for message in messages:
        if POP_CK in message.properties:
            continue
        start = starts.get(message.queue_id)
        if start is None:
            raise MalformedHeader(f"a pop of queue {message.queue_id} that says not from where")
        receipt = Receipt(
            start,
            header.pop_time,
            header.invisible_time,
            header.revive_qid,
            NORMAL,
            broker_name,
            message.queue_id,
            message.queue_offset,
        )
        # A fresh dict, which nobody else has yet.
        cast("dict[str, str]", message.properties)[POP_CK] = str(receipt)


class Receipts:
    """Gives them back: the message is consumed, or shall come again."""

    def __init__(self, instance: ClientInstance, group: str, send_back: SendBack) -> None:
        self._instance = instance
        self._group = group
        self._send_back = send_back

    async def consumed(self, queue: MessageQueue, messages: Sequence[StoredMessage]) -> None:
        """Acknowledge them; one that can't be comes again."""
        for message in messages:
            try:
                await self._ack(queue, message)
            except MQError as error:
                log.info("message %s will come again: %s", message.message_id, error)

    async def send(self, queue: MessageQueue, message: StoredMessage, delay_level: int) -> None:
        """Have it come again after a delay, or go to the dead letters if it came too often."""
        if delay_level < 0 or message.reconsume_times >= self._send_back.times_max:
            await self._bury(queue, message)
            return
        level = delay_level or FIRST_DELAY_LEVEL + message.reconsume_times
        topic, queue_id, offset = self._place(queue, message)
        request = ChangeMessageInvisibletime(
            consumer_group=self._group,
            topic=topic,
            queue_id=queue_id,
            extra_info=message.properties[POP_CK],
            offset=offset,
            invisible_time=DELAYS[min(level, len(DELAYS)) - 1] * 1000,
            broker_name=queue.broker_name,
        )
        try:
            address = await broker_address(self._instance, queue)
            timeout = self._instance.settings.request_timeout
            await self._instance.connections.request(address, request, timeout=timeout)
        except MQError as error:  # then it comes again when it is visible again
            log.info("message %s comes again sooner or later: %s", message.message_id, error)

    async def _bury(self, queue: MessageQueue, message: StoredMessage) -> None:
        try:
            await self._send_back.send_anew(message, -1)
        except MQError as error:
            log.warning("message %s will come once more: %s", message.message_id, error)
        else:
            await self.consumed(queue, [message])

    async def _ack(self, queue: MessageQueue, message: StoredMessage) -> None:
        topic, queue_id, offset = self._place(queue, message)
        request = AckMessage(
            consumer_group=self._group,
            topic=topic,
            queue_id=queue_id,
            extra_info=message.properties[POP_CK],
            offset=offset,
            broker_name=queue.broker_name,
        )
        address = await broker_address(self._instance, queue)
        timeout = self._instance.settings.request_timeout
        await self._instance.connections.request(address, request, timeout=timeout)

    def _place(self, queue: MessageQueue, message: StoredMessage) -> tuple[str, int, int]:
        """The topic, queue and offset that a receipt is for."""
        receipt = Receipt.parse(message.properties[POP_CK])
        topic = real_topic(self._group, queue.topic, receipt.kind)
        return topic, receipt.queue_id, receipt.queue_offset


def any_queue_of_each(queues: Iterable[MessageQueue]) -> set[MessageQueue]:
    """What is popped from: one stands for all queues of a topic at a broker."""
    return {replace(queue, queue_id=ANY_QUEUE) for queue in queues}


async def require_pop(instance: ClientInstance, group: str, queue: MessageQueue) -> None:
    """BrokerError if the broker does not know what that is."""
    question = PollingInfo(consumer_group=group, topic=queue.topic, queue_id=0)
    address = await broker_address(instance, queue)
    timeout = instance.settings.request_timeout
    await instance.connections.request(address, question, timeout=timeout)
