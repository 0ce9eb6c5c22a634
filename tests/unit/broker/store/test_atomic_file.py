"""Files that are replaced as a whole."""

import asyncio
import json
from pathlib import Path

import pytest

from rocketpipe.broker.store.atomic_file import AtomicFile
from rocketpipe.testing.simulated_disk import SimulatedDisk
from rocketpipe.testing.simulated_loop import run
from tests.stores import simulated

PATH = Path("/config/topics.json")


@simulated
async def test_what_was_written_is_loaded() -> None:
    disk = SimulatedDisk()
    file = AtomicFile(PATH, disk=disk)
    assert file.load(json.loads) is None
    for content in (b'"a long content"', b'"short"', b"3"):
        await file.write(content)
        assert AtomicFile(PATH, disk=disk).load(json.loads) == json.loads(content)
    assert disk.content(PATH.with_name("topics.json.bak")) == b'"short"'


@simulated
async def test_a_damaged_content_gives_way_to_the_one_before() -> None:
    disk = SimulatedDisk()
    file = AtomicFile(PATH, disk=disk)
    await file.write(b"1")
    await file.write(b'"two"')
    disk.cut(PATH, 3)
    assert file.load(json.loads) == 1
    disk.cut(PATH.with_name("topics.json.bak"), 0)
    assert file.load(json.loads) is None


@pytest.mark.final
@pytest.mark.parametrize("seed", range(100))
def test_a_crash_leaves_the_old_or_the_new_and_never_half(seed: int) -> None:
    disk = SimulatedDisk(seed)

    async def write(number: int) -> None:
        file = AtomicFile(PATH, disk=disk)
        for content in range(number, number + 3):
            await file.write(json.dumps([content] * 300).encode())
            written.append(content)

    async def crash(number: int) -> None:
        writing = asyncio.create_task(write(number))
        await asyncio.wait([writing], timeout=0.0001 * seed)
        writing.cancel()
        await asyncio.wait([writing])
        disk.lose_power()

    written = [0]
    run(AtomicFile(PATH, disk=disk).write(json.dumps([0] * 300).encode()))
    for number in (10, 20, 30):
        run(crash(number))
        loaded = AtomicFile(PATH, disk=disk).load(json.loads)
        assert loaded is not None
        assert loaded == [loaded[0]] * 300
        assert loaded[0] == written[-1] or loaded[0] > written[-1]


@simulated
async def test_writes_at_the_same_time_follow_one_another() -> None:
    disk = SimulatedDisk()
    file = AtomicFile(PATH, disk=disk)
    await asyncio.gather(*(file.write(b"%d" % number) for number in range(5)))
    assert file.load(json.loads) == 4


@simulated
async def test_a_write_that_fails_leaves_the_old_content() -> None:
    disk = SimulatedDisk()
    file = AtomicFile(PATH, disk=disk)
    await file.write(b"1")
    for fault in ("fails_writes", "fails_syncs"):
        setattr(disk, fault, True)
        with pytest.raises(OSError):
            await file.write(b"2")
        setattr(disk, fault, False)
        assert file.load(json.loads) == 1
    await file.write(b"3")
    assert file.load(json.loads) == 3
