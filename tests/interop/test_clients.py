"""How brokers see a producer: who it is, by which port it comes, and when it is gone."""

import asyncio
import os
import re

import pytest

from rocketpipe import Message
from rocketpipe.codes import ResponseCode
from rocketpipe.errors import BrokerError
from rocketpipe.wire.requests.admin import GetProducerConnectionList
from tests.interop.clusters import TIMEOUT, Cluster, Reader, Server, mqadmin, new_topic, until
from tests.interop.messages import producer_at


async def clients(reader: Reader, broker: Server, group: str) -> list[str]:
    """The client ids that a broker knows in a producer group."""
    connection = await reader.at(broker.address)
    try:
        known = await connection.request(
            GetProducerConnectionList(producer_group=group), timeout=TIMEOUT
        )
    except BrokerError as error:
        assert error.code == ResponseCode.SYSTEM_ERROR
        assert f"the producer group[{group}] not exist" in str(error)
        return []
    return sorted(each.client_id for each in known.connection_set)


async def until_known(reader: Reader, broker: Server, group: str, expected: list[str]) -> None:
    async def is_known() -> bool | None:
        return await clients(reader, broker, group) == expected or None

    await until(is_known)


@pytest.mark.parametrize(
    ("settings", "client_id"),
    [
        ({}, rf"127\.0\.0\.1@{os.getpid()}#\d+"),
        ({"instance_name": "blue"}, "127.0.0.1@blue"),
        ({"instance_name": "blue", "unit_name": "u1"}, "127.0.0.1@blue@u1"),
    ],
)
def test_both_brokers_know_a_client_until_it_closes(
    cluster: Cluster, settings: dict[str, str], client_id: str
) -> None:
    async def main() -> None:
        group, topic = new_topic("known"), new_topic("known")
        async with Reader(cluster.namesrv) as reader:
            async with producer_at(cluster, group, **settings) as producer:
                assert re.fullmatch(client_id, producer.client_id)
                # One message, to one broker; but the other may have something to ask as well.
                await producer.send(Message(topic, b"x"))
                for broker in cluster.brokers:
                    await until_known(reader, broker, group, [producer.client_id])
            # Closing has told them: there is nothing to wait for.
            for broker in cluster.brokers:
                assert await clients(reader, broker, group) == []

    asyncio.run(main())


def test_a_group_may_have_several_clients_in_one_process(cluster: Cluster) -> None:
    async def main() -> None:
        group, topic = new_topic("several"), new_topic("several")
        broker = cluster.broker("broker-a")
        async with Reader(cluster.namesrv) as reader:
            await reader.create_topic(topic, cluster.brokers)
            async with (
                producer_at(cluster, group, instance_name="one") as one,
                producer_at(cluster, group, instance_name="two") as two,
            ):
                for producer in (one, two):
                    await producer.send(Message(topic, b"x"))
                both = ["127.0.0.1@one", "127.0.0.1@two"]
                await until_known(reader, broker, group, both)
                await two.close()
                assert await clients(reader, broker, group) == ["127.0.0.1@one"]

    asyncio.run(main())


def test_a_group_leaves_while_its_client_stays(cluster: Cluster) -> None:
    """Two groups share a client and its connections, so that none of these closes."""

    async def main() -> None:
        groups = [new_topic("leaving"), new_topic("staying")]
        topic = new_topic("leaving")
        async with Reader(cluster.namesrv) as reader:
            await reader.create_topic(topic, cluster.brokers)
            async with (
                producer_at(cluster, groups[0], instance_name="shared") as leaving,
                producer_at(cluster, groups[1], instance_name="shared") as staying,
            ):
                assert leaving.client_id == staying.client_id
                await leaving.send(Message(topic, b"x"))
                for broker in cluster.brokers:
                    for group in groups:
                        await until_known(reader, broker, group, ["127.0.0.1@shared"])
                await leaving.close()
                for broker in cluster.brokers:
                    assert await clients(reader, broker, groups[0]) == []
                    assert await clients(reader, broker, groups[1]) == ["127.0.0.1@shared"]

    asyncio.run(main())


def test_a_namespace_is_part_of_the_group(cluster: Cluster) -> None:
    async def main() -> None:
        group, topic = new_topic("group"), new_topic("group")
        async with (
            Reader(cluster.namesrv) as reader,
            producer_at(cluster, group, namespace="shop", instance_name="ns") as producer,
        ):
            await producer.send(Message(topic, b"x"))
            await until_known(reader, cluster.brokers[0], f"shop%{group}", ["127.0.0.1@ns"])
            assert await clients(reader, cluster.brokers[0], group) == []

    asyncio.run(main())


def test_mqadmin_shows_the_connection_of_a_producer(cluster: Cluster) -> None:
    async def main() -> None:
        group, topic = new_topic("shown"), new_topic("shown")
        async with producer_at(cluster, group, instance_name="green") as producer:
            await producer.send(Message(topic, b"x"))
            output = await asyncio.to_thread(
                mqadmin, cluster, "producerConnection", "-g", group, "-t", topic
            )
        assert "127.0.0.1@green" in output, output
        assert "PYTHON" in output or "OTHER" in output, output  # not every release knows Python

    asyncio.run(main())


def test_the_vip_channel_is_two_ports_below(cluster: Cluster) -> None:
    async def main() -> None:
        topic = new_topic("vip")
        async with (
            producer_at(cluster, vip_channel=True) as producer,
            Reader(cluster.namesrv) as reader,
        ):
            for _ in range(8):
                result = await producer.send(Message(topic, b"by the other door"))
                host, port = cluster.broker(result.queue.broker_name).address.split(":")
                assert result.attempts[0].address == f"{host}:{int(port) - 2}"
            assert (await reader.stored(result)).body == b"by the other door"

    asyncio.run(main())
