"""A slave's store, fed with the bytes of its master's log."""

import random
from dataclasses import replace

import pytest

from rocketpipe.broker.store.indexes import Placed
from rocketpipe.broker.store.message_store import MessageStore
from rocketpipe.errors import StoreError
from rocketpipe.testing.simulated_disk import SimulatedDisk
from tests.stores import (
    FOLDER,
    LOG,
    SMALL,
    bodies,
    draft,
    everything,
    killed,
    new_store,
    opened,
    properties,
    put,
    put_many,
    simulated,
)


def copy_log(master: MessageStore, slave: MessageStore, *, chunk_bytes: int = 100) -> None:
    while data := master.log_slice(slave.max_physical_offset, chunk_bytes):
        assert len(data) <= chunk_bytes
        slave.append_raw(slave.max_physical_offset, data)


@simulated
async def test_a_slave_has_what_its_master_has() -> None:
    disks = SimulatedDisk(1), SimulatedDisk(2)
    async with opened(disks[0]) as master, opened(disks[1]) as slave:
        heard: list[Placed] = []
        reached: list[int] = []
        slave.on_arrival.append(lambda _, __, arrivals: heard.extend(arrivals))
        slave.on_written.append(reached.append)
        for number in range(100):
            keys = properties(KEYS=f"k{number}", TAGS="t")
            await put(master, draft(b"%d" % number, queue_id=number % 3, properties=keys))
            if not number % 7:
                copy_log(master, slave)
        copy_log(master, slave)
        assert everything(slave) == everything(master)
        assert len(heard) == 100
        assert reached[-1] == slave.max_physical_offset == master.max_physical_offset
        assert slave.query("T", "k5", count_max=9) == master.query("T", "k5", count_max=9)
    for name in disks[0].names(LOG):
        assert disks[1].content(LOG / name) == disks[0].content(LOG / name)


@pytest.mark.final
@pytest.mark.parametrize("seed", range(20))
def test_the_copy_may_come_in_any_pieces_and_the_slave_may_be_killed(seed: int) -> None:
    @simulated
    async def check() -> None:
        dice = random.Random(seed)
        disk = SimulatedDisk(seed)
        async with opened(SimulatedDisk()) as master:
            await put_many(master, 30)
            await put_many(master, 30, topic="U")
            for _ in range(6):
                async with killed(disk, replace(SMALL, checkpoint_bytes=1)) as slave:
                    for _ in range(dice.choice([3, 30])):
                        offset = slave.max_physical_offset
                        data = master.log_slice(offset, dice.choice([1, 7, 90, 500, 5000]))
                        slave.append_raw(offset, data)
                    assert bodies(slave) == bodies(master)[: slave.max_offset("T", 0)]
            async with opened(disk) as slave:
                copy_log(master, slave, chunk_bytes=32 * 1024)
                assert everything(slave) == everything(master)

    check()


@simulated
async def test_a_record_is_read_once_it_is_whole() -> None:
    async with opened(SimulatedDisk(1)) as master, opened(SimulatedDisk(2)) as slave:
        result = await put(master, draft(b"first"))
        data = master.log_slice(0, 9999)
        assert len(data) == result.size
        slave.append_raw(0, data[:-1])
        assert slave.topics() == []
        slave.append_raw(len(data) - 1, data[-1:])
        assert bodies(slave) == [b"first"]


@simulated
async def test_a_body_that_looks_like_a_record_is_a_body() -> None:
    async with opened(SimulatedDisk(1)) as master, opened(SimulatedDisk(2)) as slave:
        await put_many(master, 3)
        # The record of a message that would stand where this body is going to.
        async with opened(SimulatedDisk(3)) as forger:
            await put_many(forger, 3)
            await put(forger, draft(bytes(88 - 91 + 91 - 1 - 1), topic="U"))
            forged_at = master.max_physical_offset + 88
            await put(forger, draft(b"", properties=properties(A="b"), topic="forged"))
            record = bytearray(forger.record_at(forger.physical_offset_at("forged", 0, 0)) or b"")
        record[28:36] = forged_at.to_bytes(8, "big")
        await put(master, draft(bytes(record), topic="U"))
        copy_log(master, slave, chunk_bytes=10)
        assert slave.topics() == ["T", "U"]


@simulated
async def test_a_slave_gets_over_the_same_damage_as_its_master() -> None:
    disk = SimulatedDisk(1)
    async with killed(disk) as master:
        await put_many(master, 60)
        places = [master.physical_offset_at("T", 0, offset) for offset in (3, 20)]
    for path in (FOLDER / "checkpoint", FOLDER / "checkpoint.bak"):
        disk.remove(path)
    for place, byte in zip(places, (4, 90), strict=True):  # a magic, and a body
        disk.flip_bit(LOG / f"{place // 2048 * 2048:020}", 8 * (place % 2048 + byte))
    async with opened(disk) as master, opened(SimulatedDisk(2)) as slave:
        copy_log(master, slave, chunk_bytes=37)
        assert len(bodies(master)) == 58
        assert everything(slave) == everything(master)


@pytest.mark.parametrize("byte", [4, 90])  # a magic, and a body
def test_a_copy_is_cut_before_its_first_damage_and_given_the_rest_again(byte: int) -> None:
    @simulated
    async def check() -> None:
        disk = SimulatedDisk(2)
        async with opened(SimulatedDisk(1)) as master:
            await put_many(master, 10)
            async with killed(disk) as slave:
                copy_log(master, slave)
                place = slave.physical_offset_at("T", 0, 3)
            disk.flip_bit(LOG / f"{0:020}", 8 * (place + byte))
            slave = new_store(disk)
            await slave.open(is_copy=True)
            assert slave.max_physical_offset == place
            assert bodies(slave) == bodies(master)[:3]
            copy_log(master, slave)
            assert everything(slave) == everything(master)
            await slave.close()

    check()


@simulated
async def test_with_sync_flush_a_slave_gets_nothing_that_its_master_could_lose() -> None:
    disk = SimulatedDisk(1)
    disk.sync_seconds = (1.0, 1.0)
    async with opened(disk, replace(SMALL, flush_disk_type="sync")) as master:
        slices: list[int] = []
        master.on_written.append(lambda _: slices.append(len(master.log_slice(0, 9999))))
        result = await put(master, draft(b"slowly"))
        assert slices[0] == 0  # when it was written
        assert slices[-1] == result.size  # when it was safe


@simulated
async def test_bytes_for_another_place_are_refused() -> None:
    async with opened(SimulatedDisk(1)) as master, opened(SimulatedDisk(2)) as slave:
        await put_many(master, 3)
        slave.append_raw(0, master.log_slice(0, 50))
        with pytest.raises(StoreError, match="bytes for 60 of the log, which ends at 50"):
            slave.append_raw(60, b"x")


@simulated
async def test_a_new_slave_may_begin_with_the_masters_last_segment() -> None:
    disk = SimulatedDisk(2)
    async with opened(SimulatedDisk(1)) as master:
        await put_many(master, 100)
        async with killed(disk) as slave:
            assert slave.last_segment_offset == 0
            offset = master.last_segment_offset
            assert offset > 0
            slave.append_raw(offset, master.log_slice(offset, 200))
            copy_log(master, slave)
            assert slave.min_physical_offset == offset
            assert bodies(slave) == bodies(master)[slave.min_offset("T", 0) :]
        async with opened(disk) as slave:
            assert bodies(slave) == bodies(master)[slave.min_offset("T", 0) :]
            assert (await put(slave, draft(b"as a master"))).queue_offset == 100


@simulated
async def test_the_log_is_read_to_its_ends_and_no_further() -> None:
    async with opened(SimulatedDisk()) as store:
        assert store.log_slice(0, 100) == b""
        await put_many(store, 30)
        assert len(store.log_slice(2000, 9999)) == 48
        assert store.log_slice(store.max_physical_offset, 9) == b""
        assert store.log_slice(-1, 9) == store.log_slice(1 << 40, 9) == b""


@simulated
async def test_a_slave_whose_disk_is_full_or_that_is_closed_says_so() -> None:
    disk = SimulatedDisk(2)
    async with opened(SimulatedDisk(1)) as master:
        await put_many(master, 3)
        data = master.log_slice(0, 9999)
        async with opened(disk) as slave:
            with disk.full(), pytest.raises(StoreError, match="No space left"):
                slave.append_raw(0, data)
            slave.append_raw(0, data)
        for store in (slave, new_store(disk)):
            with pytest.raises(StoreError, match="closed"):
                store.append_raw(0, data)
            with pytest.raises(StoreError, match="closed"):
                await store.delete_topic("T")
