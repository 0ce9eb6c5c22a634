"""POP: receipts, acknowledgements, and messages that others may have by now."""

import asyncio
from typing import Any

import pytest

from rocketpipe.client.consumer.listeners import Retry
from rocketpipe.client.consumer.popping import give_receipts
from rocketpipe.client.consumer.push_consumer import AsyncPushConsumer
from rocketpipe.codes import RequestCode, ResponseCode
from rocketpipe.errors import BrokerError, MalformedHeader
from rocketpipe.message import StoredMessage
from rocketpipe.remoting.connection import Connection
from rocketpipe.remoting.dispatch import Outcome, Refusal
from rocketpipe.wire.frame import RemotingCommand
from rocketpipe.wire.record import encode_record
from rocketpipe.wire.requests.pop import (
    AckMessage,
    ChangeInvisibleTimeReply,
    ChangeMessageInvisibletime,
    PopMessage,
    PopMessageReply,
)
from tests.simulated_cluster import SimulatedCluster, simulated
from tests.stored_message import stored_message

REPLY = PopMessageReply(
    pop_time=1000,
    invisible_time=60_000,
    revive_qid=3,
    rest_num=0,
    start_offset_info="0 0 5;1 0 99;0 2 7",
    msg_offset_info="0 0 5,6;1 0 99;0 2 7",
)


class PopBroker:
    """Gives out what is on its shelf, once, and remembers what it is told of it."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.shelf: list[StoredMessage] = []
        self.pops: list[PopMessage] = []
        self.acks: list[AckMessage] = []
        self.changes: list[ChangeMessageInvisibletime] = []
        cluster.add_topic("orders")
        (broker,) = cluster.brokers
        broker.handlers |= {
            RequestCode.POP_MESSAGE: self._pop,
            RequestCode.ACK_MESSAGE: self._ack,
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME: self._change,
            RequestCode.POLLING_INFO: lambda _, request: request.answer(
                ResponseCode.SUCCESS, ext_fields={"pollingNum": "0"}
            ),
        }
        self.handlers = broker.handlers

    async def _pop(self, connection: Connection, request: RemotingCommand) -> Outcome:
        self.pops.append(PopMessage.from_ext_fields(request.ext_fields))
        if not self.shelf:
            await asyncio.sleep(15)
            return request.answer(ResponseCode.POLLING_TIMEOUT)
        found, self.shelf = self.shelf, []
        body = b"".join(map(encode_record, found))
        return request.answer(ResponseCode.SUCCESS, ext_fields=REPLY.to_ext_fields(), body=body)

    def _ack(self, connection: Connection, request: RemotingCommand) -> Outcome:
        self.acks.append(AckMessage.from_ext_fields(request.ext_fields))
        return request.answer(ResponseCode.SUCCESS)

    def _change(self, connection: Connection, request: RemotingCommand) -> Outcome:
        self.changes.append(ChangeMessageInvisibletime.from_ext_fields(request.ext_fields))
        reply = ChangeInvisibleTimeReply(pop_time=1, invisible_time=2, revive_qid=3)
        return request.answer(ResponseCode.SUCCESS, ext_fields=reply.to_ext_fields())


def consumer(cluster: SimulatedCluster, listener: Any, **settings: Any) -> AsyncPushConsumer:
    return AsyncPushConsumer(
        "group",
        listener,
        subscriptions={"orders": "*"},
        namesrv=cluster.namesrv,
        environment=cluster.environment,
        pop=True,
        **settings,
    )


def test_a_receipt_is_javas() -> None:
    receipt = "1 2 3 4 1 broker-a 0 9"
    messages = [
        stored_message(queue_id=0, queue_offset=6, properties={}),
        stored_message(queue_id=2, queue_offset=7, properties={}),
        stored_message(queue_id=0, queue_offset=9, properties={"POP_CK": receipt}),
    ]
    give_receipts(messages, REPLY, "broker-a")
    assert [message.properties["POP_CK"] for message in messages] == [
        "5 1000 60000 3 0 broker-a 0 6",
        "7 1000 60000 3 0 broker-a 2 7",
        receipt,
    ]
    with pytest.raises(MalformedHeader, match="queue 1"):
        give_receipts([stored_message(queue_id=1, properties={})], REPLY, "broker-a")


@simulated()
async def test_what_the_listener_returned_from_is_acknowledged(cluster: SimulatedCluster) -> None:
    broker = PopBroker(cluster)
    broker.shelf = [
        stored_message(queue_offset=5, physical_offset=1),
        stored_message(
            queue_offset=8,
            physical_offset=2,
            reconsume_times=1,
            properties={"POP_CK": "8 1 2 3 2 broker-a 4 8"},
        ),
    ]
    given: list[StoredMessage] = []

    async def listen(messages: list[StoredMessage]) -> None:
        assert broker.acks == []
        given.extend(messages)
        at_work.set()
        await asyncio.sleep(1)

    at_work = asyncio.Event()
    async with consumer(cluster, listen, consume_batch_size=2):
        await at_work.wait()  # closing waits for the listener, and then for the broker
    assert len(given) == 2
    assert [(ack.topic, ack.queue_id, ack.offset) for ack in broker.acks] == [
        ("orders", 0, 5),
        ("%RETRY%group+orders", 4, 8),  # one that comes again is in a topic of its own
    ]
    assert [ack.extra_info for ack in broker.acks] == [each.properties["POP_CK"] for each in given]
    asked = broker.pops[0]
    assert (asked.queue_id, asked.invisible_time, asked.init_mode) == (-1, 60_000, 1)


@simulated()
async def test_what_fails_is_made_visible_again_after_its_delay(cluster: SimulatedCluster) -> None:
    broker = PopBroker(cluster)
    broker.shelf = [stored_message(queue_offset=5), stored_message(queue_offset=6)]

    async def listen(messages: list[StoredMessage]) -> Retry:
        return Retry(start=1) if len(messages) > 1 else Retry(delay_level=1)

    async with consumer(cluster, listen, consume_batch_size=2):
        await asyncio.sleep(1)
        assert [ack.offset for ack in broker.acks] == [5]
        broker.shelf = [stored_message(queue_offset=7)]
        await asyncio.sleep(20)
    told = [(change.offset, change.invisible_time) for change in broker.changes]
    assert told == [(6, 10_000), (7, 1_000)]
    assert len(broker.acks) == 1


@simulated()
async def test_what_waited_here_for_too_long_is_others_by_now(cluster: SimulatedCluster) -> None:
    broker = PopBroker(cluster)
    broker.shelf = [stored_message(queue_offset=5), stored_message(queue_offset=6)]
    given: list[int] = []

    async def listen(messages: list[StoredMessage]) -> None:
        given.append(messages[0].queue_offset)
        await asyncio.sleep(30)

    async with consumer(cluster, listen, workers=1, invisible_time=20.0) as popping:
        await asyncio.sleep(50)
        assert given == [5]
        assert popping._cache.messages == 0  # and none of them is in the way of others


@simulated()
async def test_a_broker_without_pop_is_said_at_the_start(cluster: SimulatedCluster) -> None:
    def refuse(connection: Connection, request: RemotingCommand) -> Outcome:
        raise Refusal(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "request type 200055 not supported")

    PopBroker(cluster).handlers[RequestCode.POLLING_INFO] = refuse

    async def listen(messages: list[StoredMessage]) -> None: ...

    with pytest.raises(BrokerError, match="not supported"):
        await consumer(cluster, listen).start()
