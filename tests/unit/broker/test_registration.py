"""How a broker makes itself known, and what it learns by that."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from rocketpipe.broker.broker import Broker
from rocketpipe.broker.settings import BrokerRole
from rocketpipe.errors import BrokerError, InvalidSetting
from rocketpipe.nameserver.server import NameServer
from rocketpipe.remoting.address import Address
from rocketpipe.wire.bodies.route import KVTable, Perm, TopicRouteData
from rocketpipe.wire.requests.nameserver import GetRouteinfoByTopic
from tests.unit.broker.bench import (
    BROKER_HOST,
    NAMESERVER,
    Bench,
    RecordingNameServer,
    messages,
    send,
    simulated,
)

OTHER_NAMESERVER = Address("10.0.0.7", 9876)


async def route(bench: Bench, address: Address, topic: str) -> TopicRouteData:
    async with bench.client(address) as client:
        return await client.request(GetRouteinfoByTopic(topic=topic), timeout=3)


@simulated
async def test_a_topic_made_by_a_send_has_a_route_at_our_nameserver(bench: Bench) -> None:
    nameserver = NameServer(bench.network.host(OTHER_NAMESERVER.host), clock=bench.clock)
    await nameserver.start(OTHER_NAMESERVER)
    async with bench.broker(namesrv=(OTHER_NAMESERVER,)) as broker:
        async with bench.client(broker.address) as client:
            await send(client, "new")
        await asyncio.sleep(1)
        found = await route(bench, OTHER_NAMESERVER, "new")
        assert found.broker_datas[0].broker_addrs == {0: f"{BROKER_HOST}:10911"}
        assert found.queue_datas[0].write_queue_nums == 4
    with pytest.raises(BrokerError):
        await route(bench, OTHER_NAMESERVER, "new")
    await nameserver.close()


@simulated
async def test_a_slave_learns_from_our_nameserver_where_its_master_is(bench: Bench) -> None:
    nameserver = NameServer(bench.network.host(OTHER_NAMESERVER.host), clock=bench.clock)
    await nameserver.start(OTHER_NAMESERVER)
    at: dict[str, Any] = {"namesrv": (OTHER_NAMESERVER,)}
    slave = bench.make_broker(
        host="10.0.0.3",
        disk=type(bench.disk)(5),
        broker_role=BrokerRole.SLAVE,
        broker_id=1,
        **at,
    )
    await slave.start()  # before there is a master
    async with bench.broker(**at) as master, bench.client(master.address) as client:
        await send(client)
        await asyncio.sleep(10)
        assert messages(slave) == messages(master)
    await slave.close()
    await nameserver.close()


@simulated
async def test_a_dead_nameserver_holds_up_no_other(bench: Bench) -> None:
    bench.network.host(OTHER_NAMESERVER.host)  # where nobody listens
    settings = {"namesrv": (OTHER_NAMESERVER, NAMESERVER)}
    async with bench.broker(**settings):
        assert len(bench.nameserver.told) == 1
        other = RecordingNameServer(bench.network, OTHER_NAMESERVER.host)
        await other.server.listen(OTHER_NAMESERVER)
        await asyncio.sleep(5)
        assert len(other.told) == 1
        await other.server.close()


@simulated
async def test_who_is_not_taken_tries_again(bench: Bench) -> None:
    bench.nameserver.code = 1
    async with bench.broker() as broker:
        await asyncio.sleep(3)
        assert len(bench.nameserver.told) > 2
        assert {len(topics) for _, topics in bench.nameserver.told} == {len(broker.topics.table)}
        bench.nameserver.code = 0
        await asyncio.sleep(5)
        before = len(bench.nameserver.told)
        await asyncio.sleep(5)
        assert len(bench.nameserver.told) == before


@simulated
async def test_a_lost_connection_is_made_again_and_everything_told_anew(bench: Bench) -> None:
    async with bench.broker() as broker:
        bench.network.reset(BROKER_HOST, NAMESERVER.host)
        await asyncio.sleep(3)
        assert len(bench.nameserver.told) == 2
        assert set(bench.nameserver.told[-1][1]) == set(broker.topics.table)


@simulated
async def test_what_changed_while_a_nameserver_was_away_is_told_later(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        bench.network.cut(BROKER_HOST, NAMESERVER.host)
        await send(client, "new")
        await asyncio.sleep(60)
        bench.network.heal(BROKER_HOST, NAMESERVER.host)
        await asyncio.sleep(30)
        assert "new" in bench.nameserver.told[-1][1] or "new" in bench.nameserver.told[-2][1]


@simulated
async def test_a_nameserver_says_which_topics_are_ordered(bench: Bench) -> None:
    bench.nameserver.answer_body = KVTable(table={"sorted": "broker-a:4"}).encode()
    async with bench.broker(broker_permission=Perm.READ) as broker:
        async with bench.client(broker.address) as client:
            await send(client, "sorted")
            broker.topics.create_inner("sorted-by-its-maker", order=True)
            await asyncio.sleep(1)
            assert broker.topics.is_order("sorted")
            assert broker.topics.is_order("sorted-by-its-maker")  # of which the table is silent
            with pytest.raises(BrokerError) as refused:  # only those are looked at so
                await send(client, "sorted")
            await send(client, "other")
            broker.settings.change({"brokerPermission": "6"})
            await send(client, "sorted")
        assert refused.value.code == 16
        assert refused.value.remark == f"the broker[{BROKER_HOST}] sending message is forbidden"


@simulated
async def test_a_body_that_is_no_table_hurts_nobody(bench: Bench) -> None:
    bench.nameserver.answer_body = b"{nonsense"
    async with bench.broker() as broker, bench.client(broker.address) as client:
        await send(client)


# Ports.


@simulated
async def test_ports_may_be_chosen_freely_and_there_is_room_for_many(bench: Bench) -> None:
    brokers: list[Broker] = []
    for number in range(6):
        broker = bench.make_broker(listen_port=0, disk=type(bench.disk)(number))
        await broker.start()
        brokers.append(broker)
    used = [
        port
        for broker in brokers
        for port in (broker.address.port, broker.address.port - 2, broker.ha_address.port)
    ]
    assert len(set(used)) == 18
    for broker in brokers:
        await broker.close()


@simulated
async def test_a_port_that_is_taken_is_an_error_that_leaves_nothing_behind(bench: Bench) -> None:
    async with bench.broker():
        second = bench.make_broker(disk=type(bench.disk)(2), listen_port=10913)  # its VIP port
        with pytest.raises(InvalidSetting, match="cannot listen on"):
            await second.start()
    async with bench.broker(listen_port=10913):
        pass


@simulated
async def test_the_slaves_port_is_the_next_one_or_a_setting(bench: Bench) -> None:
    async with bench.broker() as broker:
        assert broker.ha_address.port == 10912
    async with bench.broker(ha_listen_port=4711) as broker:
        assert broker.ha_address.port == 4711


# Limits and defaults of topics and groups.


@simulated
async def test_there_is_an_end_to_topics_and_groups(bench: Bench) -> None:
    async with bench.broker(topics_max=16, groups_max=9) as broker:
        async with bench.client(broker.address) as client:
            codes = []
            for number in range(8):
                try:
                    await send(client, f"topic-{number}")
                    codes.append(0)
                except BrokerError as error:
                    codes.append(error.code)
        assert codes == [0] * codes.count(0) + [17] * codes.count(17)
        assert codes[-1] == 17
        assert len(broker.topics.table) == 16
        assert broker.groups.find("one") is not None
        assert broker.groups.find("two") is None


@simulated
async def test_built_in_topics_follow_the_settings(bench: Bench) -> None:
    settings: dict[str, Any] = {
        "broker_cluster_name": "C",
        "broker_name": "b",
        "default_topic_queue_nums": 3,
        "cluster_topic_enable": False,
        "broker_topic_enable": False,
        "trace_topic_enable": True,
        "msg_trace_topic_name": "TRACES",
    }
    async with bench.broker(**settings) as broker:
        table = broker.topics.table
        assert table["TBW102"].write_queue_nums == 3
        assert table["C"].perm == table["b"].perm == Perm.INHERIT
        assert {"TRACES", "C_REPLY_TOPIC", "rmq_sys_REVIVE_LOG_C", "SCHEDULE_TOPIC_XXXX"} <= (
            table.keys()
        )
        assert broker.topics.is_system("C")
        assert broker.topics.is_system("rmq_sys_anything")
        assert not broker.topics.is_system("orders")
    async with bench.broker(auto_create_topic_enable=False) as broker:
        assert broker.topics.create_for_send("x", "TBW102", 4) is None


@simulated
async def test_changed_and_deleted_topics_and_groups_outlive_a_broker(bench: Bench) -> None:
    async with bench.broker() as broker:
        made = broker.topics.create_inner("mine", 5)
        assert made is not None
        broker.topics.put([replace(made, perm=Perm.READ)])
        broker.topics.create_inner("gone")
        assert broker.topics.delete("gone")
        assert not broker.topics.delete("gone")
        group = broker.groups.find("g")
        assert group is not None
        broker.groups.put(replace(group, retry_max_times=3))
        broker.groups.find("gone")
        assert broker.groups.delete("gone")
        version = broker.topics.data_version
        broker.offsets.commit("g", "mine", 2, 77)
    async with bench.broker() as broker:
        assert broker.topics.table["mine"].perm == Perm.READ
        assert broker.topics.table["mine"].read_queue_nums == 5
        assert "gone" not in broker.topics.table
        assert broker.groups.table["g"].retry_max_times == 3
        assert "gone" not in broker.groups.table
        assert broker.topics.data_version == version
        assert broker.offsets.query("g", "mine", 2) == 77
        assert broker.offsets.query("g", "mine", 0) == -1


@simulated
async def test_a_crash_costs_at_most_the_interval_of_progress(bench: Bench) -> None:
    broker = bench.make_broker(flush_consumer_offset_interval=1.0)
    await broker.start()
    broker.offsets.commit("g", "orders", 0, 5)
    await asyncio.sleep(1.5)
    broker.offsets.commit("g", "orders", 0, 6)
    await broker.kill()
    async with bench.broker() as broker:
        assert broker.offsets.query("g", "orders", 0) == 5


@simulated
async def test_a_broker_may_begin_to_take_messages_at_a_given_time(bench: Bench) -> None:
    begin = bench.clock.wall_ms() + 5000
    settings = {"start_accept_send_request_timestamp_ms": begin}
    async with bench.broker(**settings) as broker, bench.client(broker.address) as client:
        with pytest.raises(BrokerError, match="broker unable to service, until"):
            await send(client)
        await asyncio.sleep(6)
        await send(client)


@simulated
async def test_region_and_trace_are_told_with_every_message(bench: Bench) -> None:
    settings = {"region_id": "R", "trace_on": False}
    async with bench.broker(**settings) as broker, bench.client(broker.address) as client:
        reply = await send(client)
        (stored,) = messages(broker)
        assert (reply.region_id, reply.trace_on) == ("R", "false")
        assert (stored.properties["MSG_REGION"], stored.properties["TRACE_ON"]) == ("R", "false")
