"""Sends to a whole broker, on simulated time and network."""

import asyncio
from typing import Any

import pytest

from rocketpipe.codes import RequestCode, ResponseCode
from rocketpipe.errors import BrokerError
from rocketpipe.wire.batch import BatchMember, encode_batch
from rocketpipe.wire.bodies.topics import TopicConfig, TopicFilterType
from rocketpipe.wire.frame import RemotingCommand
from rocketpipe.wire.requests.sending import SendBatchMessage, SendMessage
from tests.unit.broker.bench import BROKER_HOST, Bench, messages, send, send_header, simulated


@simulated
async def test_a_sent_message_is_stored_as_it_came_and_with_what_brokers_add(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        properties = {"UNIQ_KEY": "U1", "TAGS": "paid", "KEYS": "o-1", "WAIT": "true"}
        reply = await send(client, queue_id=2, flag=7, properties=properties)
        (stored,) = messages(broker, queue_id=2)
    assert stored.body == b"hello"
    assert stored.flag == 7
    assert stored.born_timestamp_ms == 1_750_000_000_123
    assert stored.store_host == f"{BROKER_HOST}:10911"
    assert stored.properties == {
        **properties,
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
        "CLUSTER": "DefaultCluster",
    }
    assert reply.msg_id == stored.offset_message_id
    assert (reply.queue_id, reply.queue_offset, reply.transaction_id) == (2, 0, "U1")
    assert (reply.region_id, reply.trace_on) == ("DefaultRegion", "true")


@simulated
async def test_both_spellings_of_the_header_are_one_request(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        v2 = send_header(queue_id=1, reconsume_times=3)
        fields = {name: getattr(v2, name) for name in v2.short_names}
        first = await client.request(v2, b"a", timeout=3)
        second = await client.request(SendMessage(**fields), b"b", timeout=3)
        stored = messages(broker, queue_id=1)
    assert [each.body for each in stored] == [b"a", b"b"]
    assert [each.reconsume_times for each in stored] == [3, 3]
    assert (first.queue_offset, second.queue_offset) == (0, 1)


@simulated
async def test_a_batch_is_answered_with_the_id_of_each_message(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        header = send_header(batch=True, properties={"WAIT": "true"})
        fields = {name: getattr(header, name) for name in header.short_names}
        body = encode_batch([BatchMember(b"one", {"UNIQ_KEY": "A"}, 5), BatchMember(b"two")])
        reply = await client.request(SendBatchMessage(**fields), body, timeout=3)
        one, two = messages(broker)
    assert (one.body, one.properties, one.flag) == (b"one", {"UNIQ_KEY": "A"}, 5)
    assert (two.body, two.properties) == (b"two", {})
    assert reply.msg_id == f"{one.offset_message_id},{two.offset_message_id}"
    assert reply.queue_offset == 0


@simulated
async def test_the_batch_field_rules_and_not_the_code(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        body = encode_batch([BatchMember(b"one"), BatchMember(b"two")])
        await client.request(send_header(batch=True), body, timeout=3)
        whole = send_header(queue_id=1).to_command(body)
        whole.code = RequestCode.SEND_BATCH_MESSAGE
        await client.invoke(whole, timeout=3)
        assert len(messages(broker)) == 2
        assert [each.body for each in messages(broker, queue_id=1)] == [body]


@simulated
async def test_a_one_way_send_is_stored_and_not_answered(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        await client.send_oneway(send_header().to_command(b"quiet"), timeout=3)
        await send(client, body=b"loud")
        assert [each.body for each in messages(broker)] == [b"quiet", b"loud"]


@simulated
async def test_an_unknown_topic_is_created_registered_and_kept(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        await send(client, "new", default_topic_queue_nums=3, queue_id=2)
        await asyncio.sleep(1)
        assert broker.topics.table["new"].write_queue_nums == 3
        assert list(bench.nameserver.told[-1][1]) == ["new"]
    async with bench.broker(auto_create_topic_enable=False) as broker:
        assert broker.topics.table["new"].write_queue_nums == 3
        assert len(messages(broker, "new", 2)) == 1


@simulated
async def test_a_broker_registers_all_its_topics_again_and_again_and_leaves(bench: Bench) -> None:
    async with bench.broker(register_nameserver_period=20.0) as broker:
        assert [set(topics) for _, topics in bench.nameserver.told] == [set(broker.topics.table)]
        await asyncio.sleep(50)
        assert len(bench.nameserver.told) == 3
    assert bench.nameserver.unregistered == ["broker-a"]


@simulated
async def test_the_vip_port_is_two_below_and_takes_sends_but_no_pulls(bench: Bench) -> None:
    async with bench.broker() as broker:
        vip = broker.address._replace(port=broker.address.port - 2)
        async with bench.client(vip) as client:
            await send(client)
            answer = await client.invoke(RemotingCommand(RequestCode.PULL_MESSAGE), timeout=3)
            assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


REFUSED = [
    ({"topic": " "}, 29, "The specified topic is blank."),
    ({"topic": "a b"}, 29, "The specified topic: a b, contains illegal characters, allowing only"),
    ({"topic": "x" * 128}, 29, "is longer than topic max length: 127"),
    ({"topic": "SCHEDULE_TOPIC_XXXX"}, 16, "Sending message to topic[SCHEDULE_TOPIC_XXXX] is"),
    ({"default_topic": "absent"}, 17, "topic[orders] not exist, apply first please!\nSee https"),
    (
        {"queue_id": 4},
        29,
        "request queueId[4] is illegal, TopicConfig [topicName=orders, readQueue",
    ),
    ({"topic": "%RETRY%no such group"}, 29, "contains illegal characters"),
    ({"body": bytes(4 * 1024 * 1024 + 1)}, 13, "the message is illegal, maybe msg body or"),
    ({"body": b""}, 1, "the body of the message is missing"),
    ({"topic": "%RETRY%g", "batch": True}, 13, "batch request does not support retry group %RET"),
]


@pytest.mark.parametrize(("change", "code", "remark"), REFUSED)
def test_what_may_not_be_sent_is_refused_in_apaches_words(
    change: dict[str, Any], code: int, remark: str
) -> None:
    @simulated
    async def test(bench: Bench) -> None:
        async with bench.broker() as broker, bench.client(broker.address) as client:
            with pytest.raises(BrokerError) as refused:
                await send(client, **change)
            await send(client, "fine")  # the connection is as good as before
        assert refused.value.code == code
        assert remark in str(refused.value.remark)

    test()


@simulated
async def test_the_first_send_to_a_topic_is_answered_when_the_topic_is_safe(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        bench.disk.sync_seconds = (1.0, 1.0)
        began = asyncio.get_running_loop().time()
        await send(client, "new")
        assert asyncio.get_running_loop().time() - began >= 1.0
        began = asyncio.get_running_loop().time()
        await send(client, "new")
        assert asyncio.get_running_loop().time() - began < 0.5
        bench.disk.sync_seconds = (0.001, 0.001)
    broker = bench.make_broker(auto_create_topic_enable=False)
    await broker.start()
    assert "new" in broker.topics.table
    await broker.close()


@simulated
async def test_topics_made_while_others_are_being_saved_are_saved_too(bench: Bench) -> None:
    broker = bench.make_broker()
    await broker.start()
    bench.disk.sync_seconds = (0.4, 0.4)
    async with bench.client(broker.address) as client:
        first = asyncio.create_task(send(client, "first"))
        await asyncio.sleep(0.2)
        await asyncio.gather(first, send(client, "second"))
    await broker.kill()
    bench.disk.sync_seconds = (0.001, 0.001)
    async with bench.broker() as broker:
        assert {"first", "second"} <= broker.topics.table.keys()


@simulated
async def test_a_new_topic_has_no_more_queues_than_its_template(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        await send(client, "many", default_topic_queue_nums=100)
        assert broker.topics.table["many"].read_queue_nums == 8
        with pytest.raises(BrokerError, match="is illegal"):
            await send(client, "none", default_topic_queue_nums=-1)
        assert broker.topics.table["none"].read_queue_nums == 0
        with pytest.raises(BrokerError, match="has no queue to write to"):
            await send(client, "none", queue_id=-1)


@simulated
async def test_topics_of_units_are_marked(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        await send(client, "unit", unit_mode=True)
        await send(client, "%RETRY%unit", unit_mode=True)
        table = broker.topics.table
        assert (table["unit"].topic_sys_flag, table["%RETRY%unit"].topic_sys_flag) == (1, 2)


@simulated
async def test_messages_of_topics_with_many_tags_say_so(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        filter_type = TopicFilterType.MULTI_TAG
        broker.topics.put([TopicConfig(topic_name="orders", topic_filter_type=filter_type)])
        await send(client, sys_flag=1)
        assert [message.sys_flag for message in messages(broker)] == [3]


@simulated
async def test_a_message_without_a_queue_goes_to_any(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        used = {(await send(client, queue_id=-1)).queue_id for _ in range(40)}
        assert used == {0, 1, 2, 3}
        assert sum(len(messages(broker, queue_id=each)) for each in range(4)) == 40


@simulated
async def test_a_header_that_lacks_a_field_or_has_nonsense_in_it_is_an_error(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        for letter in "abcdefgh":
            command = send_header().to_command(b"x")
            del command.ext_fields[letter]
            answer = await client.invoke(command, timeout=3)
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert answer.remark == f"MalformedHeader: SendMessageV2: {letter} is missing"
        for letter, nonsense in (("e", "one"), ("g", "1" * 30), ("j", " 1"), ("d", "1_0")):
            command = send_header().to_command(b"x")
            command.ext_fields[letter] = nonsense
            answer = await client.invoke(command, timeout=3)
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert f"{letter} is {nonsense!r}" in str(answer.remark)
        await send(client)
