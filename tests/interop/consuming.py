"""What the tests of consumers share: listeners that remember, and ways to wait for a group."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine
from typing import Any

from rocketpipe import AsyncPullConsumer, AsyncPushConsumer, Message, MessageQueue, StoredMessage
from rocketpipe.errors import BrokerError
from rocketpipe.wire.bodies.consumer_info import ConsumerRunningInfo
from rocketpipe.wire.requests.callbacks import GetConsumerRunningInfo
from tests.interop.clusters import Cluster, Reader
from tests.interop.messages import producer_at

PATIENCE = 90.0  # rebalances, long polls and delays add up on a busy machine


class Remembers:
    """A listener that keeps what it is given."""

    def __init__(self) -> None:
        self.messages: list[StoredMessage] = []

    async def __call__(self, messages: list[StoredMessage]) -> None:
        self.messages += messages

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.messages]


async def until(is_so: Callable[[], bool | Coroutine[Any, Any, bool]], what: str) -> None:
    """Wait until something is so."""
    try:
        async with asyncio.timeout(PATIENCE):
            while True:
                answer = is_so()
                if answer if isinstance(answer, bool) else await answer:
                    return
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"waited in vain until {what}") from None


def push_at(cluster: Cluster, group: str, listener: Any, **settings: Any) -> AsyncPushConsumer:
    settings.setdefault("consume_from", "first")
    settings.setdefault("request_timeout", 10.0)
    return AsyncPushConsumer(group, listener, namesrv=cluster.namesrv, **settings)


def pull_at(cluster: Cluster, group: str, **settings: Any) -> AsyncPullConsumer:
    settings.setdefault("consume_from", "first")
    settings.setdefault("request_timeout", 10.0)
    return AsyncPullConsumer(group, namesrv=cluster.namesrv, **settings)


async def send_to_all(
    cluster: Cluster, queues: list[MessageQueue], each: int, *, begin: int = 0, **more: Any
) -> dict[MessageQueue, list[bytes]]:
    """So many messages to each queue, in order; their bodies."""
    sent: dict[MessageQueue, list[bytes]] = defaultdict(list)
    async with producer_at(cluster, "consuming") as producer:
        for number in range(begin, begin + each):
            for queue in queues:
                body = f"{queue.broker_name}-{queue.queue_id}-{number}".encode()
                await producer.send(Message(queue.topic, body, **more), queue=queue)
                sent[queue].append(body)
    return sent


async def share(consumer: AsyncPushConsumer | AsyncPullConsumer, topic: str) -> set[MessageQueue]:
    return {queue for queue in await consumer.assigned() if queue.topic == topic}


async def running_info(
    reader: Reader, cluster: Cluster, group: str, client_id: str
) -> ConsumerRunningInfo | None:
    """What a member says of itself when a broker asks; None while it is not known there."""
    broker = await reader.at(cluster.brokers[0].address)
    request = GetConsumerRunningInfo(consumer_group=group, client_id=client_id)
    try:
        return await broker.request(request, timeout=30)
    except BrokerError:
        return None
