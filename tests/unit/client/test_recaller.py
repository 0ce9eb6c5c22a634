"""Recalls: which handles are sent to which broker, and what comes back."""

import asyncio
from typing import Any

import pytest

from rocketpipe.client.hooks import RecallContext, SendHook
from rocketpipe.client.recaller import checked_handle
from rocketpipe.codes import RequestCode, ResponseCode
from rocketpipe.errors import (
    BrokerError,
    IllegalState,
    InvalidMessage,
    InvalidSetting,
    NoRoute,
    RequestTimeout,
)
from rocketpipe.remoting.connection import Connection
from rocketpipe.remoting.dispatch import Outcome, Refusal
from rocketpipe.wire.frame import RemotingCommand
from rocketpipe.wire.message_id import RecallHandle
from rocketpipe.wire.requests.sending import RecallMessage
from tests.simulated_cluster import SimulatedCluster, simulated

ID = "7F" * 16


def handle(topic: str = "orders", broker: str = "broker-b") -> str:
    return RecallHandle(topic, broker, 1_750_000_060_001, ID).encode()


class Diary(SendHook):
    def __init__(self) -> None:
        self.recalls: list[RecallContext] = []

    def recalled(self, context: RecallContext) -> None:
        self.recalls.append(context)


@simulated(brokers=2)
async def test_the_broker_that_the_handle_names_is_asked(cluster: SimulatedCluster) -> None:
    cluster.add_topic("shop%orders")
    asked: list[RecallMessage] = []

    def take(connection: Connection, request: RemotingCommand) -> Outcome:
        asked.append(RecallMessage.from_ext_fields(request.ext_fields))
        return request.answer(0, ext_fields={"msgId": ID, "MSG_REGION": "eu"})

    cluster.broker("broker-b").handlers[RequestCode.RECALL_MESSAGE] = take
    diary = Diary()
    wire_handle = handle("shop%orders")
    async with cluster.producer(namespace="shop", hooks=[diary]) as producer:
        assert await producer.recall("orders", wire_handle) == ID
    (request,) = asked
    assert request == RecallMessage(
        producer_group="shop%group",
        topic="shop%orders",
        recall_handle=wire_handle,
        broker_name="broker-b",
    )
    assert diary.recalls == [
        RecallContext(
            producer_group="group", topic="orders", message_id=ID, region_id="eu", error=None
        )
    ]


@simulated(brokers=2)
async def test_a_refusal_comes_as_it_is(cluster: SimulatedCluster) -> None:
    cluster.add_topic("orders")

    def refuse(connection: Connection, request: RemotingCommand) -> Outcome:
        raise Refusal(ResponseCode.NO_PERMISSION, "recall failed, operation is forbidden")

    cluster.broker("broker-b").handlers[RequestCode.RECALL_MESSAGE] = refuse
    diary = Diary()
    async with cluster.producer(hooks=[diary]) as producer:
        with pytest.raises(BrokerError, match="operation is forbidden") as raised:
            await producer.recall("orders", handle())
        assert raised.value.code == ResponseCode.NO_PERMISSION
    (context,) = diary.recalls
    assert (context.error, context.region_id) == (raised.value, "DefaultRegion")


@pytest.mark.parametrize(
    ("topic", "recall_handle"),
    [
        ("orders", ""),
        ("orders", "not a handle"),
        ("orders", "djIgYSBiIDEgYw=="),  # of a version to come
        ("orders", handle("other")),
        ("", handle()),
        ("SCHEDULE_TOPIC_XXXX", handle("SCHEDULE_TOPIC_XXXX")),
        ("%RETRY%group", handle("%RETRY%group")),
        ("%DLQ%group", handle("%DLQ%group")),
        ("orders", None),  # as in the result of a message that has none
        ("orders", handle().encode()),
        (None, handle()),
    ],
)
def test_what_can_not_be_recalled_is_refused(topic: Any, recall_handle: Any) -> None:
    with pytest.raises(InvalidMessage):
        checked_handle(topic, recall_handle, None)


@simulated()
async def test_nothing_is_sent_for_a_bad_handle(cluster: SimulatedCluster) -> None:
    async with cluster.producer() as producer:
        with pytest.raises(InvalidMessage):
            await producer.recall("orders", "nonsense")
        with pytest.raises(InvalidSetting):
            await producer.recall("orders", handle(), timeout=0)
    assert cluster.name_servers[0].asked == []
    with pytest.raises(IllegalState, match="is closed: make a new one"):
        await producer.recall("orders", handle())


@simulated(brokers=2)
async def test_a_broker_that_is_not_there_or_does_not_answer(cluster: SimulatedCluster) -> None:
    async with cluster.producer() as producer:
        with pytest.raises(NoRoute, match="the topic does not exist"):
            await producer.recall("orders", handle())
        cluster.add_topic("orders")
        with pytest.raises(NoRoute, match="broker 'broker-x' has no master"):
            await producer.recall("orders", handle(broker="broker-x"))
        cluster.broker("broker-b").handlers[RequestCode.RECALL_MESSAGE] = lambda *_: None
        began = asyncio.get_running_loop().time()
        with pytest.raises(RequestTimeout):
            await producer.recall("orders", handle(), timeout=2)
        assert cluster.now - began == pytest.approx(2, abs=0.01)


@simulated(brokers=2)
async def test_looking_for_the_broker_is_part_of_the_time(cluster: SimulatedCluster) -> None:
    cluster.add_topic("orders")
    cluster.broker("broker-b").handlers[RequestCode.RECALL_MESSAGE] = lambda *_: None
    async with cluster.producer() as producer:
        cluster.network.freeze("namesrv-0")
        recall = asyncio.create_task(producer.recall("orders", handle(), timeout=2))
        await asyncio.sleep(1)
        cluster.network.thaw("namesrv-0")
        with pytest.raises(RequestTimeout):
            await recall
        assert cluster.now == pytest.approx(2, abs=0.01)
