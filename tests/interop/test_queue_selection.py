"""Which queues a topic has, and which of them a message goes to."""

import asyncio
from collections import Counter

import pytest

from rocketpipe import Message, MessageQueue, by_hash
from rocketpipe.errors import NoRoute
from rocketpipe.wire.requests.nameserver import UpdateNamesrvConfig
from tests.interop.clusters import TIMEOUT, Cluster, Reader, mqadmin, new_topic
from tests.interop.messages import producer_at


@pytest.mark.parametrize(("asked", "made"), [(4, 4), (2, 2), (16, 8)])
def test_an_unknown_topic_is_made_after_the_template(
    cluster: Cluster, asked: int, made: int
) -> None:
    """With as many queues as the producer asks for and the template, TBW102, has."""

    async def main() -> None:
        topic = new_topic("unknown")
        async with (
            producer_at(cluster, default_topic_queue_nums=asked) as producer,
            Reader(cluster.namesrv) as reader,
        ):
            results = [await producer.send(Message(topic, b"x")) for _ in range(2 * made)]
            used = {result.queue for result in results}
            assert used == {
                MessageQueue(topic, broker.name, queue_id)
                for broker in cluster.brokers
                for queue_id in range(made)
            }
            route = await reader.route(topic)
            assert {
                (data.broker_name, data.read_queue_nums, data.write_queue_nums, data.perm)
                for data in route.queue_datas
            } == {(broker.name, made, made, 6) for broker in cluster.brokers}

    asyncio.run(main())


def test_a_topic_of_mqadmin_has_the_queues_it_was_given(cluster: Cluster) -> None:
    topic = new_topic("made-by-mqadmin")
    broker = cluster.broker("broker-b")
    output = mqadmin(
        cluster, "updateTopic", "-b", broker.address, "-t", topic, "-r", "5", "-w", "3"
    )
    assert "success" in output, output

    async def main() -> None:
        async with producer_at(cluster) as producer, Reader(cluster.namesrv) as reader:
            await reader.route(topic)
            results = [await producer.send(Message(topic, b"x")) for _ in range(6)]
            used = Counter(result.queue for result in results)
            assert used == {MessageQueue(topic, "broker-b", queue_id): 2 for queue_id in range(3)}

    asyncio.run(main())


def test_the_same_key_goes_to_the_same_queue_in_order(cluster: Cluster) -> None:
    async def main() -> None:
        topic = new_topic("by-hash")
        async with producer_at(cluster) as producer, Reader(cluster.namesrv) as reader:
            queues = await reader.create_topic(topic, cluster.brokers)
            for key in ("a", "bc", 17, -3, "键"):
                sent = [
                    await producer.send(
                        Message(topic, b"%d" % n, tags=str(key)), selector=by_hash, arg=key
                    )
                    for n in range(3)
                ]
                (queue,) = {result.queue for result in sent}
                stored = [await reader.stored(result) for result in sent]
                assert [each.body for each in stored] == [b"0", b"1", b"2"]
                if isinstance(key, int):
                    assert queue == queues[abs(key) % len(queues)]
            keyed = Message(topic, b"x", sharding_key="bc")
            by_sharding_key = await producer.send(keyed, selector=by_hash)
            by_arg = await producer.send(keyed, selector=by_hash, arg="bc")
            assert by_sharding_key.queue == by_arg.queue

    asyncio.run(main())


def test_an_ordered_topic_has_the_queues_of_its_configuration(cluster: Cluster) -> None:
    """Also where brokers have more; a NameServer tells when `orderMessageEnable` is set."""
    topic = new_topic("ordered")
    output = mqadmin(
        cluster, "updateOrderConf", "-m", "put", "-t", topic, "-v", "broker-a:1;broker-b:2"
    )
    assert "success" in output, output

    async def set_order_messages(reader: Reader, enabled: bool) -> None:
        namesrv = await reader.at(cluster.namesrv)
        body = f"orderMessageEnable={str(enabled).lower()}".encode()
        await namesrv.request(UpdateNamesrvConfig(), body, timeout=TIMEOUT)

    async def main() -> None:
        async with Reader(cluster.namesrv) as reader:
            await reader.create_topic(topic, cluster.brokers, queues=4, order=True)
            await set_order_messages(reader, True)
            try:
                async with producer_at(cluster) as producer:
                    used = {(await producer.send(Message(topic, b"x"))).queue for _ in range(6)}
                    assert used == {
                        MessageQueue(topic, "broker-a", 0),
                        MessageQueue(topic, "broker-b", 0),
                        MessageQueue(topic, "broker-b", 1),
                    }
            finally:
                await set_order_messages(reader, False)
            async with producer_at(cluster) as producer:
                used = {(await producer.send(Message(topic, b"x"))).queue for _ in range(8)}
                assert len(used) == 8

    asyncio.run(main())


def test_a_template_that_is_not_there_makes_no_topic(cluster: Cluster) -> None:
    async def main() -> None:
        topic = new_topic("never-made")
        async with producer_at(cluster, create_topic_key="no-such-template") as producer:
            with pytest.raises(NoRoute) as caught:
                await producer.send(Message(topic, b"x"))
            for part in (topic, "no-such-template", cluster.namesrv):
                assert part in str(caught.value)

    asyncio.run(main())
