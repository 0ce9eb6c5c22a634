"""Consuming: filters, retries and dead letters, resets, broadcasts, ranges, what brokers ask."""

import asyncio
import math
from itertools import pairwise
from pathlib import Path

import pytest

from rocketpipe import AsyncPushConsumer, Message, Retry, Sql92, StoredMessage
from rocketpipe.errors import BrokerError, OffsetGap
from rocketpipe.wire.bodies.consumer_info import ConsumeResult
from rocketpipe.wire.record import decode_records
from rocketpipe.wire.requests.admin import InvokeBrokerToResetOffset
from rocketpipe.wire.requests.callbacks import ConsumeMessageDirectly
from tests.interop.clusters import TIMEOUT, Cluster, Reader, mqadmin, new_topic
from tests.interop.consuming import (
    Remembers,
    pull_at,
    push_at,
    running_info,
    send_to_all,
    until,
)
from tests.interop.messages import producer_at


def test_tags_are_filtered_by_the_broker_and_again_here(cluster: Cluster) -> None:
    async def main() -> None:
        group, topic = new_topic("tags"), new_topic("tags")
        ours = Remembers()
        async with Reader(cluster.namesrv) as reader, producer_at(cluster) as producer:
            await reader.create_topic(topic, cluster.brokers)
            subscriptions = {topic: "Aa || green"}
            async with push_at(cluster, group, ours, subscriptions=subscriptions):
                for number in range(10):
                    for tags in ("Aa", "BB", "green", "red", None):  # the first two: one hash
                        await producer.send(Message(topic, b"%d" % number, tags=tags))
                await until(lambda: len(ours.messages) >= 20, "all messages came")
            assert sorted(str(message.tags) for message in ours.messages) == (
                ["Aa"] * 10 + ["green"] * 10
            )

    asyncio.run(main())


def test_sql_filters(cluster: Cluster) -> None:
    async def main() -> None:
        group, topic = new_topic("sql"), new_topic("sql")
        ours = Remembers()
        expression = Sql92("price > 5 AND (region = 'north' OR TAGS = 'always')")
        async with Reader(cluster.namesrv) as reader, producer_at(cluster) as producer:
            await reader.create_topic(topic, cluster.brokers)
            consumer = push_at(cluster, group, ours, subscriptions={topic: expression})
            async with consumer:
                for price in range(10):
                    properties = {"price": str(price), "region": "north"}
                    await producer.send(Message(topic, b"n%d" % price, properties=properties))
                    properties["region"] = "south"
                    await producer.send(Message(topic, b"s%d" % price, properties=properties))
                await producer.send(
                    Message(topic, b"always", tags="always", properties={"price": "7"})
                )
                await until(lambda: len(ours.messages) >= 5, "all messages came")
            assert sorted(ours.bodies) == [b"always", b"n6", b"n7", b"n8", b"n9"]
            nonsense = push_at(cluster, f"{group}-2", ours, subscriptions={topic: Sql92("price >")})
            with pytest.raises(BrokerError):
                await nonsense.start()

    asyncio.run(main())


def test_a_filter_that_says_nothing_is_refused_to_who_pulls(cluster: Cluster) -> None:
    """A pull with it would bring all messages: Apache's brokers leave out what they can't read."""

    async def main() -> None:
        group, topic = new_topic("sql-pull"), new_topic("sql-pull")
        async with Reader(cluster.namesrv) as reader, pull_at(cluster, group) as consumer:
            queues = await reader.create_topic(topic, cluster.brokers, queues=1)
            await send_to_all(cluster, queues, 5)
            with pytest.raises(BrokerError):
                await consumer.assign(queues, Sql92("price >"))
            assert await consumer.assigned() == []
            with pytest.raises(BrokerError):
                async for _ in consumer.pull_range(queues[0], 0, 5, expression=Sql92("price >")):
                    pytest.fail("a message came")

    asyncio.run(main())


def test_a_new_group_begins_at_a_time(cluster: Cluster) -> None:
    async def main() -> None:
        topic, ours = new_topic("since"), Remembers()
        async with Reader(cluster.namesrv) as reader:
            (queue,) = await reader.create_topic(topic, cluster.brokers[:1], queues=1)
            for number in range(6):
                await send_to_all(cluster, [queue], 1, begin=number)
                await asyncio.sleep(0.02)  # so that each has a time of its own
            since_ms = (await reader.pull(queue, 3))[0].store_timestamp_ms
            # All that 4.x says of a group in a queue that has its first message still: it is there.
            offsets = [*range(0 if cluster.version == "4.9.4" else 3, 6)]
            async with pull_at(cluster, new_topic("since"), consume_from=since_ms) as pulls:
                await pulls.subscribe(topic)
                assert await pulls.offsets() == {queue: offsets[0]}
            async with push_at(
                *(cluster, new_topic("since"), ours),
                subscriptions={topic: "*"},
                consume_from=since_ms,
            ):
                await until(lambda: len(ours.messages) >= len(offsets), "those since then came")
            assert sorted(message.queue_offset for message in ours.messages) == offsets

    asyncio.run(main())


def test_what_fails_comes_again_and_then_is_a_dead_letter(cluster: Cluster) -> None:
    async def main() -> None:
        group, topic = new_topic("retry"), new_topic("retry")
        given: list[tuple[float, int, str, bytes]] = []
        loop = asyncio.get_running_loop()

        async def listen(messages: list[StoredMessage]) -> Retry | None:
            (message,) = messages
            given.append((loop.time(), message.reconsume_times, message.topic, message.body))
            return Retry(delay_level=1) if message.body == b"bad" else None

        async with Reader(cluster.namesrv) as reader, producer_at(cluster) as producer:
            await reader.create_topic(topic, cluster.brokers, queues=1)
            async with push_at(
                cluster, group, listen, subscriptions={topic: "*"}, max_reconsume_times=2
            ):
                sent = await producer.send(Message(topic, b"bad", keys=["k"]))
                await producer.send(Message(topic, b"good"))
                await until(lambda: len(given) >= 4, "it came three times")
                (dead,) = await reader.messages(f"%DLQ%{group}", 1)
            bad = [each for each in given if each[3] == b"bad"]
            assert [(times, of) for _, times, of, _ in bad] == [(n, topic) for n in range(3)]
            times = [at for at, *_ in bad]
            assert all(later - sooner >= 0.9 for sooner, later in pairwise(times))
            assert (dead.body, dead.message_id, dead.keys) == (b"bad", sent.message_id, ("k",))
            assert dead.properties["RETRY_TOPIC"] == topic

    asyncio.run(main())


def test_each_retry_comes_after_the_delay_of_the_next_level(cluster: Cluster) -> None:
    """From level 3 on; the brokers of these tests have 1, 2 and 3 s there."""

    async def main() -> None:
        group, topic = new_topic("ladder"), new_topic("ladder")
        given: list[tuple[float, StoredMessage]] = []
        loop = asyncio.get_running_loop()

        def listen(messages: list[StoredMessage]) -> None:  # a plain one, in a thread
            given.append((loop.time(), messages[0]))
            raise ZeroDivisionError("on purpose")

        async with Reader(cluster.namesrv) as reader, producer_at(cluster) as producer:
            await reader.create_topic(topic, cluster.brokers, queues=1)
            async with push_at(
                cluster, group, listen, subscriptions={topic: "*"}, max_reconsume_times=3
            ):
                await producer.send(Message(topic, b"x"))
                (dead,) = await reader.messages(f"%DLQ%{group}", 1)
        times, tries = zip(*given, strict=True)
        assert [message.reconsume_times for message in (*tries, dead)] == [0, 1, 2, 3, 4]
        assert [message.properties.get("DELAY") for message in tries] == [None, "3", "4", "5"]
        waits = [later - sooner for sooner, later in pairwise(times)]
        assert all(wait > level - 0.01 for wait, level in zip(waits, (1, 2, 3), strict=True)), waits
        assert {message.topic for message in tries} == {topic}

    asyncio.run(main())


def test_an_orderly_message_that_fails_too_often_is_a_dead_letter(cluster: Cluster) -> None:
    async def main() -> None:
        group, topic = new_topic("orderly-dead"), new_topic("orderly-dead")
        given: list[tuple[bytes, int]] = []

        async def listen(messages: list[StoredMessage]) -> None:
            (message,) = messages
            given.append((message.body, message.reconsume_times))
            if message.body == b"1":
                raise ZeroDivisionError("on purpose")

        async with Reader(cluster.namesrv) as reader, producer_at(cluster) as producer:
            (queue,) = await reader.create_topic(topic, cluster.brokers[:1], queues=1)
            async with push_at(
                cluster,
                group,
                listen,
                subscriptions={topic: "*"},
                orderly=True,
                max_reconsume_times=2,
                suspend_queue_time=0.1,
            ):
                for body in (b"0", b"1", b"2"):
                    await producer.send(Message(topic, body), queue=queue)
                await until(lambda: (b"2", 0) in given, "the queue goes on")
                (dead,) = await reader.messages(f"%DLQ%{group}", 1)
            assert given == [(b"0", 0), (b"1", 0), (b"1", 1), (b"1", 2), (b"2", 0)]
            assert dead.body == b"1"

    asyncio.run(main())


def test_offsets_may_be_reset_while_consumers_run(cluster: Cluster) -> None:
    async def main() -> None:
        group, topic = new_topic("reset"), new_topic("reset")
        ours = Remembers()
        async with Reader(cluster.namesrv) as reader:
            queues = await reader.create_topic(topic, cluster.brokers, queues=2)
            async with push_at(cluster, group, ours, subscriptions={topic: "*"}):
                sent = await send_to_all(cluster, queues, 10)
                everything = sorted(body for bodies in sent.values() for body in bodies)
                await until(lambda: len(ours.bodies) >= len(everything), "all messages came")
                assert sorted(ours.bodies) == everything
                oldest = min(message.store_timestamp_ms for message in ours.messages)
                await asyncio.sleep(6)  # until the offsets are stored: some are asked for by time
                ours.messages.clear()
                loop = asyncio.get_running_loop()
                asked_at = -math.inf

                async def is_back() -> bool:
                    # A 5.x broker tells it to the first pull and forgets it: if nobody reads that
                    # answer, who resets has to do so again.
                    nonlocal asked_at
                    if loop.time() > asked_at + 25:
                        asked_at = loop.time()
                        for broker in cluster.brokers:
                            connection = await reader.at(broker.address)
                            await connection.request(reset, timeout=TIMEOUT)
                    return set(ours.bodies) == set(everything)

                reset = InvokeBrokerToResetOffset(
                    topic=topic, group=group, timestamp=oldest - 60_000, is_force=True
                )
                await until(is_back, "all came again")

    asyncio.run(main())


def test_a_broadcast_goes_to_every_member(cluster: Cluster, tmp_path: Path) -> None:
    async def main() -> None:
        group, topic = new_topic("broadcast"), new_topic("broadcast")
        one, two = Remembers(), Remembers()
        async with Reader(cluster.namesrv) as reader:
            queues = await reader.create_topic(topic, cluster.brokers, queues=2)

            def member(name: str, listener: Remembers) -> AsyncPushConsumer:
                return push_at(
                    cluster,
                    group,
                    listener,
                    subscriptions={topic: "*"},
                    message_model="broadcasting",
                    offset_folder=str(tmp_path),
                    instance_name=name,
                )

            async with member("one", one), member("two", two):
                sent = await send_to_all(cluster, queues, 5)
                everything = sorted(body for bodies in sent.values() for body in bodies)
                for each in (one, two):
                    await until(lambda: len(each.bodies) >= 20, "all came")  # noqa: B023
            assert sorted(one.bodies) == sorted(two.bodies) == everything
            await send_to_all(cluster, queues, 1, begin=5)
            async with member("one", one):  # which knows how far it was
                await until(lambda: len(one.bodies) >= 24, "the rest came")
            assert len(set(one.bodies)) == len(one.bodies) == 24

    asyncio.run(main())


def test_brokers_and_mqadmin_learn_how_a_consumer_is_doing(cluster: Cluster) -> None:
    async def main() -> None:
        group, topic = new_topic("doing"), new_topic("doing")
        ours = Remembers()
        async with Reader(cluster.namesrv) as reader:
            queues = await reader.create_topic(topic, cluster.brokers, queues=1)
            await send_to_all(cluster, queues, 5)
            async with push_at(cluster, group, ours, subscriptions={topic: "*"}) as consumer:
                await until(lambda: len(ours.bodies) == 10, "all messages came")
                info = await running_info(reader, cluster, group, consumer.client_id)
                assert info is not None
                assert {queue: info.mq_table[queue].commit_offset for queue in queues} == (
                    dict.fromkeys(queues, 5)
                )
                message = ours.messages[0]
                broker = await reader.at(message.store_host)
                direct = ConsumeMessageDirectly(
                    consumer_group=group,
                    client_id=consumer.client_id,
                    msg_id=message.offset_message_id,
                    topic=topic,
                )
                result = await broker.request(direct, timeout=TIMEOUT)
                assert result.consume_result is ConsumeResult.CR_SUCCESS
                assert ours.bodies.count(message.body) == 2
                about = ("-g", group, "-i", consumer.client_id)
                told = await asyncio.to_thread(mqadmin, cluster, "consumerStatus", *about)
                assert topic in told, told
                assert "#Consumer MQ Detail#" in told, told
                known = await asyncio.to_thread(mqadmin, cluster, "consumerConnection", "-g", group)
                assert consumer.client_id in known
                assert "PYTHON" in known

    asyncio.run(main())


def test_a_pull_consumer_seeks_and_reads_ranges(cluster: Cluster) -> None:
    async def main() -> None:
        group, topic = new_topic("pull"), new_topic("pull")
        async with (
            Reader(cluster.namesrv) as reader,
            producer_at(cluster) as producer,
            pull_at(cluster, group) as consumer,
        ):
            (queue,) = await reader.create_topic(topic, cluster.brokers[:1], queues=1)
            bodies = [b"%d" % number for number in range(1000)]
            await producer.send_many([Message(topic, body) for body in bodies])

            async def is_stored() -> bool:
                return await reader.end(queue) == 1000

            await until(is_stored, "all messages are in their queue")
            found = [
                message
                async for answer in consumer.pull_range(queue, 100, 900)
                for message in decode_records(answer)
            ]
            assert [message.queue_offset for message in found] == list(range(100, 900))
            with pytest.raises(OffsetGap, match="ends at 1000"):
                _ = [answer async for answer in consumer.pull_range(queue, 990, 1010)]
            await consumer.assign([queue])
            await consumer.seek(queue, 995)
            assert len(await consumer.poll(timeout=TIMEOUT)) == 5
            await consumer.commit()
            assert await consumer.committed(queue) == 1000
            await consumer.seek_to_begin(queue)
            assert (await consumer.poll(timeout=TIMEOUT))[0].queue_offset == 0
            await consumer.seek_to_time(queue, found[0].store_timestamp_ms + 3_600_000)
            # After the last message, 4.9.4 says where that is.
            after = 999 if cluster.version == "4.9.4" else 1000
            assert await consumer.offsets() == {queue: after}
            await consumer.seek_to_time(queue, 0)
            assert await consumer.lag() == {queue: 1000}

    asyncio.run(main())
