"""Request-reply, with repliers and askers of ours and of Apache's."""

import asyncio

import pytest

from rocketpipe import AsyncProducer, Message, StoredMessage, reply_message
from rocketpipe.codes import ResponseCode
from rocketpipe.errors import ReplyTimeout, SendFailed
from rocketpipe.message import MessageQueue
from tests.apache.programs import JavaProgram
from tests.apache.require import require
from tests.interop.clusters import JAVA, TIMEOUT, Cluster, Reader, java, new_topic
from tests.stored_message import stored_message

LARGE = b"a large body is compressed " * 1000


async def reply_to_all(reader: Reader, producer: AsyncProducer, queue: MessageQueue) -> None:
    """Answer each request in a queue with its own body, twice."""
    offset = await reader.end(queue)
    while True:
        if await reader.end(queue) == offset:
            await asyncio.sleep(0.02)
            continue
        for request in await reader.pull(queue, offset):
            offset += 1
            reply = reply_message(request, request.body * 2, tags="re", properties={"名": "值"})
            await producer.send(reply, timeout=TIMEOUT)


def producer(cluster: Cluster, name: str) -> AsyncProducer:
    return AsyncProducer(
        "request-reply", namesrv=cluster.namesrv, instance_name=name, send_timeout=TIMEOUT
    )


def test_a_request_gets_its_own_reply(cluster: Cluster) -> None:
    async def main() -> None:
        async with Reader(cluster.namesrv) as reader:
            topic = new_topic("requests")
            # The replies of a cluster go through all its brokers, requests here through one.
            (queue,) = await reader.create_topic(topic, cluster.brokers[:1], queues=1)
            async with (
                producer(cluster, "asks") as asking,
                producer(cluster, "replies") as replying,
            ):
                answering = asyncio.create_task(reply_to_all(reader, replying, queue))
                bodies = [LARGE, *(b"%d;" % number for number in range(20))]
                requests = (
                    asking.request(Message(topic, each), timeout=TIMEOUT) for each in bodies
                )
                replies: list[StoredMessage] = await asyncio.gather(*requests)
                answering.cancel()
                await asyncio.wait([answering])
            assert [reply.body for reply in replies] == [body * 2 for body in bodies]
            for reply in replies:
                assert reply.topic == "DefaultCluster_REPLY_TOPIC"
                assert reply.tags == "re"
                assert reply.properties["名"] == "值"
                assert reply.born_host.startswith("127.0.0.1:")

    asyncio.run(main())


def test_without_a_reply_there_is_an_error_that_says_so(cluster: Cluster) -> None:
    async def main() -> None:
        async with Reader(cluster.namesrv) as reader, producer(cluster, "asks") as asking:
            topic = new_topic("requests")
            (queue,) = await reader.create_topic(topic, cluster.brokers[:1], queues=1)
            with pytest.raises(ReplyTimeout) as raised:
                await asking.request(Message(topic, b"anybody?"), timeout=5)
            (request,) = await reader.pull(queue, 0)
            assert request.properties["CORRELATION_ID"] == raised.value.correlation_id
            # Nobody waits for it any more, but that is no concern of who replies.
            async with producer(cluster, "replies") as replying:
                await replying.send(reply_message(request, b"too late"), timeout=TIMEOUT)

    asyncio.run(main())


def test_a_reply_to_a_client_that_is_gone_is_refused(cluster: Cluster) -> None:
    async def main() -> None:
        cluster_name = {"CLUSTER": "DefaultCluster"}
        gone = {"CORRELATION_ID": "42", "REPLY_TO_CLIENT": "10.0.0.1@gone"}
        reply = reply_message(stored_message(properties=cluster_name | gone), b"too late")
        async with producer(cluster, "replies") as replying:
            with pytest.raises(SendFailed) as raised:
                await replying.send(reply, timeout=TIMEOUT)
        assert raised.value.code == ResponseCode.SYSTEM_ERROR
        assert "channel of <10.0.0.1@gone> not found" in str(raised.value)

    asyncio.run(main())


def test_java_replies_to_us(cluster: Cluster) -> None:
    async def main() -> None:
        topic = new_topic("requests")
        async with Reader(cluster.namesrv) as reader, producer(cluster, "asks") as asking:
            await reader.create_topic(topic, cluster.brokers, queues=1)
            require(cluster.version)
            program = JavaProgram(
                cluster.version, JAVA / "Reply.java", [topic], namesrv=cluster.namesrv
            )
            with program as replier:
                await asyncio.to_thread(replier.wait_for, "ready")
                for body in (b"hello", LARGE):
                    try:
                        reply = await asking.request(Message(topic, body), timeout=2 * TIMEOUT)
                    except ReplyTimeout as error:
                        error.add_note(replier.output)
                        raise
                    assert reply.body == body

    asyncio.run(main())


def test_we_reply_to_java(cluster: Cluster) -> None:
    async def main() -> None:
        topic = new_topic("requests")
        async with Reader(cluster.namesrv) as reader, producer(cluster, "replies") as replying:
            queues = await reader.create_topic(topic, cluster.brokers, queues=1)
            answering = [
                asyncio.create_task(reply_to_all(reader, replying, queue)) for queue in queues
            ]
            output = await asyncio.to_thread(java, cluster, "Ask.java", topic, "hello")
            for task in answering:
                task.cancel()
            await asyncio.wait(answering)
            assert "reply: hellohello" in output

    asyncio.run(main())
