"""Reading one queue for as long as it is ours: pull, hand over, pull again.

While the broker has more for us, it shall not wait for us to decode what it sent, nor we then for
its next answer. So the next pull leaves first, and what came is handed over right after it. Where
that might be too much, and at the end of a queue, where messages may have been waited for, they are
handed over first.
"""

import asyncio
import logging
from collections.abc import Callable

from rocketpipe.client.consumer.process_queue import Cache, ProcessQueue
from rocketpipe.client.consumer.pulling import Pulled, Puller, PullStatus, broker_address
from rocketpipe.client.consumer.settings import ConsumerSettings
from rocketpipe.client.consumer.subscriptions import wanted
from rocketpipe.client.instance import ClientInstance
from rocketpipe.codes import ResponseCode
from rocketpipe.errors import BrokerError, MQError
from rocketpipe.message import StoredMessage
from rocketpipe.wire.bodies.heartbeat import SubscriptionData
from rocketpipe.wire.record import decode_records

log = logging.getLogger(__name__)

# Java's pauses before the next pull.
ERROR_PAUSE = 3.0
BUSY_PAUSE = 0.02
UNKNOWN_PAUSE = 0.5  # ours: after a heartbeat to a broker that did not know us

# A broker that has no heartbeat of ours yet, or an old one.
UNKNOWN = frozenset(
    {
        ResponseCode.SUBSCRIPTION_NOT_EXIST,
        ResponseCode.SUBSCRIPTION_NOT_LATEST,
        ResponseCode.FILTER_DATA_NOT_EXIST,
        ResponseCode.FILTER_DATA_NOT_LATEST,
    }
)

Take = Callable[[ProcessQueue, list[StoredMessage]], None]
Moved = Callable[[ProcessQueue, Pulled], None]  # the broker wants us elsewhere


class QueueReader:
    """Runs until it is cancelled, or the broker says that there is nothing at our offset."""

    def __init__(
        self,
        instance: ClientInstance,
        settings: ConsumerSettings,
        puller: Puller,
        cache: Cache,
        process_queue: ProcessQueue,
        subscription: Callable[[], SubscriptionData | None],
        *,
        is_member: bool,
        gate: asyncio.Event,
        take: Take,
        moved: Moved,
    ) -> None:
        self._instance = instance
        self._settings = settings
        self._puller = puller
        self._cache = cache
        self._process_queue = process_queue
        self._subscription = subscription
        self._is_member = is_member
        self._gate = gate  # closed while the queue is paused
        self._take = take
        self._moved = moved
        # An answer that is to be handed over while the next is on its way.
        self._waiting: tuple[SubscriptionData, Pulled] | None = None

    async def run(self) -> None:
        queue = self._process_queue
        while not queue.is_dropped:
            await self._gate.wait()
            await self._cache.wait_for_room(queue)
            if not self._gate.is_set():
                continue
            try:
                if not await self._pull():
                    return
            except BrokerError as error:
                await self._rest(error)
            except MQError as error:
                log.info("pull of %s: %s", queue.queue, error)
                await asyncio.sleep(ERROR_PAUSE)
            except Exception:
                log.exception("pull of %s", queue.queue)
                await asyncio.sleep(ERROR_PAUSE)

    async def _pull(self) -> bool:
        """Whether to go on."""
        queue = self._process_queue
        subscription = self._subscription()
        if subscription is None:
            return False
        pulled = await self._puller.pull(
            queue.queue,
            self._waiting[1].next_offset if self._waiting else queue.next_offset,
            subscription,
            messages_max=self._settings.pull_batch_size,
            suspend=self._settings.suspend_timeout,
            is_member=self._is_member,
        )
        loop = asyncio.get_running_loop()
        queue.last_pulled_at = loop.time()
        if queue.is_dropped:
            return False
        self._hand_over_waiting()
        if pulled.status is PullStatus.OFFSET_ILLEGAL:
            self._moved(queue, pulled)
            return False
        self._waiting = subscription, pulled
        count, size = pulled.next_offset - queue.next_offset, len(pulled.body)  # at most
        if pulled.next_offset < pulled.max_offset and not self._cache.is_full(queue, count, size):
            self._cache.count(count, size)
            # A request is written in the next turn of the loop: this comes in the one after it.
            loop.call_soon(loop.call_soon, self._hand_over_early, count, size)
        else:
            self._hand_over_waiting()
        return True

    def _hand_over_early(self, count: int, size: int) -> None:
        """Before the next answer is here; what is wrong is met again then, by who can rest."""
        self._cache.count(-count, -size)  # it counts what is there from now on
        waiting = self._waiting
        try:
            self._hand_over_waiting()
        except Exception:
            self._waiting = waiting

    def _hand_over_waiting(self) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None and not self._process_queue.is_dropped:
            self._hand_over(*waiting)

    def _hand_over(self, subscription: SubscriptionData, pulled: Pulled) -> None:
        queue = self._process_queue
        messages: list[StoredMessage] = []
        if pulled.status is PullStatus.FOUND:
            found = decode_records(pulled.body, broker_name=queue.queue.broker_name)
            # An inner batch may begin before the offset we asked for.
            if found and found[0].queue_offset < queue.next_offset:
                found = [each for each in found if each.queue_offset >= queue.next_offset]
            messages = wanted(subscription, found)
        queue.put(messages, pulled.next_offset)
        if messages:
            self._take(queue, messages)

    async def _rest(self, error: BrokerError) -> None:
        queue = self._process_queue.queue
        log.info("pull of %s: %s", queue, error)
        if error.code in (ResponseCode.FLOW_CONTROL, ResponseCode.GO_AWAY):
            await asyncio.sleep(BUSY_PAUSE)
        elif error.code in UNKNOWN and self._is_member:
            await asyncio.sleep(UNKNOWN_PAUSE)
            try:
                await self._instance.greet([await broker_address(self._instance, queue)])
            except MQError as failure:
                log.info("pull of %s: %s", queue, failure)
        else:
            await asyncio.sleep(ERROR_PAUSE)
