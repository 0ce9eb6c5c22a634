"""What administrators ask of a broker: topics, groups, clients, settings, and how it is doing."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rocketpipe.broker.processors.runtime import describe_bytes, describe_duration
from rocketpipe.broker.settings import BrokerRole
from rocketpipe.codes import RequestCode
from rocketpipe.errors import BrokerError
from rocketpipe.message import MessageQueue
from rocketpipe.remoting.connection import Connection
from rocketpipe.wire.bodies import groups as bodies
from rocketpipe.wire.bodies.groups import SubscriptionGroupConfig
from rocketpipe.wire.bodies.heartbeat import HeartbeatData, ProducerData
from rocketpipe.wire.bodies.route import Perm
from rocketpipe.wire.bodies.topics import TopicConfig, TopicConfigList
from rocketpipe.wire.config_text import parse_config
from rocketpipe.wire.frame import RemotingCommand
from rocketpipe.wire.requests.admin import (
    CleanExpiredConsumequeue,
    CleanUnusedTopic,
    DeleteSubscriptiongroup,
    DeleteTopicInBroker,
    GetAllProducerInfo,
    GetBrokerConfig,
    GetBrokerRuntimeInfo,
    GetConsumerConnectionList,
    GetConsumeStats,
    GetProducerConnectionList,
    GetSubscriptiongroupConfig,
    GetSystemTopicListFromBroker,
    GetTopicConfig,
    GetTopicStatsInfo,
    InvokeBrokerToGetConsumerStatus,
    QueryConsumeTimeSpan,
    QueryTopicConsumeByWho,
    UpdateAndCreateSubscriptiongroup,
    UpdateAndCreateSubscriptiongroupList,
    UpdateAndCreateTopicList,
    UpdateBrokerConfig,
)
from rocketpipe.wire.requests.callbacks import ConsumeMessageDirectly, GetConsumerRunningInfo
from rocketpipe.wire.requests.clients import HeartBeat
from rocketpipe.wire.requests.reading import UpdateConsumerOffset
from tests.unit.broker.bench import FOLDER, Bench, messages, send, simulated
from tests.unit.broker.reading import ask, create_topic, join, pull

# Topics.


@simulated
async def test_a_topic_is_made_kept_and_told_to_the_nameservers_first(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        await create_topic(client, read_queue_nums=2, write_queue_nums=3, perm=4, order=True)
        assert list(bench.nameserver.told[-1][1]) == ["orders"]  # before the answer came
        config = await client.request(GetTopicConfig(topic="orders"), timeout=3)
        assert config == TopicConfig(
            topic_name="orders", read_queue_nums=2, write_queue_nums=3, perm=Perm.READ, order=True
        )
        version = broker.topics.data_version
        await create_topic(client, read_queue_nums=2, write_queue_nums=3, perm=4, order=True)
        assert broker.topics.data_version == version  # nothing changed
        await create_topic(client, attributes="+message.type=FIFO")
        config = await client.request(GetTopicConfig(topic="orders"), timeout=3)
        assert (config.read_queue_nums, config.attributes) == (4, {"message.type": "FIFO"})
    async with bench.broker() as broker:
        assert broker.topics.table["orders"] == config


@simulated
async def test_a_topic_is_made_though_no_nameserver_listens(bench: Bench) -> None:
    await bench.nameserver.server.close()
    async with bench.broker() as broker, bench.client(broker.address) as client:
        await create_topic(client)
        assert "orders" in broker.topics.table


REFUSED_TOPICS: list[tuple[dict[str, Any], int, str]] = [
    ({"topic": "no good"}, 29, "illegal characters"),
    ({"topic": "TBW102"}, 29, "The topic[TBW102] is conflict with system topic."),
    ({"topic": "rmq_sys_x"}, 29, "is conflict with system topic."),
    ({"topic_filter_type": "NO_TAG"}, 29, "NO_TAG"),
    ({"read_queue_nums": -1}, 29, "can't have -1 queues"),
    ({"write_queue_nums": 65_537}, 29, "can't have 65537 queues"),
    ({"attributes": "+x=1"}, 1, "unsupported key: x"),
    ({"attributes": "-message.type"}, 1, "only add attribute is supported while creating topic"),
]


@simulated
async def test_topics_are_refused(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        before = dict(broker.topics.table)
        for change, code, words in REFUSED_TOPICS:
            with pytest.raises(BrokerError) as caught:
                await create_topic(client, **change)
            assert caught.value.code == code
            assert words in str(caught.value.remark)
        assert broker.topics.table == before
        answer = await ask(client, GetTopicConfig(topic="absent"))
        assert (answer.code, answer.remark) == (17, "No topic in this broker. topic: absent")
    async with (
        bench.broker(topics_max=len(before)) as broker,
        bench.client(broker.address) as client,
    ):
        with pytest.raises(BrokerError, match="topics already"):
            await create_topic(client)
    async with (
        bench.broker(topics_max=len(before) + 1) as broker,
        bench.client(broker.address) as client,
    ):
        await create_topic(client, write_queue_nums=0)
        await create_topic(client, read_queue_nums=65_536)
        assert broker.topics.table["orders"].read_queue_nums == 65_536


@simulated
async def test_several_topics_are_made_at_once(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        wanted = TopicConfigList(
            topic_config_list=(
                TopicConfig(topic_name="a", attributes={"+message.type": "FIFO"}),
                TopicConfig(topic_name="b", read_queue_nums=2),
            )
        )
        await client.request(UpdateAndCreateTopicList(), wanted.encode(), timeout=9)
        assert broker.topics.table["a"].attributes == {"message.type": "FIFO"}
        assert broker.topics.table["b"].read_queue_nums == 2
        bad = TopicConfigList(
            topic_config_list=(TopicConfig(topic_name="c"), TopicConfig(topic_name="no good"))
        )
        answer = await ask(client, UpdateAndCreateTopicList(), bad.encode())
        assert answer.code == 29
        assert "c" not in broker.topics.table


@simulated
async def test_a_deleted_topic_takes_its_messages_and_offsets_along(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        await send(client)
        await send(client, "orders-2")
        broker.offsets.commit("readers", "orders", 0, 1)
        broker.offsets.commit("readers", "orders-2", 0, 1)
        await client.request(DeleteTopicInBroker(topic="orders"), timeout=3)
        assert "orders" not in broker.topics.table
        assert messages(broker) == []
        assert len(messages(broker, "orders-2")) == 1
        assert list(broker.offsets.table) == ["orders-2@readers"]
        await client.request(DeleteTopicInBroker(topic="absent"), timeout=3)
        for topic in (" ", "TBW102"):
            assert (await ask(client, DeleteTopicInBroker(topic=topic))).code == 29


@simulated
async def test_nothing_but_topics_can_be_deleted_as_topics(bench: Bench) -> None:
    bench.disk.open(Path("/home/thesis.txt"), create=True).close()
    async with bench.broker() as broker, bench.client(broker.address) as client:
        await send(client)
        for name in ("..", "../config", "/home", "../../home", "orders/0"):
            answer = await ask(client, DeleteTopicInBroker(topic=name))
            assert (answer.code, "illegal characters" in str(answer.remark)) == (29, True)
            await broker.store.delete_topic(name)  # nor does the store do it
        assert bench.disk.names(Path("/home")) == ["thesis.txt"]
        assert "topics.json" in bench.disk.names(FOLDER / "config")
        assert len(messages(broker)) == 1


@simulated
async def test_topics_that_were_never_there_are_not_remembered_as_deleted(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        writes = bench.disk.writes
        for number in range(10):
            await client.request(DeleteTopicInBroker(topic=f"absent-{number}"), timeout=3)
        assert bench.disk.writes == writes


@simulated
async def test_a_topic_tells_what_it_holds_and_who_reads_it(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        answer = await ask(client, GetTopicStatsInfo(topic="orders"))
        assert (answer.code, answer.remark) == (17, "topic[orders] not exist")
        await create_topic(client, read_queue_nums=1, write_queue_nums=2)
        await send(client, queue_id=1)
        stats = await client.request(GetTopicStatsInfo(topic="orders"), timeout=3)
        told = {
            queue.queue_id: (each.min_offset, each.max_offset, each.last_update_timestamp > 0)
            for queue, each in stats.offset_table.items()
        }
        assert told == {0: (0, 0, False), 1: (0, 1, True)}
        assert stats.topic_put_tps == 1 / 60  # in the last minute
        await join(client, "orders")
        broker.offsets.commit("gone", "orders", 0, 1)
        groups = await client.request(QueryTopicConsumeByWho(topic="orders"), timeout=3)
        assert groups.group_list == {"readers", "gone"}
        await asyncio.sleep(70)
        stats = await client.request(GetTopicStatsInfo(topic="orders"), timeout=3)
        assert stats.topic_put_tps == 0
        system = await client.request(GetSystemTopicListFromBroker(), timeout=3)
        assert {"TBW102", "broker-a", "DefaultCluster"} <= system.topic_list
        assert "orders" not in system.topic_list


# Groups.


@simulated
async def test_a_group_is_made_kept_told_and_deleted(bench: Bench) -> None:
    config = SubscriptionGroupConfig(group_name="readers", retry_max_times=3, group_sys_flag=2)
    async with bench.broker() as broker, bench.client(broker.address) as client:
        await client.request(UpdateAndCreateSubscriptiongroup(), config.encode(), timeout=3)
        told = await client.request(GetSubscriptiongroupConfig(group="readers"), timeout=3)
        assert told == config
    async with (
        bench.broker(auto_create_subscription_group=False) as broker,
        bench.client(broker.address) as client,
    ):
        assert broker.groups.table["readers"] == config
        answer = await ask(client, GetSubscriptiongroupConfig(group="absent"))
        assert (answer.code, answer.remark) == (26, "No group in this broker")
        for name, clean in (("readers", True), ("readers-2", False)):
            broker.offsets.commit(name, "orders", 0, 1)
            delete = DeleteSubscriptiongroup(group_name=name, clean_offset=clean)
            await client.request(delete, timeout=3)
        assert "readers" not in broker.groups.table
        assert list(broker.offsets.table) == ["orders@readers-2"]


@simulated
async def test_groups_are_refused(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        good = SubscriptionGroupConfig(group_name="good")
        for bad, code in (
            (replace(good, group_name="no good"), 29),
            (replace(good, group_name=""), 29),
            (replace(good, attributes={"+x": "1"}), 1),
            # Its retry topic would have as many, and who asks for its statistics waits for all.
            (replace(good, retry_queue_nums=0x7FFFFFFF), 29),
            (replace(good, retry_queue_nums=-1), 29),
        ):
            wanted = bodies.SubscriptionGroupList(group_config_list=(good, bad))
            answer = await ask(client, UpdateAndCreateSubscriptiongroupList(), wanted.encode())
            assert answer.code == code
        assert "good" not in broker.groups.table
        wanted = bodies.SubscriptionGroupList(group_config_list=(good,))
        await client.request(UpdateAndCreateSubscriptiongroupList(), wanted.encode(), timeout=3)
        assert "good" in broker.groups.table
        garbage = await ask(client, UpdateAndCreateSubscriptiongroup(), b"{")
        assert garbage.code == 1
    async with bench.broker(groups_max=3) as broker, bench.client(broker.address) as client:
        answer = await ask(
            client, UpdateAndCreateSubscriptiongroup(), replace(good, group_name="x").encode()
        )
        assert (answer.code, "groups already" in str(answer.remark)) == (1, True)
        known = SubscriptionGroupConfig(group_name="good", retry_max_times=1)
        await client.request(UpdateAndCreateSubscriptiongroup(), known.encode(), timeout=3)
        assert broker.groups.table["good"] == known


@simulated
async def test_what_an_administrator_was_told_survives_a_crash(bench: Bench) -> None:
    async def crash_after(act: Callable[[Connection], Awaitable[object]]) -> None:
        broker = bench.make_broker(namesrv=())
        await broker.start()
        async with bench.client(broker.address) as client:
            await act(client)
            await broker.kill()
        bench.disk.lose_power()

    group = SubscriptionGroupConfig(group_name="readers")
    await crash_after(create_topic)
    await crash_after(
        lambda client: client.request(UpdateAndCreateSubscriptiongroup(), group.encode(), timeout=3)
    )
    async with bench.broker() as broker:
        assert "orders" in broker.topics.table
        assert "readers" in broker.groups.table
    await crash_after(lambda client: client.request(DeleteTopicInBroker(topic="orders"), timeout=3))
    await crash_after(
        lambda client: client.request(DeleteSubscriptiongroup(group_name="readers"), timeout=3)
    )
    async with bench.broker() as broker:
        assert "orders" not in broker.topics.table
        assert "readers" not in broker.groups.table


@simulated
async def test_connections_are_told(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        offline = await ask(client, GetConsumerConnectionList(consumer_group="readers"))
        assert (offline.code, offline.remark) == (206, "the consumer group[readers] not online")
        absent = await ask(client, GetProducerConnectionList(producer_group="makers"))
        assert (absent.code, absent.remark) == (1, "the producer group[makers] not exist")
        await join(client, "orders", expression="a")
        beat = HeartbeatData(client_id="p", producer_data_set=(ProducerData(group_name="makers"),))
        await client.request(HeartBeat(), beat.encode(), timeout=3)
        told = await client.request(GetConsumerConnectionList(consumer_group="readers"), timeout=3)
        (consumer,) = told.connection_set
        assert (consumer.client_id, consumer.language, consumer.version) == ("c@1", "PYTHON", 513)
        assert consumer.client_addr.startswith("10.0.0.2:")
        assert told.subscription_table["orders"].sub_string == "a"
        assert (told.consume_type, told.message_model) == ("CONSUME_PASSIVELY", "CLUSTERING")
        makers = await client.request(GetProducerConnectionList(producer_group="makers"), timeout=3)
        assert [each.client_id for each in makers.connection_set] == ["p"]
        table = (await client.request(GetAllProducerInfo(), timeout=3)).data
        (info,) = table["makers"]
        assert info.remote_ip == f"/{consumer.client_addr}"
        assert info.last_update_timestamp > 0


@simulated
async def test_the_progress_of_a_group_is_told(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        await create_topic(client, read_queue_nums=2, write_queue_nums=2)
        for _ in range(3):
            await send(client)
            await asyncio.sleep(1)
        broker.groups.find("readers")
        await client.request(
            UpdateConsumerOffset(
                consumer_group="readers", topic="orders", queue_id=0, commit_offset=1
            ),
            timeout=3,
        )
        await pull(client, queue_offset=1, max_msg_nums=1)
        broker.offsets.commit("readers", "bills", 0, 9)

        async def progress(**changes: Any) -> dict[MessageQueue, tuple[int, int, int, int]]:
            header = GetConsumeStats(consumer_group="readers", **changes)
            stats = await client.request(header, timeout=3)
            assert (stats.consume_tps > 0) == bool(stats.offset_table)
            return {
                queue: (
                    each.broker_offset,
                    each.consumer_offset,
                    each.pull_offset,
                    each.last_timestamp,
                )
                for queue, each in stats.offset_table.items()
            }

        first_ms = broker.store.store_time_at("orders", 0, 0)
        expected = {
            MessageQueue("orders", "broker-a", 0): (3, 1, 2, first_ms),
            MessageQueue("orders", "broker-a", 1): (0, 0, 0, 0),
        }
        assert await progress() == await progress(topic="orders") == expected
        assert await progress(topic="absent") == {}
        assert await progress(topic_list="orders;absent;") == expected
        # Each topic once, however often it is named: else a short request could keep us for hours.
        looked_at = 0
        max_offset = broker.store.max_offset

        def counting(topic: str, queue_id: int) -> int:
            nonlocal looked_at
            looked_at += 1
            return max_offset(topic, queue_id)

        broker.store.max_offset = counting  # type: ignore[method-assign]
        assert await progress(topic_list="orders;" * 1000) == expected
        assert looked_at == 2
        await join(client, "others")
        assert await progress() == {}  # it does not read that any more
        assert await progress(topic_list="orders") == expected


@simulated
async def test_how_late_a_group_is_is_told(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        answer = await ask(client, QueryConsumeTimeSpan(topic="orders", group="readers"))
        assert (answer.code, answer.remark) == (17, "topic[orders] not exist")
        await create_topic(client, write_queue_nums=2)
        times = []
        for offset in range(3):
            await send(client)
            times.append(broker.store.store_time_at("orders", 0, offset))
            await asyncio.sleep(10)

        async def spans() -> list[tuple[int, int, int, int]]:
            header = QueryConsumeTimeSpan(topic="orders", group="readers")
            told = await client.request(header, timeout=3)
            return [
                (
                    each.min_time_stamp,
                    each.max_time_stamp,
                    each.consume_time_stamp,
                    round(each.delay_time / 10_000),
                )
                for each in told.consume_time_span_set
            ]

        broker.offsets.commit("readers", "orders", 0, 2)
        broker.offsets.commit("readers", "orders", 1, 0)
        assert await spans() == [(times[0], times[2], times[1], 1), (-1, -1, -1, 0)]
        broker.offsets.commit("readers", "orders", 0, 0)
        assert await spans() == [(times[0], times[2], times[0], 3), (-1, -1, -1, 0)]
        broker.offsets.commit("readers", "orders", 0, 3)
        assert await spans() == [(times[0], times[2], times[2], 0), (-1, -1, -1, 0)]


# What a broker asks its clients.


@simulated
async def test_a_consumer_is_asked_through_its_broker(bench: Bench) -> None:
    asked: list[RemotingCommand] = []

    def answer(connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        asked.append(request)
        if request.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED:
            return None
        if request.code == RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT:
            return request.answer(
                0,
                body=b'{"messageQueueTable":{{"brokerName":"b","queueId":0,"topic":"orders"}:7}}',
            )
        return request.answer(0, "well", {"some": "field"}, b'{"jstack":"none"}')

    async with (
        bench.broker() as broker,
        bench.client(broker.address, handler=answer) as consumer,
        bench.client(broker.address) as admin,
    ):
        header = GetConsumerRunningInfo(consumer_group="readers", client_id="c@1")
        offline = await ask(admin, header)
        assert (offline.code, offline.remark) == (1, "The Consumer <readers> <c@1> not online")
        status = InvokeBrokerToGetConsumerStatus(topic="orders", group="readers")
        offline = await ask(admin, status)
        assert offline.remark == "No Any Consumer online in the consumer group: [readers]"
        await join(consumer, "orders")
        told = await ask(admin, header)
        assert (told.code, told.remark, told.body) == (0, "well", b'{"jstack":"none"}')
        assert told.ext_fields == {"some": "field"}
        assert asked[-1].ext_fields == header.to_ext_fields()
        reply = await send(admin, body=b"try me")
        tried = ConsumeMessageDirectly(
            consumer_group="readers", client_id="c@1", msg_id=reply.msg_id, topic="orders"
        )
        assert (await ask(admin, tried)).code == 0
        assert asked[-1].body == broker.store.record_at(0)
        assert (
            asked[-1].ext_fields.items()
            >= {
                "brokerName": "broker-a",
                "topicSysFlag": "0",
                "groupSysFlag": "0",
            }.items()
        )
        missing = await ask(admin, replace(tried, msg_id="0" * 16 + "F" * 16))
        assert (missing.code, missing.remark) == (1, "can not find message by the offset, -1")
        assert (await ask(admin, replace(tried, msg_id="nonsense"))).code == 1
        answered = await admin.request(status, timeout=3)
        assert [list(each.values()) for each in answered.consumer_table.values()] == [[7]]
        answered = await admin.request(replace(status, client_addr="other"), timeout=3)
        assert answered.consumer_table == {}


@simulated
async def test_a_consumer_that_does_not_answer_or_is_too_old_is_no_trouble(bench: Bench) -> None:
    async def never(connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        await asyncio.sleep(1000)
        return None

    async with (
        bench.broker() as broker,
        bench.client(broker.address, handler=never) as consumer,
        bench.client(broker.address) as admin,
    ):
        await join(consumer, "orders")
        header = GetConsumerRunningInfo(consumer_group="readers", client_id="c@1")
        slow = await ask(admin, header)
        assert slow.code == 207
        assert str(slow.remark).startswith("consumer <readers> <c@1> Timeout: ")
        status = InvokeBrokerToGetConsumerStatus(topic="orders", group="readers")
        assert (await admin.request(status, timeout=30)).consumer_table == {}
        (client,) = broker.clients.consumers["readers"].members.values()
        client.version = 61
        old = await ask(admin, header)
        assert (old.code, "too low to finish" in str(old.remark)) == (1, True)
        client.version = 513
        asking = asyncio.create_task(ask(admin, header))
        await asyncio.sleep(1)
        consumer.abort()
        lost = await asking
        assert (lost.code, "invoke consumer <readers> <c@1> Exc" in str(lost.remark)) == (1, True)


# The broker itself.


@simulated
async def test_a_broker_tells_how_it_is_doing(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:

        async def told() -> dict[str, str]:
            return (await client.request(GetBrokerRuntimeInfo(), timeout=3)).table

        info = await told()
        assert info["brokerVersionDesc"] == "V5_5_0"
        assert (info["brokerVersion"], info["brokerActive"]) == ("513", "true")
        assert (info["putTps"], info["earliestMessageTimeStamp"]) == ("0.0 0.0 0.0", "-1")
        for _ in range(3):
            await send(client, properties={"DELAY": "1"})
        await asyncio.sleep(61)
        await pull(client)
        await asyncio.sleep(1)
        info = await told()
        assert info["runtime"].startswith("[ 0 days, 0 hours, 1 minutes, ")
        assert info["msgPutTotalTodayNow"] == "6"  # each twice, once to be delayed
        assert info["msgGetTotalTodayNow"] == str(broker.store.stats.messages_read)
        assert float(info["getTransferredTps"].split()[0]) > 0
        assert info["commitLogMaxOffset"] == str(broker.store.max_physical_offset)
        first_ms = broker.store.store_time_at("SCHEDULE_TOPIC_XXXX", 0, 0)
        assert info["earliestMessageTimeStamp"] == str(first_ms)
        assert info["remainHowManyDataToFlush"] == "0 B"
        assert info["scheduleMessageOffset_1"] == "3,3"
        assert info["sendThreadPoolQueueCapacity"] == "10000"


def test_times_and_sizes_are_written_as_rocketmq_does() -> None:
    assert describe_duration(90_061) == "[ 1 days, 1 hours, 1 minutes, 1 seconds ]"
    sizes = [0, 1023, 1024, 1536, 1024**2, 5 * 1024**4]
    assert [describe_bytes(size) for size in sizes] == [
        *("0 B", "1023 B", "1.0 KiB", "1.5 KiB", "1.0 MiB", "5.0 TiB")
    ]


@simulated
async def test_settings_are_told_and_some_can_be_changed(bench: Bench) -> None:
    async with bench.broker(listen_port=0) as broker, bench.client(broker.address) as client:

        async def change(text: bytes) -> RemotingCommand:
            return await ask(client, UpdateBrokerConfig(), text)

        told = await ask(client, GetBrokerConfig())
        config = parse_config(told.body)
        assert config["brokerName"] == "broker-a"
        assert config["listenPort"] == str(broker.address.port)
        version = told.ext_fields["version"]
        await create_topic(client)
        answer = await change(b"brokerPermission=4\nunknownSetting=7\n")
        assert answer.code == 0
        assert broker.settings.broker_permission == Perm.READ
        await asyncio.sleep(5)
        assert bench.nameserver.told[-1][1]["orders"].perm == Perm.READ
        assert broker.topics.table["orders"].perm == Perm.READ | Perm.WRITE
        told = await ask(client, GetBrokerConfig())
        assert parse_config(told.body)["brokerPermission"] == "4"
        assert told.ext_fields["version"] != version
        for text, code in (
            (b"brokerName=other\nlongPollingEnable=false", 29),
            (b"longPollingEnable=perhaps", 29),
            (b"longPollingEnable=false\ntransactionCheckMax=-1", 29),
            (b"rocketmqHome=/", 16),
            (b"\xff", 1),
        ):
            assert (await change(text)).code == code
        assert broker.settings.long_polling_enable
        assert (await change(b"brokerName=broker-a\nlongPollingEnable=false")).code == 0
        assert not broker.settings.long_polling_enable


@simulated
async def test_what_is_left_of_unused_topics_is_cleaned(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        await send(client)
        await send(client, "used")
        await send(client, properties={"DELAY": "1"})
        broker.topics.delete("orders")
        await client.request(CleanUnusedTopic(), timeout=3)
        await client.request(CleanExpiredConsumequeue(), timeout=3)
        assert broker.store.topics() == ["SCHEDULE_TOPIC_XXXX", "used"]


@simulated
async def test_a_slave_makes_neither_topics_nor_groups(bench: Bench) -> None:
    async with (
        bench.broker(broker_role=BrokerRole.SLAVE, broker_id=1) as broker,
        bench.client(broker.address) as client,
    ):
        with pytest.raises(BrokerError, match="from slave broker"):
            await create_topic(client)
        group = SubscriptionGroupConfig(group_name="readers").encode()
        for answer in (
            await ask(client, UpdateAndCreateSubscriptiongroup(), group),
            await ask(client, DeleteSubscriptiongroup(group_name="readers")),
        ):
            assert (answer.code, "from slave broker" in str(answer.remark)) == (1, True)
        info = (await client.request(GetBrokerRuntimeInfo(), timeout=3)).table
        assert info["brokerActive"] == "false"


@simulated
async def test_every_request_without_a_header_or_a_body_gets_an_answer(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        for code in RequestCode:
            for body in (b"", b"{", b'{"a":', b"\xff" * 100):
                answer = await client.invoke(RemotingCommand(code, {}, body), timeout=30)
                assert answer.code in (0, 1, 2, 3, 16, 26, 29, 208), (code, answer)
        await send(client)
        assert len(messages(broker)) == 1
