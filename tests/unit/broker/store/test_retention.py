"""When old messages go, and when a disk counts as full."""

import asyncio
from dataclasses import replace

from rocketpipe.broker.store.values import PutStatus, ReadStatus
from rocketpipe.testing.simulated_disk import SimulatedDisk
from tests.stores import (
    FOLDER,
    LOG,
    SMALL,
    bodies,
    draft,
    killed,
    messages,
    opened,
    properties,
    put,
    simulated,
)

HOUR = 3600.0
KEEPING = replace(SMALL, file_reserved_time=2 * HOUR, clean_interval=60.0, flush_interval=60.0)
CROWDED = replace(
    SMALL,
    consume_queue_segment_entries=1000,
    index_entries_max=1000,
    clean_interval=1.0,
    disk_space_clean_forcibly_ratio=0.6,
    disk_space_warning_ratio=0.8,
    disk_free_bytes_enough=1 << 40,
)


@simulated
async def test_segments_older_than_messages_are_kept_go_with_all_that_points_to_them() -> None:
    disk = SimulatedDisk()
    async with killed(disk, KEEPING) as store:
        for number in range(300):
            keys = properties(KEYS=f"k{number}")
            await put(store, draft(b"%d" % number, queue_id=number % 2, properties=keys))
            await asyncio.sleep(60)
        # The last two hours are there, and what is in one segment with them.
        for queue_id in (0, 1):
            oldest = messages(store, "T", queue_id)[0]
            assert 160 <= int(oldest.body) <= 180
            assert oldest.queue_offset == store.min_offset("T", queue_id) == int(oldest.body) // 2
            assert store.max_offset("T", queue_id) == 150
            read = store.read("T", queue_id, 3, count_max=1, bytes_max=1)
            assert read.status is ReadStatus.OFFSET_TOO_SMALL
            assert read.next_offset == store.min_offset("T", queue_id)
            assert store.earliest_store_time("T", queue_id) == oldest.store_timestamp_ms
        assert store.min_physical_offset == int(disk.names(LOG)[0]) > 0
        assert store.record_at(0) is None
        assert store.query("T", "k3", count_max=9).records == []
        assert len(store.query("T", "k299", count_max=9).records) == 1
        assert int(disk.names(FOLDER / "consumequeue/T/0")[0]) > 0
        assert len(disk.names(FOLDER / "index")) < 10
        before = bodies(store)
    async with killed(disk, KEEPING) as store:
        assert bodies(store) == before
    for path in (FOLDER / "checkpoint", FOLDER / "checkpoint.bak"):
        disk.remove(path)
    async with opened(disk, KEEPING) as store:
        assert bodies(store) == before  # also with all built anew, from the middle of the queues
        assert (await put(store, draft(b"next"))).queue_offset == 150


@simulated
async def test_the_last_segment_stays_however_old_it_is() -> None:
    async with opened(SimulatedDisk(), KEEPING) as store:
        await put(store, draft(b"old"))
        await asyncio.sleep(10 * HOUR)
        assert bodies(store) == [b"old"]


@simulated
async def test_a_queue_without_messages_remembers_how_far_it_was() -> None:
    disk = SimulatedDisk()
    async with opened(disk, KEEPING) as store:
        for _ in range(5):
            await put(store, draft(queue_id=7))
        for _ in range(400):
            await put(store, draft())
            await asyncio.sleep(60)
        assert (store.min_offset("T", 7), store.max_offset("T", 7)) == (5, 5)
        read = store.read("T", 7, 5, count_max=1, bytes_max=1)
        assert read.status is ReadStatus.OFFSET_OVERFLOW_ONE
        assert store.earliest_store_time("T", 7) == -1
    async with opened(disk, KEEPING) as store:
        assert (await put(store, draft(queue_id=7))).queue_offset == 5


@simulated
async def test_a_damaged_time_is_no_reason_to_delete_anything() -> None:
    disk = SimulatedDisk()
    async with opened(disk, KEEPING) as store:
        for number in range(60):
            await put(store, draft(b"%d" % number))
        second = store._log.segment_starts[1]
        disk.flip_bit(LOG / f"{second:020}", 8 * 58)  # years earlier
        await asyncio.sleep(120)
        assert store.min_physical_offset == 0


@simulated
async def test_a_disk_that_fills_up_loses_its_oldest_segments_first() -> None:
    disk = SimulatedDisk(capacity_bytes=60 * 4096)
    async with opened(disk, CROWDED) as store:
        for number in range(1000):
            await put(store, draft(b"%d" % number))
            await asyncio.sleep(0.1)
        assert 0.5 < store.disk_used_ratio() < 0.8
        assert store.min_physical_offset > 0
        assert bodies(store)[-1] == b"999"


@simulated
async def test_a_disk_that_others_fill_refuses_puts_until_they_leave_room() -> None:
    disk = SimulatedDisk(capacity_bytes=100 * 4096)
    async with opened(disk, CROWDED) as store:
        await put(store, draft(b"1"))
        other = disk.open(FOLDER.parent / "other", create=True)
        other.write_at(0, bytes(85 * 4096))
        await asyncio.sleep(1.5)
        result = await store.put_and_wait(draft(b"refused"))
        assert result.status is PutStatus.SERVICE_NOT_AVAILABLE
        assert result.reason == store.refusal
        assert "the disk is 8" in result.reason
        assert bodies(store) == [b"1"]
        other.truncate(0)
        await asyncio.sleep(1.5)
        await put(store, draft(b"2"))


@simulated
async def test_with_room_enough_a_disk_is_not_full_whatever_its_ratio() -> None:
    disk = SimulatedDisk(capacity_bytes=100 * 4096)
    async with opened(disk, replace(CROWDED, disk_free_bytes_enough=4096)) as store:
        disk.open(FOLDER.parent / "other", create=True).write_at(0, bytes(85 * 4096))
        await asyncio.sleep(1.5)
        assert store.disk_used_ratio() > 0.8
        await put(store, draft())


@simulated
async def test_a_store_on_a_full_disk_opens_to_be_read() -> None:
    disk = SimulatedDisk(capacity_bytes=100 * 4096)
    async with opened(disk, CROWDED) as store:
        await put(store, draft(b"1"))
    disk.open(FOLDER.parent / "other", create=True).write_at(0, bytes(90 * 4096))
    async with opened(disk, CROWDED) as store:
        assert store.refusal is not None
        assert bodies(store) == [b"1"]
