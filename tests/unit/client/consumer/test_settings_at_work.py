"""Settings that a running consumer is given, and what it does then that it would not do else."""

import asyncio

import pytest

from rocketpipe.client.consumer.pull_consumer import AsyncPullConsumer
from rocketpipe.codes import RequestCode, ResponseCode
from rocketpipe.message import Message
from rocketpipe.remoting.connection import Connection
from rocketpipe.remoting.dispatch import Outcome
from rocketpipe.wire.bodies.groups import ConsumerIdList
from rocketpipe.wire.frame import RemotingCommand
from tests.consumer_bench import ConsumerBench, simulated
from tests.simulated_cluster import SimulatedCluster
from tests.simulated_cluster import simulated as with_fakes


@simulated()
async def test_allocation(bench: ConsumerBench) -> None:
    queues = await bench.create_topic("orders", queues=4)
    members = [bench.pull_consumer(pid=pid, allocation="circle") for pid in (2, 3)]
    for member in members:
        await member.start()
        await member.subscribe("orders")
    await asyncio.sleep(1)
    assert [await member.assigned() for member in members] == [queues[::2], queues[1::2]]
    for member in members:
        await member.close()


@with_fakes()
async def test_rebalance_interval(cluster: SimulatedCluster) -> None:
    asked: list[float] = []

    def members(connection: Connection, request: RemotingCommand) -> Outcome:
        asked.append(cluster.now)
        body = ConsumerIdList(consumer_id_list=(consumer.client_id,)).encode()
        return request.answer(ResponseCode.SUCCESS, body=body)

    cluster.add_topic("orders")
    cluster.brokers[0].handlers[RequestCode.GET_CONSUMER_LIST_BY_GROUP] = members
    for interval, times in ((3.0, 20), (20.0, 3)):
        async with cluster.pull_consumer(rebalance_interval=interval) as consumer:
            await consumer.subscribe("orders")
            await consumer.pause(await consumer.queues("orders"))
            await asyncio.sleep(5)
            asked.clear()
            await asyncio.sleep(60)
            assert len(asked) == pytest.approx(times, abs=1)


@simulated()
async def test_persist_offset_interval(bench: ConsumerBench) -> None:
    (queue,) = await bench.create_topic("orders", queues=1)
    await bench.send("orders", 10, queue=queue)
    async with bench.pull_consumer(persist_offset_interval=60.0) as consumer:
        await consumer.subscribe("orders")
        await consumer.poll(timeout=30)
        await consumer.poll(timeout=0)
        await asyncio.sleep(20)
        assert not await bench.committed(queue)
        await asyncio.sleep(60)
        assert await bench.committed(queue) == 10


async def waiting(consumer: AsyncPullConsumer) -> tuple[int, int]:
    """How many messages, and bytes, wait in it after a while in which nobody polls."""
    await consumer.subscribe("orders")
    await asyncio.sleep(30)
    return consumer._cache.messages, consumer._cache.bytes


@simulated()
async def test_pull_batch_size(bench: ConsumerBench) -> None:
    await bench.create_topic("orders", queues=1)
    await bench.send("orders", 100)
    async with bench.pull_consumer(pull_batch_size=7, queue_messages_max=1) as consumer:
        assert (await waiting(consumer))[0] == 7  # one pull, which is more than may wait already


@simulated()
async def test_bytes_max(bench: ConsumerBench) -> None:
    queues = await bench.create_topic("orders", queues=4)
    for queue in queues:
        for _ in range(20):
            await bench.producer.send(Message("orders", bytes(1000)), queue=queue)
    async with bench.pull_consumer(pull_batch_size=1, bytes_max=30_000) as consumer:
        # Each queue may be pulled once more by who saw room for it.
        assert 30_000 <= (await waiting(consumer))[1] < 30_000 + len(queues) * 1000
        while await consumer.poll(timeout=5):
            pass
        assert set((await consumer.lag()).values()) == {0}


@simulated()
async def test_messages_max(bench: ConsumerBench) -> None:
    queues = await bench.create_topic("orders", queues=4)
    await bench.send("orders", 100)
    async with bench.pull_consumer(pull_batch_size=1, messages_max=30) as consumer:
        assert 30 <= (await waiting(consumer))[0] < 30 + len(queues)


@simulated()
async def test_poll_messages_max(bench: ConsumerBench) -> None:
    await bench.create_topic("orders", queues=1)
    await bench.send("orders", 10)
    async with bench.pull_consumer(poll_messages_max=4) as consumer:
        await waiting(consumer)
        assert [len(await consumer.poll(timeout=1)) for _ in range(4)] == [4, 4, 2, 0]


@simulated()
async def test_suspend_timeout(bench: ConsumerBench) -> None:
    """How long a broker holds a pull: the longer, the fewer pulls there are of an empty queue."""
    await bench.create_topic("orders", queues=1)
    seen = {}
    for pid, seconds in ((2, 1.0), (3, 60.0)):
        times = set()
        async with bench.pull_consumer(
            f"group-{pid}", pid=pid, suspend_timeout=seconds, pull_timeout=100.0
        ) as consumer:
            await consumer.subscribe("orders")
            (assigned,) = consumer._assigned.values()
            for _ in range(300):
                times.add(assigned.process_queue.last_pulled_at)
                await asyncio.sleep(1)
        seen[seconds] = len(times)
    assert seen[1.0] > 30
    assert seen[60.0] < 8
