"""What producers of one client share: its id, its connections, its heartbeats."""

import asyncio
import random
import re
from collections.abc import Collection, Sequence

import pytest

from rocketpipe.client.instance import ClientInstance, vip_address
from rocketpipe.client.policy import Choice, Policy
from rocketpipe.codes import RequestCode
from rocketpipe.message import Message, MessageQueue
from rocketpipe.remoting.address import Address
from tests.simulated_cluster import SimulatedCluster, simulated

MESSAGE = Message("orders", b"body")


@simulated()
async def test_a_client_id_is_made_of_ip_instance_and_unit(cluster: SimulatedCluster) -> None:
    for settings, client_id in (
        ({}, r"10\.0\.0\.1@4711#\d+"),
        ({"instance_name": "i"}, r"10\.0\.0\.1@i"),
        ({"unit_name": "u"}, r"10\.0\.0\.1@4711#\d+@u"),
        ({"instance_name": "i", "unit_name": "u"}, r"10\.0\.0\.1@i@u"),
    ):
        async with cluster.producer(**settings) as producer:
            assert re.fullmatch(client_id, producer.client_id)


@simulated()
async def test_no_two_clients_of_a_process_have_one_id(cluster: SimulatedCluster) -> None:
    """Or members of one group would take each other for themselves."""
    async with cluster.producer("a") as one, cluster.producer("b", request_timeout=1.0) as other:
        assert one.client_id != other.client_id
        async with cluster.producer("c") as equal:
            assert one.client_id == equal.client_id


# Heartbeats.


@simulated(brokers=2)
async def test_every_broker_of_a_route_is_told_at_once_who_we_are(
    cluster: SimulatedCluster,
) -> None:
    async with cluster.producer(namespace="shop") as producer:
        client_id = producer.client_id
        await producer.send(MESSAGE)
        await asyncio.sleep(0.1)
        for broker in cluster.brokers:
            ((at, heartbeat),) = broker.heartbeats
            assert at < 0.05
            assert heartbeat.client_id == client_id
            assert [each.group_name for each in heartbeat.producer_data_set] == ["shop%group"]
    for broker in cluster.brokers:
        (farewell,) = broker.unregistered
        assert (farewell.client_id, farewell.producer_group) == (client_id, "shop%group")


@simulated()
async def test_heartbeats_come_every_thirty_seconds(cluster: SimulatedCluster) -> None:
    (broker,) = cluster.brokers
    async with cluster.producer() as producer:
        await producer.send(MESSAGE)
        await asyncio.sleep(100)
    times = [round(at) for at, _ in broker.heartbeats]
    assert times == [0, 30, 60, 90]


@simulated()
async def test_or_as_often_as_is_set(cluster: SimulatedCluster) -> None:
    (broker,) = cluster.brokers
    async with cluster.producer(heartbeat_broker_interval=5.0) as producer:
        await producer.send(MESSAGE)
        await asyncio.sleep(11)
    assert [round(at) for at, _ in broker.heartbeats] == [0, 5, 10]


@simulated()
async def test_a_new_connection_begins_with_a_heartbeat(cluster: SimulatedCluster) -> None:
    (broker,) = cluster.brokers
    async with cluster.producer() as producer:
        await producer.send(MESSAGE)
        await asyncio.sleep(1)
        cluster.network.reset("client", "broker-a")
        await producer.send(MESSAGE)
        await asyncio.sleep(1)
        assert [round(at) for at, _ in broker.heartbeats] == [0, 1]


@simulated(brokers=2)
async def test_a_broker_that_does_not_answer_holds_up_no_heartbeat(
    cluster: SimulatedCluster,
) -> None:
    sick, well = cluster.brokers
    async with cluster.producer() as producer:
        await producer.send(MESSAGE)
        sick.is_deaf = True
        await asyncio.sleep(95)
        assert [round(at) for at, _ in well.heartbeats] == [0, 30, 60, 90]


@simulated()
async def test_brokers_that_are_gone_cost_no_more_than_a_request_when_closing(
    cluster: SimulatedCluster,
) -> None:
    (broker,) = cluster.brokers
    producer = cluster.producer(request_timeout=2.0)
    await producer.start()
    await producer.send(MESSAGE)
    broker.is_deaf = True
    await producer.close()
    assert cluster.now == pytest.approx(2.0, abs=0.1)


# Sharing.


@simulated()
async def test_producers_with_equal_settings_of_the_client_share_it(
    cluster: SimulatedCluster,
) -> None:
    (broker,) = cluster.brokers
    (name_server,) = cluster.name_servers
    async with cluster.producer("one", retry_times=1) as one:
        await one.send(MESSAGE)
        async with cluster.producer("two", send_timeout=1.0) as two:
            await two.send(MESSAGE)
            assert len(cluster.dials(broker.address)) == 1
            assert name_server.topics_asked == ["orders", "TBW102"]
            _, heartbeat = broker.heartbeats[-1]  # at once: a broker may ask any of the group
            assert {each.group_name for each in heartbeat.producer_data_set} == {"one", "two"}
        await one.send(MESSAGE)  # the other's end is not ours
        assert [each.producer_group for each in broker.unregistered] == ["two"]
        assert len(broker.connections) == 1
        await asyncio.sleep(31)
        _, heartbeat = broker.heartbeats[-1]
        assert {each.group_name for each in heartbeat.producer_data_set} == {"one"}


@simulated()
async def test_producers_with_other_settings_do_not(cluster: SimulatedCluster) -> None:
    (broker,) = cluster.brokers
    async with cluster.producer() as one, cluster.producer(request_timeout=1.0) as two:
        await one.send(MESSAGE)
        await two.send(MESSAGE)
        assert len(broker.connections) == 2
        other = cluster.new_environment(pid=1)
        async with cluster.producer(environment=other) as three:
            assert three.client_id.startswith("10.0.0.1@1#")


@simulated()
async def test_a_client_starts_anew_after_its_last_user_left(cluster: SimulatedCluster) -> None:
    (name_server,) = cluster.name_servers
    for _ in range(3):
        async with cluster.producer() as producer:
            await producer.send(MESSAGE)
    assert name_server.topics_asked == ["orders", "TBW102"] * 3


@simulated()
async def test_who_joins_while_the_last_user_leaves_gets_a_client_that_lives(
    cluster: SimulatedCluster,
) -> None:
    first = cluster.producer("first")
    await first.start()
    await first.send(MESSAGE)
    closing = asyncio.create_task(first.close())
    second = cluster.producer("second")
    for _ in range(10):
        await asyncio.sleep(0)
    await second.start()
    await closing
    await second.send(MESSAGE)
    await second.close()


# For the policies and for what brokers ask.


@simulated()
async def test_a_broker_is_reachable_when_it_answers_anything_at_all(
    cluster: SimulatedCluster,
) -> None:
    (broker,) = cluster.brokers
    async with cluster.producer() as producer:
        await producer.send(MESSAGE)
        instance = producer._instance
        assert await instance.is_reachable("broker-a", timeout=0.2)
        assert broker.others[RequestCode.GET_MAX_OFFSET] == 1
        assert not await instance.is_reachable("broker-z", timeout=0.2)
        cluster.network.freeze("broker-a")
        assert not await instance.is_reachable("broker-a", timeout=0.2)


@simulated(brokers=2)
async def test_brokers_the_policy_is_unsure_of_are_probed(cluster: SimulatedCluster) -> None:
    broker, _ = cluster.brokers
    async with cluster.producer(policy="java5") as producer:
        await producer.send(MESSAGE)
        await cluster.crash(broker)
        for _ in range(4):
            await producer.send(MESSAGE)
        await cluster.restart(broker)
        await asyncio.sleep(20)
    assert broker.others[RequestCode.GET_MAX_OFFSET] >= 1


class _Unsure(Policy):
    def __init__(self) -> None:
        self.told: list[tuple[str, bool]] = []

    def choose(self, queues: Sequence[MessageQueue], now: float, avoid: Collection[str]) -> Choice:
        return Choice(queues[0], "any", ())

    def brokers_to_probe(self, now: float) -> Sequence[str]:
        return () if self.told else ("broker-a", "broker-z")

    def probed(self, broker: str, now: float, *, reachable: bool) -> None:
        self.told.append((broker, reachable))

    def build(self, dice: random.Random) -> Policy:
        return self


@simulated()
async def test_a_policy_is_told_who_answered(cluster: SimulatedCluster) -> None:
    policy = _Unsure()
    async with cluster.producer(policy=policy) as producer:
        await producer.send(MESSAGE)
        await asyncio.sleep(2)
    assert sorted(policy.told) == [("broker-a", True), ("broker-z", False)]


def test_the_other_port_of_a_broker_is_two_below_its_own() -> None:
    assert vip_address(Address("a", 10911)) == ("a", 10909)
    assert vip_address(Address("a", 1)) == ("a", 0)  # a route may say anything


@simulated()
async def test_an_instance_is_given_to_all_who_join_with_the_same_settings(
    cluster: SimulatedCluster,
) -> None:
    settings = cluster.producer().settings.client_settings()
    first = ClientInstance.join(settings, cluster.environment)
    assert ClientInstance.join(settings, cluster.environment) is first
    await first.leave()
    assert ClientInstance.join(settings, cluster.environment) is first
    await first.leave()
    await first.leave()
