"""Delay levels, timers, and messages that are taken back before their time."""

import asyncio

import pytest

from rocketpipe import AsyncProducer, Message, SendResult, StoredMessage
from rocketpipe.clock import SystemClock
from rocketpipe.codes import ResponseCode
from rocketpipe.errors import BrokerError
from rocketpipe.testing.embedded_cluster import EmbeddedCluster
from rocketpipe.wire.message_id import RecallHandle
from tests.interop.clusters import TIMEOUT, Cluster, Reader, needs_timers, new_topic

wall_ms = SystemClock().wall_ms


async def delivered(reader: Reader, result: SendResult) -> StoredMessage:
    """The message in its own queue, which is where a timed one comes to be only later."""
    return (await reader.pull(result.queue, 0))[0]


def test_a_delay_level_delays(cluster: Cluster) -> None:
    async def main() -> None:
        async with (
            Reader(cluster.namesrv) as reader,
            AsyncProducer("timed", namesrv=cluster.namesrv, send_timeout=TIMEOUT) as producer,
        ):
            topic = new_topic("delayed")
            queues = await reader.create_topic(topic, cluster.brokers, queues=1)
            sent_ms = wall_ms()
            result = await producer.send(Message(topic, b"later", delay_level=2))  # 5 s
            assert [await reader.end(queue) for queue in queues] == [0, 0]
            message = await delivered(reader, result)
            assert (message.body, message.message_id) == (b"later", result.message_id)
            assert message.store_timestamp_ms - sent_ms >= 4_900
            assert result.recall_handle is None

    asyncio.run(main())


@pytest.mark.parametrize("kind", ["delay_seconds", "delay_ms", "deliver_at_ms"])
def test_a_timer_delays(cluster: Cluster, kind: str) -> None:
    needs_timers(cluster)

    async def main() -> None:
        async with (
            Reader(cluster.namesrv) as reader,
            AsyncProducer("timed", namesrv=cluster.namesrv, send_timeout=TIMEOUT) as producer,
        ):
            topic = new_topic("timer")
            queues = await reader.create_topic(topic, cluster.brokers, queues=1)
            sent_ms = wall_ms()
            when = {"delay_seconds": 8, "delay_ms": 8_000, "deliver_at_ms": sent_ms + 8_000}
            message = Message(topic, b"later", **{kind: when[kind]})  # type: ignore[arg-type]
            result = await producer.send(message)
            assert [await reader.end(queue) for queue in queues] == [0, 0]
            stored = await delivered(reader, result)
            assert (stored.body, stored.message_id) == (b"later", result.message_id)
            # A broker rounds down to a whole second, and one second more at times.
            assert stored.store_timestamp_ms - sent_ms >= 5_900
            assert result.recall_handle

    asyncio.run(main())


def test_a_timed_message_can_be_taken_back(cluster: Cluster) -> None:
    needs_timers(cluster)

    async def main() -> None:
        async with (
            Reader(cluster.namesrv) as reader,
            AsyncProducer("timed", namesrv=cluster.namesrv, send_timeout=TIMEOUT) as producer,
        ):
            topic = new_topic("recalled")
            (queue,) = await reader.create_topic(topic, cluster.brokers[:1], queues=1)
            unwanted = await producer.send(Message(topic, b"unwanted", delay_seconds=12))
            wanted = await producer.send(Message(topic, b"wanted", delay_seconds=13))
            assert unwanted.recall_handle is not None
            taken_back = await producer.recall(topic, unwanted.recall_handle)
            assert taken_back == unwanted.message_id
            (message,) = await reader.pull(queue, 0)
            assert (message.body, message.message_id) == (b"wanted", wanted.message_id)
            assert wanted.recall_handle is not None
            with pytest.raises(BrokerError) as late:
                await producer.recall(topic, wanted.recall_handle)
            assert late.value.code == ResponseCode.ILLEGAL_OPERATION
            assert late.value.remark == "recall failed, timestamp invalid"

    asyncio.run(main())


def test_a_broker_that_can_not_recall_says_so(cluster: Cluster) -> None:
    if cluster.version == "5.5.0" and not isinstance(cluster, EmbeddedCluster):
        pytest.skip("5.5.0 can recall, as the tests above show")

    async def main() -> None:
        async with (
            Reader(cluster.namesrv) as reader,
            AsyncProducer("timed", namesrv=cluster.namesrv, send_timeout=TIMEOUT) as producer,
        ):
            topic = new_topic("not-recalled")
            await reader.create_topic(topic, cluster.brokers, queues=1)
            handle = RecallHandle(topic, "broker-a", wall_ms() + 60_000, "7F" * 16).encode()
            with pytest.raises(BrokerError) as raised:
                await producer.recall(topic, handle)
            assert raised.value.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED

    asyncio.run(main())
