"""Routes: asked for once, kept, asked for anew; and what is said when there is none."""

import asyncio
from dataclasses import replace

import pytest

from rocketpipe.codes import ResponseCode
from rocketpipe.errors import MQError, NoNameServer, NoRoute, SendFailed
from rocketpipe.message import Message, MessageQueue
from rocketpipe.remoting.dispatch import Refusal
from rocketpipe.wire.bodies.route import BrokerData, Perm
from rocketpipe.wire.frame import RemotingCommand
from tests.simulated_cluster import SimulatedCluster, simulated

MESSAGE = Message("orders", b"body")


@simulated()
async def test_the_first_send_asks_and_the_others_do_not(cluster: SimulatedCluster) -> None:
    cluster.add_topic("orders")
    (name_server,) = cluster.name_servers
    async with cluster.producer() as producer:
        assert name_server.asked == []
        for _ in range(10):
            await producer.send(MESSAGE)
        assert name_server.topics_asked == ["orders"]


@simulated()
async def test_a_route_can_be_had_without_sending(cluster: SimulatedCluster) -> None:
    cluster.add_topic("orders")
    async with cluster.producer() as producer:
        routes = producer._instance.routes
        route = await routes.get("orders", None, timeout=1)
        assert await routes.get("orders", None, timeout=1) is route
        assert cluster.name_servers[0].topics_asked == ["orders"]
        with pytest.raises(NoRoute, match="'other': the topic does not exist \\(asked"):
            await routes.get("other", None, timeout=1)


@simulated(brokers=2)
async def test_a_thousand_first_sends_at_once_ask_once(cluster: SimulatedCluster) -> None:
    (name_server,) = cluster.name_servers
    async with cluster.producer() as producer:
        await asyncio.gather(*(producer.send(MESSAGE) for _ in range(1000)))
        assert name_server.topics_asked == ["orders", "TBW102"]
        assert len(cluster.dials(name_server.address)) == 1
        for broker in cluster.brokers:
            assert len(cluster.dials(broker.address)) == 1
            assert len(broker.stored) == 500


@simulated()
async def test_routes_are_asked_for_anew_every_thirty_seconds(cluster: SimulatedCluster) -> None:
    cluster.add_topic("orders")
    cluster.add_topic("parcels")
    (name_server,) = cluster.name_servers
    async with cluster.producer() as producer:
        await producer.send(MESSAGE)
        await producer.send(replace(MESSAGE, topic="parcels"))
        await asyncio.sleep(65)
    assert [(round(at), topic) for at, topic in name_server.asked] == [
        (0, "orders"),
        (0, "parcels"),
        (30, "orders"),
        (30, "parcels"),
        (60, "orders"),
        (60, "parcels"),
    ]


@simulated()
async def test_or_as_often_as_is_set(cluster: SimulatedCluster) -> None:
    cluster.add_topic("orders")
    (name_server,) = cluster.name_servers
    async with cluster.producer(poll_name_server_interval=7.0) as producer:
        await producer.send(MESSAGE)
        await asyncio.sleep(15)
    assert [round(at) for at, _ in name_server.asked] == [0, 7, 14]


# A topic that does not exist yet.


@simulated(brokers=2)
async def test_an_unknown_topic_takes_after_the_template(cluster: SimulatedCluster) -> None:
    async with cluster.producer() as producer:
        results = [await producer.send(MESSAGE) for _ in range(8)]
    assert {(each.queue.broker_name, each.queue.queue_id) for each in results} == {
        (broker, queue) for broker in ("broker-a", "broker-b") for queue in range(4)
    }
    assert {each.queue.topic for each in results} == {"orders"}
    header = cluster.brokers[0].stored[0].header
    assert (header.topic, header.default_topic, header.default_topic_queue_nums) == (
        "orders",
        "TBW102",
        4,
    )


@simulated()
async def test_with_no_more_queues_than_the_template_has(cluster: SimulatedCluster) -> None:
    cluster.add_topic("TEMPLATE", queues=3)
    template = cluster.producer(create_topic_key="TEMPLATE", default_topic_queue_nums=9)
    async with template as producer:
        results = [await producer.send(MESSAGE) for _ in range(9)]
    assert {each.queue.queue_id for each in results} == {0, 1, 2}


@simulated()
async def test_once_it_exists_its_own_route_counts(cluster: SimulatedCluster) -> None:
    async with cluster.producer() as producer:
        await producer.send(MESSAGE)
        cluster.add_topic("orders", queues=1)
        await asyncio.sleep(31)
        results = [await producer.send(MESSAGE) for _ in range(4)]
    assert {each.queue.queue_id for each in results} == {0}


# Changes.


@simulated(brokers=2)
async def test_a_changed_route_replaces_the_old_one(cluster: SimulatedCluster) -> None:
    cluster.add_topic("orders", brokers=["broker-a"])
    async with cluster.producer() as producer:
        await producer.send(MESSAGE)
        cluster.add_topic("orders", brokers=["broker-b"])
        await asyncio.sleep(31)
        for _ in range(4):
            assert (await producer.send(MESSAGE)).queue.broker_name == "broker-b"


@simulated(brokers=2)
async def test_the_same_route_in_another_order_changes_nothing(cluster: SimulatedCluster) -> None:
    cluster.add_topic("orders", brokers=["broker-a", "broker-b"])
    async with cluster.producer() as producer:
        await producer.send(MESSAGE)
        routes = producer._instance.routes
        before = routes.find("orders")
        cluster.add_topic("orders", brokers=["broker-b", "broker-a"])
        await asyncio.sleep(31)
        assert routes.find("orders") is before


@simulated()
async def test_a_failed_refresh_keeps_the_route(cluster: SimulatedCluster) -> None:
    cluster.add_topic("orders")
    (name_server,) = cluster.name_servers
    async with cluster.producer() as producer:
        await producer.send(MESSAGE)
        for trouble in ("gone", "amnesia", "nonsense"):
            if trouble == "gone":
                await cluster.crash(name_server)
            elif trouble == "amnesia":
                await cluster.restart(name_server)
                cluster.routes.clear()
            else:
                name_server.behaviour = lambda request: request.answer(0, body=b"{nonsense")
            await asyncio.sleep(70)
            await producer.send(MESSAGE)


@simulated()
async def test_when_no_name_server_answers_the_other_topics_are_not_asked_for_in_vain(
    cluster: SimulatedCluster,
) -> None:
    (name_server,) = cluster.name_servers
    async with cluster.producer() as producer:
        for n in range(50):
            await producer.send(replace(MESSAGE, topic=f"topic-{n}"))
        name_server.behaviour = lambda request: None
        before = len(name_server.asked)
        await asyncio.sleep(95)
        assert len(name_server.asked) - before == 3
        name_server.behaviour = None
        before = len(name_server.asked)
        await asyncio.sleep(30)
        assert len(name_server.asked) - before >= 50


@simulated(brokers=2)
async def test_a_broker_that_is_not_in_the_route_is_asked_for_at_once(
    cluster: SimulatedCluster,
) -> None:
    cluster.add_topic("orders", brokers=["broker-a"])
    (name_server,) = cluster.name_servers
    async with cluster.producer() as producer:
        await producer.send(MESSAGE)
        cluster.add_topic("orders")
        result = await producer.send(MESSAGE, queue=MessageQueue("orders", "broker-b", 1))
        assert result.queue.broker_name == "broker-b"
        assert name_server.topics_asked == ["orders", "orders"]
        with pytest.raises(SendFailed, match="broker 'broker-z' has no master there"):
            await producer.send(MESSAGE, queue=MessageQueue("orders", "broker-z", 1))


@simulated(brokers=2)
async def test_a_broker_that_fails_has_the_route_looked_at_but_once_a_second(
    cluster: SimulatedCluster,
) -> None:
    cluster.add_topic("orders")
    (name_server,) = cluster.name_servers
    async with cluster.producer() as producer:
        await producer.send(MESSAGE)
        await cluster.crash(cluster.brokers[0])
        began = cluster.now
        while cluster.now < began + 4.5:
            await producer.send(MESSAGE)
            await asyncio.sleep(0.01)
        assert 4 <= len(name_server.asked) - 1 <= 5
        cluster.add_topic("orders", brokers=["broker-b"])
        await asyncio.sleep(1)
        for _ in range(8):
            await producer.send(MESSAGE)  # one of these has it looked at,
        await asyncio.sleep(0.1)
        for _ in range(8):
            assert len((await producer.send(MESSAGE)).attempts) == 1  # and these know


# Damaged routes.


@simulated(brokers=2)
async def test_a_bad_address_in_a_route_costs_one_broker_and_not_the_topic(
    cluster: SimulatedCluster,
) -> None:
    cluster.add_topic("orders")
    route = cluster.routes["orders"]
    bad = BrokerData(cluster="c", broker_name="broker-a", broker_addrs={0: "not an address"})
    cluster.routes["orders"] = replace(route, broker_datas=(bad, route.broker_datas[1]))
    async with cluster.producer() as producer:
        for _ in range(8):
            result = await producer.send(MESSAGE)
            assert result.queue.broker_name == "broker-b"
            assert len(result.attempts) == 1


@simulated(brokers=2)
async def test_an_ordered_topic_survives_a_broker_that_is_not_there(
    cluster: SimulatedCluster,
) -> None:
    cluster.add_topic("orders", brokers=["broker-b"], order="broker-a:2;broker-b:2")
    async with cluster.producer() as producer:
        results = [await producer.send(MESSAGE) for _ in range(8)]
    assert {each.queue.broker_name for each in results} == {"broker-b"}
    assert any("broker-a" in str(each.attempts[0]) for each in results)


# No route, no NameServer.


@simulated(name_servers=2)
async def test_no_route_names_the_topic_and_who_was_asked(cluster: SimulatedCluster) -> None:
    cluster.routes.clear()
    async with cluster.producer() as producer:
        with pytest.raises(NoRoute) as failed:
            await producer.send(MESSAGE)
    assert failed.value.topic == "orders"
    assert set(failed.value.addresses) == {"namesrv-0:9876", "namesrv-1:9876"}
    assert "'orders': the topic does not exist, nor the template 'TBW102'" in str(failed.value)


@simulated()
async def test_nothing_is_remembered_of_topics_that_do_not_exist(cluster: SimulatedCluster) -> None:
    cluster.routes.clear()
    async with cluster.producer() as producer:
        for n in range(10):
            with pytest.raises(NoRoute, match="nor the template"):
                await producer.send(replace(MESSAGE, topic=f"misspelt-{n}"))
        assert not any("misspelt" in str(each) for each in vars(producer._instance.routes).values())
        cluster.add_topic("TBW102")
        await producer.send(replace(MESSAGE, topic="misspelt-0"))  # and yet it may exist later


@simulated()
async def test_a_topic_that_may_not_be_written_to_has_no_route_until_it_may(
    cluster: SimulatedCluster,
) -> None:
    (name_server,) = cluster.name_servers
    cluster.add_topic("orders", perm=Perm.READ)
    async with cluster.producer() as producer:
        with pytest.raises(NoRoute, match="'orders': none of its brokers takes messages now"):
            await producer.send(MESSAGE)
        assert len(name_server.asked) == 1
        cluster.add_topic("orders")
        await producer.send(MESSAGE)  # it does not wait for the next refresh
        assert len(name_server.asked) == 2


@simulated(name_servers=2)
async def test_no_name_server_names_the_topic_and_each_that_failed(
    cluster: SimulatedCluster,
) -> None:
    for name_server in cluster.name_servers:
        await cluster.crash(name_server)
    async with cluster.producer() as producer:
        with pytest.raises(NoNameServer) as failed:
            await producer.send(MESSAGE)
    assert {address for address, _ in failed.value.failures} == {"namesrv-0:9876", "namesrv-1:9876"}
    assert "the route of topic 'orders'" in str(failed.value)
    assert "cannot connect to namesrv-0:9876: connection refused" in str(failed.value)


@simulated(name_servers=2)
async def test_nor_does_a_silent_name_server_take_more_than_the_callers_time(
    cluster: SimulatedCluster,
) -> None:
    for name_server in cluster.name_servers:
        cluster.network.cut("client", name_server.name)
    for timeout in (0.5, 3.0):
        async with cluster.producer() as producer:
            began = cluster.now
            with pytest.raises(NoNameServer, match=r"topic 'orders'.*namesrv-0:9876"):
                await producer.send(MESSAGE, timeout=timeout)
            assert cluster.now - began == pytest.approx(timeout, abs=0.001)


@simulated()
async def test_a_topic_without_queues_takes_no_more_than_the_callers_time(
    cluster: SimulatedCluster,
) -> None:
    cluster.add_topic("orders", perm=Perm.READ)
    (name_server,) = cluster.name_servers

    def slowly(request: RemotingCommand) -> RemotingCommand | None:
        return (
            None
            if len(name_server.asked) > 1
            else request.answer(0, body=cluster.routes["orders"].encode())
        )

    name_server.behaviour = slowly
    async with cluster.producer() as producer:
        with pytest.raises(NoRoute):
            await producer.send(MESSAGE)
        began = cluster.now
        with pytest.raises(NoNameServer):
            await producer.send(MESSAGE, timeout=1.0)
        assert cluster.now - began == pytest.approx(1.0, abs=0.001)


@simulated()
async def test_errors_are_each_callers_own(cluster: SimulatedCluster) -> None:
    cluster.routes.clear()
    async with cluster.producer() as producer:
        errors = await asyncio.gather(
            *(producer.send(MESSAGE) for _ in range(5)), return_exceptions=True
        )
        assert len({id(each) for each in errors}) == 5


# NameServers.


@simulated(name_servers=3)
async def test_the_next_name_server_is_asked_when_one_fails(cluster: SimulatedCluster) -> None:
    async with cluster.producer() as producer:
        addresses = [each.split(":")[0] for each in producer._instance.name_servers.addresses]
        for name in addresses[:2]:
            cluster.network.crash(name)
        await producer.send(MESSAGE)
        third = next(each for each in cluster.name_servers if each.name == addresses[2])
        assert third.topics_asked == ["orders", "TBW102"]
        # From then on the one that answers is asked first.
        assert producer._instance.name_servers.addresses[0] == str(third.address)
        for name in addresses[:2]:
            cluster.network.restart(name)


@simulated(name_servers=2)
async def test_of_many_who_find_it_dead_the_first_passes_it_over(cluster: SimulatedCluster) -> None:
    async with cluster.producer() as producer:
        dead, living = producer._instance.name_servers.addresses
        cluster.network.crash(dead.split(":")[0])
        await asyncio.gather(
            *(producer.send(replace(MESSAGE, topic=f"topic-{n}")) for n in range(8))
        )
        assert producer._instance.name_servers.addresses == [living, dead]
        cluster.network.restart(dead.split(":")[0])


@simulated(name_servers=2)
async def test_a_dead_name_server_leaves_time_for_the_next_and_for_the_send(
    cluster: SimulatedCluster,
) -> None:
    async with cluster.producer() as producer:
        first = producer._instance.name_servers.addresses[0].split(":")[0]
        cluster.network.cut("client", first)
        await producer.send(MESSAGE)
        assert cluster.now == pytest.approx(1.5, abs=0.1)


@simulated(name_servers=2)
async def test_many_clients_do_not_all_lean_on_the_first(cluster: SimulatedCluster) -> None:
    firsts = set()
    for n in range(20):
        cluster.environment.dice.seed(n)
        async with cluster.producer() as producer:
            firsts.add(producer._instance.name_servers.addresses[0])
    assert len(firsts) == 2


def _not_ready(request: RemotingCommand) -> None:
    raise Refusal(ResponseCode.SYSTEM_ERROR, "name server not ready")


def _nonsense(request: RemotingCommand) -> RemotingCommand:
    return request.answer(0, body=b'{"brokerDatas": 7, "queueDatas"')


def _empty(request: RemotingCommand) -> RemotingCommand:
    return request.answer(0)


def _deep(request: RemotingCommand) -> RemotingCommand:
    return request.answer(0, body=b"[" * 100_000)


def _wrong_kinds(request: RemotingCommand) -> RemotingCommand:
    return request.answer(0, body=b'{"brokerDatas":[{"brokerName":null,"brokerAddrs":{"x":1}}]}')


@pytest.mark.parametrize("behaviour", [_not_ready, _nonsense, _empty, _deep, _wrong_kinds])
def test_a_name_server_that_talks_nonsense_is_passed_over(behaviour: object) -> None:
    @simulated(name_servers=2)
    async def test(cluster: SimulatedCluster) -> None:
        async with cluster.producer() as producer:
            first = producer._instance.name_servers.addresses[0]
            mad = next(each for each in cluster.name_servers if str(each.address) == first)
            mad.behaviour = behaviour  # type: ignore[assignment]
            await producer.send(MESSAGE)
            assert mad.asked
            for each in cluster.name_servers:
                each.behaviour = behaviour  # type: ignore[assignment]
            with pytest.raises(NoNameServer):
                await producer.send(replace(MESSAGE, topic="other"))

    test()


@simulated()
async def test_another_refusal_of_a_name_servers_is_passed_on(cluster: SimulatedCluster) -> None:
    def forbid(request: RemotingCommand) -> None:
        raise Refusal(ResponseCode.NO_PERMISSION, "not for you")

    cluster.name_servers[0].behaviour = forbid
    async with cluster.producer() as producer:
        with pytest.raises(MQError, match="NO_PERMISSION: not for you"):
            await producer.send(MESSAGE)
