"""A message arrives as it was sent, in whichever way it was sent."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from rocketpipe import AsyncProducer, Message, MessageQueue, SendResult, SendStatus
from rocketpipe.client.selectors import at_random, by_hash
from rocketpipe.clock import SystemClock
from rocketpipe.errors import InvalidMessage
from rocketpipe.wire.message_id import parse_unique_id
from rocketpipe.wire.sys_flag import COMPRESSION_LZ4, COMPRESSION_ZLIB, COMPRESSION_ZSTD
from tests.interop.clusters import Cluster, Reader, new_topic
from tests.interop.messages import EVERY_BYTE, FULL, assert_same, producer_at


def test_a_full_message_comes_back_as_it_was_sent(cluster: Cluster) -> None:
    async def main() -> None:
        message = replace(FULL, topic=new_topic("sending"))
        async with producer_at(cluster) as producer, Reader(cluster.namesrv) as reader:
            before = SystemClock().wall_ms()
            result = await producer.send(message)
            assert result.status is SendStatus.SEND_OK
            (attempt,) = result.attempts
            assert attempt.status is SendStatus.SEND_OK
            assert attempt.queue == result.queue
            assert attempt.address == cluster.broker(result.queue.broker_name).address
            assert result.region_id == "DefaultRegion"
            assert result.is_traced

            stored = await reader.stored(result)
            assert_same(stored, message, cluster)
            assert stored.message_id == result.message_id
            assert parse_unique_id(result.message_id).ip == "127.0.0.1"
            assert stored.offset_message_id == result.offset_message_id
            assert (stored.queue_id, stored.queue_offset) == (result.queue.queue_id, 0)
            assert stored.queue_offset == result.queue_offset
            assert before <= stored.born_timestamp_ms <= SystemClock().wall_ms()
            assert (stored.sys_flag, stored.reconsume_times) == (0, 0)

            # However one asks for it, it is the same.
            assert await reader.view(result.offset_message_id) == stored
            for key in message.keys:
                assert await reader.query(result.queue, key) == [stored]
            assert await reader.query(result.queue, result.message_id, is_unique_id=True) == [
                stored
            ]

    asyncio.run(main())


async def _alone(producer: AsyncProducer, message: Message, queue: MessageQueue) -> SendResult:
    return await producer.send(message)


async def _to_a_queue(producer: AsyncProducer, message: Message, queue: MessageQueue) -> SendResult:
    result = await producer.send(message, queue=queue)
    assert result.queue == queue
    return result


async def _by_hash(producer: AsyncProducer, message: Message, queue: MessageQueue) -> SendResult:
    return await producer.send(message, selector=by_hash, arg="some key")


async def _at_random(producer: AsyncProducer, message: Message, queue: MessageQueue) -> SendResult:
    return await producer.send(message, selector=at_random)


async def _by_own(producer: AsyncProducer, message: Message, queue: MessageQueue) -> SendResult:
    result = await producer.send(message, selector=lambda queues, _, arg: queues[arg], arg=-1)
    assert result.queue == queue  # they are in order, and this is the last of them
    return result


async def _in_a_batch(producer: AsyncProducer, message: Message, queue: MessageQueue) -> SendResult:
    return await producer.send_batch([message])


async def _among_many(producer: AsyncProducer, message: Message, queue: MessageQueue) -> SendResult:
    (result,) = await producer.send_many([message])
    assert isinstance(result, SendResult)
    return result


@pytest.mark.parametrize(
    "send", [_alone, _to_a_queue, _by_hash, _at_random, _by_own, _in_a_batch, _among_many]
)
def test_in_every_way_of_sending_the_message_is_the_same(
    cluster: Cluster,
    send: Callable[[AsyncProducer, Message, MessageQueue], Awaitable[SendResult]],
) -> None:
    async def main() -> None:
        message = replace(FULL, topic=new_topic("every-way"))
        async with producer_at(cluster) as producer, Reader(cluster.namesrv) as reader:
            queues = await reader.create_topic(message.topic, cluster.brokers)
            result = await send(producer, message, queues[-1])
            assert result.status is SendStatus.SEND_OK
            stored = await reader.stored(result)
            assert_same(stored, message, cluster)
            assert stored.message_id == result.message_id
            assert stored.offset_message_id == result.offset_message_id

    asyncio.run(main())


def test_one_way_messages_arrive_where_they_were_sent(cluster: Cluster) -> None:
    async def main() -> None:
        topic = new_topic("one-way")
        async with producer_at(cluster) as producer, Reader(cluster.namesrv) as reader:
            queues = await reader.create_topic(topic, cluster.brokers)
            await producer.send_oneway(replace(FULL, topic=topic, flag=1))
            await producer.send_oneway(replace(FULL, topic=topic, flag=2), queue=queues[3])
            await producer.send_oneway(
                replace(FULL, topic=topic, flag=3), selector=lambda queues, *_: queues[5]
            )
            stored = await reader.messages(topic, 3)
            by_flag = {message.flag: message for message in stored}
            assert sorted(by_flag) == [1, 2, 3]
            for flag, message in by_flag.items():
                assert_same(message, replace(FULL, topic=topic, flag=flag), cluster)
            for flag, queue in ((2, queues[3]), (3, queues[5])):
                at = cluster.broker(queue.broker_name).address
                assert (by_flag[flag].store_host, by_flag[flag].queue_id) == (at, queue.queue_id)

    asyncio.run(main())


def test_a_message_may_go_without_waiting_for_the_store(cluster: Cluster) -> None:
    async def main() -> None:
        message = Message(new_topic("no-wait"), b"x", wait_store_ok=False)
        async with producer_at(cluster) as producer, Reader(cluster.namesrv) as reader:
            result = await producer.send(message)
            assert_same(await reader.stored(result), message, cluster)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("compression", "bits"),
    [("zlib", COMPRESSION_ZLIB), ("lz4", COMPRESSION_LZ4), ("zstd", COMPRESSION_ZSTD)],
)
def test_large_bodies_are_stored_compressed_and_come_back_plain(
    cluster: Cluster, compression: str, bits: int
) -> None:
    async def main() -> None:
        body = EVERY_BYTE * 200
        message = replace(FULL, topic=new_topic(f"compressed-{compression}"), body=body)
        async with (
            producer_at(cluster, compression=compression) as producer,
            Reader(cluster.namesrv) as reader,
        ):
            result = await producer.send(message)
            stored = await reader.stored(result)
            assert_same(stored, message, cluster)
            assert stored.store_size < len(body) / 2
            assert stored.sys_flag == bits  # the reader has taken COMPRESSED away
            small = await reader.stored(await producer.send(replace(message, body=body[:4095])))
            assert small.sys_flag == 0

    asyncio.run(main())


def test_the_largest_body_is_taken_and_a_larger_one_is_never_sent(cluster: Cluster) -> None:
    async def main() -> None:
        topic = new_topic("largest")
        body = random.Random(1).randbytes(4 << 20)
        async with (
            producer_at(cluster, compress_body_bytes_min=8 << 20) as producer,
            Reader(cluster.namesrv) as reader,
        ):
            largest = Message(topic, body)
            with pytest.raises(InvalidMessage, match="4194305 bytes; 4194304 are allowed"):
                await producer.send(replace(largest, body=body + b"x"))
            with pytest.raises(InvalidMessage, match="the body is empty"):
                await producer.send(replace(largest, body=b""))
            result = await producer.send(largest)
            assert (await reader.view(result.offset_message_id)).body == body
            assert len(await reader.messages(topic, 1)) == 1

    asyncio.run(main())


def test_a_namespace_stands_before_topic_and_group(cluster: Cluster) -> None:
    async def main() -> None:
        message = replace(FULL, topic=new_topic("namespace"))
        async with (
            producer_at(cluster, namespace="shop") as producer,
            Reader(cluster.namesrv) as reader,
        ):
            result = await producer.send(message)
            assert result.queue.topic == message.topic  # the user's own name
            again = await producer.send(message, queue=result.queue)
            assert again.queue == result.queue
            stored = await reader.view(result.offset_message_id)
            assert stored.topic == f"shop%{message.topic}"
            assert stored.properties["INSTANCE_ID"] == "shop"
            assert len(await reader.messages(f"shop%{message.topic}", 2)) == 2

    asyncio.run(main())
