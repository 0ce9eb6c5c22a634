"""Hooks around attempts: what they see, what they may forbid, and what they can't break."""

import asyncio
import copy
import logging
from typing import Any

import pytest

from rocketpipe.client.hooks import SendContext, SendHook
from rocketpipe.client.producer import AsyncProducer
from rocketpipe.codes import ResponseCode
from rocketpipe.errors import (
    ClientError,
    InvalidSetting,
    MQError,
    NoRoute,
    RemotingError,
    SendFailed,
)
from rocketpipe.message import Message, MessageQueue, SendStatus
from tests.simulated_cluster import SimulatedCluster, ignore, refuse, simulated

MESSAGE = Message("orders", b"x" * 5000)


class Diary(SendHook):
    def __init__(self) -> None:
        self.before_: list[SendContext] = []
        self.after_: list[SendContext] = []
        self.closed = False

    def before(self, context: SendContext) -> None:
        self.before_.append(copy.copy(context))

    def after(self, context: SendContext) -> None:
        self.after_.append(copy.copy(context))

    async def close(self) -> None:
        self.closed = True


@simulated()
async def test_a_hook_sees_each_attempt_begin_and_end(cluster: SimulatedCluster) -> None:
    diary = Diary()
    async with cluster.producer(hooks=[diary]) as producer:
        result = await producer.send(MESSAGE)
        await producer.send_oneway(MESSAGE)
        await producer.send_batch([MESSAGE, MESSAGE])
    (first, oneway, batch) = diary.before_
    assert first.messages == [MESSAGE]
    assert (first.producer_group, first.message_id) == ("group", result.message_id)
    assert first.body_bytes < 100  # as sent
    assert (first.attempt_number, first.address) == (1, "broker-a:10911")
    assert (first.attempt, first.result) == (None, None)
    assert [each.is_oneway for each in diary.before_] == [False, True, False]
    assert not oneway.is_transaction
    assert len(batch.messages) == 2
    (first, oneway, batch) = diary.after_
    assert first.attempt == result.attempts[0]
    assert first.result is not None
    assert first.result.status is SendStatus.SEND_OK
    assert oneway.result is None
    assert oneway.attempt is not None
    assert oneway.attempt.error is None
    assert batch.result is not None
    assert diary.closed


@simulated(brokers=2)
async def test_a_hook_sees_the_attempts_that_fail_as_well(cluster: SimulatedCluster) -> None:
    for broker in cluster.brokers:
        broker.behaviour = refuse(ResponseCode.SYSTEM_ERROR)
    diary = Diary()
    async with cluster.producer(hooks=[diary]) as producer:
        with pytest.raises(SendFailed) as failed:
            await producer.send(MESSAGE)
        assert [each.attempt_number for each in diary.before_] == [1, 2, 3]
        assert tuple(each.attempt for each in diary.after_) == failed.value.attempts
        assert {each.result for each in diary.after_} == {None}


@simulated()
async def test_before_and_after_come_in_pairs_whatever_happens(cluster: SimulatedCluster) -> None:
    cluster.brokers[0].behaviour = ignore
    diary = Diary()
    async with cluster.producer(hooks=[diary]) as producer:
        with pytest.raises(SendFailed):  # nobody knows where it is
            await producer.send(MESSAGE, queue=MessageQueue("orders", "broker-z", 0))
        assert [each.address for each in diary.before_] == [None] * 3
        for each in diary.after_:
            assert each.attempt is not None
            assert isinstance(each.attempt.error, NoRoute)
        gives_up = asyncio.create_task(producer.send(MESSAGE))
        await asyncio.sleep(1)
        gives_up.cancel()
        await asyncio.wait([gives_up])
        assert len(diary.before_) == len(diary.after_) == 4
        attempt = diary.after_[-1].attempt
        assert attempt is not None
        assert isinstance(attempt.error, ClientError)
        assert str(attempt.error) == "the caller gave up"


@pytest.mark.parametrize(
    "error", [PermissionError("not you"), MQError("not you"), RemotingError("not you")]
)
def test_a_hook_may_forbid_a_send_with_an_error_of_its_own(error: Exception) -> None:
    class Forbid(SendHook):
        def check_forbidden(self, context: SendContext) -> None:
            if context.messages[0].tags == "secret":
                raise error

    @simulated()
    async def test(cluster: SimulatedCluster) -> None:
        diary = Diary()
        async with cluster.producer(hooks=[diary, Forbid()]) as producer:
            secret = Message("orders", b"body", tags="secret")
            for _ in range(2):
                with pytest.raises(type(error), match="not you"):
                    await producer.send(secret)
                with pytest.raises(type(error), match="not you"):
                    await producer.send_oneway(secret)
            await producer.send(MESSAGE)
        assert len(diary.before_) == len(diary.after_) == 1
        assert len(cluster.brokers[0].received) == 1

    test()


@simulated()
async def test_a_hook_that_fails_breaks_nothing(cluster: SimulatedCluster) -> None:
    class Clumsy(SendHook):
        def before(self, context: SendContext) -> None:
            raise ZeroDivisionError

        def after(self, context: SendContext) -> None:
            raise ZeroDivisionError

        async def close(self) -> None:
            raise ZeroDivisionError

    logging.getLogger("rocketpipe.client.hooks").disabled = True
    try:
        diary = Diary()
        async with cluster.producer(hooks=[Clumsy(), diary]) as producer:
            await producer.send(MESSAGE)
        assert len(diary.before_) == len(diary.after_) == 1
        assert diary.closed
    finally:
        logging.getLogger("rocketpipe.client.hooks").disabled = False


@simulated()
async def test_a_hook_that_does_nothing_needs_no_code(cluster: SimulatedCluster) -> None:
    async with cluster.producer(hooks=[SendHook()]) as producer:
        await producer.send(MESSAGE)


def test_what_is_no_hook_is_refused_before_anything_is_sent() -> None:
    hooks: Any = [SendHook(), print]
    with pytest.raises(InvalidSetting, match="they must be SendHooks"):
        AsyncProducer("group", namesrv="n:9876", hooks=hooks)
