"""Message trace: what is told of sends, in which messages, and what happens when nobody listens."""

import asyncio
import logging
from dataclasses import replace
from typing import Any

import pytest

from rocketpipe import (
    AsyncTransactionProducer,
    Message,
    SendContext,
    SendHook,
    TransactionState,
)
from rocketpipe.client.hooks import RecallContext
from rocketpipe.client.trace_hook import TraceHook, trace_message
from rocketpipe.codes import RequestCode, ResponseCode
from rocketpipe.errors import BrokerError, InvalidMessage, RemotingError, SendFailed
from rocketpipe.testing.simulated_loop import WALL_START_MS, run
from rocketpipe.wire.message_id import RecallHandle
from rocketpipe.wire.sys_flag import COMPRESSED
from rocketpipe.wire.trace import EndTransaction, Pub, Recall, Trace, decode_traces
from tests.simulated_cluster import (
    FakeBroker,
    Received,
    SimulatedCluster,
    after,
    refuse,
    simulated,
    store_as,
)

TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
ORDER = Message("orders", b"order", tags="paid", keys=["o-1", "o-2"])


def trace_sends(cluster: SimulatedCluster, topic: str = TRACE_TOPIC) -> list[Received]:
    sends = [each for broker in cluster.brokers for each in broker.stored]
    return sorted((each for each in sends if each.header.topic == topic), key=lambda each: each.at)


def told(cluster: SimulatedCluster, topic: str = TRACE_TOPIC) -> list[Trace]:
    return [
        trace for send in trace_sends(cluster, topic) for trace in decode_traces(send.body.decode())
    ]


# What is told.


@simulated()
async def test_a_send_is_told_as_java_does(cluster: SimulatedCluster) -> None:
    cluster.brokers[0].behaviour = after(0.25)
    async with cluster.producer(trace=True) as producer:
        result = await producer.send(ORDER)
    (trace,) = told(cluster)
    assert trace == Pub(
        timestamp_ms=result.attempts[0].started_ms,
        region_id="DefaultRegion",
        group="group",
        topic="orders",
        message_id=result.message_id,
        tags="paid",
        keys="o-1 o-2",
        store_host="broker-a:10911",
        body_length=5,
        cost_ms=round(result.attempts[0].elapsed * 1000),
        message_type=0,
        offset_message_id=result.offset_message_id,
        is_success=True,
    )
    assert 250 <= trace.cost_ms < 270
    (send,) = trace_sends(cluster)
    assert send.properties["KEYS"].split(" ") == [result.message_id, "o-1", "o-2"]
    assert send.header.producer_group == "_INNER_TRACE_PRODUCER-group-PRODUCE"


@simulated()
async def test_there_is_no_trace_unless_asked_for(cluster: SimulatedCluster) -> None:
    async with cluster.producer() as producer:
        await producer.send(ORDER)
    assert told(cluster) == []


@simulated()
async def test_each_kind_of_send_has_its_type(cluster: SimulatedCluster) -> None:
    async with cluster.producer(trace=True) as producer:
        await producer.send(Message("orders", b"x"))
        await producer.send(Message("orders", b"x", delay_level=1))
        await producer.send(Message("orders", b"x", delay_seconds=1))
        batch = await producer.send_batch([ORDER, ORDER])
    traces = told(cluster)
    assert all(isinstance(trace, Pub) for trace in traces)
    assert [trace.message_type for trace in traces if isinstance(trace, Pub)] == [0, 3, 3, 0]
    assert traces[-1].message_id == batch.message_id  # one for all
    assert isinstance(traces[-1], Pub)
    assert (traces[-1].tags, traces[-1].keys) == (None, None)


@simulated()
async def test_only_attempts_that_were_answered_are_told(cluster: SimulatedCluster) -> None:
    (broker,) = cluster.brokers
    broker.script += [refuse(ResponseCode.SYSTEM_ERROR), store_as(ResponseCode.FLUSH_DISK_TIMEOUT)]
    async with cluster.producer(trace=True) as producer:
        await producer.send(ORDER)
        await producer.send_oneway(ORDER)
        await asyncio.sleep(0.1)
        broker.script.append(refuse(ResponseCode.MESSAGE_ILLEGAL))
        with pytest.raises(SendFailed):
            await producer.send(ORDER)
    (trace,) = told(cluster)
    assert isinstance(trace, Pub)
    assert not trace.is_success


@simulated()
async def test_a_broker_may_want_no_trace(cluster: SimulatedCluster) -> None:
    def store_untraced(broker: FakeBroker, request: Any, connection: Any) -> Any:
        answer = broker.store(request, ResponseCode.SUCCESS)
        answer.ext_fields["TRACE_ON"] = "false"
        return answer

    cluster.brokers[0].script.append(store_untraced)
    async with cluster.producer(trace=True) as producer:
        await producer.send(ORDER)
    assert told(cluster) == []


@simulated()
async def test_the_trace_topic_itself_is_not_traced(cluster: SimulatedCluster) -> None:
    async with cluster.producer(trace=True, trace_topic="traces") as producer:
        await producer.send(Message("traces", b"by hand"))
        await producer.send(ORDER)
    by_hand, trace = trace_sends(cluster, "traces")
    assert by_hand.body == b"by hand"
    assert b"orders" in trace.body


@simulated()
async def test_the_trace_topic_has_no_namespace(cluster: SimulatedCluster) -> None:
    async with cluster.producer(trace=True, trace_topic="traces", namespace="shop") as producer:
        await producer.send(ORDER)
    (trace,) = told(cluster, "traces")
    assert isinstance(trace, Pub)
    assert (trace.topic, trace.group) == ("orders", "group")


@simulated()
async def test_traces_keep_off_the_vip_port(cluster: SimulatedCluster) -> None:
    async with cluster.producer(trace=True, vip_channel=True) as producer:
        await producer.send(ORDER)
    assert [each.port for each in cluster.brokers[0].received] == [10909, 10911]


@simulated()
async def test_a_group_of_any_length_is_traced(cluster: SimulatedCluster) -> None:
    async with cluster.producer("g" * 255, trace=True) as producer:
        await producer.send(ORDER)
    assert len(told(cluster)) == 1


@simulated()
async def test_users_hooks_see_nothing_of_the_trace(cluster: SimulatedCluster) -> None:
    seen: list[str] = []

    class Hook(SendHook):
        def after(self, context: SendContext) -> None:
            seen.append(context.messages[0].topic)

    async with cluster.producer(trace=True, hooks=[Hook()]) as producer:
        await producer.send(ORDER)
    assert seen == ["orders"]
    assert len(told(cluster)) == 1


@simulated()
async def test_the_end_of_a_transaction_is_told(cluster: SimulatedCluster) -> None:
    class Listener:
        async def execute(self, message: Any, arg: Any) -> TransactionState:
            return TransactionState.ROLLBACK

        async def check(self, message: Any) -> TransactionState:
            raise AssertionError

    async with AsyncTransactionProducer(
        "group",
        Listener(),
        namesrv=cluster.namesrv,
        environment=cluster.environment,
        trace=True,
    ) as producer:
        result = await producer.send_in_transaction(ORDER)
        at_ms = cluster.clock.wall_ms()
    pub, end = told(cluster)
    assert isinstance(pub, Pub)
    assert pub.message_type == 1
    assert end == EndTransaction(
        timestamp_ms=at_ms,
        region_id="DefaultRegion",
        group="group",
        topic="orders",
        message_id=result.send_result.message_id,
        tags="paid",
        keys="o-1 o-2",
        store_host="broker-a:10911",
        message_type=2,
        transaction_id=result.send_result.message_id,
        state="ROLLBACK_MESSAGE",
        is_from_check=False,
    )


# How it is told: a hook by itself, with what it sends in our hands.


class Sends:
    def __init__(self, takes: float = 0.0, failure: Exception | None = None) -> None:
        self.takes = takes
        self.failure = failure
        self.sent: list[tuple[float, Message]] = []

    async def __call__(self, message: Message) -> None:
        await asyncio.sleep(self.takes)
        if self.failure is not None:
            raise self.failure
        self.sent.append((asyncio.get_running_loop().time(), message))

    @property
    def counts(self) -> list[int]:
        return [len(decode_traces(message.body.decode())) for _, message in self.sent]


def recall(number: int, error: BrokerError | None = None, topic: str = "orders") -> RecallContext:
    return RecallContext(
        producer_group="group",
        topic=topic,
        message_id=f"id-{number}",
        region_id="eu",
        error=error,
    )


def test_ten_are_told_together_and_fewer_after_five_seconds() -> None:
    async def main() -> None:
        sends = Sends()
        hook = TraceHook("traces", sends, lambda: WALL_START_MS)
        for number in range(25):
            hook.recalled(recall(number))
        await asyncio.sleep(0.1)
        assert sends.counts == [10, 10]
        await asyncio.sleep(4.8)
        assert sends.counts == [10, 10]
        await asyncio.sleep(0.2)
        assert sends.counts == [10, 10, 5]
        assert sends.sent[-1][0] == pytest.approx(5)
        hook.recalled(recall(25))
        await hook.close()
        assert sends.counts == [10, 10, 5, 1]
        ids = [each.message_id for _, m in sends.sent for each in decode_traces(m.body.decode())]
        assert ids == [f"id-{number}" for number in range(26)]
        assert hook.dropped == 0

    run(main())


def test_a_recall_is_told_with_its_success() -> None:
    async def main() -> None:
        sends = Sends()
        hook = TraceHook("traces", sends, lambda: WALL_START_MS)
        hook.recalled(recall(1))
        hook.recalled(recall(2, BrokerError(16, "no", "broker-a")))
        hook.recalled(recall(3, topic="traces"))
        await hook.close()
        ((_, message),) = sends.sent
        assert decode_traces(message.body.decode()) == [
            Recall(WALL_START_MS, "eu", "group", "orders", "id-1", True),
            Recall(WALL_START_MS, "eu", "group", "orders", "id-2", False),
        ]
        assert message.keys == ("id-1", "id-2")

    run(main())


def test_what_is_too_much_is_dropped_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        sends = Sends(takes=1)
        hook = TraceHook("traces", sends, lambda: 0)
        hook.recalled(recall(0))
        await asyncio.sleep(5.5)  # that one is on its way
        for number in range(3000):
            hook.recalled(recall(number))
        assert hook.dropped == 3000 - 2048
        began = asyncio.get_running_loop().time()
        await hook.close()
        assert asyncio.get_running_loop().time() - began == pytest.approx(5)
        told = sum(sends.counts)
        assert 30 < told < 70
        assert hook.dropped == 3001 - told

    run(main())
    assert "traces were lost" in caplog.text


@pytest.mark.parametrize(
    "failure", [RemotingError("no"), SendFailed("traces", "no", []), KeyError("a policy's own")]
)
def test_what_can_not_be_sent_is_counted_and_forgotten(failure: Exception) -> None:
    async def main() -> None:
        sends = Sends(failure=failure)
        hook = TraceHook("traces", sends, lambda: 0)
        for number in range(10):
            hook.recalled(recall(number))
        await asyncio.sleep(1)
        assert hook.dropped == 10
        sends.failure = None
        for number in range(10):
            hook.recalled(recall(number))
        await hook.close()
        assert sends.counts == [10]
        assert hook.dropped == 10

    run(main())


@simulated()
async def test_a_dead_trace_topic_never_fails_or_slows_a_send(cluster: SimulatedCluster) -> None:
    (broker,) = cluster.brokers

    def store_all_but_traces(broker: FakeBroker, request: Any, connection: Any) -> Any:
        if request.ext_fields["b"] != TRACE_TOPIC:
            return broker.store(request, ResponseCode.SUCCESS)
        return None

    broker.behaviour = store_all_but_traces
    async with cluster.producer(trace=True) as producer:
        for _ in range(50):
            result = await producer.send(ORDER)
            assert result.attempts[0].elapsed < 0.01
        await asyncio.sleep(6)  # that is how long one is waited for; then come the next
        assert len(broker.received) - len(broker.stored) > 1
        began = cluster.now
    assert cluster.now - began < 5.5
    assert len(broker.stored) == 50


# What a message of traces may hold.


def pub(message_id: str, keys: str | None = None) -> Pub:
    return Pub(0, None, "g", "t", message_id, None, keys, None, 0, 0, 0)


def test_too_many_for_one_message_are_told_in_several() -> None:
    async def main() -> None:
        sends = Sends()
        hook = TraceHook("traces", sends, lambda: 0)
        for name in ("a", "b", "c"):
            hook._append(pub(name * 50_000))
        await hook.close()
        assert sends.counts == [1, 1, 1]
        assert hook.dropped == 0

    run(main())


def test_one_that_can_not_be_written_spoils_no_others() -> None:
    async def main() -> None:
        sends = Sends()
        hook = TraceHook("traces", sends, lambda: 0)
        for name in ("a", "b\x01", "c"):
            hook._append(pub(name))
        await hook.close()
        assert sends.counts == [1, 1]
        assert hook.dropped == 1

    run(main())


def test_what_no_text_may_hold_is_told_as_a_question_mark_as_in_java() -> None:
    # A broker's JSON can give us such a region.
    message = trace_message("traces", [replace(pub("a"), region_id="eu\ud800")])
    assert decode_traces(message.body.decode()) == [replace(pub("a"), region_id="eu?")]


def test_a_message_of_traces_has_room_for_its_keys() -> None:
    with pytest.raises(InvalidMessage, match="too long"):
        trace_message("traces", [pub("a" * 9_000), pub("b" * 9_000)])
    assert trace_message("traces", [pub("a" * 7_000), pub("b" * 7_000)]).keys
    batch = trace_message("traces", [pub(",".join(["a" * 32] * 1000), "key")])
    assert batch.keys == ("key",)
    assert trace_message("traces", [pub("a", "é")]).body.decode().count("é") == 1
    with pytest.raises(InvalidMessage, match="too long"):
        trace_message("traces", [pub("a", "x y " * 20_000), pub("b", "x y " * 20_000)])


@simulated()
async def test_a_long_trace_is_compressed_like_any_message(cluster: SimulatedCluster) -> None:
    async with cluster.producer(trace=True) as producer:
        await producer.send_batch([ORDER] * 200)
    (send,) = trace_sends(cluster)
    assert send.header.sys_flag & COMPRESSED


def test_a_hook_that_is_closed_has_no_task(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        caplog.set_level(logging.WARNING)
        hook = TraceHook("traces", Sends(), lambda: 0)
        await hook.close()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run(main())
    assert caplog.text == ""


@simulated()
async def test_recalls_are_told_too(cluster: SimulatedCluster) -> None:
    cluster.add_topic("orders")
    handle = RecallHandle("orders", "broker-a", 1, "7F" * 16).encode()
    cluster.brokers[0].handlers[RequestCode.RECALL_MESSAGE] = lambda _, request: request.answer(
        0, ext_fields={"msgId": "7F" * 16}
    )
    async with cluster.producer(trace=True) as producer:
        await producer.recall("orders", handle)
    (trace,) = told(cluster)
    assert isinstance(trace, Recall)
    assert (trace.message_id, trace.is_success) == ("7F" * 16, True)
