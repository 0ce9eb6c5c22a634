"""Bulk sends: whatever a bulk writer has encoded, many requests at a time, until one fails.

What is for one queue goes there one after another, each when the one before is acknowledged: so its
order is kept whatever has to be tried again. All else goes as the policy chooses, in any order.

How often a writer's messages were sent can be told from his first one of a topic alone: it is there
before anything else is sent, by whoever sends the same again as well, and before anything that may
be stored already is tried again, it is sent once more. So who finds it once knows that nothing is
there twice.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from rocketpipe.client.encoded import Encoded
from rocketpipe.client.producer import AsyncProducer
from rocketpipe.codes import ResponseCode
from rocketpipe.errors import BulkFailed, SendFailed
from rocketpipe.message import MessageQueue, SendResult


class AsyncBulkSender:
    """One writer's sends. After a failure it sends nothing more: what came later may depend on it.

    At most `batches_in_flight_max` of the producer's settings are on their way at once.
    """

    def __init__(self, producer: AsyncProducer) -> None:
        self._producer = producer
        self._in_flight_max = producer.settings.batches_in_flight_max
        self._room = asyncio.Semaphore(self._in_flight_max)
        self._lanes: defaultdict[MessageQueue, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._failure: BulkFailed | None = None
        self._begins = asyncio.Lock()
        self._announces = asyncio.Lock()
        self._firsts: dict[str, Encoded] = {}  # by topic; those that are there, and once only

    async def send(self, parcels: Sequence[Encoded]) -> list[SendResult]:
        """A result for each request there was; BulkFailed, once what is on its way has ended.

        It may be called again before it has returned: lanes are taken in the order of the calls.
        """
        results: list[SendResult] = []
        firsts = [parcel for parcel in parcels if parcel.is_first]
        async with self._begins:
            await self._send_each(iter(firsts), results)
        free: list[Encoded] = []
        lanes: defaultdict[MessageQueue, list[Encoded]] = defaultdict(list)
        for parcel in parcels:
            if parcel.is_first:
                continue
            (free if parcel.queue is None else lanes[parcel.queue]).append(parcel)
        workers = min(len(free), self._in_flight_max)
        shared = iter(free)
        async with asyncio.TaskGroup() as tasks:
            for queue, waiting in lanes.items():
                tasks.create_task(self._send_in_order(queue, waiting, results))
            for _ in range(workers):
                tasks.create_task(self._send_each(shared, results))
        if self._failure is not None:
            raise self._failure
        return results

    async def _send_in_order(
        self, queue: MessageQueue, parcels: Iterable[Encoded], results: list[SendResult]
    ) -> None:
        async with self._lanes[queue]:
            await self._send_each(iter(parcels), results)

    async def _send_each(self, parcels: Iterator[Encoded], results: list[SendResult]) -> None:
        for parcel in parcels:
            async with self._room:
                if self._failure is not None:
                    return
                await self._send_one(parcel, results)

    async def _send_one(self, parcel: Encoded, results: list[SendResult]) -> None:
        try:
            before_repeat = partial(self._announce_again, parcel.topic)
            result = await self._producer.send_encoded(parcel, before_repeat=before_repeat)
            results.append(result)
            if parcel.is_first:
                self._firsts[parcel.topic] = parcel
        except SendFailed as error:
            if not parcel.is_batch or error.code != ResponseCode.MESSAGE_ILLEGAL:
                self._fail(parcel, error)
                return
            # A broker may allow less in one request than we do, or not like one of them.
            first, *others = parcel.members()
            for member in (first._replace(is_first=parcel.is_first), *others):
                if self._failure is None:
                    await self._send_one(member, results)
        except Exception as error:  # also what a hook raised
            self._fail(parcel, error)

    async def _announce_again(self, topic: str) -> None:
        """Make the topic's first message be there twice, unless it is."""
        async with self._announces:  # whoever needs it too waits until it is done
            if (first := self._firsts.get(topic)) is not None:
                await self._producer.send_encoded(first.first_member())
                del self._firsts[topic]

    def _fail(self, parcel: Encoded, error: Exception) -> None:
        if self._failure is None:  # the first is what the writer hears of
            self._failure = BulkFailed(parcel.topic, tuple(parcel.message_id.split(",")), error)
