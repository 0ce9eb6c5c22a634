"""Bulk sends: encoded messages arrive as they are, in order at each queue, none after a failure."""

import asyncio
from typing import Any

import pytest

from rocketpipe.client.bulk import AsyncBulkSender
from rocketpipe.client.encoded import Encoded, properties_of_all
from rocketpipe.client.hooks import SendContext, SendHook
from rocketpipe.codes import ResponseCode
from rocketpipe.errors import (
    BulkFailed,
    IllegalState,
    InvalidMessage,
    NoRoute,
    SendFailed,
)
from rocketpipe.message import Message, MessageQueue, SendStatus
from rocketpipe.remoting.connection import Connection
from rocketpipe.wire.batch import BatchMember, encode_batch
from rocketpipe.wire.compression import decompress
from rocketpipe.wire.frame import RemotingCommand
from rocketpipe.wire.sys_flag import COMPRESSED
from tests.simulated_cluster import (
    Behaviour,
    FakeBroker,
    SimulatedCluster,
    after,
    hang_up,
    lose_answer,
    refuse,
    simulated,
    store,
)

SHARED = properties_of_all(None)


def batch(numbers: range, queue: MessageQueue | None = None) -> Encoded:
    members = (
        BatchMember(b"%d" % n, {"UNIQ_KEY": f"ID{n}", "TAGS": "t", "KEYS": f"k{n} l", "a": "b"})
        for n in numbers
    )
    ids = ",".join(f"ID{n}" for n in numbers)
    return Encoded("orders", len(numbers), ids, encode_batch(members), SHARED, queue)


def single(n: int, body: bytes | None = None, queue: MessageQueue | None = None) -> Encoded:
    properties = f"UNIQ_KEY\x01ID{n}\x02DELAY\x013\x02{SHARED}"
    return Encoded("orders", 1, f"ID{n}", body or b"%d" % n, properties, queue)


def bodies(broker: FakeBroker) -> list[bytes]:
    return [body for received in broker.stored for body in received.bodies]


@simulated(brokers=2)
async def test_there_is_a_result_for_each_request(cluster: SimulatedCluster) -> None:
    async with cluster.producer() as producer:
        parcels = [batch(range(n, n + 10)) for n in range(0, 95, 10)]
        results = await AsyncBulkSender(producer).send(parcels)
    assert len(results) == 10
    assert all(each.status is SendStatus.SEND_OK for each in results)
    assert {each.message_id for each in results} == {each.message_id for each in parcels}
    assert cluster.stored_message_ids() == {f"ID{n}" for n in range(100)}


@simulated()
async def test_a_single_message_is_sent_as_one(cluster: SimulatedCluster) -> None:
    async with cluster.producer() as producer:
        result = await producer.send_encoded(single(7))
        await producer.send_encoded(single(8, b"x" * 5000))
    first, second = cluster.brokers[0].stored
    assert result.message_id == "ID7"
    assert (first.header.batch, first.body, first.properties["DELAY"]) == (False, b"7", "3")
    assert second.header.sys_flag & COMPRESSED
    assert decompress(second.body, second.header.sys_flag) == b"x" * 5000


@simulated()
async def test_what_may_not_be_sent_is_refused(cluster: SimulatedCluster) -> None:
    queue = MessageQueue("other", "broker-a", 0)
    async with cluster.producer(message_bytes_max=100) as producer:
        for bad in (single(1, b"x" * 101), single(1)._replace(topic="a b"), single(1, queue=queue)):
            with pytest.raises(InvalidMessage):
                await producer.send_encoded(bad)
    assert cluster.brokers[0].received == []


@simulated()
async def test_a_hook_sees_the_messages(cluster: SimulatedCluster) -> None:
    seen: list[Message] = []

    class Look(SendHook):
        def before(self, context: SendContext) -> None:
            assert len(context.messages) == context.message_id.count(",") + 1
            seen.extend(context.messages)

    async with cluster.producer(hooks=[Look()]) as producer:
        await AsyncBulkSender(producer).send([batch(range(2))])
        await producer.send_encoded(single(7))
    assert seen == [
        Message("orders", b"0", tags="t", keys=["k0", "l"], properties={"a": "b"}),
        Message("orders", b"1", tags="t", keys=["k1", "l"], properties={"a": "b"}),
        Message("orders", b"7", delay_level=3),
    ]


@simulated(brokers=2)
async def test_one_queue_is_kept_in_order_whatever_has_to_be_tried_again(
    cluster: SimulatedCluster,
) -> None:
    cluster.add_topic("orders", queues=2)
    broker = cluster.broker("broker-b")

    def trouble(broker: FakeBroker, request: RemotingCommand, connection: Connection) -> Any:
        behave = (store, lose_answer, hang_up, after(0.2), store)[len(broker.received) % 5]
        return behave(broker, request, connection)

    broker.behaviour = trouble
    queues = [MessageQueue("orders", "broker-b", n) for n in range(2)]
    async with cluster.producer(retry_times=5, attempt_timeout=0.5, send_timeout=30.0) as producer:
        sender = AsyncBulkSender(producer)
        calls = [
            sender.send(
                [batch(range(n, n + 5), queues[n // 5 % 2]) for n in range(start, start + 50, 5)]
            )
            for start in range(0, 200, 50)
        ]
        tasks = [asyncio.ensure_future(call) for call in calls]
        await asyncio.gather(*tasks)
    for queue in queues:
        stored = [
            int(body)
            for received in broker.stored
            if received.header.queue_id == queue.queue_id
            for body in received.bodies
        ]
        first_times = list(dict.fromkeys(stored))
        assert first_times == [n for n in range(200) if n // 5 % 2 == queue.queue_id]
        assert len(stored) > len(first_times)  # there was trouble


@simulated()
async def test_no_more_are_on_their_way_than_allowed(cluster: SimulatedCluster) -> None:
    cluster.brokers[0].behaviour = after(1.0)
    async with cluster.producer(batches_in_flight_max=4, send_timeout=60.0) as producer:
        sender = AsyncBulkSender(producer)
        parcels = [batch(range(n, n + 2)) for n in range(0, 40, 2)]
        await asyncio.gather(sender.send(parcels[:10]), sender.send(parcels[10:]))
        assert cluster.now == pytest.approx(5.0, abs=0.1)


@simulated()
async def test_after_a_failure_nothing_more_is_sent(cluster: SimulatedCluster) -> None:
    (broker,) = cluster.brokers

    def judge(broker: FakeBroker, request: RemotingCommand, connection: Connection) -> Any:
        if b"20" in broker.received[-1].bodies:
            return refuse(ResponseCode.SERVICE_NOT_AVAILABLE)(broker, request, connection)
        return store(broker, request, connection)

    broker.behaviour = judge
    queue = MessageQueue("orders", "broker-a", 0)
    async with cluster.producer() as producer:
        sender = AsyncBulkSender(producer)
        first = asyncio.ensure_future(
            sender.send([batch(range(n, n + 5), queue) for n in range(0, 50, 5)])
        )
        second = asyncio.ensure_future(sender.send([batch(range(50, 55), queue)]))
        with pytest.raises(BulkFailed) as caught:
            await first
        with pytest.raises(BulkFailed):
            await second
    assert bodies(broker) == [b"%d" % n for n in range(20)]
    assert caught.value.message_ids == tuple(f"ID{n}" for n in range(20, 25))
    assert isinstance(caught.value.error, SendFailed)
    assert "5 messages from ID20 on to topic 'orders': send to topic" in str(caught.value)


@simulated()
async def test_a_batch_that_is_illegal_is_sent_one_by_one(cluster: SimulatedCluster) -> None:
    (broker,) = cluster.brokers

    def small_only(broker: FakeBroker, request: RemotingCommand, connection: Connection) -> Any:
        received = broker.received[-1]
        if len(received.bodies) > 1 or received.bodies == [b"13"]:
            return refuse(ResponseCode.MESSAGE_ILLEGAL, "no")(broker, request, connection)
        return store(broker, request, connection)

    broker.behaviour = small_only
    async with cluster.producer(batches_in_flight_max=1) as producer:
        assert len(await AsyncBulkSender(producer).send([batch(range(10))])) == 10
        with pytest.raises(BulkFailed) as caught:
            await AsyncBulkSender(producer).send([batch(range(10, 20))])
    assert caught.value.message_ids == ("ID13",)
    assert bodies(broker) == [b"%d" % n for n in range(13)]
    assert cluster.stored_message_ids() == {f"ID{n}" for n in range(13)}


@simulated()
async def test_errors_of_every_kind_name_their_messages(cluster: SimulatedCluster) -> None:
    class Forbid(SendHook):
        def check_forbidden(self, context: SendContext) -> None:
            raise PermissionError("not today")

    del cluster.routes["TBW102"]
    async with cluster.producer() as producer:
        with pytest.raises(BulkFailed) as no_route:
            await AsyncBulkSender(producer).send([single(1)])
    cluster.add_topic("orders")
    async with cluster.producer(hooks=[Forbid()]) as producer:
        with pytest.raises(BulkFailed, match="message ID1 to topic 'orders': not today"):
            await AsyncBulkSender(producer).send([single(1)])
    with pytest.raises(BulkFailed) as closed:
        await AsyncBulkSender(producer).send([single(1)])
    assert isinstance(no_route.value.error, NoRoute)
    assert isinstance(closed.value.error, IllegalState)


@simulated(brokers=2)
async def test_a_dead_broker_costs_nothing_but_time(cluster: SimulatedCluster) -> None:
    cluster.broker("broker-a").behaviour = hang_up
    async with cluster.producer() as producer:
        results = await AsyncBulkSender(producer).send(
            [batch(range(n, n + 5)) for n in range(0, 100, 5)]
        )
    assert {each.queue.broker_name for each in results} == {"broker-b"}
    assert cluster.stored_message_ids() == {f"ID{n}" for n in range(100)}


@simulated(brokers=2)
async def test_the_queues_of_a_topic_are_those_to_write_to(cluster: SimulatedCluster) -> None:
    cluster.add_topic("orders", queues=2)
    cluster.add_topic("ns%orders", queues=1)
    brokers = ("broker-a", "broker-b")
    async with cluster.producer() as producer:
        assert await producer.publish_queues("orders") == tuple(
            MessageQueue("orders", broker, n) for broker in brokers for n in range(2)
        )
    async with cluster.producer(namespace="ns") as producer:
        queues = await producer.publish_queues("orders")
        assert queues == tuple(MessageQueue("orders", broker, 0) for broker in brokers)
        result = await producer.send_encoded(single(1, queue=queues[1]))
        assert result.queue == queues[1]
    assert cluster.broker("broker-b").stored[-1].header.topic == "ns%orders"


def test_every_message_says_that_it_waits_and_where_it_lives() -> None:
    assert properties_of_all(None) == "WAIT\x01true\x02"
    assert properties_of_all("ns") == "WAIT\x01true\x02INSTANCE_ID\x01ns\x02"


def first(numbers: range) -> Encoded:
    return batch(numbers)._replace(is_first=True)


@simulated(brokers=2)
async def test_nothing_is_sent_before_the_first_is_there(cluster: SimulatedCluster) -> None:
    for broker in cluster.brokers:
        broker.behaviour = after(1.0)
    async with cluster.producer(send_timeout=30.0) as producer:
        bulk = AsyncBulkSender(producer)
        both = asyncio.gather(
            bulk.send([batch(range(2, 4)), first(range(2)), batch(range(4, 6))]),
            bulk.send([batch(range(6, 8))]),
        )
        await asyncio.sleep(0.9)
        received = [each for broker in cluster.brokers for each in broker.received]
        assert [each.bodies for each in received] == [[b"0", b"1"]]
        await both
    assert sum(len(bodies(broker)) for broker in cluster.brokers) == 8


@pytest.mark.parametrize(
    ("trouble", "is_told"),
    [
        (lose_answer, True),
        (hang_up, True),
        (refuse(ResponseCode.SERVICE_NOT_AVAILABLE), True),  # who knows what it has done before
        (refuse(ResponseCode.SYSTEM_BUSY), False),
    ],
)
def test_before_a_repeat_the_first_is_sent_once_more(trouble: Behaviour, is_told: bool) -> None:
    @simulated()
    async def run(cluster: SimulatedCluster) -> None:
        (broker,) = cluster.brokers
        broker.script += [store, trouble, trouble]
        settings: dict[str, Any] = {"retry_times": 5, "attempt_timeout": 0.5, "send_timeout": 30.0}
        async with cluster.producer(**settings) as producer:
            parcels = [batch(range(n, n + 2)) for n in range(2, 6, 2)]
            results = await AsyncBulkSender(producer).send([first(range(2)), *parcels])
        assert [len(each.message_ids) for each in results] == [2, 2, 2]
        asked = [each.bodies for each in broker.received]
        again = asked.index([b"0"]) if is_told else len(asked)
        assert ([b"0"] in asked) == is_told
        # Each was tried once when the first was not there a second time yet.
        assert max(asked[:again].count([b"2", b"3"]), asked[:again].count([b"4", b"5"])) == (
            1 if is_told else 2
        )

    run()


@simulated()
async def test_what_can_not_be_announced_is_not_sent_again(cluster: SimulatedCluster) -> None:
    (broker,) = cluster.brokers

    def trouble(broker: FakeBroker, request: RemotingCommand, connection: Connection) -> Any:
        is_the_first = b"0" in broker.received[-1].bodies and len(broker.received) == 1
        return (store if is_the_first else hang_up)(broker, request, connection)

    broker.behaviour = trouble
    async with cluster.producer(send_timeout=30.0) as producer:
        with pytest.raises(BulkFailed):
            await AsyncBulkSender(producer).send([first(range(2)), batch(range(2, 4))])
    assert [each.bodies for each in broker.received].count([b"2", b"3"]) == 1
