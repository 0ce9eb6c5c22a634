"""A master that comes back without the end of its log, and the slave that has it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from rocketpipe.broker import slave as slave_module
from rocketpipe.broker.broker import Broker
from rocketpipe.broker.store.settings import StoreSettings
from rocketpipe.codes import RequestCode
from rocketpipe.remoting.address import Address
from rocketpipe.testing.simulated_disk import SimulatedDisk
from rocketpipe.wire.record import decode_records
from tests.unit.broker.bench import BROKER_HOST, FOLDER, Bench, messages, send, simulated
from tests.unit.broker.test_replication import SYNC, code_of, slave_of

LOG = FOLDER / "commitlog"
SMALL = StoreSettings(commit_log_segment_bytes=4096, message_bytes_max=2000)


def log_of(broker: Broker) -> tuple[int, bytes]:
    """Where the log begins, and what is in it."""
    store = broker.store
    first = position = store.min_physical_offset
    parts = []
    while part := store.log_slice(position, 1 << 20):
        parts.append(part)
        position += len(part)
    return first, b"".join(parts)


def bodies(broker: Broker) -> list[bytes]:
    return [message.body for message in messages(broker)]


def set_aside(disk: SimulatedDisk) -> dict[int, bytes]:
    """What was set aside, by the offset at which it begins."""
    names = [name for name in disk.names(LOG) if ".cut-" in name]
    return {int(name[:20]): disk.content(LOG / name) for name in names}


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110  # simulated time
            await asyncio.sleep(0.1)


async def fill(bench: Bench, master: Broker, first: int, end: int, word: bytes = b"old") -> None:
    """Messages whose records are all of one size, so that other ones begin where they did."""
    async with bench.client(master.address) as client:
        for number in range(first, end):
            await send(client, body=b"%s %02d" % (word, number))


def place_of(broker: Broker, number: int) -> int:
    return broker.store.physical_offset_at("orders", 0, number)


@asynccontextmanager
async def follows(bench: Bench, disk: SimulatedDisk) -> AsyncIterator[Broker]:
    async with slave_of(bench, disk, store=SMALL) as slave:
        yield slave


async def copied(bench: Bench, disk: SimulatedDisk, count: int = 20) -> None:
    """Let a master get messages, and a slave copy them; then both are gone."""
    async with bench.broker(store=SMALL) as master, follows(bench, disk) as slave:
        await fill(bench, master, 0, count)
        await until(lambda: log_of(slave) == log_of(master))


def lose_end(disk: SimulatedDisk, offset: int) -> None:
    """Lose all of a log from that offset on, as with the power."""
    for name in disk.names(LOG):
        if int(name) >= offset:
            disk.remove(LOG / name)
        elif int(name) + 4096 > offset:
            disk.cut(LOG / name, offset - int(name))


async def place_in(bench: Bench, number: int) -> int:
    """Where in the master's log that message is."""
    async with bench.broker(store=SMALL) as master:
        return place_of(master, number)


@simulated
async def test_a_slave_follows_a_master_that_lost_its_end_and_grew_past_it(bench: Bench) -> None:
    disk = SimulatedDisk(7)
    await copied(bench, disk)
    lost = await place_in(bench, 12)
    lose_end(bench.disk, lost)
    async with bench.broker(store=SMALL) as master:
        await fill(bench, master, 12, 40, b"new")
        async with follows(bench, disk) as slave:
            await until(lambda: log_of(slave) == log_of(master))
            expected = [b"old %02d" % n for n in range(12)] + [
                b"new %02d" % n for n in range(12, 40)
            ]
            assert bodies(slave) == bodies(master) == expected
            await fill(bench, master, 40, 45, b"new")
            await until(lambda: log_of(slave) == log_of(master))
    # What the master has lost is not lost.
    kept = set_aside(disk)
    assert min(kept) == lost
    found = decode_records(kept[lost].rstrip(b"\0")[: -8 if len(kept) > 1 else None])
    assert found[0].body == b"old 12"
    # The slave's files are as sound as its memory.
    async with bench.broker(store=SMALL) as master, follows(bench, disk) as slave:
        assert bodies(slave) == bodies(master)
        await until(lambda: slave.slave_sync.link is not None)
    assert len(set_aside(disk)) == len(kept)


@simulated
async def test_what_a_master_lost_stays_with_its_slave_until_there_is_something_else(
    bench: Bench,
) -> None:
    disk = SimulatedDisk(7)
    await copied(bench, disk)
    lose_end(bench.disk, await place_in(bench, 12))
    async with bench.broker(store=SMALL) as master, follows(bench, disk) as slave:
        await asyncio.sleep(100)
        assert bodies(slave) == [b"old %02d" % number for number in range(20)]
        assert bodies(master) == bodies(slave)[:12]
        assert not set_aside(disk)
        (link,) = master.slaves.links  # that waits, and does not come again and again
        assert link.acked == master.store.max_physical_offset
        await fill(bench, master, 12, 13, b"new")
        await until(lambda: log_of(slave) == log_of(master))
        assert bodies(slave)[-2:] == [b"old 11", b"new 12"]


@simulated
async def test_a_slave_that_was_connected_all_the_time_follows_too(bench: Bench) -> None:
    disk = SimulatedDisk(7)
    async with follows(bench, disk) as slave:
        async with bench.broker(store=SMALL) as master:
            await fill(bench, master, 0, 20)
            await until(lambda: log_of(slave) == log_of(master))
            lost = place_of(master, 12)
        lose_end(bench.disk, lost)
        async with bench.broker(store=SMALL) as master:
            await fill(bench, master, 12, 22, b"new")
            await until(lambda: log_of(slave) == log_of(master))


@simulated
async def test_a_sync_masters_sends_are_answered_when_its_slave_has_given_way(
    bench: Bench,
) -> None:
    disk = SimulatedDisk(7)
    await copied(bench, disk)
    lose_end(bench.disk, await place_in(bench, 12))
    async with (
        bench.broker(store=SMALL, **SYNC) as master,
        follows(bench, disk) as slave,
        bench.client(master.address) as client,
    ):
        await until(lambda: any(link.acked > 0 for link in master.slaves.links))
        assert (await code_of(client, b"new"))[0] == 0
        assert log_of(slave) == log_of(master)


@simulated
async def test_nothing_is_cut_where_both_have_the_same(bench: Bench) -> None:
    disk = SimulatedDisk(7)
    await copied(bench, disk)
    async with bench.broker(store=SMALL) as master, follows(bench, disk) as slave:
        await fill(bench, master, 20, 30)
        await until(lambda: log_of(slave) == log_of(master))
        bench.network.reset(BROKER_HOST, slave.settings.host)
        await fill(bench, master, 30, 35)
        await until(lambda: log_of(slave) == log_of(master))
    assert not set_aside(disk)


@simulated
async def test_a_slave_without_anything_takes_the_masters_log_as_it_is(bench: Bench) -> None:
    disk = SimulatedDisk(7)
    async with bench.broker(store=SMALL) as master:
        await fill(bench, master, 0, 20)
        async with follows(bench, disk) as slave:
            await until(lambda: log_of(slave) == log_of(master))
    assert not set_aside(disk)


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_master_may_have_deleted_its_oldest_segments(is_lost: bool) -> None:
    @simulated
    async def check(bench: Bench) -> None:
        disk = SimulatedDisk(7)
        await copied(bench, disk, 60)
        for name in bench.disk.names(LOG)[:2]:
            bench.disk.remove(LOG / name)
        if is_lost:
            lose_end(bench.disk, await place_in(bench, 50))
        async with bench.broker(store=SMALL) as master:
            await fill(bench, master, 50 if is_lost else 60, 80, b"new")
            async with follows(bench, disk) as slave:
                await until(lambda: log_of(slave)[1].endswith(log_of(master)[1]))
                assert log_of(slave)[0] == 0
                first = master.store.min_offset("orders", 0)
                assert first > 10
                assert bodies(slave)[first:] == bodies(master)
        assert bool(set_aside(disk)) == is_lost

    check()


@simulated
async def test_a_slave_begins_anew_where_the_master_deleted_all_it_has(bench: Bench) -> None:
    disk = SimulatedDisk(7)
    await copied(bench, disk)
    async with bench.broker(store=SMALL) as master:
        await fill(bench, master, 20, 90)
    for name in bench.disk.names(LOG)[:2]:
        bench.disk.remove(LOG / name)
    async with bench.broker(store=SMALL) as master, follows(bench, disk) as slave:
        await until(lambda: log_of(slave) == log_of(master))
        assert log_of(slave)[0] == 8192
        assert bodies(slave) == bodies(master)
    assert min(set_aside(disk)) == 0


@simulated
async def test_a_slave_begins_anew_where_nothing_is_the_same(bench: Bench) -> None:
    disk = SimulatedDisk(7)
    await copied(bench, disk)
    lose_end(bench.disk, 0)
    async with bench.broker(store=SMALL) as master, follows(bench, disk) as slave:
        await asyncio.sleep(20)  # an empty master has nothing to say against what we have
        assert len(bodies(slave)) == 20
        await fill(bench, master, 0, 3, b"new")
        await until(lambda: log_of(slave) == log_of(master))
        assert bodies(slave) == [b"new 00", b"new 01", b"new 02"]
    assert min(set_aside(disk)) == 0


@pytest.mark.parametrize("compared_bytes", [1, 300, 1500])
def test_what_differs_may_reach_back_further_than_what_is_compared_at_first(
    compared_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slave_module, "COMPARED_BYTES", compared_bytes)

    @simulated
    async def check(bench: Bench) -> None:
        disk = SimulatedDisk(7)
        await copied(bench, disk, 60)
        lost = await place_in(bench, 7)
        lose_end(bench.disk, lost)
        async with bench.broker(store=SMALL) as master:
            await fill(bench, master, 7, 70, b"new")
            async with follows(bench, disk) as slave:
                await until(lambda: log_of(slave) == log_of(master))
        assert min(set_aside(disk)) == lost

    check()


@simulated
async def test_a_slave_has_what_its_master_kept_behind_what_it_lost(bench: Bench) -> None:
    disk = SimulatedDisk(7)
    await copied(bench, disk)
    lost = await place_in(bench, 7)
    bench.disk.flip_bit(LOG / f"{lost // 4096 * 4096:020}", 8 * (lost % 4096 + 4))
    for name in ("checkpoint", "checkpoint.bak"):
        bench.disk.remove(FOLDER / name)
    async with bench.broker(store=SMALL) as master, follows(bench, disk) as slave:
        await fill(bench, master, 20, 21)
        await until(lambda: log_of(slave) == log_of(master))
        assert len(bodies(slave)) == 20
        assert bodies(slave) == bodies(master)
    assert min(set_aside(disk)) == lost


@simulated
async def test_a_master_whose_first_record_is_torn_has_slaves_as_well(bench: Bench) -> None:
    disk = SimulatedDisk(7)
    await copied(bench, disk)
    bench.disk.flip_bit(LOG / f"{0:020}", 8 * 90)  # the length of its body
    for name in ("checkpoint", "checkpoint.bak"):
        bench.disk.remove(FOLDER / name)
    async with bench.broker(store=SMALL) as master, follows(bench, disk) as slave:
        await until(lambda: log_of(slave) == log_of(master))
        assert bodies(slave) == bodies(master)


@simulated
async def test_a_slave_whose_disk_is_full_cuts_its_log_when_there_is_room(bench: Bench) -> None:
    disk = SimulatedDisk(7)
    await copied(bench, disk)
    lose_end(bench.disk, await place_in(bench, 12))
    async with bench.broker(store=SMALL) as master:
        await fill(bench, master, 12, 40, b"new")
        async with follows(bench, disk) as slave:
            with disk.full():
                await asyncio.sleep(20)
            await until(lambda: log_of(slave) == log_of(master))
            assert bodies(slave) == bodies(master)


@simulated
async def test_who_has_something_never_asks_for_it_as_who_has_nothing_does(bench: Bench) -> None:
    # RocketMQ's master would begin with its last file.
    disk = SimulatedDisk(7)
    await copied(bench, disk)
    heard: list[bytes] = []

    class HalfMaster(asyncio.Protocol):
        def data_received(self, data: bytes) -> None:
            heard.append(data)

    async with bench.broker(store=SMALL, ha_listen_port=10913):
        listener = await bench.network.host(BROKER_HOST).listen(
            Address(BROKER_HOST, 10912), HalfMaster
        )
        async with follows(bench, disk):
            await until(lambda: bool(heard))
        await listener.close()
    assert heard[0] == (1).to_bytes(8, "big")


@simulated
async def test_a_master_that_does_not_say_where_its_log_is_is_not_followed_blindly(
    bench: Bench,
) -> None:
    disk = SimulatedDisk(7)
    await copied(bench, disk)
    lose_end(bench.disk, await place_in(bench, 12))
    async with bench.broker(store=SMALL) as master:
        await fill(bench, master, 12, 40, b"new")
        master.faults.refuse(1, code=RequestCode.GET_BROKER_RUNTIME_INFO)
        async with follows(bench, disk) as slave:
            await asyncio.sleep(30)
            assert len(bodies(slave)) == 20
            assert slave.slave_sync.link is None
            master.faults.clear()
            await until(lambda: log_of(slave) == log_of(master))
