"""Requests on a simulated cluster: replies in time, late, lost, or faster than the answer."""

import asyncio
from uuid import UUID

import pytest

from rocketpipe import Message, StoredMessage, reply_message
from rocketpipe.codes import RequestCode, ResponseCode
from rocketpipe.errors import InvalidMessage, NoRoute, ReplyTimeout, RequestTimeout, SendFailed
from rocketpipe.message import MessageQueue
from rocketpipe.remoting.connection import Connection
from rocketpipe.remoting.dispatch import Outcome
from rocketpipe.wire.frame import RemotingCommand
from rocketpipe.wire.requests.callbacks import PushReplyMessageToClient
from tests.simulated_cluster import (
    Behaviour,
    FakeBroker,
    Received,
    SimulatedCluster,
    ignore,
    refuse,
    simulated,
    store,
)
from tests.stored_message import stored_message

QUESTION = Message("questions", b"?")


def reply_to(received: Received, body: bytes = b"!") -> RemotingCommand:
    header = received.header
    return PushReplyMessageToClient(
        producer_group="replies",
        topic="DefaultCluster_REPLY_TOPIC",
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=0,
        sys_flag=0,
        born_timestamp=header.born_timestamp,
        flag=0,
        properties=header.properties,  # the correlation id is all that matters of them
        born_host="10.0.0.3:3",
        store_host="10.0.0.2:10911",
        store_timestamp=0,
    ).to_command(body)


def reply_after(seconds: float, then: Behaviour = store) -> Behaviour:
    """Do something with the request, and have it replied to."""

    def behave(broker: FakeBroker, request: RemotingCommand, connection: Connection) -> object:
        received = broker.received[-1]

        async def push() -> None:
            await asyncio.sleep(seconds)
            await connection.invoke(reply_to(received), timeout=1)

        tasks.append(asyncio.create_task(push()))
        return then(broker, request, connection)

    tasks: list[asyncio.Task[None]] = []
    return behave  # type: ignore[return-value]


@simulated()
async def test_a_request_returns_its_reply(cluster: SimulatedCluster) -> None:
    (broker,) = cluster.brokers
    broker.behaviour = reply_after(0.5)
    async with cluster.producer() as producer:
        reply = await producer.request(QUESTION, timeout=2)
        assert isinstance(reply, StoredMessage)
        assert reply.body == b"!"
        assert 0.5 < cluster.now < 0.6
        properties = broker.received[0].properties
        assert properties["REPLY_TO_CLIENT"] == producer.client_id
        assert properties["TTL"] == "2000"
        assert UUID(properties["CORRELATION_ID"]).version == 4
        await producer.request(QUESTION)
        again = broker.received[1].properties
        assert again["CORRELATION_ID"] != properties["CORRELATION_ID"]
        assert again["TTL"] == "3000"


@simulated(brokers=2)
async def test_requests_in_flight_get_each_its_own_reply(cluster: SimulatedCluster) -> None:
    for broker in cluster.brokers:
        broker.behaviour = store
    async with cluster.producer() as producer:
        asked = [
            asyncio.create_task(producer.request(Message("questions", b"%d" % number)))
            for number in range(20)
        ]
        await asyncio.sleep(0.5)
        for broker in cluster.brokers:  # the last first, and all through one broker
            for received in reversed(broker.stored):
                connection = cluster.brokers[0].connections[0]
                answer = await connection.invoke(reply_to(received, received.body), timeout=1)
                assert answer.code == ResponseCode.SUCCESS
        replies = await asyncio.gather(*asked)
        assert [reply.body for reply in replies] == [b"%d" % number for number in range(20)]


@simulated()
async def test_a_request_goes_where_it_is_told(cluster: SimulatedCluster) -> None:
    (broker,) = cluster.brokers
    cluster.add_topic("questions", queues=4)
    broker.behaviour = reply_after(0)
    queue = MessageQueue("questions", "broker-a", 2)
    async with cluster.producer() as producer:
        await producer.request(QUESTION, queue=queue)
        await producer.request(QUESTION, selector=lambda queues, message, arg: queues[arg], arg=3)
        assert [each.header.queue_id for each in broker.received] == [2, 3]


# Who knows us.


@simulated(brokers=2)
async def test_every_broker_that_may_bring_the_reply_knows_us_before_we_ask(
    cluster: SimulatedCluster,
) -> None:
    """The topic is on one broker, but replies go to any of the cluster."""
    cluster.add_topic("questions", brokers=["broker-a"])
    cluster.add_topic("DefaultCluster_REPLY_TOPIC", queues=1)
    asking, other = cluster.brokers
    asking.behaviour = reply_after(0)
    async with cluster.producer() as producer:
        await producer.request(QUESTION)
        for broker in (asking, other):
            at, data = broker.heartbeats[0]
            assert at < asking.received[0].at
            assert data.client_id == producer.client_id
            assert [each.group_name for each in data.producer_data_set] == ["group"]
        heartbeats = [len(broker.heartbeats) for broker in (asking, other)]
        await producer.request(QUESTION)
        assert heartbeats == [len(broker.heartbeats) for broker in (asking, other)]


@simulated(brokers=2)
async def test_a_frozen_broker_delays_the_first_request_only(cluster: SimulatedCluster) -> None:
    cluster.add_topic("questions", brokers=["broker-a"])
    cluster.add_topic("DefaultCluster_REPLY_TOPIC", queues=1)
    cluster.broker("broker-a").behaviour = reply_after(0)
    cluster.network.freeze("broker-b")
    async with cluster.producer() as producer:
        began = cluster.now
        await producer.request(QUESTION, timeout=3)
        assert 1 <= cluster.now - began < 1.1  # a third of the time
        began = cluster.now
        await producer.request(QUESTION, timeout=3)
        assert cluster.now - began < 0.1


@simulated(brokers=2)
async def test_the_brokers_of_a_changed_route_know_us_too_before_we_ask(
    cluster: SimulatedCluster,
) -> None:
    cluster.add_topic("questions", brokers=["broker-a"])
    knows_us_at = 0.0

    async def take_heartbeat(connection: Connection, request: RemotingCommand) -> Outcome:
        nonlocal knows_us_at
        await asyncio.sleep(0.5)
        knows_us_at = knows_us_at or cluster.now
        return request.answer(0)

    new = cluster.broker("broker-b")
    new.handlers[RequestCode.HEART_BEAT] = take_heartbeat
    for broker in cluster.brokers:
        broker.behaviour = reply_after(0)
    async with cluster.producer(poll_name_server_interval=1) as producer:
        await producer.request(QUESTION)
        cluster.add_topic("questions", brokers=["broker-b"])
        await asyncio.sleep(1.01)
        await producer.request(QUESTION)
        (received,) = new.received
        assert 0 < knows_us_at < received.at


@simulated()
async def test_a_reply_may_come_through_another_client_of_the_same_id(
    cluster: SimulatedCluster,
) -> None:
    (broker,) = cluster.brokers
    cluster.add_topic("questions")
    async with (
        cluster.producer(instance_name="i") as asking,
        cluster.producer(instance_name="i", request_timeout=2) as other,
    ):
        assert asking.client_id == other.client_id
        await other.send(Message("questions", b"hello"))
        (connection,) = broker.connections
        request = asyncio.create_task(asking.request(QUESTION))
        await asyncio.sleep(0.1)
        await connection.invoke(reply_to(broker.stored[-1]), timeout=1)
        assert (await request).body == b"!"


# When no reply comes.


@simulated()
async def test_without_a_reply_the_request_times_out_and_says_that_it_was_sent(
    cluster: SimulatedCluster,
) -> None:
    (broker,) = cluster.brokers
    async with cluster.producer() as producer:
        began = cluster.now
        with pytest.raises(ReplyTimeout, match="was sent") as raised:
            await producer.request(QUESTION, timeout=2)
        assert cluster.now - began == pytest.approx(2, abs=0.01)
        assert raised.value.topic == "questions"
        assert raised.value.correlation_id == broker.stored[0].properties["CORRELATION_ID"]
        # What comes now is too late, and answered all the same.
        (connection,) = broker.connections
        answer = await connection.invoke(reply_to(broker.stored[0]), timeout=1)
        assert answer.code == ResponseCode.SUCCESS
        assert not producer._instance.replies._awaited


@simulated()
async def test_a_request_that_can_not_be_sent_fails_as_a_send_does(
    cluster: SimulatedCluster,
) -> None:
    (broker,) = cluster.brokers
    broker.behaviour = refuse(ResponseCode.MESSAGE_ILLEGAL)
    async with cluster.producer() as producer:
        with pytest.raises(SendFailed) as refused:
            await producer.request(QUESTION)
        assert refused.value.code == ResponseCode.MESSAGE_ILLEGAL
        broker.behaviour = ignore
        with pytest.raises(SendFailed) as ignored:
            await producer.request(QUESTION, timeout=1)
        assert isinstance(ignored.value.attempts[-1].error, RequestTimeout)
        del cluster.routes["TBW102"]
        with pytest.raises(NoRoute):
            await producer.request(Message("unknown", b"?"))
        with pytest.raises(InvalidMessage):
            await producer.request(Message("questions", b""))


@simulated()
async def test_a_reply_helps_even_if_the_brokers_answer_was_lost(cluster: SimulatedCluster) -> None:
    (broker,) = cluster.brokers
    broker.behaviour = reply_after(0.1, then=ignore)
    async with cluster.producer() as producer:
        began = cluster.now
        reply = await producer.request(QUESTION, timeout=3)
        assert reply.body == b"!"
        assert cluster.now - began < 0.2
        assert len(broker.received) == 1


@simulated()
async def test_a_request_that_is_cancelled_leaves_nothing_behind(cluster: SimulatedCluster) -> None:
    (broker,) = cluster.brokers
    broker.behaviour = ignore
    async with cluster.producer() as producer:
        asking = asyncio.create_task(producer.request(QUESTION))
        await asyncio.sleep(0.5)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert not producer._instance.replies._awaited


# The other side.


@simulated()
async def test_a_reply_is_sent_by_a_request_of_its_own(cluster: SimulatedCluster) -> None:
    (broker,) = cluster.brokers
    cluster.add_topic("c1_REPLY_TOPIC", queues=1)
    routing = {"CLUSTER": "c1", "CORRELATION_ID": "42", "REPLY_TO_CLIENT": "10.0.0.1@7"}
    asked = stored_message(properties=routing)
    pushed: list[RemotingCommand] = []

    def take(connection: Connection, request: RemotingCommand) -> Outcome:
        pushed.append(request)
        return request.answer(
            0, ext_fields={"msgId": "0", "queueId": request.ext_fields["e"], "queueOffset": "0"}
        )

    broker.handlers[RequestCode.SEND_REPLY_MESSAGE_V2] = take
    async with cluster.producer(namespace="shop") as producer:
        result = await producer.send(reply_message(asked, b"!"))
        assert result.offset_message_id == "0"
    (request,) = pushed
    assert (request.body, request.ext_fields["b"]) == (b"!", "c1_REPLY_TOPIC")
    assert "CORRELATION_ID\x0142\x02" in request.ext_fields["i"]
