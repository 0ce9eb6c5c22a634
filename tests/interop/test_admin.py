"""Looking after a cluster: the same on Apache's brokers of both generations and on ours."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from rocketpipe import (
    LATEST_MS,
    Admin,
    AsyncAdmin,
    AsyncProducer,
    AsyncPullConsumer,
    GroupConnections,
    Message,
    MessageQueue,
    Perm,
    SendResult,
)
from rocketpipe.errors import BrokerError, BrokersFailed, ClientError, NoRoute, NotFound
from rocketpipe.testing.embedded_cluster import EmbeddedCluster
from rocketpipe.wire.bodies.heartbeat import ConsumeType
from tests.apache.programs import mqadmin_session
from tests.apache.require import require
from tests.interop.clusters import TIMEOUT, Cluster, new_topic, until

IS_OLD = "4.9.4"
RESET_SECONDS_MAX = 90.0  # a broker may hold a pull for a while before it tells of a reset
READ_WRITE = Perm.READ | Perm.WRITE


@asynccontextmanager
async def clients(cluster: Cluster) -> AsyncIterator[tuple[AsyncAdmin, AsyncProducer]]:
    async with (
        AsyncAdmin(namesrv=cluster.namesrv, request_timeout=TIMEOUT) as admin,
        AsyncProducer("admin-sender", namesrv=cluster.namesrv, send_timeout=TIMEOUT) as producer,
    ):
        yield admin, producer


async def send(producer: AsyncProducer, queue: MessageQueue, count: int = 1) -> list[SendResult]:
    messages = [Message(queue.topic, b"%d" % n, keys=["a-key"], tags="A") for n in range(count)]
    return [await producer.send(message, queue=queue) for message in messages]


async def wait_stored(admin: AsyncAdmin, results: list[SendResult]) -> None:
    """Queues and index follow the log."""

    async def is_there() -> bool | None:
        for result in results:
            if await admin.max_offset(result.queue) <= result.queue_offset:
                return None
            try:
                await admin.message(result.message_id, topic=result.queue.topic)
            except NotFound:
                return None
        return True

    await until(is_there)


def mqadmin(cluster: Cluster, *commands: str) -> list[str]:
    require(cluster.version)
    return mqadmin_session(cluster.version, cluster.namesrv, *commands, timeout=300)


def rows(output: str, name: str) -> list[list[str]]:
    """The lines of a table that begin with this."""
    return [line.split() for line in output.splitlines() if line.startswith(name)]


def test_a_topic_is_made_changed_and_deleted(cluster: Cluster) -> None:
    async def main() -> None:
        topic = new_topic("admin-topic")
        async with clients(cluster) as (admin, _):
            await admin.create_topic(topic, queues=2, brokers=["broker-b"])
            assert topic in await admin.topics()
            assert topic in await admin.topics(cluster="DefaultCluster")
            assert await admin.publish_queues(topic) == await admin.subscribe_queues(topic)
            assert await admin.publish_queues(topic) == tuple(
                MessageQueue(topic, "broker-b", queue_id) for queue_id in range(2)
            )
            with pytest.raises(ClientError, match="already"):
                await admin.create_topic(topic, brokers=["broker-b"])
            await admin.create_topic(topic, queues=3, cluster="DefaultCluster", exist_ok=True)
            configs = await admin.topic_config(topic)
            assert {name: each.read_queue_nums for name, each in configs.items()} == {
                "broker-a": 3,
                "broker-b": 2,
            }

            await admin.alter_topic(topic, read_queues=4, write_queues=1, perm=Perm.READ)
            assert await admin.publish_queues(topic) == ()
            assert len(await admin.subscribe_queues(topic)) == 8
            await admin.alter_topic(topic, perm=READ_WRITE, brokers=["broker-a"])
            assert await admin.publish_queues(topic) == (MessageQueue(topic, "broker-a", 0),)

            await admin.delete_topic(topic)
            assert topic not in await admin.topics()
            for work in (admin.delete_topic(topic), admin.alter_topic(topic, perm=READ_WRITE)):
                with pytest.raises(NoRoute):
                    await work
            await admin.delete_topic(topic, missing_ok=True)

    asyncio.run(main())


def test_an_ordered_topic_is_known_to_nameservers_as_such(cluster: Cluster) -> None:
    async def main() -> None:
        topic = new_topic("admin-ordered")
        async with clients(cluster) as (admin, _):
            await admin.create_topic(topic, queues=2, order=True)
            conf = await admin.kv("ORDER_TOPIC_CONFIG", topic)
            assert conf == "broker-a:2;broker-b:2"
            if cluster.version != IS_OLD:  # which learns it from the NameServer, some time
                assert all(each.order for each in (await admin.topic_config(topic)).values())
            await admin.alter_topic(topic, write_queues=1, brokers=["broker-a"])
            assert await admin.kv("ORDER_TOPIC_CONFIG", topic) == "broker-a:1;broker-b:2"
            with pytest.raises(ClientError, match="on all brokers"):
                await admin.alter_topic(topic, order=False, brokers=["broker-a"])
            await admin.alter_topic(topic, order=False)
            assert await admin.kv("ORDER_TOPIC_CONFIG", topic) is None
            assert not any(each.order for each in (await admin.topic_config(topic)).values())
            await admin.alter_topic(topic, order=True)
            await admin.delete_topic(topic)
            assert await admin.kv("ORDER_TOPIC_CONFIG", topic) is None

    asyncio.run(main())


def test_a_topic_has_a_message_type_from_5_0_on(cluster: Cluster) -> None:
    async def main() -> None:
        topic = new_topic("admin-typed")
        async with clients(cluster) as (admin, _):
            if cluster.version == IS_OLD:
                with pytest.raises(BrokersFailed, match="no attributes there"):
                    await admin.create_topic(topic, message_type="FIFO")
                assert topic not in await admin.topics()
                return
            await admin.create_topic(topic, message_type="FIFO")
            configs = await admin.topic_config(topic)
            assert configs["broker-a"].attributes == {"message.type": "FIFO"}
            await admin.alter_topic(topic, message_type="DELAY")
            await admin.alter_topic(topic, attributes={"message.type": None})
            assert (await admin.topic_config(topic))["broker-b"].attributes == {}
            with pytest.raises(BrokersFailed, match="SYSTEM_ERROR"):
                await admin.alter_topic(topic, message_type="NONSENSE")

    asyncio.run(main())


def test_messages_are_found_in_every_way(cluster: Cluster) -> None:
    async def main() -> None:
        topic = new_topic("admin-messages")
        async with clients(cluster) as (admin, producer):
            await admin.create_topic(topic, queues=1)
            results = [
                result
                for queue in await admin.publish_queues(topic)
                for result in await send(producer, queue, 3)
            ]
            await wait_stored(admin, results)
            for number, result in enumerate(results):
                body = b"%d" % (number % 3)
                found = [
                    await admin.message(result.message_id, topic=topic),
                    await admin.message(result.offset_message_id),
                    await admin.message_at(result.queue, result.queue_offset),
                ]
                assert {each.body for each in found} == {body}
                assert {each.message_id for each in found} == {result.message_id}
                assert {each.queue for each in found} == {result.queue}
            by_key = await admin.query(topic, "a-key")
            # Oldest first; two brokers may store messages in the same millisecond.
            times = [each.store_timestamp_ms for each in by_key]
            assert times == sorted(times)
            for queue in {result.queue for result in results}:
                ids = [each.message_id for each in by_key if each.queue == queue]
                assert ids == [each.message_id for each in results if each.queue == queue]
            assert len(by_key) == len(results)
            assert await admin.query(topic, "a-key", limit=2) == by_key[-2:]
            assert await admin.query(topic, "no-key") == []

            queue = results[0].queue
            for work in (
                admin.message(results[0].message_id),
                admin.message("0" * 32, topic=topic),
                admin.message_at(queue, 3),
                admin.message_at(queue, 99),
            ):
                with pytest.raises(NotFound):
                    await work

    asyncio.run(main())


def test_messages_are_found_by_the_time_they_were_stored(cluster: Cluster) -> None:
    """To the millisecond, though brokers note times in their index to a second."""

    async def main() -> None:
        topic = new_topic("admin-times")
        async with clients(cluster) as (admin, producer):
            await admin.create_topic(topic, queues=1, brokers=["broker-a"])
            (queue,) = await admin.publish_queues(topic)
            results = []
            for _ in range(4):
                results += await send(producer, queue)
                await asyncio.sleep(0.02)  # so that each has a time of its own
            await wait_stored(admin, results)
            times = [each.store_timestamp_ms for each in await admin.query(topic, "a-key")]
            assert len(times) == 4
            for first, last in ((0, 1), (1, 2), (2, 3), (1, 1)):
                found = await admin.query(
                    topic, "a-key", begin_ms=times[first], end_ms=times[last], limit=2
                )
                assert [each.store_timestamp_ms for each in found] == times[first : last + 1]
            until_then = await admin.query(topic, "a-key", end_ms=times[2] - 1)
            assert [each.store_timestamp_ms for each in until_then] == times[:2]
            since_then = await admin.query(topic, "a-key", begin_ms=times[2] + 1)
            assert [each.store_timestamp_ms for each in since_then] == times[3:]
            assert await admin.query(topic, "a-key", begin_ms=times[3] + 1) == []
            assert await admin.query(topic, "a-key", end_ms=times[0] - 1) == []

    asyncio.run(main())


def test_offsets_are_told_by_place_and_time(cluster: Cluster) -> None:
    async def main() -> None:
        topic = new_topic("admin-offsets")
        async with clients(cluster) as (admin, producer):
            await admin.create_topic(topic, queues=1, brokers=["broker-a"])
            (queue,) = await admin.publish_queues(topic)
            assert (await admin.min_offset(queue), await admin.max_offset(queue)) == (0, 0)
            assert await admin.earliest_store_time(queue) is None
            results = []
            for _ in range(3):
                results += await send(producer, queue)
                await asyncio.sleep(0.02)  # so that each has a time of its own
            await wait_stored(admin, results)
            times = [(await admin.message_at(queue, n)).store_timestamp_ms for n in range(3)]
            assert await admin.max_offset(queue) == 3
            assert await admin.earliest_store_time(queue) == times[0]
            assert await admin.search_offset(queue, times[1]) == 1
            assert await admin.search_offset(queue, 0) == 0
            if cluster.version == IS_OLD:
                with pytest.raises(ClientError, match="upper boundary"):
                    await admin.search_offset(queue, times[1], boundary="upper")
            else:
                assert await admin.search_offset(queue, times[1] + 1) == 2
                assert await admin.search_offset(queue, times[2] + 1) == 3
                assert await admin.search_offset(queue, times[1], boundary="upper") == 1
                assert await admin.search_offset(queue, times[2] - 1, boundary="upper") == 1
                assert await admin.search_offset(queue, times[2] + 9, boundary="upper") == 2
            stats = await admin.topic_stats(topic)
            assert stats.message_count == 3
            assert stats.queues[queue] == (0, 3, times[2])

    asyncio.run(main())


def test_a_group_is_made_followed_reset_and_deleted(cluster: Cluster) -> None:
    async def main() -> None:
        topic, group = new_topic("admin-read"), new_topic("admin-readers")
        async with clients(cluster) as (admin, producer):
            await admin.create_topic(topic, queues=1)
            first, second = await admin.publish_queues(topic)
            await wait_stored(
                admin, [*await send(producer, first, 3), *await send(producer, second, 2)]
            )
            await admin.create_group(group, retry_max_times=5)
            assert group in await admin.groups()
            configs = await admin.group_config(group)
            assert {each.retry_max_times for each in configs.values()} == {5}
            assert (await admin.connections(group)).members == ()

            assert await admin.reset_offsets(group, topic, 0) == {first: 0, second: 0}
            progress = await admin.progress(group)
            assert progress.lag == 5
            assert await admin.reset_offsets(group, topic, LATEST_MS) == {first: 3, second: 2}
            await admin.reset_offset(group, first, 1)
            progress = await admin.progress(group, topic=topic)
            assert {queue: each.lag for queue, each in progress.queues.items()} == {
                first: 2,
                second: 0,
            }
            assert await admin.consumer_offset(group, first) == 1
            assert await admin.topic_groups(topic) == (group,)
            with pytest.raises(ClientError, match="its offsets are 0 to 3"):
                await admin.reset_offset(group, first, 4)

            await admin.delete_group(group, keep_offsets=True)
            if cluster.version == IS_OLD or isinstance(cluster, EmbeddedCluster):
                assert group not in await admin.groups()
            else:  # it asks of what kind the group was, which makes it anew (LiteMetadataUtil)
                configs = await admin.group_config(group)
                assert {each.retry_max_times for each in configs.values()} == {16}
            assert await admin.topic_groups(topic) == (group,)
            assert await admin.consumer_offset(group, first) == 1
            await admin.create_group(group)

            await admin.delete_group(group)
            assert group not in await admin.groups()
            assert await admin.topic_groups(topic) == ()
            with pytest.raises(NotFound):
                await admin.group_config(group)

    asyncio.run(main())


def test_consumers_are_seen_and_sent_back_while_they_run(cluster: Cluster) -> None:
    async def main() -> None:
        topic, group = new_topic("admin-online"), new_topic("admin-online-readers")
        async with clients(cluster) as (admin, producer):
            await admin.create_topic(topic, queues=1, brokers=["broker-a"])
            (queue,) = await admin.publish_queues(topic)
            await wait_stored(admin, await send(producer, queue, 3))
            async with AsyncPullConsumer(
                group, namesrv=cluster.namesrv, consume_from="first", request_timeout=TIMEOUT
            ) as consumer:
                await consumer.subscribe(topic, "A || B")

                async def read() -> set[bytes]:
                    """All three, which may come in several parts."""
                    bodies: set[bytes] = set()
                    async with asyncio.timeout(RESET_SECONDS_MAX):
                        while len(bodies) < 3:
                            bodies |= {each.body for each in await consumer.poll()}
                    return bodies

                async def seen() -> GroupConnections | None:
                    online = await admin.connections(group)
                    return online if online.members else None

                assert await read() == {b"0", b"1", b"2"}
                online = await until(seen)
                assert [each.client_id for each in online.members] == [consumer.client_id]
                assert online.members[0].language == "PYTHON"
                assert online.subscriptions[topic] == "A || B"
                assert online.consume_type is ConsumeType.CONSUME_ACTIVELY

                await consumer.commit()
                assert await admin.reset_offsets(group, topic, 0) == {queue: 0}
                assert await read() == {b"0", b"1", b"2"}
                if cluster.version == IS_OLD:
                    with pytest.raises(ClientError, match="resets by time only"):
                        await admin.reset_offset(group, queue, 0)

    asyncio.run(main())


def test_producers_are_seen(cluster: Cluster) -> None:
    async def main() -> None:
        async with clients(cluster) as (admin, producer):
            await producer.send(Message(new_topic("admin-seen"), b"x"))

            async def seen() -> bool | None:
                members = await admin.producer_connections("admin-sender")
                return producer.client_id in {each.client_id for each in members} or None

            await until(seen)
            assert await admin.producer_connections("nobody-at-all") == ()

    asyncio.run(main())


def test_brokers_tell_of_themselves_and_change_their_settings(cluster: Cluster) -> None:
    async def main() -> None:
        async with clients(cluster) as (admin, _):
            brokers = await admin.brokers()
            assert [each.name for each in brokers] == ["broker-a", "broker-b"]
            assert await admin.brokers(cluster="DefaultCluster") == brokers
            assert brokers[0].master == cluster.broker("broker-a").address
            for broker in ("broker-a", str(brokers[0].master)):
                runtime = await admin.broker_runtime(broker)
                assert runtime.version == cluster.version
                assert 0 <= runtime.disk_used_ratio <= 1
                assert (await admin.broker_config(broker))["brokerName"] == "broker-a"
            name = "rejectTransactionMessage"
            before = (await admin.broker_config("broker-a"))[name]
            assert before == "false"
            try:
                await admin.change_broker_config("broker-a", {name: "true"})
                assert (await admin.broker_config("broker-a"))[name] == "true"
                assert (await admin.broker_config("broker-b"))[name] == "false"
            finally:
                await admin.change_broker_config("broker-a", {name: before})
            if isinstance(cluster, EmbeddedCluster):
                with pytest.raises(BrokerError, match="change the settings of broker 'broker-a'"):
                    await admin.change_broker_config("broker-a", {"brokerName": "x"})

    asyncio.run(main())


def test_write_permission_is_wiped_and_restored(cluster: Cluster) -> None:
    async def main() -> None:
        topic = new_topic("admin-wiped")
        async with clients(cluster) as (admin, _):
            await admin.create_topic(topic, queues=1)
            try:
                assert await admin.wipe_write_permission("broker-a") > 0
                queues = await admin.publish_queues(topic)
                assert {queue.broker_name for queue in queues} == {"broker-b"}
                assert len(await admin.subscribe_queues(topic)) == 2
            finally:
                assert await admin.restore_write_permission("broker-a") > 0
            assert len(await admin.publish_queues(topic)) == 2

    asyncio.run(main())


def test_nameservers_keep_values(cluster: Cluster) -> None:
    async def main() -> None:
        async with clients(cluster) as (admin, _):
            namespace = new_topic("admin-values")
            assert await admin.kv_list(namespace) == {}
            await admin.put_kv(namespace, "b", "two")
            await admin.put_kv(namespace, "a", "one")
            assert await admin.kv(namespace, "a") == "one"
            assert await admin.kv_list(namespace) == {"a": "one", "b": "two"}
            await admin.delete_kv(namespace, "a")
            assert await admin.kv(namespace, "a") is None
            await admin.delete_kv(namespace, "b")

    asyncio.run(main())


def test_blocking_code_has_it_too(cluster: Cluster) -> None:
    topic = new_topic("admin-blocking")
    with Admin(namesrv=cluster.namesrv, request_timeout=TIMEOUT) as admin:
        admin.create_topic(topic, queues=2)
        assert admin.topic_stats(topic).message_count == 0
        assert {"DefaultCluster", "broker-a", "BenchmarkTest"} <= admin.system_topics()
        admin.delete_topic(topic)


def test_apaches_mqadmin_says_the_same(cluster: Cluster) -> None:
    topic, group = new_topic("admin-same"), new_topic("admin-same-readers")

    async def prepare() -> None:
        async with clients(cluster) as (admin, producer):
            await admin.create_topic(topic, queues=1)
            await admin.create_group(group)
            # Made by the group's first consumer otherwise; mqadmin finds a group by it.
            await admin.create_topic(f"%RETRY%{group}", queues=1)
            for queue in await admin.publish_queues(topic):
                await wait_stored(admin, await send(producer, queue, 3))
            await admin.reset_offsets(group, topic, 0)
            for queue in await admin.publish_queues(topic):
                await admin.reset_offset(group, queue, 1)

    async def compare(status: str, progress: str, clusters: str, config: str) -> None:
        async with clients(cluster) as (admin, _):
            stats = await admin.topic_stats(topic)
            assert {
                (row[0], int(row[1])): (int(row[2]), int(row[3])) for row in rows(status, "broker-")
            } == {
                (queue.broker_name, queue.queue_id): each[:2]
                for queue, each in stats.queues.items()
            }
            ours = await admin.progress(group)
            assert {
                (row[1], int(row[2])): (int(row[3]), int(row[4])) for row in rows(progress, topic)
            } == {
                (queue.broker_name, queue.queue_id): each[:2]
                for queue, each in ours.queues.items()
                if queue.topic == topic
            }
            assert re.search(rf"Diff Total: {ours.lag}\b", progress)
            assert {(row[1], row[3]) for row in rows(clusters, "DefaultCluster")} == {
                (broker.name, broker.master) for broker in await admin.brokers()
            }
            settings = await admin.broker_config("broker-a")
            for name in ("brokerName", "autoCreateTopicEnable", "fileReservedTime"):
                told = re.findall(rf"^{name}\s+=\s+(.*?)\s*$", config, re.MULTILINE)
                assert told == [settings[name]]

    asyncio.run(prepare())
    address = cluster.broker("broker-a").address
    outputs = mqadmin(
        cluster,
        f"topicStatus -t {topic}",
        f"consumerProgress -g {group}",
        "clusterList",
        f"getBrokerConfig -b {address}",
    )
    asyncio.run(compare(*outputs))
