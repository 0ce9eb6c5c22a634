"""The disk that forgets: what it must keep, and what it may lose."""

import asyncio
from pathlib import Path

import pytest

from rocketpipe.testing.simulated_disk import SimulatedDisk
from rocketpipe.testing.simulated_loop import run

FILE = Path("/folder/file")
SEEDS = range(60)


def after_power_loss(seed: int, *, is_synced: bool, is_named: bool = True) -> bytes | None:
    """What is left of a file of a thousand a's, with b's from 300 to 700 written later."""
    disk = SimulatedDisk(seed)

    async def write() -> None:
        file = disk.open(FILE, create=True)
        file.write_at(0, b"a" * 1000)
        await file.sync()
        if is_named:
            await disk.sync_folder(FILE.parent)
        file.write_at(300, b"b" * 400)
        if is_synced:
            await file.sync()

    run(write())
    disk.lose_power()
    return disk.content(FILE) if disk.names(FILE.parent) else None


@pytest.mark.parametrize("seed", SEEDS)
def test_what_was_synced_is_kept(seed: int) -> None:
    expected = b"a" * 300 + b"b" * 400 + b"a" * 300
    assert after_power_loss(seed, is_synced=True) == expected


def test_what_was_not_synced_is_kept_or_lost_or_torn() -> None:
    contents = {after_power_loss(seed, is_synced=False) for seed in SEEDS}
    assert b"a" * 1000 in contents
    assert b"a" * 300 + b"b" * 400 + b"a" * 300 in contents
    assert len(contents) > 3
    assert all(content is not None and len(content) == 1000 for content in contents)


def test_a_name_that_was_not_synced_is_kept_or_lost() -> None:
    found = {after_power_loss(seed, is_synced=True, is_named=False) is None for seed in SEEDS}
    assert found == {True, False}


def test_a_rename_is_there_or_not_but_never_half() -> None:
    async def rename(disk: SimulatedDisk) -> None:
        for name, content in (("old", b"old"), ("new", b"new")):
            file = disk.open(FILE.with_name(name), create=True)
            file.write_at(0, content)
            await file.sync()
        await disk.sync_folder(FILE.parent)
        disk.rename(FILE.with_name("new"), FILE.with_name("old"))

    seen = set()
    for seed in SEEDS:
        disk = SimulatedDisk(seed)
        run(rename(disk))
        disk.lose_power()
        seen.add((tuple(disk.names(FILE.parent)), disk.content(FILE.with_name("old"))))
    assert seen == {(("new", "old"), b"old"), (("old",), b"new")}


def test_a_sync_saves_what_was_written_before_it_began() -> None:
    async def write(disk: SimulatedDisk) -> None:
        file = disk.open(FILE, create=True)
        await disk.sync_folder(FILE.parent)
        file.write_at(0, b"1")
        slow = asyncio.create_task(file.sync())
        await asyncio.sleep(0)
        file.write_at(1, b"2")
        other = asyncio.create_task(file.sync())
        await asyncio.sleep(0)
        file.write_at(2, b"3")
        await asyncio.gather(slow, other)

    contents = set()
    for seed in SEEDS:
        disk = SimulatedDisk(seed)
        run(write(disk))
        disk.lose_power()
        contents.add(disk.content(FILE))
    assert contents <= {b"12", b"123"}
    assert b"12" in contents


def test_whoever_had_files_open_is_dead_after_a_crash() -> None:
    disk = SimulatedDisk()

    async def crash() -> None:
        file = disk.open(FILE, create=True)
        lock = disk.lock(FILE.with_name("lock"))
        syncing = asyncio.create_task(file.sync())
        await asyncio.sleep(0)
        disk.kill_users()
        with pytest.raises(OSError, match="dead"):
            file.write_at(0, b"x")
        with pytest.raises(OSError, match="dead"):
            await syncing
        mine = disk.lock(FILE.with_name("lock"))
        lock.release()  # no longer his to release
        with pytest.raises(BlockingIOError):
            disk.lock(FILE.with_name("lock"))
        mine.release()

    run(crash())


def test_the_death_of_a_process_loses_nothing() -> None:
    disk = SimulatedDisk()
    disk.open(FILE, create=True).write_at(0, b"written")
    disk.kill_users()
    assert disk.content(FILE) == b"written"


def test_a_full_disk_takes_a_part_at_most_and_holes_take_no_room() -> None:
    disk = SimulatedDisk(capacity_bytes=10 * 4096)
    file = disk.open(FILE, create=True)
    file.truncate(100 * 4096)
    file.write_at(50 * 4096, bytes(9 * 4096))
    with pytest.raises(OSError, match="No space left"):
        file.write_at(0, bytes(2 * 4096))
    assert disk.usage(FILE).free == 4096
    file.write_at(0, bytes(4096))
    with disk.full(), pytest.raises(OSError, match="No space left"):
        disk.open(FILE.with_name("other"), create=True)
    file.truncate(0)
    assert disk.usage(FILE).free == 10 * 4096
    disk.open(FILE.with_name("other"), create=True)


def test_the_same_seed_loses_the_same() -> None:
    for seed in range(5):
        first, second = (after_power_loss(seed, is_synced=False) for _ in range(2))
        assert first == second
