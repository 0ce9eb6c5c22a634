"""Where a group begins, and offsets that are kept in files."""

import asyncio
from pathlib import Path
from typing import cast

import pytest

from rocketpipe.client.consumer.offsets import LocalOffsets, OffsetStore, QueueEnds, first_offset
from rocketpipe.client.consumer.settings import PullConsumerSettings
from rocketpipe.message import MessageQueue
from tests.consumer_bench import ConsumerBench, simulated

QUEUE = MessageQueue("orders", "broker-a", 1)
RETRY = MessageQueue("%RETRY%group", "broker-a", 0)


class FakeEnds:
    async def min_offset(self, queue: MessageQueue) -> int:
        return 10

    async def max_offset(self, queue: MessageQueue) -> int:
        return 90

    async def offset_at(self, queue: MessageQueue, timestamp_ms: int) -> int:
        return 50 + timestamp_ms


class FakeStore:
    def __init__(self, stored: int | None) -> None:
        self._stored = stored

    async def read(self, queue: MessageQueue, *, is_exact: bool = False) -> int | None:
        return self._stored


@pytest.mark.parametrize(
    ("consume_from", "queue", "stored", "expected"),
    [
        ("first", QUEUE, None, 10),
        ("last", QUEUE, None, 90),
        (7, QUEUE, None, 57),
        # What comes again is not to be missed, nor, with a time, to be repeated (as in Java).
        ("first", RETRY, None, 10),
        ("last", RETRY, None, 10),
        (7, RETRY, None, 90),
        ("first", QUEUE, 33, 33),
        ("last", QUEUE, 0, 0),
        ("last", QUEUE, -1, 90),
    ],
)
def test_where_a_group_begins_or_goes_on(
    consume_from: str | int, queue: MessageQueue, stored: int | None, expected: int
) -> None:
    settings = PullConsumerSettings("group", namesrv="n:9876", consume_from=consume_from)
    ends, store = cast(QueueEnds, FakeEnds()), cast(OffsetStore, FakeStore(stored))
    assert asyncio.run(first_offset(store, ends, settings, queue)) == expected


@simulated()
async def test_a_new_group_misses_nothing_of_a_young_queue(bench: ConsumerBench) -> None:
    (queue,) = await bench.create_topic("orders", queues=1)
    async with bench.pull_consumer(consume_from="last") as consumer:
        await consumer.subscribe("orders")
        await bench.send("orders", 5, queue=queue)
        assert (await consumer.poll())[0].queue_offset == 0


@simulated()
async def test_a_time_counts_in_a_young_queue_too(bench: ConsumerBench) -> None:
    (queue,) = await bench.create_topic("orders", queues=1)
    await bench.send("orders", 3, queue=queue)
    await asyncio.sleep(1)
    since_ms = bench.clock.wall_ms()
    await bench.send("orders", 2, queue=queue)
    async with bench.pull_consumer(consume_from=since_ms) as consumer:
        await consumer.subscribe("orders")
        assert [message.queue_offset for message in await consumer.poll()] == [3, 4]


def test_local_offsets_survive_a_damaged_file(tmp_path: Path) -> None:
    async def main() -> None:
        store = LocalOffsets(tmp_path, "ip@DEFAULT", "group")
        assert await store.read(QUEUE) is None
        await store.write({QUEUE: 5})
        await store.write({QUEUE: 6})
        file = tmp_path / "ip@DEFAULT" / "group" / "offsets.json"
        text = '{"offsetTable":{{"brokerName":"broker-a","queueId":1,"topic":"orders"}:6}}'
        assert file.read_text() == text  # as Java's LocalFileOffsetStore reads it
        file.write_text(text[:20])
        assert await LocalOffsets(tmp_path, "ip@DEFAULT", "group").read(QUEUE) == 5

    asyncio.run(main())
