"""Who is connected to a broker, and when it forgets them."""

import asyncio
from typing import Any

import pytest

from rocketpipe.errors import BrokerError
from rocketpipe.remoting.connection import Connection
from rocketpipe.wire.bodies.heartbeat import (
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    ProducerData,
    SubscriptionData,
)
from rocketpipe.wire.requests.clients import HeartBeat, HeartBeatReply, UnregisterClient
from tests.unit.broker.bench import Bench, simulated


def consumer(group: str = "readers", *topics: str, version: int = 1) -> ConsumerData:
    return ConsumerData(
        group_name=group,
        consume_type=ConsumeType.CONSUME_PASSIVELY,
        message_model=MessageModel.CLUSTERING,
        subscription_data_set=tuple(
            SubscriptionData.of_tags(topic, "*", sub_version=version) for topic in topics
        ),
    )


async def heartbeat(
    client: Connection,
    client_id: str = "c@1",
    *,
    producers: tuple[str, ...] = (),
    consumers: tuple[ConsumerData, ...] = (),
    **fields: Any,
) -> HeartBeatReply:
    body = HeartbeatData(
        client_id=client_id,
        producer_data_set=tuple(ProducerData(group_name=group) for group in producers),
        consumer_data_set=consumers,
        **fields,
    )
    return await client.request(HeartBeat(), body.encode(), timeout=3)


@simulated
async def test_producers_are_asked_in_turn_and_found_by_id(bench: Bench) -> None:
    async with (
        bench.broker() as broker,
        bench.client(broker.address) as first,
        bench.client(broker.address) as second,
    ):
        await heartbeat(first, "a", producers=("p", "q"))
        await heartbeat(second, "b", producers=("p",))
        asked = [broker.clients.next_producer("p") for _ in range(4)]
        assert sorted(client.client_id for client in asked if client) == ["a", "a", "b", "b"]
        assert broker.clients.next_producer("nobody") is None
        found = broker.clients.producer_connection("b")
        assert found is list(broker.clients.producers["p"])[1]
        await first.request(
            UnregisterClient(client_id="a", producer_group="p", consumer_group=None), timeout=3
        )
        assert [each.client_id for each in broker.clients.producers["p"].values()] == ["b"]
        assert list(broker.clients.producers) == ["p", "q"]


@simulated
async def test_a_consumer_brings_its_group_and_its_retry_topic(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        changed: list[str] = []
        broker.clients.on_consumers_changed.append(changed.append)
        reply = await heartbeat(client, consumers=(consumer("readers", "orders"),))
        assert reply == HeartBeatReply(is_support_heart_beat_v2=True, is_sub_change=True)
        assert "readers" in broker.groups.table
        assert broker.topics.table["%RETRY%readers"].write_queue_nums == 1
        await heartbeat(client, consumers=(consumer("readers", "orders"),))
        assert changed == ["readers"]  # nothing new the second time
        await heartbeat(client, consumers=(consumer("readers", "orders", "bills"),))
        assert changed == ["readers", "readers"]
        assert list(broker.clients.consumers["readers"].subscriptions) == ["orders", "bills"]
        await client.request(UnregisterClient(client_id="c@1", consumer_group="readers"), timeout=3)
        assert changed == ["readers"] * 3
        assert broker.clients.consumers == {}


@simulated
async def test_an_older_subscription_does_not_replace_a_newer_one(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        await heartbeat(client, consumers=(consumer("readers", "orders", version=5),))
        await heartbeat(client, consumers=(consumer("readers", "orders", version=4),))
        assert broker.clients.consumers["readers"].subscriptions["orders"].sub_version == 5


@simulated
async def test_a_group_that_may_not_be_is_not_registered(bench: Bench) -> None:
    settings = {"auto_create_subscription_group": False}
    async with bench.broker(**settings) as broker, bench.client(broker.address) as client:
        await heartbeat(client, consumers=(consumer("readers", "orders"),))
        assert broker.clients.consumers == {}
        assert "%RETRY%readers" not in broker.topics.table


@simulated
async def test_who_is_disconnected_is_forgotten(bench: Bench) -> None:
    async with bench.broker() as broker:
        async with bench.client(broker.address) as client:
            await heartbeat(client, producers=("p",), consumers=(consumer(),))
            assert broker.clients.producers
            assert broker.clients.consumers
        await asyncio.sleep(1)
        assert broker.clients.producers == {}
        assert broker.clients.consumers == {}
        assert broker.clients.producer_connection("c@1") is None


@simulated
async def test_who_keeps_silent_is_forgotten_and_disconnected(bench: Bench) -> None:
    settings = {"channel_expired_timeout": 30.0}
    async with (
        bench.broker(**settings) as broker,
        bench.client(broker.address) as silent,
        bench.client(broker.address) as lively,
    ):
        await heartbeat(silent, "silent", producers=("p",))
        for _ in range(5):
            await heartbeat(lively, "lively", producers=("p",))
            await asyncio.sleep(10)
        assert [each.client_id for each in broker.clients.producers["p"].values()] == ["lively"]
        assert silent.lost is not None
        assert lively.lost is None


@simulated
async def test_there_is_an_end_to_the_clients_a_broker_remembers(bench: Bench) -> None:
    async with bench.broker(clients_max=3) as broker, bench.client(broker.address) as client:
        await heartbeat(client, producers=("a", "b", "c", "d"), consumers=(consumer("e"),))
        known = [*broker.clients.producers, *broker.clients.consumers]
        assert len(known) == 3
        await heartbeat(client, producers=tuple(broker.clients.producers))  # they are no news


@simulated
async def test_who_has_an_endless_name_is_not_remembered(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        for client_id, group in (("x" * 256, "p"), ("c@1", "x" * 256)):
            with pytest.raises(BrokerError, match=r"x\.\.\. is longer than 255 characters"):
                await heartbeat(client, client_id, producers=("q", group))
        assert not broker.clients.producers
