"""A NameServer and brokers of ours on the simulated network, for tests of consumers.

    @simulated(brokers=2)
    async def test_something(bench: ConsumerBench) -> None:
        await bench.create_topic("orders", queues=4)
        await bench.send("orders", 100)
        async with bench.pull_consumer("group") as consumer:
            ...

The brokers are the real ones of `rocketpipe.broker`; the time, the network and the disks are not,
so that the minutes a rebalance or a lock takes are over at once. `pid` tells clients apart.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from rocketpipe.broker.broker import Broker
from rocketpipe.broker.settings import BrokerSettings
from rocketpipe.client.consumer.listeners import Listener
from rocketpipe.client.consumer.pull_consumer import AsyncPullConsumer
from rocketpipe.client.consumer.push_consumer import AsyncPushConsumer
from rocketpipe.client.environment import Environment
from rocketpipe.client.producer import AsyncProducer
from rocketpipe.codes import ResponseCode
from rocketpipe.errors import BrokerError
from rocketpipe.message import Message, MessageQueue, SendResult
from rocketpipe.nameserver.server import NameServer
from rocketpipe.remoting.address import Address
from rocketpipe.remoting.connection import connect
from rocketpipe.testing.simulated_disk import SimulatedDisk
from rocketpipe.testing.simulated_loop import SimulatedClock, run
from rocketpipe.testing.simulated_network import NetworkOptions, SimulatedNetwork
from rocketpipe.wire.headers import Request
from rocketpipe.wire.requests.admin import UpdateAndCreateTopic
from rocketpipe.wire.requests.reading import QueryConsumerOffset

CALM = NetworkOptions(delay_min=0.001, delay_max=0.001, spike_chance=0.0)
NAMESRV = Address("10.0.0.9", 9876)
FOLDER = Path("/broker")


class ConsumerBench:
    def __init__(self, *, brokers: int = 1, settings: dict[str, Any] | None = None) -> None:
        self.network = SimulatedNetwork(1, CALM)
        self.clock = SimulatedClock(asyncio.get_running_loop())
        self.nameserver = NameServer(self.network.host(NAMESRV.host), clock=self.clock)
        self._settings = settings or {}
        self._disks = [SimulatedDisk(number) for number in range(brokers)]
        self.brokers = [self._broker(number) for number in range(brokers)]
        self._producer = AsyncProducer(
            "bench", namesrv=self.namesrv, environment=self.environment(1)
        )

    def _broker(self, number: int) -> Broker:
        host = f"10.0.1.{number + 1}"
        settings = BrokerSettings(
            host=host,
            broker_name=f"broker-{'abcdef'[number]}",
            namesrv=(NAMESRV,),
            **self._settings,
        )
        return Broker(
            settings,
            FOLDER,
            disk=self._disks[number],
            network=self.network.host(host),
            clock=self.clock,
            dice=random.Random(1),
        )

    async def start(self) -> None:
        await self.nameserver.start(NAMESRV)
        for broker in self.brokers:
            await broker.start()
        await self._producer.start()

    async def close(self) -> None:
        await self._producer.close()
        for broker in self.brokers:
            await broker.close()
        await self.nameserver.close()

    @property
    def namesrv(self) -> str:
        return str(NAMESRV)

    def environment(self, pid: int) -> Environment:
        return Environment(
            network=self.network.host(f"10.0.2.{pid}"),
            clock=self.clock,
            dice=random.Random(pid),
            ip=f"10.0.2.{pid}",
            pid=pid,
        )

    def pull_consumer(
        self, group: str = "group", *, pid: int = 2, **more: Any
    ) -> AsyncPullConsumer:
        more.setdefault("consume_from", "first")
        return AsyncPullConsumer(
            group, namesrv=self.namesrv, environment=self.environment(pid), **more
        )

    def push_consumer(
        self, listener: Listener, group: str = "group", *, pid: int = 2, **more: Any
    ) -> AsyncPushConsumer:
        """Of the topic `orders`, unless told otherwise."""
        more.setdefault("consume_from", "first")
        more.setdefault("subscriptions", {"orders": "*"})
        more.setdefault("environment", self.environment(pid))
        return AsyncPushConsumer(group, listener, namesrv=self.namesrv, **more)

    async def committed(self, queue: MessageQueue, group: str = "group") -> int | None:
        """How far a group is, as the queue's broker knows."""
        (broker,) = [
            each for each in self.brokers if each.settings.broker_name == queue.broker_name
        ]
        request = QueryConsumerOffset(
            consumer_group=group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            set_zero_if_not_found=False,
        )
        try:
            offset: int = (await self.ask(broker, request)).offset
        except BrokerError as error:
            assert error.code == ResponseCode.QUERY_NOT_FOUND
            return None
        return offset

    async def create_topic(self, topic: str, *, queues: int = 4) -> list[MessageQueue]:
        request = UpdateAndCreateTopic(
            topic=topic,
            default_topic="TBW102",
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=6,
            topic_filter_type="SINGLE_TAG",
            order=False,
        )
        for broker in self.brokers:
            await self.ask(broker, request)
        return [
            MessageQueue(topic, broker.settings.broker_name, queue_id)
            for broker in self.brokers
            for queue_id in range(queues)
        ]

    async def ask(self, broker: Broker, request: Request[Any], body: bytes = b"") -> Any:
        """What a broker replies to a raw request."""
        host = self.network.host("10.0.3.1")
        connection = await connect(host, broker.address, timeout=3.0)
        try:
            return await connection.request(request, body, timeout=30.0)
        finally:
            await connection.close()

    async def send(
        self, topic: str, count: int, *, queue: MessageQueue | None = None, tags: str | None = None
    ) -> list[bytes]:
        """So many messages, in turn to all queues or to this one; their bodies."""
        bodies = [f"{topic}-{number}".encode() for number in range(count)]
        for body in bodies:
            result = await self._producer.send(Message(topic, body, tags=tags), queue=queue)
            assert isinstance(result, SendResult)
        return bodies


Test = Callable[[ConsumerBench], Coroutine[Any, Any, None]]


def simulated(**options: Any) -> Callable[[Test], Callable[[], None]]:
    """Run a test on a bench of its own, made with these options."""

    def decorate(test: Test) -> Callable[[], None]:
        async def main() -> None:
            bench = ConsumerBench(**options)
            await bench.start()
            try:
                await test(bench)
            finally:
                await bench.close()

        def wrapper() -> None:
            run(main())

        # Not by functools.wraps, which would let pytest look for a fixture named bench.
        wrapper.__name__ = test.__name__
        wrapper.__module__ = test.__module__
        return wrapper

    return decorate
