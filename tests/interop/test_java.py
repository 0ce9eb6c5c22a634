"""Apache's own programs read what we send, and we read what they send."""

import asyncio
import json
from base64 import b64decode
from dataclasses import replace
from pathlib import Path
from typing import Any

from rocketpipe import AsyncProducer, Message, MessageQueue, SendResult, by_hash
from rocketpipe.wire.sys_flag import COMPRESSION_LZ4, COMPRESSION_ZLIB, COMPRESSION_ZSTD
from tests.interop.clusters import Cluster, Reader, java, mqadmin, new_topic
from tests.interop.messages import EVERY_BYTE, FULL, assert_same, producer_at

Sent = dict[str, tuple[Message, SendResult]]  # by message id


async def send_all_kinds(cluster: Cluster, topic: str, sent: Sent) -> None:
    """In every way there is, with every kind of body and property."""
    large = EVERY_BYTE * 400

    async def send(producer: AsyncProducer, message: Message, **how: Any) -> SendResult:
        result = await producer.send(message, **how)
        sent[result.message_id] = message, result
        return result

    async with producer_at(cluster) as producer:
        full = replace(FULL, topic=topic)
        first = await send(producer, full)
        await send(producer, replace(full, flag=7), queue=first.queue)
        await send(producer, full, selector=by_hash, arg="key")
        await send(producer, Message(topic, b"\0"))
        await send(producer, Message(topic, b"no wait", wait_store_ok=False))
        await send(producer, replace(full, body=large))
        batch = [full, replace(full, body=b"second", tags=None), Message(topic, b"third")]
        results = await producer.send_many([*batch, replace(full, body=large)])
        for message, outcome in zip([*batch, replace(full, body=large)], results, strict=True):
            assert isinstance(outcome, SendResult)
            sent[outcome.message_id] = message, outcome
    for compression in ("lz4", "zstd"):
        async with producer_at(cluster, compression=compression) as producer:
            await send(producer, replace(full, body=large))


def test_javas_consumer_reads_what_was_sent(cluster: Cluster) -> None:
    topic = new_topic("for-java")
    sent: Sent = {}
    asyncio.run(send_all_kinds(cluster, topic, sent))

    output = java(cluster, "Consume.java", topic, str(len(sent)))
    received = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    assert {each["message_id"] for each in received} == sent.keys()
    assert len(received) == len(sent)
    for each in received:
        message, result = sent[each["message_id"]]
        assert each["topic"] == topic
        assert b64decode(each["body"]) == message.body
        assert each["tags"] == message.tags
        assert each["keys"] == (" ".join(message.keys) or None)
        assert each["flag"] == message.flag
        assert each["queue_id"] == result.queue.queue_id
        assert each["queue_offset"] == result.queue_offset
        assert each["offset_message_id"] == result.offset_message_id
        assert message.properties.items() <= each["properties"].items()
        assert each["properties"].get("__SHARDINGKEY") == message.sharding_key
        if cluster.version != "4.9.4":  # whose brokers keep it to themselves
            assert each["wait_store_ok"] == message.wait_store_ok


def test_javas_consumer_finds_our_namespace(cluster: Cluster) -> None:
    topic = new_topic("namespace-for-java")

    async def main() -> SendResult:
        async with producer_at(cluster, namespace="shop") as producer:
            return await producer.send(replace(FULL, topic=topic))

    result = asyncio.run(main())
    output = java(cluster, "Consume.java", topic, "1", "shop")
    (received,) = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    assert received["topic"] == topic
    assert received["message_id"] == result.message_id
    assert b64decode(received["body"]) == FULL.body


def test_mqadmin_finds_a_message_by_each_of_its_ids_and_its_key(cluster: Cluster) -> None:
    topic = new_topic("for-mqadmin")
    message = replace(FULL, topic=topic, keys=["k-1", f"key-of-{topic}"], tags="red")

    async def main() -> SendResult:
        async with producer_at(cluster) as producer, Reader(cluster.namesrv) as reader:
            result = await producer.send(message)
            await reader.query(result.queue, f"key-of-{topic}")  # now it is in the index
            return result

    result = asyncio.run(main())
    ids = ["-i", result.offset_message_id]
    if cluster.version != "4.9.4":  # which asks for no topic, and knows no option for it
        ids += ["-t", topic]
    by_id = mqadmin(cluster, "queryMsgById", *ids)
    by_unique_key = mqadmin(cluster, "queryMsgByUniqueKey", "-i", result.message_id, "-t", topic)
    for output in (by_id, by_unique_key):
        shown = {
            name.strip(): value.strip()
            for name, colon, value in (line.partition(":") for line in output.splitlines())
            if colon
        }
        assert shown["Topic"] == topic, output
        assert shown["Tags"] == "[red]"
        assert shown["Keys"] == f"[k-1 key-of-{topic}]"
        assert shown["Queue ID"] == str(result.queue.queue_id)
        assert shown["Queue Offset"] == str(result.queue_offset)
        assert shown["System Flag"] == "0"
        assert result.message_id in shown["Properties"]
        body_file = Path(shown["Message Body Path"])  # under /tmp, wherever tmpdir may be
        assert body_file.read_bytes() == message.body
        for name, value in message.properties.items():
            assert f"{name}={value}" in output
    body_file.unlink()
    by_key = mqadmin(cluster, "queryMsgByKey", "-t", topic, "-k", f"key-of-{topic}")
    rows = [line.split() for line in by_key.splitlines() if line and not line.startswith("#")]
    assert [row[:3] for row in rows] == [
        [result.message_id, str(result.queue.queue_id), str(result.queue_offset)]
    ]


def test_we_read_what_javas_producer_sends(cluster: Cluster) -> None:
    """Compressed in each way; and by hash of a key both choose the same queue."""
    topic = new_topic("from-java")
    keys = ["", "a", "order-17", "polygenelubricants", "键🔑"]  # one hashes to the least int

    async def main() -> None:
        async with Reader(cluster.namesrv) as reader, producer_at(cluster) as producer:
            await reader.create_topic(topic, cluster.brokers, queues=3)
            output = await asyncio.to_thread(java, cluster, "Produce.java", topic, *keys)
            lines = [line.split("\t") for line in output.splitlines() if line.startswith("sent")]
            bits = {"ZLIB": COMPRESSION_ZLIB, "LZ4": COMPRESSION_LZ4, "ZSTD": COMPRESSION_ZSTD}
            body = bytes(i // 7 % 256 for i in range(64 * 1024))
            by_key: list[MessageQueue] = []
            for _, kind, message_id, broker, queue_id, offset in lines:
                queue = MessageQueue(topic, broker, int(queue_id))
                stored = (await reader.pull(queue, int(offset)))[0]
                assert stored.message_id == message_id
                if kind == "hash":
                    by_key.append(queue)
                    continue
                assert stored.store_size < len(body) / 2
                sent = Message(topic, body, tags=kind, keys=["k1", "k2"], flag=-5)
                sent = replace(sent, properties={"名": "值 é"})
                assert_same(stored, sent, cluster)
                assert stored.sys_flag == bits[kind]
            assert len(lines) == len(bits) + len(keys)
            ours = [
                (await producer.send(Message(topic, b"x"), selector=by_hash, arg=key)).queue
                for key in keys
            ]
            assert ours == by_key

    asyncio.run(main())
