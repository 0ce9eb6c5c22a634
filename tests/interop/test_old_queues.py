"""A queue whose first messages were deleted by age: where a new group begins there, and what is
said to who still wanted those."""

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import dataclass

import pytest

from rocketpipe import Admin, AsyncAdmin, Message, MessageQueue, StoredMessage
from rocketpipe.errors import OffsetGap
from rocketpipe.testing.embedded_cluster import EmbeddedCluster
from rocketpipe.wire.record import decode_records
from tests.apache.cluster import ApacheCluster
from tests.cli.conftest import Program
from tests.interop.clusters import EMBEDDED, TIMEOUT, Cluster, Reader, new_topic
from tests.interop.consuming import Remembers, pull_at, push_at, share, until
from tests.interop.messages import producer_at

GONE, THERE = 5, 5  # messages of the queue
END = GONE + THERE

# As if it were always time to delete, and the disk too full for anything to be kept.
OURS = {
    "mappedFileSizeCommitLog": 1 << 20,
    "cleanResourceInterval": 200,
    "diskSpaceCleanForciblyRatio": 1,
    "diskSpaceWarningLevelRatio": 100,
    "diskFreeBytesEnough": 1 << 62,
}
APACHES = {"fileReservedTime": "0", "deleteWhen": ";".join(f"{hour:02}" for hour in range(24))}


@dataclass(frozen=True)
class OldQueue:
    cluster: Cluster
    queue: MessageQueue
    times_ms: list[int]  # when those were stored that are there


@pytest.fixture(scope="module")
def old(cluster_name: str, apache_clusters: Callable[[str], ApacheCluster]) -> Iterator[OldQueue]:
    with ExitStack() as ending:
        cluster: Cluster
        if cluster_name == EMBEDDED:
            cluster = ending.enter_context(EmbeddedCluster(1, settings=OURS))
        else:
            cluster = apache_clusters(cluster_name)
            cluster.heal()
            ending.enter_context(deleting(cluster))
        yield asyncio.run(make(cluster))


@contextmanager
def deleting(cluster: Cluster) -> Iterator[None]:
    """Let a broker of Apache's delete what it can, for now."""
    with Admin(namesrv=cluster.namesrv, request_timeout=TIMEOUT) as admin:
        settings = admin.broker_config("broker-a")
        admin.change_broker_config("broker-a", APACHES)
        try:
            yield
        finally:
            admin.change_broker_config("broker-a", {name: settings[name] for name in APACHES})


async def group_at_2(old: OldQueue) -> str:
    """A group that was there before, and then away for long."""
    group = new_topic("old-group")
    async with (
        AsyncAdmin(namesrv=old.cluster.namesrv, request_timeout=TIMEOUT) as admin,
        pull_at(old.cluster, group) as consumer,
    ):
        await admin.create_group(group)
        await consumer.commit({old.queue: 2})
    return group


async def make(cluster: Cluster) -> OldQueue:
    topic = new_topic("old")
    async with (
        Reader(cluster.namesrv) as reader,
        AsyncAdmin(namesrv=cluster.namesrv, request_timeout=TIMEOUT) as admin,
        producer_at(cluster, compress_body_bytes_min=1 << 30) as producer,
    ):
        (queue,) = await reader.create_topic(topic, cluster.brokers[:1], queues=1)
        (filled,) = await reader.create_topic(f"{topic}-filler", cluster.brokers[:1], queues=1)

        async def send(count: int) -> None:
            for _ in range(count):
                await producer.send(Message(topic, b"x"), queue=queue)
                await asyncio.sleep(0.02)  # so that each has a time of its own

        await send(GONE)
        # Only whole files are deleted, and never the last one.
        settings = await admin.broker_config("broker-a")
        file_bytes = int(settings["mappedFileSizeCommitLog"])
        size = min(4_000_000, file_bytes // 2)
        for _ in range(file_bytes // size + 1):
            await producer.send(Message(filled.topic, os.urandom(size)), queue=filled)
        await send(THERE)

        async def is_old() -> bool:
            return await admin.min_offset(queue) == GONE

        await until(is_old, "the first messages are deleted")
        found: list[StoredMessage] = []
        while len(found) < THERE:
            found += await reader.pull(queue, GONE + len(found))
    return OldQueue(cluster, queue, [message.store_timestamp_ms for message in found])


def test_a_new_group_begins_with_what_is_there_or_at_a_time_or_with_what_comes(
    old: OldQueue,
) -> None:
    async def main() -> None:
        third_ms = old.times_ms[2]
        begins: dict[str | int, int] = {"first": GONE, third_ms: GONE + 2, "last": END}
        ours = {begin: Remembers() for begin in begins}
        async with AsyncExitStack() as consumers:
            for where, begin in begins.items():
                pulls = pull_at(old.cluster, new_topic("old-pull"), consume_from=where)
                await consumers.enter_async_context(pulls)
                await pulls.assign([old.queue])
                assert await pulls.offsets() == {old.queue: begin}
                pushes = push_at(
                    *(old.cluster, new_topic("old-push"), ours[where]),
                    subscriptions={old.queue.topic: "*"},
                    consume_from=where,
                    orderly=True,
                )
                await consumers.enter_async_context(pushes)
                assert await share(pushes, old.queue.topic) == {old.queue}
            async with producer_at(old.cluster) as producer:
                await producer.send(Message(old.queue.topic, b"fresh"), queue=old.queue)
            for where, begin in begins.items():
                await until(lambda: b"fresh" in ours[where].bodies, "it came")  # noqa: B023
                offsets = [message.queue_offset for message in ours[where].messages]
                assert offsets == [*range(begin, END + 1)], where

    asyncio.run(main())


def test_who_wanted_what_is_gone_is_told_of_the_gap(old: OldQueue) -> None:
    queue = old.queue

    async def main() -> None:
        async with pull_at(old.cluster, await group_at_2(old)) as consumer:
            await consumer.assign([queue])
            for _ in range(2):
                with pytest.raises(OffsetGap, match=rf"offset 2 was .* goes on at {GONE}") as told:
                    await consumer.poll(timeout=TIMEOUT)
                assert (told.value.queue, told.value.wanted, told.value.found) == (queue, 2, GONE)
            assert await consumer.committed(queue) == 2
            await consumer.seek(queue, told.value.found)
            assert (await consumer.poll(timeout=TIMEOUT))[0].queue_offset == GONE

            with pytest.raises(OffsetGap, match=rf"offset 3 was .* goes on at {GONE}"):
                _ = [answer async for answer in consumer.pull_range(queue, 3, END)]
            found = [
                message.queue_offset
                async for answer in consumer.pull_range(queue, 3, END, skip_gaps=True)
                for message in decode_records(answer)
            ]
            assert found == [*range(GONE, END)]

    asyncio.run(main())


def test_a_gap_is_skipped_by_who_is_asked_to_and_by_push_consumers(old: OldQueue) -> None:
    async def main() -> None:
        queue, ours = old.queue, Remembers()
        async with pull_at(old.cluster, await group_at_2(old), skip_gaps=True) as consumer:
            await consumer.assign([queue])
            found: list[StoredMessage] = []

            async def is_there() -> bool:
                found.extend(await consumer.poll(timeout=1))
                return len(found) >= THERE

            await until(is_there, "it went on")
            assert [message.queue_offset for message in found[:THERE]] == [*range(GONE, END)]
        async with push_at(
            *(old.cluster, await group_at_2(old), ours),
            subscriptions={queue.topic: "*"},
            orderly=True,
        ):
            await until(lambda: len(ours.messages) >= THERE, "it went on")
            offsets = [message.queue_offset for message in ours.messages[:THERE]]
            assert offsets == [*range(GONE, END)]

    asyncio.run(main())


def test_a_gap_ends_the_command_unless_it_is_to_skip_gaps(old: OldQueue) -> None:
    program, topic = Program(old.cluster.namesrv), old.queue.topic
    consume = ("consume", topic, "--group", asyncio.run(group_at_2(old)), "--bodies")
    ended = program(*consume)
    assert (ended.code, ended.output) == (1, "")
    assert f"offset 2 was to be read next, but the queue goes on at {GONE}" in ended.errors
    assert program.done(*consume, "--skip-gaps").output.startswith("x\n" * THERE)
