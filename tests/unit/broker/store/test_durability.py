"""How safe a message is when its putter hears of it, and what happens when the disk fails."""

import asyncio
from dataclasses import replace

import pytest

from rocketpipe.broker.store.log_writer import PENDING_BYTES_MAX
from rocketpipe.broker.store.values import PutResult, PutStatus
from rocketpipe.testing.simulated_disk import SimulatedDisk
from rocketpipe.wire.record import decode_records
from tests.stores import (
    FOLDER,
    LOG,
    SMALL,
    bodies,
    draft,
    killed,
    opened,
    put,
    put_many,
    simulated,
)

SYNC = replace(
    SMALL,
    flush_disk_type="sync",
    commit_log_segment_bytes=1 << 20,
    checkpoint_bytes=1 << 30,
    checkpoint_interval=3600.0,
)


@simulated
async def test_with_sync_flush_an_answer_comes_after_the_sync() -> None:
    disk = SimulatedDisk()
    disk.sync_seconds = (1.0, 1.0)
    async with opened(disk, SYNC) as store:
        start = asyncio.get_running_loop().time()
        result = await put(store, draft())
        assert asyncio.get_running_loop().time() - start >= 1.0
        assert store.flushed_offset == result.end_offset


@simulated
async def test_one_sync_serves_all_who_wait() -> None:
    disk = SimulatedDisk()
    async with opened(disk, SYNC) as store:
        await put(store, draft())
        disk.sync_seconds = (1.0, 1.0)
        results: list[PutResult] = []
        syncs = disk.syncs
        for _ in range(100):  # the first of them starts a sync; the others need another
            store.put(draft(), results.append)
            await asyncio.sleep(0.001)
        await asyncio.sleep(1.0)
        assert len(results) == 1
        await asyncio.sleep(1.0)
        assert len(results) == 100
        assert disk.syncs == syncs + 2


@simulated
async def test_who_does_not_wait_hears_at_once() -> None:
    disk = SimulatedDisk()
    async with opened(disk, SYNC) as store:
        disk.sync_seconds = (1.0, 1.0)
        results: list[PutResult] = []
        store.put(draft(wait_store_ok=False), results.append)
        await asyncio.sleep(0.001)
        assert results[0].status is PutStatus.PUT_OK
        await asyncio.sleep(2.5)
        assert store.flushed_offset == store.max_physical_offset  # it is synced all the same


@simulated
async def test_a_sync_that_takes_too_long_is_a_timeout_of_the_flush() -> None:
    disk = SimulatedDisk()
    async with opened(disk, replace(SYNC, sync_flush_timeout=2.0)) as store:
        disk.sync_seconds = (3.0, 3.0)
        times: list[float] = []
        results: list[PutResult] = []

        def done(result: PutResult) -> None:
            times.append(asyncio.get_running_loop().time() - start)
            results.append(result)

        start = asyncio.get_running_loop().time()
        store.put(draft(b"1"), done)
        await asyncio.sleep(1.5)
        store.put(draft(b"2"), done)
        await asyncio.sleep(5)
        assert [result.status for result in results] == [PutStatus.FLUSH_DISK_TIMEOUT] * 2
        assert [round(time, 1) for time in times] == [2.0, 3.5]
        assert [result.is_stored for result in results] == [True, True]
        assert bodies(store) == [b"1", b"2"]
        disk.sync_seconds = (0.1, 0.1)
        await asyncio.sleep(5)
        await put(store, draft())


@simulated
async def test_without_sync_flush_all_is_synced_after_a_while() -> None:
    disk = SimulatedDisk()
    async with opened(disk, replace(SMALL, flush_interval=3.0)) as store:
        await put(store, draft())
        assert store.flushed_offset == 0
        await asyncio.sleep(3.1)
        assert store.flushed_offset == store.max_physical_offset


@simulated
async def test_a_sync_that_fails_is_never_trusted_again() -> None:
    disk = SimulatedDisk()
    async with opened(disk, SYNC) as store:
        await put(store, draft(b"safe"))
        disk.fails_syncs = True
        result = await store.put_and_wait(draft(b"who knows"))
        assert result.status is PutStatus.FLUSH_DISK_TIMEOUT
        disk.fails_syncs = False
        result = await store.put_and_wait(draft(b"too late"))
        assert result.status is PutStatus.SERVICE_NOT_AVAILABLE
        assert "fsync" in result.reason
        assert bodies(store) == [b"safe", b"who knows"]
    async with opened(disk, SYNC) as store:
        await put(store, draft(b"after"))


@simulated
async def test_a_full_disk_refuses_puts_serves_reads_and_recovers() -> None:
    disk = SimulatedDisk()
    settings = replace(SMALL, commit_log_segment_bytes=1 << 20, message_bytes_max=1 << 16)
    async with killed(disk, settings) as store:
        await put_many(store, 5)
        results: list[PutResult] = []
        with disk.full():
            for number in range(60):
                store.put(draft(bytes(100 * number)), results.append)
                if number % 4 == 3:
                    await asyncio.sleep(0)
                    await asyncio.sleep(0)
            await asyncio.sleep(0.001)
            refused = [result for result in results if not result.is_stored]
            assert len(refused) > 30
            for result in refused:
                assert result.status is PutStatus.SERVICE_NOT_AVAILABLE
                assert "No space left" in result.reason
            assert len(bodies(store)) == 5 + 60 - len(refused)
            assert store.stats.puts_refused == len(refused)
        count = len(bodies(store))
        assert (await put(store, draft(b"at last"))).queue_offset == count
    async with opened(disk, settings) as store:
        assert len(bodies(store)) == count + 1
        assert bodies(store)[-1] == b"at last"


@simulated
async def test_a_write_that_failed_half_way_is_cut_off_before_the_next() -> None:
    disk = SimulatedDisk()
    async with killed(disk) as store:
        await put(store, draft(b"1"))
        size = store.max_physical_offset
        with disk.full():
            file = disk._files[LOG / f"{0:020}"]
            for _ in range(200):
                await store.put_and_wait(draft(bytes(1000)))
                await store.put_and_wait(draft(bytes(1000)))
                await store.put_and_wait(draft(bytes(1000)))
                assert len(file.data) <= 2048
        assert size < store.max_physical_offset or len(file.data) == size
        await put(store, draft(b"2"))
    async with opened(disk) as store:
        found = bodies(store)
        assert (found[0], found[-1]) == (b"1", b"2")


@simulated
async def test_indexes_that_cannot_be_written_stop_the_puts_until_they_can() -> None:
    disk = SimulatedDisk()
    settings = replace(SMALL, commit_log_segment_bytes=1 << 20, checkpoint_bytes=1)
    async with opened(disk, settings) as store:
        await put(store, draft(b"1"))
        with disk.full():  # the page of the log has room, but queues need files
            await asyncio.sleep(2)
            result = await store.put_and_wait(draft(b"refused"))
            assert result.status is PutStatus.SERVICE_NOT_AVAILABLE
            assert "queues" in result.reason
            assert bodies(store) == [b"1"]
        await asyncio.sleep(2)
        await put(store, draft(b"2"))
        assert bodies(store) == [b"1", b"2"]


@simulated
async def test_a_stuck_disk_makes_puts_wait_and_then_refuses_more() -> None:
    disk = SimulatedDisk()
    async with opened(disk, replace(SMALL, os_page_cache_busy_timeout=2.0)) as store:
        assert store.busy_seconds() == 0.0
        disk.is_stuck = True
        results: list[PutResult] = []
        store.put(draft(b"1"), results.append)
        await asyncio.sleep(1.5)
        store.put(draft(b"2"), results.append)
        assert 1.4 < store.busy_seconds() < 1.6
        assert not results
        await asyncio.sleep(1.0)
        refused = await store.put_and_wait(draft(b"3"))
        assert refused.status is PutStatus.OS_PAGE_CACHE_BUSY
        disk.is_stuck = False
        await asyncio.sleep(0.1)
        assert [result.status for result in results] == [PutStatus.PUT_OK] * 2
        assert store.busy_seconds() == 0.0
        await put(store, draft(b"4"))
        assert bodies(store) == [b"1", b"2", b"4"]


@simulated
async def test_only_so_much_waits_for_a_stuck_disk() -> None:
    disk = SimulatedDisk()
    settings = replace(SMALL, commit_log_segment_bytes=1 << 27, message_bytes_max=1 << 23)
    async with opened(disk, settings) as store:
        disk.is_stuck = True
        results: list[PutResult] = []
        for _ in range(10):
            store.put(draft(bytes(1 << 23)), results.append)
        assert [result.status for result in results] == [PutStatus.OS_PAGE_CACHE_BUSY] * 2
        assert PENDING_BYTES_MAX <= 8 << 23
        disk.is_stuck = False
        await asyncio.sleep(0.1)
        assert len(results) == 10


@simulated
async def test_closing_writes_and_syncs_what_was_put() -> None:
    disk = SimulatedDisk()
    results: list[PutResult] = []
    async with opened(disk, SYNC) as store:
        store.put(draft(b"1"), results.append)
    assert [result.status for result in results] == [PutStatus.PUT_OK]
    disk.lose_power()
    async with opened(disk, SYNC) as store:
        disk.is_stuck = True
        store.put(draft(b"2"), results.append)
    assert results[-1].status is PutStatus.SERVICE_NOT_AVAILABLE
    disk.is_stuck = False
    async with opened(disk, SYNC) as store:
        assert bodies(store) == [b"1"]
    await store.close()  # a second time does nothing


@simulated
async def test_a_closed_folder_opens_without_reading_the_log_again() -> None:
    disk = SimulatedDisk()
    async with opened(disk) as store:
        await put_many(store, 50)
    for name in disk.names(LOG)[:-1]:
        disk.flip_bit(LOG / name, 8 * 90)
    async with opened(disk) as store:
        assert store.max_offset("T", 0) == 50


@simulated
async def test_a_killed_one_reads_again_what_came_after_the_checkpoint() -> None:
    disk = SimulatedDisk()
    async with killed(disk, replace(SMALL, checkpoint_interval=5.0)) as store:
        await put_many(store, 10)
        await asyncio.sleep(6)
        assert "checkpoint" in disk.names(FOLDER)
        disk.flip_bit(LOG / f"{0:020}", 8 * 90)  # before the checkpoint: nobody looks
        await put_many(store, 10)
    async with opened(disk) as store:
        assert store.max_offset("T", 0) == 20
        read = store.read("T", 0, 10, count_max=10, bytes_max=9999)
        assert [m.body for m in decode_records(read.records)] == [b"body %d" % n for n in range(10)]


@simulated
async def test_a_disk_that_fails_while_closing_is_let_go_all_the_same() -> None:
    disk = SimulatedDisk()
    async with opened(disk) as store:
        await put(store, draft())
        disk.fails_syncs = True
    disk.fails_syncs = False
    async with opened(disk) as store:
        assert bodies(store) == [b"body"]


@simulated
async def test_writes_that_fail_are_refused() -> None:
    disk = SimulatedDisk()
    async with opened(disk) as store:
        disk.fails_writes = True
        result = await store.put_and_wait(draft())
        assert result.status is PutStatus.SERVICE_NOT_AVAILABLE
        assert "Input/output error" in result.reason
        disk.fails_writes = False
        assert (await put(store, draft())).queue_offset == 0


@pytest.mark.parametrize("seed", range(10))
def test_a_checkpoint_syncs_what_one_that_failed_has_written(seed: int) -> None:
    @simulated
    async def check() -> None:
        disk = SimulatedDisk(seed)
        async with killed(disk) as store:
            await put_many(store, 20)
            await store._log.sync()
            disk.fails_syncs = True
            with pytest.raises(OSError):
                await store._indexes.checkpoint(store._log.sync)
            disk.fails_syncs = False
            await store._indexes.checkpoint(store._log.sync)
        disk.lose_power()
        async with opened(disk) as store:
            assert len(bodies(store)) == 20

    check()


@simulated
async def test_a_checkpoint_says_nothing_of_the_log_that_is_not_safe() -> None:
    disk = SimulatedDisk()
    async with opened(disk) as store:
        await put(store, draft())
        synced: list[int] = []

        async def sync_log() -> None:
            assert "checkpoint" not in disk.names(FOLDER)
            synced.append(store.max_physical_offset)

        await store._indexes.checkpoint(sync_log)
        assert synced == [store._indexes.checkpoint_offset]
        assert "checkpoint" in disk.names(FOLDER)
