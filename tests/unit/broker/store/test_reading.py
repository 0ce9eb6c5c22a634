"""Messages by queue, by place, by key and by time."""

import asyncio
from collections.abc import Container
from dataclasses import replace

import pytest

from rocketpipe.broker.store import key_index, record_facts
from rocketpipe.broker.store.message_store import MessageStore
from rocketpipe.broker.store.settings import StoreSettings
from rocketpipe.broker.store.values import ReadStatus
from rocketpipe.host import pack_host
from rocketpipe.testing.simulated_disk import SimulatedDisk
from rocketpipe.testing.simulated_loop import WALL_START_MS
from rocketpipe.wire.hashing import tags_code
from rocketpipe.wire.record import decode_record, decode_records
from tests.stores import (
    FOLDER,
    LOG,
    SMALL,
    bodies,
    draft,
    killed,
    opened,
    properties,
    put,
    put_many,
    simulated,
)


@simulated
async def test_how_a_read_ends_says_where_to_read_on() -> None:
    async with opened(SimulatedDisk()) as store:
        await put_many(store, 3, queue_id=1)

        def look(queue_id: int, offset: int, topic: str = "T") -> tuple[str, int, int, int]:
            read = store.read(topic, queue_id, offset, count_max=9, bytes_max=9999)
            return read.status.name, read.next_offset, read.min_offset, read.max_offset

        assert look(0, 5, topic="unknown") == ("NO_MATCHED_LOGIC_QUEUE", 0, 0, 0)
        assert look(0, 5) == ("NO_MATCHED_LOGIC_QUEUE", 0, 0, 0)
        assert look(1, 0) == ("FOUND", 3, 0, 3)
        assert look(1, 2) == ("FOUND", 3, 0, 3)
        assert look(1, 3) == ("OFFSET_OVERFLOW_ONE", 3, 0, 3)
        assert look(1, 4) == ("OFFSET_OVERFLOW_BADLY", 3, 0, 3)
        assert look(1, -1) == ("OFFSET_TOO_SMALL", 0, 0, 3)


@simulated
async def test_a_queue_whose_first_message_is_on_its_way_is_empty() -> None:
    async with opened(SimulatedDisk()) as store:
        store.put(draft(), lambda _: None)
        read = store.read("T", 0, 0, count_max=9, bytes_max=9999)
        assert (read.status, read.next_offset) == (ReadStatus.NO_MESSAGE_IN_QUEUE, 0)
        assert store.earliest_store_time("T", 0) == -1


@simulated
async def test_a_read_stops_at_the_count_or_the_bytes_but_gives_one_at_least() -> None:
    async with opened(SimulatedDisk()) as store:
        size = (await put_many(store, 10))[0].size
        for count_max, bytes_max, expected in (
            *((3, 9999, 3), (9999, 2 * size, 2), (9999, 3 * size - 1, 2), (5, 1, 1), (1, 9999, 1)),
        ):
            read = store.read("T", 0, 1, count_max=count_max, bytes_max=bytes_max)
            assert (len(read.sizes), read.next_offset) == (expected, 1 + expected)
            found = [m.body for m in decode_records(read.records)]
            assert found == [b"body %d" % n for n in range(1, 1 + expected)]


@simulated
async def test_a_filter_chooses_by_the_code_of_the_tag() -> None:
    async with opened(SimulatedDisk(), replace(SMALL, consume_queue_segment_entries=5000)) as store:
        for number in range(2000):
            tag = "rare" if number in (3, 1500) else f"t{number % 3}"
            store.put(draft(b"%d" % number, properties=properties(TAGS=tag)), lambda _: None)
        await asyncio.sleep(0.01)

        def look(offset: int, tag: str, count_max: int = 32) -> tuple[ReadStatus, list[bytes], int]:
            read = store.read(
                *("T", 0, offset),
                count_max=count_max,
                bytes_max=99999,
                accepts=lambda code: code == tags_code(tag),
            )
            return read.status, [m.body for m in decode_records(read.records)], read.next_offset

        assert look(0, "t1", 3) == (ReadStatus.FOUND, [b"1", b"4", b"7"], 8 + 2)
        assert look(0, "rare") == (ReadStatus.FOUND, [b"3"], 800)
        assert look(4, "rare") == (ReadStatus.NO_MATCHED_MESSAGE, [], 804)
        assert look(804, "rare")[1] == [b"1500"]
        assert look(1999, "none") == (ReadStatus.NO_MATCHED_MESSAGE, [], 2000)


@simulated
async def test_a_filter_chooses_by_properties() -> None:
    async with opened(SimulatedDisk(), replace(SMALL, consume_queue_segment_entries=5000)) as store:
        for number in range(1000):
            store.put(draft(b"%d" % number, properties=properties(n=str(number))), lambda _: None)
        await asyncio.sleep(0.01)

        def look(
            offset: int, wanted: Container[int], count_max: int = 32, bytes_max: int = 99999
        ) -> tuple[ReadStatus, list[bytes], int]:
            read = store.read(
                *("T", 0, offset),
                count_max=count_max,
                bytes_max=bytes_max,
                matches=lambda properties: int(properties["n"]) in wanted,
            )
            assert sum(read.sizes) == len(read.records)
            return read.status, [m.body for m in decode_records(read.records)], read.next_offset

        assert look(0, (1, 4, 7, 9), 3) == (ReadStatus.FOUND, [b"1", b"4", b"7"], 9)
        assert look(0, (1, 4), bytes_max=1) == (ReadStatus.FOUND, [b"1"], 4)
        assert look(0, (900,)) == (ReadStatus.NO_MATCHED_MESSAGE, [], 800)
        assert look(800, (900,)) == (ReadStatus.FOUND, [b"900"], 1000)
        assert look(1000, (900,)) == (ReadStatus.OFFSET_OVERFLOW_ONE, [], 1000)
        assert store.properties_at(store.physical_offset_at("T", 0, 3)) == {"n": "3"}
        assert store.properties_at(1) is None


@simulated
async def test_a_filter_by_properties_does_not_read_the_whole_disk_at_once() -> None:
    async with opened(SimulatedDisk(), StoreSettings()) as store:
        for _ in range(9):
            await store.put_and_wait(draft(bytes(3 << 20)))
        read = store.read(
            *("T", 0, 0), count_max=32, bytes_max=99999, matches=lambda properties: False
        )
        assert (read.status, read.next_offset) == (ReadStatus.NO_MATCHED_MESSAGE, 6)


@simulated
async def test_a_pull_of_many_asks_the_disk_a_few_times() -> None:
    class CountingDisk(SimulatedDisk):
        reads = 0

        def open(self, *args: object, **kwargs: object) -> object:  # type: ignore[override]
            file = super().open(*args, **kwargs)  # type: ignore[arg-type]
            read_at = file.read_at

            def counted(offset: int, size: int) -> bytes:
                self.reads += 1
                return read_at(offset, size)

            file.read_at = counted  # type: ignore[method-assign]
            return file

    disk = CountingDisk()
    settings = replace(SMALL, commit_log_segment_bytes=1 << 22, consume_queue_segment_entries=9999)
    async with opened(disk, settings) as store:
        for number in range(3200):
            store.put(draft(bytes(200), queue_id=number % 8), lambda _: None)
        await asyncio.sleep(10)
        disk.reads = 0
        read = store.read("T", 3, 100, count_max=32, bytes_max=99999)
        assert len(read.sizes) == 32
        assert disk.reads <= 3


@simulated
async def test_records_far_apart_and_in_many_segments_are_all_read() -> None:
    settings = replace(SMALL, commit_log_segment_bytes=20_000, message_bytes_max=15_000)
    async with opened(SimulatedDisk(), settings) as store:
        for number in range(20):
            await put(store, draft(b"small %d" % number))
            await put(store, draft(bytes(700 * number), queue_id=1))
        read = store.read("T", 0, 0, count_max=20, bytes_max=99999)
        found = [m.body for m in decode_records(read.records)]
        assert found == [b"small %d" % n for n in range(20)]
        await asyncio.sleep(10)  # then they are in files, and a read ends with one
        assert len(store.read("T", 0, 0, count_max=20, bytes_max=99999).sizes) == 8
        assert bodies(store) == [b"small %d" % n for n in range(20)]
        assert [len(body) for body in bodies(store, "T", 1)] == [700 * n for n in range(20)]


@simulated
async def test_a_record_is_found_by_its_place_and_nowhere_else() -> None:
    settings = replace(SMALL, message_bytes_max=20_000, commit_log_segment_bytes=50_000)
    async with opened(SimulatedDisk(), settings) as store:
        results = [await put(store, draft(bytes(size))) for size in (10, 10_000, 0)]
        places = {result.physical_offsets[0] for result in results}
        for offset in range(-1, store.max_physical_offset + 2):
            record = store.record_at(offset)
            assert (record is not None) == (offset in places)
            if record is not None:
                assert decode_record(record).physical_offset == offset


@simulated
async def test_a_queue_that_points_to_something_else_gives_nothing_wrong() -> None:
    disk = SimulatedDisk()
    async with opened(disk) as store:
        await put_many(store, 5)
    disk.flip_bit(FOLDER / "consumequeue/T/0" / f"{0:020}", 8 * 27)
    async with opened(disk) as store:
        found = bodies(store)
        assert found == [b"body 0", b"body 2", b"body 3", b"body 4"]
        read = store.read("T", 0, 1, count_max=1, bytes_max=99)
        assert (read.status, read.next_offset) == (ReadStatus.MESSAGE_WAS_REMOVING, 2)


# By key


def found_by(store: MessageStore, key: str, **limits: int) -> list[bytes]:
    found = store.query("T", key, **{"count_max": 99, **limits})
    return [decode_record(record).body for record in found.records]


@simulated
async def test_messages_are_found_by_each_key_and_by_their_id_the_newest_first() -> None:
    disk = SimulatedDisk()
    async with killed(disk) as store:
        for number in range(100):
            keys = properties(KEYS=f"all  k{number}", UNIQ_KEY=f"id{number}", TAGS="t")
            await put(store, draft(b"%d" % number, queue_id=number % 2, properties=keys))
            await put(store, draft(b"none"))
            if not number % 10:
                await asyncio.sleep(2)  # so that some of the index is in files
        await put(store, draft(b"other", topic="U", properties=properties(KEYS="k7")))
        for _ in range(2):
            assert found_by(store, "k7") == [b"7"]
            assert found_by(store, "id99") == [b"99"]
            assert found_by(store, "k100") == found_by(store, "") == found_by(store, "t") == []
            assert found_by(store, "all") == [b"%d" % n for n in range(99, -1, -1)][:99]
            assert found_by(store, "all", count_max=3) == [b"99", b"98", b"97"]
            await asyncio.sleep(5)
    async with opened(disk) as store:
        assert found_by(store, "all") == [b"%d" % n for n in range(99, -1, -1)][:99]
        assert len(store.query("U", "k7", count_max=9).records) == 1


@simulated
async def test_a_query_looks_at_a_span_of_time() -> None:
    async with opened(SimulatedDisk()) as store:
        assert store.query("T", "k", count_max=1)[1:] == (0, 0)
        results = []
        for number in range(20):
            await asyncio.sleep(0.7)
            results.append(await put(store, draft(b"%d" % number, properties=properties(KEYS="k"))))
        times = [result.store_timestamp_ms for result in results]
        for first in range(20):
            for last in range(first, 20, 5):
                found = found_by(store, "k", begin_ms=times[first], end_ms=times[last])
                assert found == [b"%d" % n for n in range(last, first - 1, -1)]
                found = found_by(store, "k", begin_ms=times[first] + 1, end_ms=times[last] - 1)
                assert found == [b"%d" % n for n in range(last - 1, first, -1)]
        newest = store.query("T", "k", count_max=1)
        assert newest.last_update_timestamp_ms == times[-1]
        assert newest.last_update_physical_offset == results[-1].physical_offsets[0]


def test_a_key_that_all_messages_have_costs_a_query_only_so_much(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(key_index, "HOPS_MAX", 10)

    @simulated
    async def check() -> None:
        settings = replace(SMALL, index_slots=1, index_entries_max=1000)
        async with opened(SimulatedDisk(), settings) as store:
            await put(store, draft(b"first", properties=properties(KEYS="first")))
            for _ in range(9):
                await put(store, draft(properties=properties(KEYS="all")))
            assert found_by(store, "first") == [b"first"]
            await put(store, draft(properties=properties(KEYS="all")))
            assert found_by(store, "first") == []

    check()


# By time


@simulated
async def test_offsets_are_found_by_time_as_java_finds_them() -> None:
    disk = SimulatedDisk()
    async with opened(disk) as store:
        await asyncio.sleep(1)
        v6 = pack_host("[::1]:1")
        for number in range(30):  # three at a time, ten ms apart
            await put(store, draft(queue_id=0, born_host=v6 if number % 2 else v6[-8:]))
            if number % 3 == 2:
                await asyncio.sleep(0.01)
        times = [store.store_time_at("T", 0, offset) for offset in range(30)]
        assert len(set(times)) == 10
        for time in range(times[0] - 2, times[-1] + 3):
            lower = store.offset_by_time("T", 0, time)
            assert lower == next((n for n in range(30) if times[n] >= time), 30)
            upper = store.offset_by_time("T", 0, time, "upper")
            assert upper == next((n for n in range(29, -1, -1) if times[n] <= time), 0)
        assert store.earliest_store_time("T", 0) == times[0] > WALL_START_MS + 999
        assert store.store_time_at("T", 0, 30) == store.store_time_at("T", 0, -1) == -1
        assert store.offset_by_time("T", 1, 0) == 0
        assert store.physical_offset_at("T", 1, 0) == -1


# Deleting


@simulated
async def test_a_deleted_topic_begins_anew_and_stays_deleted() -> None:
    disk = SimulatedDisk()
    async with killed(disk) as store:
        await put_many(store, 20)
        await put_many(store, 20, queue_id=5)
        await put_many(store, 20, topic="other")
        store.put(draft(b"on its way"), lambda _: None)
        await store.delete_topic("T")
        assert store.topics() == ["other"]
        assert store.read("T", 0, 0, count_max=1, bytes_max=1).status is (
            ReadStatus.NO_MATCHED_LOGIC_QUEUE
        )
        assert "T" not in disk.names(FOLDER / "consumequeue")
    async with killed(disk) as store:
        assert store.topics() == ["other"]
        assert (await put(store, draft(b"new"))).queue_offset == 0
    for path in (FOLDER / "checkpoint", FOLDER / "checkpoint.bak"):
        disk.remove(path)
    async with opened(disk) as store:
        assert store.topics() == ["T", "other"]
        assert bodies(store) == [b"new"]
        await store.delete_topic("T")
        await put(store, draft(b"newer"))
        await store.delete_topic("never there")
    async with opened(disk) as store:
        assert bodies(store) == [b"newer"]
        assert len(bodies(store, "other")) == 20


@simulated
async def test_a_topic_takes_nothing_while_it_is_deleted() -> None:
    async with opened(SimulatedDisk()) as store:
        await put_many(store, 3)
        deleting = asyncio.create_task(store.delete_topic("T"))
        await asyncio.sleep(0)
        result = await store.put_and_wait(draft())
        assert "being deleted" in result.reason
        await put(store, draft(topic="other"))
        await deleting
        assert (await put(store, draft())).queue_offset == 0


@simulated
async def test_the_log_keeps_what_a_deleted_topic_had() -> None:
    disk = SimulatedDisk()
    async with opened(disk) as store:
        (result,) = await put_many(store, 1)
        await store.delete_topic("T")
        assert store.record_at(result.physical_offsets[0]) is not None
    assert disk.names(LOG)


@simulated
async def test_topics_that_are_only_asked_for_are_not_remembered() -> None:
    async with opened(SimulatedDisk()) as store:
        remembered = record_facts._prefix_hash.cache_info().currsize
        for number in range(3):
            assert not store.query(f"{number}" * 100_000, "key", count_max=1).records
        assert record_facts._prefix_hash.cache_info().currsize == remembered
