"""Many messages at once: in order, an error in its place, and no faster than brokers take them."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from rocketpipe.client.hooks import SendContext, SendHook
from rocketpipe.codes import ResponseCode
from rocketpipe.errors import (
    IllegalState,
    InvalidMessage,
    MQError,
    NoRoute,
    SendFailed,
)
from rocketpipe.message import Message, SendResult
from rocketpipe.remoting.connection import Connection
from rocketpipe.remoting.dispatch import Outcome
from rocketpipe.wire.frame import RemotingCommand
from tests.simulated_cluster import (
    FakeBroker,
    SimulatedCluster,
    after,
    refuse,
    simulated,
    store,
)


def messages(count: int, **changes: Any) -> list[Message]:
    return [replace(Message("orders", b"%d" % n), **changes) for n in range(count)]


def results_of(outcomes: Sequence[SendResult | MQError]) -> list[SendResult]:
    assert all(isinstance(each, SendResult) for each in outcomes), outcomes
    return cast("list[SendResult]", list(outcomes))


@simulated(brokers=2)
async def test_there_is_a_result_for_each_in_order(cluster: SimulatedCluster) -> None:
    async with cluster.producer(batch_messages_max=10) as producer:
        results = results_of(await producer.send_many(messages(95)))
    by_id = {
        message_id: body
        for broker in cluster.brokers
        for received in broker.stored
        for message_id, body in zip(received.message_ids, received.bodies, strict=True)
    }
    assert [by_id[each.message_id] for each in results] == [b"%d" % n for n in range(95)]
    assert sum(len(broker.received) for broker in cluster.brokers) == 10
    assert len({(each.queue.broker_name, each.queue_offset) for each in results}) == 95


@simulated()
async def test_none_is_no_trouble(cluster: SimulatedCluster) -> None:
    async with cluster.producer() as producer:
        assert await producer.send_many([]) == []


@simulated()
async def test_large_and_delayed_ones_go_by_themselves_in_their_place(
    cluster: SimulatedCluster,
) -> None:
    many = messages(5)
    many[1] = replace(many[1], body=b"x" * 5000)
    many[3] = replace(many[3], delay_level=3)
    async with cluster.producer() as producer:
        results_of(await producer.send_many(many))
    (broker,) = cluster.brokers
    assert [each.header.batch for each in broker.received] == [False] * 5


@simulated()
async def test_one_bad_message_gets_its_error_and_hurts_no_neighbour(
    cluster: SimulatedCluster,
) -> None:
    many: list[Any] = messages(30)
    many[3] = replace(many[3], body=b"")
    many[7] = replace(many[7], properties={"a": "\ud800"})
    many[11] = "not a message"
    many[13] = replace(many[13], body=None)
    many[17] = replace(many[17], keys=[7])
    many[19] = replace(many[19], topic="a b")
    async with cluster.producer(batch_messages_max=8) as producer:
        outcomes = await producer.send_many(many)
    bad = {n for n, each in enumerate(outcomes) if isinstance(each, InvalidMessage)}
    assert bad == {3, 7, 11, 13, 17, 19}
    good = [b"%d" % n for n in range(30) if n not in bad]
    assert sorted(cluster.brokers[0].stored_bodies) == sorted(good)
    assert all(isinstance(outcomes[n], SendResult) for n in range(30) if n not in bad)


@simulated()
async def test_nor_does_one_that_the_broker_finds_illegal(cluster: SimulatedCluster) -> None:
    def judge(broker: FakeBroker, request: RemotingCommand, connection: Connection) -> Any:
        received = broker.received[-1]
        if b"5" in received.bodies:
            return refuse(ResponseCode.MESSAGE_ILLEGAL, "I don't like 5")(
                broker, request, connection
            )
        return store(broker, request, connection)

    (broker,) = cluster.brokers
    broker.behaviour = judge
    async with cluster.producer() as producer:
        outcomes = await producer.send_many(messages(10))
    assert [n for n, each in enumerate(outcomes) if not isinstance(each, SendResult)] == [5]
    error = outcomes[5]
    assert isinstance(error, SendFailed)
    assert error.code == ResponseCode.MESSAGE_ILLEGAL
    assert sorted(broker.stored_bodies) == [b"%d" % n for n in range(10) if n != 5]


@simulated()
async def test_sending_them_one_by_one_takes_no_time_of_its_own(cluster: SimulatedCluster) -> None:
    def judge(broker: FakeBroker, request: RemotingCommand, connection: Connection) -> Any:
        if len(broker.received) == 1:
            behave = after(2.0, refuse(ResponseCode.MESSAGE_ILLEGAL))
            return behave(broker, request, connection)
        return None

    cluster.brokers[0].behaviour = judge
    async with cluster.producer() as producer:
        outcomes = await producer.send_many(messages(10), timeout=3.0)
        assert cluster.now == pytest.approx(3.0, abs=0.02)
    assert [type(each) for each in outcomes] == [SendFailed] * 10


@simulated()
async def test_a_batch_that_fails_otherwise_is_not_sent_one_by_one(
    cluster: SimulatedCluster,
) -> None:
    (broker,) = cluster.brokers
    broker.behaviour = refuse(ResponseCode.SERVICE_NOT_AVAILABLE)
    async with cluster.producer() as producer:
        outcomes = await producer.send_many(messages(10))
    assert all(isinstance(each, SendFailed) for each in outcomes)
    assert len(outcomes) == 10
    assert len(broker.received) == 3


@simulated()
async def test_topics_without_a_route_fail_by_themselves(cluster: SimulatedCluster) -> None:
    del cluster.routes["TBW102"]
    cluster.add_topic("orders")
    many = [*messages(3), *messages(3, topic="nowhere"), *messages(3)]
    async with cluster.producer() as producer:
        outcomes = await producer.send_many(many)
    kinds = [type(each) for each in outcomes]
    assert kinds == [SendResult] * 3 + [NoRoute] * 3 + [SendResult] * 3


@simulated(brokers=2)
async def test_it_takes_from_the_source_no_faster_than_brokers_answer(
    cluster: SimulatedCluster,
) -> None:
    for broker in cluster.brokers:
        broker.behaviour = after(0.5)
    taken: list[float] = []

    def source() -> Iterator[Message]:
        for message in messages(100):
            taken.append(cluster.now)
            yield message

    async with cluster.producer(batch_messages_max=5, batches_in_flight_max=4) as producer:
        results_of(await producer.send_many(source()))
    in_flight = 4 * 5
    for turn in range(5):
        taken_by_then = sum(at < 0.5 * turn + 0.25 for at in taken)
        # A pack is known to be full when the message after it was taken.
        assert in_flight * (turn + 1) <= taken_by_then <= in_flight * (turn + 1) + 4
    assert cluster.now == pytest.approx(2.5, abs=0.1)


@simulated()
async def test_batches_keep_the_limits_set(cluster: SimulatedCluster) -> None:
    async with cluster.producer(batch_bytes_max=1000) as producer:
        results_of(await producer.send_many(messages(50, body=bytes(100))))
    (broker,) = cluster.brokers
    assert {len(each.bodies) for each in broker.stored} == {3, 2}
    assert max(len(each.body) for each in broker.stored) <= 1000


@simulated()
async def test_one_to_a_batch_is_no_batch(cluster: SimulatedCluster) -> None:
    async with cluster.producer(batch_messages_max=1) as producer:
        results_of(await producer.send_many(messages(5)))
    assert [each.header.batch for each in cluster.brokers[0].stored] == [False] * 5


@simulated()
async def test_a_source_that_fails_ends_it_once_what_is_on_its_way_has_arrived(
    cluster: SimulatedCluster,
) -> None:
    cluster.brokers[0].behaviour = after(1.0)

    def source() -> Iterator[Message]:
        yield from messages(25)
        raise ZeroDivisionError("the source ran dry")

    async with cluster.producer(batch_messages_max=10) as producer:
        with pytest.raises(ZeroDivisionError, match="the source ran dry"):
            await producer.send_many(source())
        assert len(cluster.brokers[0].stored_bodies) == 20


@simulated()
async def test_a_hooks_own_error_ends_it_as_it_is(cluster: SimulatedCluster) -> None:
    class Forbid(SendHook):
        def check_forbidden(self, context: SendContext) -> None:
            if any(message.body == b"33" for message in context.messages):
                raise PermissionError("not 33")

    async with cluster.producer(batch_messages_max=10, hooks=[Forbid()]) as producer:
        with pytest.raises(PermissionError, match="not 33"):
            await producer.send_many(messages(100))


@simulated()
async def test_the_time_is_for_each_by_itself(cluster: SimulatedCluster) -> None:
    cluster.brokers[0].behaviour = after(0.8)
    settings = {"batch_messages_max": 1, "batches_in_flight_max": 1}
    async with cluster.producer(**cast("dict[str, Any]", settings)) as producer:
        results_of(await producer.send_many(messages(5), timeout=1.0))
        assert cluster.now > 4.0
        outcomes = await producer.send_many(messages(2), timeout=0.5)
        assert all(isinstance(each, SendFailed) for each in outcomes)


@simulated()
async def test_a_producer_that_is_closed_meanwhile_lets_what_is_on_its_way_end(
    cluster: SimulatedCluster,
) -> None:
    (broker,) = cluster.brokers
    broker.behaviour = after(1.0)
    producer = cluster.producer(batch_messages_max=10, batches_in_flight_max=2)
    await producer.start()
    sending = asyncio.create_task(producer.send_many(messages(10_000)))
    await asyncio.sleep(1.5)
    await producer.close()
    with pytest.raises(IllegalState, match="is closed"):
        await sending
    assert len(broker.stored_bodies) == 40


@simulated()
async def test_what_was_taken_but_not_sent_when_it_closed_gets_that_for_an_answer(
    cluster: SimulatedCluster,
) -> None:
    producer = cluster.producer(batch_messages_max=5)
    await producer.start()
    sending = asyncio.create_task(producer.send_many(messages(15)))
    await asyncio.sleep(0)
    await producer.close()
    assert [type(each) for each in await sending] == [IllegalState] * 15


@simulated()
async def test_who_gives_up_leaves_nothing_behind(cluster: SimulatedCluster) -> None:
    cluster.brokers[0].behaviour = after(1.0)
    async with cluster.producer(batch_messages_max=10) as producer:
        sending = asyncio.create_task(producer.send_many(messages(1000)))
        await asyncio.sleep(1.5)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        before = len(cluster.brokers[0].received)
        await asyncio.sleep(5)
        assert len(cluster.brokers[0].received) == before


@simulated(brokers=2)
async def test_a_dead_broker_costs_no_message(cluster: SimulatedCluster) -> None:
    def store_or_lose(
        broker: FakeBroker, request: RemotingCommand, connection: Connection
    ) -> Outcome:
        outcome = store(broker, request, connection)
        return outcome if len(broker.received) % 3 else None

    cluster.brokers[0].behaviour = store_or_lose
    async with cluster.producer(batch_messages_max=10) as producer:
        results = results_of(await producer.send_many(messages(500)))
    assert {each.message_id for each in results} <= cluster.stored_message_ids()
