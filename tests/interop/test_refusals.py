"""What a cluster will not do, and how a producer says so."""

import asyncio
import random

import pytest

from rocketpipe import AsyncProducer, Message, MessageQueue
from rocketpipe.codes import ResponseCode
from rocketpipe.errors import BrokerError, ConnectFailed, NoNameServer, SendFailed
from rocketpipe.wire.properties import encode_properties
from rocketpipe.wire.requests.admin import UpdateBrokerConfig
from tests.interop.clusters import TIMEOUT, Cluster, Reader, new_topic
from tests.interop.messages import producer_at


@pytest.mark.parametrize(
    ("topic", "words"),
    [
        ("no blanks", "contains illegal characters"),
        ("no.dots", "contains illegal characters"),
        ("x" * 128, "is longer than topic max length"),
        (" ", "The specified topic is blank"),
    ],
)
def test_an_illegal_topic_is_refused_by_brokers_too(
    cluster: Cluster, topic: str, words: str
) -> None:
    async def main() -> None:
        async with Reader(cluster.namesrv) as reader:
            with pytest.raises(BrokerError, match=words) as caught:
                await reader.send_unchecked(cluster.brokers[0].address, topic)
        is_old = cluster.version == "4.9.4"
        expected = ResponseCode.SYSTEM_ERROR if is_old else ResponseCode.INVALID_PARAMETER
        assert caught.value.code == expected

    asyncio.run(main())


def test_a_brokers_own_topic_is_refused_by_brokers_too(cluster: Cluster) -> None:
    async def main() -> None:
        async with Reader(cluster.namesrv) as reader:
            with pytest.raises(BrokerError, match=r"Sending message to topic.*forbidden") as caught:
                await reader.send_unchecked(cluster.brokers[0].address, "SELF_TEST_TOPIC")
        assert caught.value.code == ResponseCode.NO_PERMISSION

    asyncio.run(main())


def test_properties_that_are_too_long_are_refused(cluster: Cluster) -> None:
    async def main() -> None:
        topic = new_topic("long-properties")
        async with Reader(cluster.namesrv) as reader:
            await reader.create_topic(topic, cluster.brokers)
            for length, is_taken in ((32_000, True), (33_000, False)):
                properties = encode_properties({"p": "x" * length})
                if is_taken:
                    await reader.send_unchecked(
                        cluster.brokers[0].address, topic, properties=properties
                    )
                    continue
                with pytest.raises(BrokerError, match="properties length") as caught:
                    await reader.send_unchecked(
                        cluster.brokers[0].address, topic, properties=properties
                    )
                assert caught.value.code == ResponseCode.MESSAGE_ILLEGAL

    asyncio.run(main())


def test_a_message_too_large_for_the_broker_fails_at_once(cluster: Cluster) -> None:
    """Another broker would not take it either, so there is one attempt."""

    async def main() -> None:
        topic = new_topic("too-large")
        body = random.Random(1).randbytes(5 << 20)
        async with producer_at(cluster, message_bytes_max=6 << 20) as producer:
            with pytest.raises(SendFailed, match="the message is illegal") as caught:
                await producer.send(Message(topic, body))
            assert caught.value.code == ResponseCode.MESSAGE_ILLEGAL
            assert len(caught.value.attempts) == 1
            # Nobody thinks the worse of that broker.
            used = {(await producer.send(Message(topic, b"x"))).queue for _ in range(8)}
            assert len({queue.broker_name for queue in used}) == 2

    asyncio.run(main())


def test_a_queue_that_is_not_there_is_refused(cluster: Cluster) -> None:
    async def main() -> None:
        topic = new_topic("no-queue")
        async with producer_at(cluster) as producer, Reader(cluster.namesrv) as reader:
            await reader.create_topic(topic, cluster.brokers)
            with pytest.raises(SendFailed, match=r"queueId\[9\] is illegal") as caught:
                await producer.send(Message(topic, b"x"), queue=MessageQueue(topic, "broker-a", 9))
            attempts = caught.value.attempts
            assert {attempt.queue.queue_id for attempt in attempts} == {9}
            if cluster.version == "4.9.4":  # SYSTEM_ERROR, which may be about the broker
                assert caught.value.code == ResponseCode.SYSTEM_ERROR
                assert len(attempts) == 3
            else:
                assert caught.value.code == ResponseCode.INVALID_PARAMETER
                assert len(attempts) == 1

    asyncio.run(main())


def test_a_broker_that_forbids_sending_is_passed_over(cluster: Cluster) -> None:
    """It says so only for ordered topics; from the others' routes it just disappears."""

    async def permit(reader: Reader, permission: int) -> None:
        connection = await reader.at(cluster.broker("broker-a").address)
        body = f"brokerPermission={permission}".encode()
        await connection.request(UpdateBrokerConfig(), body, timeout=TIMEOUT)

    async def main() -> None:
        topic = new_topic("forbidden")
        async with producer_at(cluster) as producer, Reader(cluster.namesrv) as reader:
            queues = await reader.create_topic(topic, cluster.brokers, order=True)
            await producer.send(Message(topic, b"x"))  # the route is known from now on
            await permit(reader, 4)
            try:
                if cluster.version == "4.9.4":  # takes no order flag, and so forbids nothing
                    await producer.send(Message(topic, b"x"), queue=queues[0])
                    return
                for _ in range(8):
                    result = await producer.send(Message(topic, b"x"))
                    assert result.queue.broker_name == "broker-b"
                    first = result.attempts[0]
                    if len(result.attempts) == 2:
                        assert isinstance(first.error, BrokerError)
                        assert first.error.code == ResponseCode.NO_PERMISSION
                with pytest.raises(SendFailed, match="sending message is forbidden") as caught:
                    await producer.send(Message(topic, b"x"), queue=queues[0])
                assert caught.value.code == ResponseCode.NO_PERMISSION
                assert {attempt.queue for attempt in caught.value.attempts} == {queues[0]}
            finally:
                await permit(reader, 6)

    asyncio.run(main())


def test_a_nameserver_that_is_not_there_is_named(cluster: Cluster) -> None:
    async def main() -> None:
        nobody = "127.0.0.1:9"
        async with AsyncProducer("interop", namesrv=[nobody]) as producer:
            with pytest.raises(NoNameServer, match=nobody) as caught:
                await producer.send(Message("any-topic", b"x"))
            assert isinstance(caught.value.failures[0][1], ConnectFailed)
        # One of several that is there is enough.
        both = [nobody, cluster.namesrv]
        async with AsyncProducer("interop", namesrv=both, send_timeout=TIMEOUT) as producer:
            await producer.send(Message(new_topic("two-nameservers"), b"x"))

    asyncio.run(main())
