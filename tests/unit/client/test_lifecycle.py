"""The life of a producer: started once, used, closed; and nothing of it left behind."""

import asyncio
import os
import random
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from rocketpipe.client.hooks import SendHook
from rocketpipe.client.lifecycle import InFlight
from rocketpipe.client.policy import Policy
from rocketpipe.client.producer import AsyncProducer
from rocketpipe.errors import ClientError, IllegalState, SendFailed
from rocketpipe.message import Message
from rocketpipe.testing.simulated_loop import run
from tests.simulated_cluster import SimulatedCluster, after, ignore, simulated

MESSAGE = Message("orders", b"body")

USES: list[Callable[[AsyncProducer], Awaitable[object]]] = [
    lambda producer: producer.send(MESSAGE),
    lambda producer: producer.send_oneway(MESSAGE),
    lambda producer: producer.send_batch([MESSAGE]),
    lambda producer: producer.send_many([MESSAGE]),
]


@simulated()
async def test_a_producer_is_started_used_and_closed(cluster: SimulatedCluster) -> None:
    producer = cluster.producer()
    await producer.start()
    assert producer.client_id.startswith("10.0.0.1@4711#")
    await producer.send(MESSAGE)
    await producer.close()
    await producer.close()  # which is no error


@simulated()
async def test_use_before_the_start_or_after_the_end_says_so(cluster: SimulatedCluster) -> None:
    producer = cluster.producer()
    for use in USES:
        with pytest.raises(IllegalState, match="producer 'group' was not started: start it first"):
            await use(producer)
    with pytest.raises(IllegalState, match="was not started"):
        _ = producer.client_id
    await producer.start()
    await producer.close()
    for use in USES:
        with pytest.raises(IllegalState, match="producer 'group' is closed: make a new one"):
            await use(producer)


@simulated()
async def test_a_producer_can_be_started_only_once(cluster: SimulatedCluster) -> None:
    producer = cluster.producer()
    await producer.start()
    with pytest.raises(IllegalState, match="is running: it can be started only once"):
        await producer.start()
    await producer.send(MESSAGE)
    await producer.close()
    with pytest.raises(IllegalState, match="is closed: it can be started only once"):
        await producer.start()


@simulated()
async def test_one_that_was_never_started_can_be_closed(cluster: SimulatedCluster) -> None:
    producer = cluster.producer()
    await producer.close()
    with pytest.raises(IllegalState, match="is closed"):
        await producer.start()


@simulated()
async def test_two_producers_of_one_group_in_one_client_are_one_too_many(
    cluster: SimulatedCluster,
) -> None:
    async with cluster.producer() as first:
        second = cluster.producer()
        with pytest.raises(
            ClientError, match=r"group .group. in client 10\.0\.0\.1@4711#\d+ already"
        ):
            await second.start()
        with pytest.raises(IllegalState, match="failed to start: make a new one"):
            await second.send(MESSAGE)
        with pytest.raises(IllegalState, match="failed to start: it can be started only once"):
            await second.start()
        await second.close()
        await first.send(MESSAGE)  # whom that does not concern
        async with cluster.producer(instance_name="other") as third:
            assert third.client_id == "10.0.0.1@other"
    async with cluster.producer() as fourth:  # the place is free again
        await fourth.send(MESSAGE)


class _Unlucky:
    def build(self, dice: random.Random) -> Policy:
        raise ZeroDivisionError("no policy today")


@simulated()
async def test_a_start_that_fails_halfway_leaves_nothing(cluster: SimulatedCluster) -> None:
    for _ in range(2):  # nor does it keep the place
        with pytest.raises(ZeroDivisionError):
            await cluster.producer(policy=_Unlucky()).start()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    async with cluster.producer() as producer:
        with pytest.raises(ZeroDivisionError):
            await cluster.producer("other", policy=_Unlucky()).start()
        await producer.send(MESSAGE)
        async with cluster.producer("other"):
            pass


class _Incomplete:
    def build(self, dice: random.Random) -> Any:
        return object()  # not a Policy


@simulated()
async def test_nor_does_one_that_fails_late(cluster: SimulatedCluster) -> None:
    for _ in range(2):
        with pytest.raises(AttributeError, match="brokers_to_probe"):
            await cluster.producer(policy=_Incomplete(), trace=True).start()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    async with cluster.producer() as producer:
        await producer.send(MESSAGE)


@simulated()
async def test_an_error_inside_of_the_block_is_not_lost(cluster: SimulatedCluster) -> None:
    with pytest.raises(ZeroDivisionError):
        async with cluster.producer() as producer:
            await producer.send(MESSAGE)
            raise ZeroDivisionError


@simulated()
async def test_closing_waits_for_the_sends_under_way(cluster: SimulatedCluster) -> None:
    (broker,) = cluster.brokers
    broker.behaviour = after(2.0)
    producer = cluster.producer()
    await producer.start()
    sends = [asyncio.create_task(producer.send(MESSAGE)) for _ in range(5)]
    await asyncio.sleep(0.5)
    await producer.close()
    assert 2.0 < cluster.now < 2.1
    assert all(task.done() for task in sends)
    assert len([task.result() for task in sends]) == 5


@simulated()
async def test_closing_waits_no_longer_than_the_sends_may_take(cluster: SimulatedCluster) -> None:
    (broker,) = cluster.brokers
    broker.behaviour = ignore
    producer = cluster.producer()
    await producer.start()
    send = asyncio.create_task(producer.send(MESSAGE, timeout=7.0))
    await asyncio.sleep(0.5)
    await producer.close()
    assert cluster.now == pytest.approx(7.0, abs=0.1)
    with pytest.raises(SendFailed):
        await send


class _Closing(SendHook):
    def __init__(self) -> None:
        self.closed_at: float | None = None

    async def close(self) -> None:
        self.closed_at = asyncio.get_running_loop().time()


@simulated()
async def test_a_cancelled_close_still_leaves_nothing_behind(cluster: SimulatedCluster) -> None:
    (broker,) = cluster.brokers
    broker.behaviour = ignore
    hook = _Closing()
    producer = cluster.producer(hooks=[hook], policy="java5")
    await producer.start()
    send = asyncio.create_task(producer.send(MESSAGE, timeout=1000))
    await asyncio.sleep(1)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await producer.close()
    assert hook.closed_at == 2.0
    with pytest.raises(SendFailed):
        await send
    await cluster.assert_client_is_gone()
    async with cluster.producer():  # and the group's place is free
        pass


@simulated()
async def test_closing_while_a_connection_is_being_made_ends_that(
    cluster: SimulatedCluster,
) -> None:
    producer = cluster.producer(request_timeout=30.0)
    await producer.start()
    cluster.network.cut("client", "broker-a")
    with pytest.raises(SendFailed):
        await producer.send(MESSAGE)
    await producer.close()
    assert cluster.now == pytest.approx(3.0, abs=0.1)


@simulated()
async def test_closing_while_a_route_is_being_asked_for_ends_that(
    cluster: SimulatedCluster,
) -> None:
    producer = cluster.producer(request_timeout=30.0)
    await producer.start()
    cluster.network.freeze("namesrv-0")
    send = asyncio.create_task(producer.send(MESSAGE))
    await asyncio.sleep(0.5)
    send.cancel()
    await asyncio.wait([send])
    await producer.close()
    assert cluster.now == 1.5  # a second is what the connection may take to write what it holds


def test_a_producer_belongs_to_the_loop_it_was_started_in() -> None:
    producers: list[AsyncProducer] = []

    async def start() -> None:
        cluster = SimulatedCluster()
        await cluster.start()
        producer = cluster.producer()
        await producer.start()
        producers.append(producer)

    async def use() -> None:
        for attempt in (*USES, AsyncProducer.close):
            with pytest.raises(IllegalState, match="in another event loop or process"):
                await attempt(producers[0])

    run(start())
    run(use())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_after_a_fork_the_child_is_told_to_make_its_own() -> None:
    async def start_and_fork() -> None:
        threads = threading.enumerate()  # other tests' servers may have some
        cluster = SimulatedCluster()
        await cluster.start()
        producer = cluster.producer()
        await producer.start()
        assert threading.enumerate() == threads
        child = os.fork()
        if child == 0:
            status = 1
            try:
                asyncio.run(use_in_child(producer))
                status = 0
            finally:
                os._exit(status)
        _, status = os.waitpid(child, 0)  # noqa: ASYNC222  # nothing else is to happen here
        assert status == 0
        await producer.send(MESSAGE)
        await producer.close()
        await cluster.stop()

    async def use_in_child(producer: AsyncProducer) -> None:
        with pytest.raises(IllegalState, match="another event loop or process"):
            await producer.send(MESSAGE)
        cluster = SimulatedCluster()
        assert cluster.producer().settings == producer.settings

    run(start_and_fork())


def test_what_is_in_flight_is_counted() -> None:
    async def main() -> None:
        in_flight = InFlight()
        await in_flight.wait_none()
        with in_flight:
            waiting = asyncio.create_task(in_flight.wait_none())
            with in_flight:
                await asyncio.sleep(1)
            await asyncio.sleep(1)
            assert not waiting.done()
        await waiting

    run(main())


@simulated(brokers=2)
async def test_closing_while_a_route_is_being_looked_at_again_ends_that(
    cluster: SimulatedCluster,
) -> None:
    producer = cluster.producer(request_timeout=30.0)
    await producer.start()
    await producer.send(MESSAGE)
    cluster.name_servers[0].behaviour = lambda request: None
    await cluster.crash(cluster.brokers[0])
    for _ in range(4):
        await producer.send(MESSAGE)
    assert len(cluster.name_servers[0].asked) == 3  # and the last has no answer
    await producer.close()
    await cluster.assert_client_is_gone()
    assert cluster.now < 3
