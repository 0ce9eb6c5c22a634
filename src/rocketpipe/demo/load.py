"""The shop's producers at work: a steady rate of sends, whatever becomes of each.

What people do in the shop goes to any queue: the policy chooses, and one dead broker fails nothing.
Order events are bound to the queue of their customer, since elsewhere they would be out of order.
So while its broker is away they can't be stored; the shop keeps them, those of one customer one
behind another, and sends again until they are. It keeps to the queues there were at its start: a
selector alone would spread the customers anew when a broker leaves the topic's route, and once more
when it is back.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from zlib import crc32

from rocketpipe.client.producer import AsyncProducer
from rocketpipe.client.selectors import by_hash
from rocketpipe.demo.orders import Event, Shop
from rocketpipe.demo.tally import Tally
from rocketpipe.errors import MQError
from rocketpipe.message import MessageQueue

TICK = 0.01
RESEND_PAUSE = (0.2, 2.0)  # after the first failure, and at most
PATIENCE = 20.0  # so long after the end the shop still tries


class Load:
    """Sends the events of a shop through several producers, each customer's through one of them."""

    def __init__(
        self,
        producers: Sequence[AsyncProducer],
        shop: Shop,
        tally: Tally,
        *,
        queues: Sequence[MessageQueue],
        rate: float,
        wall_ms: Callable[[], int],
    ) -> None:
        self._producers = producers
        self._shop = shop
        self._tally = tally
        self._queues = queues  # of the orders
        self._rate = rate
        self._wall_ms = wall_ms
        self._now = asyncio.get_running_loop().time
        self._outbox: dict[str, deque[Event]] = defaultdict(deque)  # by customer
        self._give_up_at = 0.0

    async def run(self, seconds: float) -> None:
        """Returns when all that was begun in this time has ended."""
        started = self._now()
        self._give_up_at = started + seconds + PATIENCE
        made, total = 0, int(seconds * self._rate)
        async with asyncio.TaskGroup() as sends:
            while made < total:
                # A tick may come late; the rate holds all the same.
                for _ in range(made, min(total, int((self._now() - started) * self._rate) + 1)):
                    self._begin(self._shop.next_event(self._wall_ms()), sends)
                    made += 1
                await asyncio.sleep(TICK)

    def _begin(self, event: Event, sends: asyncio.TaskGroup) -> None:
        if not event.is_ordered:
            sends.create_task(self._send(event))
            return
        outbox = self._outbox[event.customer]
        outbox.append(event)
        self._tally.topics[event.message.topic].waiting += 1
        if len(outbox) == 1:
            sends.create_task(self._send_in_order(outbox))

    async def _send_in_order(self, outbox: deque[Event]) -> None:
        while outbox and self._now() < self._give_up_at:
            event = outbox[0]
            totals = self._tally.topics[event.message.topic]
            totals.waiting -= 1
            pause, pause_max = RESEND_PAUSE
            while not await self._send(event) and self._now() < self._give_up_at:
                await asyncio.sleep(pause)
                pause = min(2 * pause, pause_max)
                totals.resent += 1
            outbox.popleft()

    async def _send(self, event: Event) -> bool:
        """Whether it was acknowledged."""
        topic = event.message.topic
        producer = self._producers[crc32(event.customer.encode()) % len(self._producers)]
        self._tally.topics[topic].sends += 1
        started = self._now()
        try:
            queue = by_hash(self._queues, event.message, None) if event.is_ordered else None
            result = await producer.send(event.message, queue=queue)
        except MQError as error:
            self._tally.failed(topic, error)
            return False
        self._tally.acknowledged(topic, result, self._now() - started)
        return True
