"""Message trace, as Apache's own tool reads it."""

import asyncio

import pytest

from rocketpipe import (
    AsyncProducer,
    AsyncTransactionProducer,
    HalfMessage,
    Message,
    SendResult,
    StoredMessage,
    TransactionState,
)
from rocketpipe.wire.trace import EndTransaction, Pub, Recall, Trace, decode_traces
from tests.interop.clusters import TIMEOUT, Cluster, Reader, mqadmin, needs_timers, new_topic

pytestmark = pytest.mark.usefixtures("spinning_brokers_end")

TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"


async def traces(reader: Reader, message_id: str) -> list[Trace]:
    """All that the trace topic tells of this message, in order."""
    queues = await reader.queues(TRACE_TOPIC)
    stored = [
        message
        for queue in queues
        for message in await reader.read(queue, await reader.end(queue))
        if message_id in message.keys
    ]
    told = [each for message in stored for each in decode_traces(message.body.decode())]
    return [each for each in told if each.message_id == message_id]


def test_mqadmin_shows_what_was_traced(cluster: Cluster) -> None:
    topic = new_topic("traced")

    async def main() -> SendResult:
        async with Reader(cluster.namesrv) as reader:
            await reader.create_topic(topic, cluster.brokers, queues=1)
            async with AsyncProducer(
                "traces", namesrv=cluster.namesrv, trace=True, send_timeout=TIMEOUT
            ) as producer:
                message = Message(topic, b"hello", tags="paid", keys=["o-1", "é"])
                result = await producer.send(message)
            (trace,) = await traces(reader, result.message_id)
            assert isinstance(trace, Pub)
            assert (trace.group, trace.topic, trace.tags) == ("traces", topic, "paid")
            assert (trace.keys, trace.body_length, trace.message_type) == ("o-1 é", 5, 0)
            assert trace.store_host == cluster.broker(result.queue.broker_name).address
            assert trace.offset_message_id == result.offset_message_id
            assert (trace.is_success, trace.region_id) == (True, "DefaultRegion")
            assert [trace] == await traces(reader, result.message_id)
            # Nor is there a trace of the trace.
            ends = [await reader.end(queue) for queue in await reader.queues(TRACE_TOPIC)]
            await asyncio.sleep(1)
            assert ends == [await reader.end(queue) for queue in await reader.queues(TRACE_TOPIC)]
            return result

    result = asyncio.run(main())
    for _ in range(5):  # the index follows the log, and a busy machine may take its time
        output = mqadmin(cluster, "queryMsgTraceById", "-i", result.message_id)
        if "Pub" in output:
            break
    assert "Pub" in output
    assert "traces" in output
    assert "success" in output


class Listener:
    def execute(self, message: HalfMessage, arg: object) -> TransactionState:
        return TransactionState.COMMIT

    def check(self, message: StoredMessage) -> TransactionState:
        return TransactionState.COMMIT


def test_the_end_of_a_transaction_is_traced(cluster: Cluster) -> None:
    async def main() -> None:
        topic = new_topic("traced")
        async with Reader(cluster.namesrv) as reader:
            await reader.create_topic(topic, cluster.brokers, queues=1)
            async with AsyncTransactionProducer(
                "traces",
                Listener(),
                namesrv=cluster.namesrv,
                trace=True,
                send_timeout=TIMEOUT,
            ) as producer:
                result = await producer.send_in_transaction(Message(topic, b"hello", keys=["o-1"]))
            sent, ended = await traces(reader, result.send_result.message_id)
            assert isinstance(sent, Pub)
            assert sent.message_type == 1
            assert isinstance(ended, EndTransaction)
            assert (ended.state, ended.is_from_check) == ("COMMIT_MESSAGE", False)
            assert (ended.topic, ended.keys) == (topic, "o-1")
            assert ended.store_host == sent.store_host

    asyncio.run(main())


def test_a_recall_is_traced(cluster: Cluster) -> None:
    needs_timers(cluster)

    async def main() -> None:
        topic = new_topic("traced")
        async with Reader(cluster.namesrv) as reader:
            await reader.create_topic(topic, cluster.brokers, queues=1)
            async with AsyncProducer(
                "traces", namesrv=cluster.namesrv, trace=True, send_timeout=TIMEOUT
            ) as producer:
                result = await producer.send(Message(topic, b"hello", delay_seconds=60))
                assert result.recall_handle is not None
                await producer.recall(topic, result.recall_handle)
            sent, recalled = await traces(reader, result.message_id)
            assert isinstance(sent, Pub)
            assert sent.message_type == 3
            assert isinstance(recalled, Recall)
            assert (recalled.topic, recalled.is_success) == (topic, True)

    asyncio.run(main())
