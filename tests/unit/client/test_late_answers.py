"""Answers to attempts whose share of the time is over: they count until the send's own deadline."""

import asyncio
from collections.abc import Awaitable

import pytest

from rocketpipe.client.hooks import SendContext, SendHook
from rocketpipe.codes import ResponseCode
from rocketpipe.errors import RequestTimeout, SendFailed
from rocketpipe.message import Message, SendStatus
from rocketpipe.remoting.connection import Connection
from rocketpipe.wire.frame import RemotingCommand
from tests.simulated_cluster import (
    Behaviour,
    FakeBroker,
    SimulatedCluster,
    after,
    ignore,
    refuse,
    simulated,
    store_as,
)

MESSAGE = Message("orders", b"body")


def all_behave(cluster: SimulatedCluster, behaviour: Behaviour) -> None:
    for broker in cluster.brokers:
        broker.behaviour = behaviour


def first_behaves(cluster: SimulatedCluster, first: Behaviour, others: Behaviour) -> None:
    """The first broker that is asked behaves in one way, and whoever comes next in another."""
    to_come = [first]

    def behave(
        broker: FakeBroker, request: RemotingCommand, connection: Connection
    ) -> Awaitable[RemotingCommand | None] | RemotingCommand | None:
        return (to_come.pop() if to_come else others)(broker, request, connection)

    all_behave(cluster, behave)


class Diary(SendHook):
    def __init__(self) -> None:
        self.told: list[str] = []

    def after(self, context: SendContext) -> None:
        assert context.attempt is not None
        self.told.append(str(context.attempt.error or context.attempt.status))


@simulated(brokers=2)
async def test_where_every_broker_is_slow_a_send_takes_as_long_as_they_do(
    cluster: SimulatedCluster,
) -> None:
    all_behave(cluster, after(1.4))
    diary = Diary()
    async with cluster.producer(hooks=[diary]) as producer:
        began = cluster.now
        result = await producer.send(MESSAGE)
        assert cluster.now - began == pytest.approx(1.4, abs=0.02)
        timed_out, given_up = result.attempts
        assert isinstance(timed_out.error, RequestTimeout)
        assert result.queue == timed_out.queue
        earlier = timed_out.queue.broker_name
        assert str(given_up.error) == f"{earlier} answered an earlier attempt meanwhile"
        assert given_up.status is None
        assert given_up.queue.broker_name != earlier
        assert diary.told == [str(timed_out.error), str(given_up.error)]
        broker = cluster.broker(earlier)
        assert result.message_id in broker.stored_message_ids


@simulated(brokers=2)
async def test_the_answer_to_the_attempt_on_its_way_still_counts_first(
    cluster: SimulatedCluster,
) -> None:
    first_behaves(cluster, after(2.5), after(0.1))
    async with cluster.producer() as producer:
        began = cluster.now
        result = await producer.send(MESSAGE)
        assert cluster.now - began == pytest.approx(1.1, abs=0.02)
        assert result.queue == result.attempts[1].queue
        await asyncio.sleep(5.0)  # the late answer comes, and nobody wants it
        assert (await producer.send(MESSAGE)).status is SendStatus.SEND_OK


@simulated(brokers=2)
async def test_a_late_answer_is_awaited_when_all_attempts_are_made(
    cluster: SimulatedCluster,
) -> None:
    first_behaves(cluster, after(2.5), refuse(ResponseCode.SYSTEM_ERROR))
    async with cluster.producer() as producer:
        began = cluster.now
        result = await producer.send(MESSAGE)
        assert cluster.now - began == pytest.approx(2.5, abs=0.02)
        assert len(result.attempts) == 3
        assert result.queue == result.attempts[0].queue


@simulated(brokers=2)
async def test_a_late_answer_may_come_while_a_busy_broker_gets_its_pause(
    cluster: SimulatedCluster,
) -> None:
    first_behaves(cluster, after(1.3), refuse(ResponseCode.SYSTEM_BUSY))
    async with cluster.producer(busy_pause=1.0) as producer:
        began = cluster.now
        result = await producer.send(MESSAGE)
        assert cluster.now - began < 2.6
        assert result.queue == result.attempts[0].queue
        assert "earlier attempt" in str(result.attempts[-1].error)
        assert sum(len(broker.received) for broker in cluster.brokers) == 2


@simulated(brokers=2)
async def test_a_late_refusal_is_no_result(cluster: SimulatedCluster) -> None:
    first_behaves(cluster, after(1.5, refuse(ResponseCode.SYSTEM_ERROR)), after(0.8))
    async with cluster.producer() as producer:
        result = await producer.send(MESSAGE)
        assert result.queue == result.attempts[1].queue
        first_behaves(cluster, after(1.5, refuse(ResponseCode.SYSTEM_ERROR)), ignore)
        began = cluster.now
        with pytest.raises(SendFailed):
            await producer.send(MESSAGE)
        assert cluster.now - began == pytest.approx(3.0, abs=0.02)


@simulated(brokers=2)
async def test_a_late_answer_counts_only_if_it_is_as_safe_as_the_user_wants_it(
    cluster: SimulatedCluster,
) -> None:
    timeout = store_as(ResponseCode.FLUSH_DISK_TIMEOUT)
    for retries, status in ((True, SendStatus.SEND_OK), (False, SendStatus.FLUSH_DISK_TIMEOUT)):
        first_behaves(cluster, after(1.2, timeout), after(0.9))
        async with cluster.producer(retry_another_broker_when_not_store_ok=retries) as producer:
            assert (await producer.send(MESSAGE)).status is status


@simulated(brokers=2)
async def test_who_gives_up_a_send_ends_the_attempt_too(cluster: SimulatedCluster) -> None:
    all_behave(cluster, ignore)
    diary = Diary()
    async with cluster.producer(hooks=[diary]) as producer:
        send = asyncio.create_task(producer.send(MESSAGE))
        await asyncio.sleep(1.5)
        send.cancel()
        with pytest.raises(asyncio.CancelledError):
            await send
        assert diary.told[-1] == "the caller gave up"
        assert cluster.now == pytest.approx(1.5, abs=0.02)


@simulated(brokers=2)
async def test_nothing_is_kept_of_answers_that_never_come(cluster: SimulatedCluster) -> None:
    all_behave(cluster, ignore)
    async with cluster.producer(silent_connection_timeout=60.0) as producer:
        with pytest.raises(SendFailed):
            await producer.send(MESSAGE)
        await asyncio.sleep(0.1)
        connections = list(producer._instance.connections._living)
        assert connections
        assert not any(each._unanswered._late for each in connections)


@simulated(brokers=2)
async def test_a_send_that_every_broker_refused_does_not_wait_for_its_deadline(
    cluster: SimulatedCluster,
) -> None:
    all_behave(cluster, refuse(ResponseCode.NO_PERMISSION))
    async with cluster.producer(send_timeout=20) as producer:
        began = cluster.now
        with pytest.raises(SendFailed):
            await producer.send(MESSAGE)
        assert cluster.now - began < 1
