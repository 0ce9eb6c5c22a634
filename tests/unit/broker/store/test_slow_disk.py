"""A real disk that is slow or stuck: another thread waits for it, and nothing is mixed up."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from rocketpipe.broker.store.message_store import MessageStore
from rocketpipe.broker.store.settings import StoreSettings
from rocketpipe.broker.store.values import PutResult, PutStatus
from rocketpipe.clock import SystemClock
from tests.slow_disk import SlowDisk
from tests.stores import SMALL, bodies, draft, put, put_many

STUCK = 0.05  # much longer than a write may take before the next is another thread's
# One segment for all; and what is written is not safe before the store closes.
WIDE = replace(SMALL, commit_log_segment_bytes=1 << 20, flush_interval=60.0)


class Scene(NamedTuple):
    disk: SlowDisk
    store: MessageStore


@asynccontextmanager
async def opened(
    folder: Path, disk: SlowDisk, settings: StoreSettings = WIDE
) -> AsyncIterator[MessageStore]:
    store = MessageStore(folder / "s", settings, disk=disk, clock=SystemClock())
    await store.open()
    try:
        yield store
    finally:
        disk.may_write.set()
        await store.close()


@asynccontextmanager
async def slow(folder: Path) -> AsyncIterator[Scene]:
    """A store that has found its disk slow."""
    disk = SlowDisk()
    async with opened(folder, disk) as store:
        disk.seconds = STUCK
        await put(store, draft(b"0"))
        disk.seconds = 0.0
        yield Scene(disk, store)


async def until(done: list[PutResult], count: int) -> list[PutStatus]:
    async with asyncio.timeout(10):
        while len(done) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    return [result.status for result in done]


def test_while_the_disk_is_stuck_all_else_goes_on(tmp_path: Path) -> None:
    async def main() -> None:
        done: list[PutResult] = []
        async with slow(tmp_path) as (disk, store):
            disk.may_write.clear()
            store.put(draft(b"1"), done.append)
            await asyncio.sleep(STUCK)
            store.put(draft(b"2"), done.append)
            store.put(draft(b"3"), done.append)
            await asyncio.sleep(STUCK)
            assert store.busy_seconds() >= STUCK
            assert bodies(store) == [b"0"]
            assert not done
            disk.may_write.set()
            assert await until(done, 3) == [PutStatus.PUT_OK] * 3
            assert [result.queue_offset for result in done] == [1, 2, 3]
            assert bodies(store) == [b"0", b"1", b"2", b"3"]

    asyncio.run(main())


def test_another_thread_writes_only_while_the_disk_is_slow(tmp_path: Path) -> None:
    async def main() -> None:
        here = threading.get_ident()
        async with slow(tmp_path) as (disk, store):
            disk.seconds = STUCK
            await put(store, draft(b"1"))
            disk.seconds = 0.0
            await put(store, draft(b"2"))
            async with asyncio.timeout(10):  # until one was quick
                while disk.writers[-1] != here:
                    await put(store, draft(b"3"))
            assert [writer == here for writer in disk.writers[:3]] == [True, False, False]

    asyncio.run(main())


def test_what_is_put_by_who_hears_of_a_slow_write_is_written_once(tmp_path: Path) -> None:
    async def main() -> None:
        disk, done = SlowDisk(), list[PutResult]()
        async with opened(tmp_path, disk) as store:

            def put_another(result: PutResult) -> None:
                store.put(draft(b"1"), done.append)

            disk.seconds = STUCK
            store.put(draft(b"0"), put_another)
            await until(done, 1)
            assert bodies(store) == [b"0", b"1"]
            assert len(disk.writers) == 2

    asyncio.run(main())


def test_many_segments_are_written_in_order_on_a_slow_disk(tmp_path: Path) -> None:
    async def main() -> None:
        disk = SlowDisk()
        expected = [b"body %d" % number for number in range(60)]
        async with opened(tmp_path, disk, SMALL) as store:
            disk.seconds = 0.02
            await put_many(store, 60)
            assert bodies(store) == expected
            assert len(disk.names(tmp_path / "s" / "commitlog")) >= 3
            assert len(set(disk.writers)) > 1
            store.kill()
        async with opened(tmp_path, disk, SMALL) as store:
            assert bodies(store) == expected

    asyncio.run(main())


def test_a_write_that_fails_in_the_other_thread_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        async with slow(tmp_path) as (disk, store):
            size = store.max_physical_offset
            disk.fails = True
            refused = await store.put_and_wait(draft(b"1"))
            assert refused.status is PutStatus.SERVICE_NOT_AVAILABLE
            assert "no space" in refused.reason
            assert store.max_physical_offset == size
            disk.fails = False
            await put(store, draft(b"2"))
            assert bodies(store) == [b"0", b"2"]

    asyncio.run(main())


def test_what_a_closing_store_gave_up_is_cut_off_again(tmp_path: Path) -> None:
    async def main() -> None:
        done: list[PutResult] = []
        async with slow(tmp_path) as (disk, store):
            end = store.max_physical_offset
            disk.may_write.clear()
            store.put(draft(b"1"), done.append)
            await asyncio.sleep(STUCK)
            # Longer than a closing store waits, and then its thread blocks until this.
            threading.Timer(WIDE.os_page_cache_busy_timeout + 0.3, disk.may_write.set).start()
            await store.close()
            assert await until(done, 1) == [PutStatus.SERVICE_NOT_AVAILABLE]
            assert store.max_physical_offset == end
        async with opened(tmp_path, disk) as store:
            assert bodies(store) == [b"0"]
            await put(store, draft(b"2"))
            assert bodies(store) == [b"0", b"2"]

    asyncio.run(main())


def test_a_closing_store_waits_a_while_for_a_slow_disk(tmp_path: Path) -> None:
    async def main() -> None:
        done: list[PutResult] = []
        async with slow(tmp_path) as (disk, store):
            disk.may_write.clear()
            store.put(draft(b"1"), done.append)
            threading.Timer(STUCK, disk.may_write.set).start()
            await store.close()
            assert await until(done, 1) == [PutStatus.PUT_OK]
        async with opened(tmp_path, disk) as store:
            assert bodies(store) == [b"0", b"1"]

    asyncio.run(main())


def test_a_killed_store_lets_go_of_its_folder_when_nothing_writes_any_more(tmp_path: Path) -> None:
    async def main() -> None:
        done: list[PutResult] = []
        async with slow(tmp_path) as (disk, store):
            disk.may_write.clear()
            store.put(draft(b"1"), done.append)
            await asyncio.sleep(STUCK)
            threading.Timer(STUCK, disk.may_write.set).start()
            store.kill()
            assert disk.may_write.is_set()
            await asyncio.sleep(0)
            assert not done
        # As after the death of a process: what the kernel had in hand is there.
        async with opened(tmp_path, disk) as store:
            assert bodies(store) == [b"0", b"1"]
            await put(store, draft(b"2"))
            assert bodies(store) == [b"0", b"1", b"2"]

    asyncio.run(main())
