"""Messages that travel together, as a batch of the user's or as `send_many` packs them."""

import asyncio
from collections import Counter
from dataclasses import replace

import pytest

from rocketpipe import Message, SendResult, StoredMessage
from rocketpipe.errors import InvalidMessage
from tests.interop.clusters import Cluster, Reader, new_topic
from tests.interop.messages import FULL, assert_same, producer_at


def test_a_batch_is_stored_in_one_queue_in_order(cluster: Cluster) -> None:
    async def main() -> None:
        topic = new_topic("batch")
        messages = [
            replace(FULL, topic=topic, flag=1),
            Message(topic, b"\0", tags="other", keys="one", properties={"名": "值"}),
            Message(topic, b"plain"),
        ]
        async with producer_at(cluster) as producer, Reader(cluster.namesrv) as reader:
            queues = await reader.create_topic(topic, cluster.brokers, queues=2)
            for queue in queues[3], None:
                result = await producer.send_batch(messages, queue=queue)
                assert queue in (result.queue, None)
                stored = (await reader.pull(result.queue, result.queue_offset))[:3]
                for each, sent in zip(stored, messages, strict=True):
                    assert_same(each, sent, cluster)
                first = result.queue_offset
                assert [each.queue_offset for each in stored] == [first, first + 1, first + 2]
                assert tuple(each.message_id for each in stored) == result.message_ids
                offset_ids = result.offset_message_id.split(",")
                assert [each.offset_message_id for each in stored] == offset_ids
                assert await reader.view(offset_ids[2]) == stored[2]
                assert stored[1] in await reader.query(result.queue, "one")

    asyncio.run(main())


def test_a_batch_that_is_too_large_is_not_sent(cluster: Cluster) -> None:
    async def main() -> None:
        topic = new_topic("large-batch")
        async with producer_at(cluster) as producer, Reader(cluster.namesrv) as reader:
            half = Message(topic, b"x" * (2 << 20))
            with pytest.raises(InvalidMessage, match="4194304 are allowed"):
                await producer.send_batch([half, half])
            # Up to the limit, the broker agrees; batches travel plain.
            most = replace(half, body=half.body[:-200])
            result = await producer.send_batch([most, most])
            for offset_id in result.offset_message_id.split(","):
                assert (await reader.view(offset_id)).body == most.body

    asyncio.run(main())


def test_each_of_many_messages_is_where_its_result_says(cluster: Cluster) -> None:
    async def main() -> None:
        topics = [new_topic("many"), new_topic("many")]
        messages = [
            Message(topics[n % 300 > 200], b"%d" % n, keys=f"k{n}", flag=n) for n in range(1000)
        ]
        messages[7] = replace(messages[7], body=b"")  # not well
        messages[8] = replace(messages[8], body=b"large " * 1000)  # goes compressed, and so alone
        async with (
            producer_at(cluster, batch_messages_max=32) as producer,
            Reader(cluster.namesrv) as reader,
        ):
            for topic in topics:
                await reader.create_topic(topic, cluster.brokers)
            outcomes = await producer.send_many(messages)
            assert len(outcomes) == 1000
            assert isinstance(outcomes[7], InvalidMessage)
            stored: dict[str, StoredMessage] = {}
            for topic, count in Counter(message.topic for message in messages).items():
                count -= topic == messages[7].topic
                found = await reader.messages(topic, count)
                assert len(found) == count
                stored |= {each.message_id: each for each in found}
            for sent, outcome in zip(messages, outcomes, strict=True):
                if sent is not messages[7]:
                    assert isinstance(outcome, SendResult)
                    each = stored[outcome.message_id]
                    assert_same(each, sent, cluster)
                    assert each.offset_message_id == outcome.offset_message_id
                    assert each.queue_id == outcome.queue.queue_id
                    assert each.queue_offset == outcome.queue_offset
            # In order, too, where they ended up in one queue.
            in_batches = [each for each in outcomes[32:64] if isinstance(each, SendResult)]
            assert len({each.queue for each in in_batches}) < 8

    asyncio.run(main())
