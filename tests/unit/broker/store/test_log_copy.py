"""A slave's store, compared with its master's log and cut back to what both have."""

import asyncio
import itertools
import logging

import pytest

from rocketpipe.broker.store.message_store import MessageStore
from rocketpipe.errors import StoreError
from rocketpipe.testing.simulated_disk import Killed, SimulatedDisk
from rocketpipe.testing.simulated_loop import run
from rocketpipe.wire.record import decode_records
from tests.stores import (
    FOLDER,
    LOG,
    bodies,
    draft,
    everything,
    new_store,
    opened,
    properties,
    put,
    put_many,
    simulated,
)


async def fill(store: MessageStore, first: int, end: int) -> None:
    """Messages of two topics, with keys; several segments of them, if many."""
    for number in range(first, end):
        keys = properties(KEYS=f"k{number}")
        topic = "TU"[number % 2]
        await put(store, draft(b"%d" % number, topic, queue_id=number % 3, properties=keys))


def place_of(store: MessageStore, number: int) -> int:
    """Where the record of the message with that number begins."""
    (record,) = store.query("TU"[number % 2], f"k{number}", count_max=9).records
    return decode_records(record)[0].physical_offset


def log_of(store: MessageStore) -> bytes:
    first, end = store.min_physical_offset, store.max_physical_offset
    parts = []
    while first < end:
        parts.append(store.log_slice(first, end - first))
        first += len(parts[-1])
    return b"".join(parts)


def set_aside(disk: SimulatedDisk) -> dict[int, bytes]:
    """What was set aside, by the offset at which it begins."""
    names = [name for name in disk.names(LOG) if ".cut-" in name]
    return {int(name[:20]): disk.content(LOG / name) for name in names}


@simulated
async def test_the_first_difference_is_found_to_the_byte_in_any_segment() -> None:
    async with opened(SimulatedDisk()) as store:
        await fill(store, 0, 60)
        whole, end = log_of(store), store.max_physical_offset
        assert len(whole) == end > 3 * 2048
        differs = store.log_copy.first_difference
        for place in (0, 100, 2047, 2048, 5000, end - 1):
            other = whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :]
            assert differs(0, other) == place
            assert differs(50, other[50:]) == (place if place >= 50 else None)
            assert differs(0, other[:place]) is None
        assert differs(0, whole + b"more") is None
        assert differs(end, b"more") is None


@simulated
async def test_the_start_of_a_record_is_found_from_any_offset_in_it() -> None:
    async with opened(SimulatedDisk()) as store:
        await fill(store, 0, 40)
        places = [place_of(store, number) for number in range(40)]
        record_start = store.log_copy.record_start
        for place, following in itertools.pairwise(places):
            assert record_start(place + 1) == place
            assert record_start(following) in (following, place + len(_record(store, place)))
        assert record_start(0) == 0
        assert record_start(1 << 40) == store.max_physical_offset


def _record(store: MessageStore, place: int) -> bytes:
    record = store.record_at(place)
    assert record is not None
    return record


@simulated
async def test_only_a_whole_record_of_a_queue_counts_as_one() -> None:
    async with opened(SimulatedDisk()) as store:
        await fill(store, 0, 5)
        start, end = place_of(store, 3), place_of(store, 4)
        assert store.log_copy.has_record(start, end)
        assert store.log_copy.has_record(0, end)
        assert not store.log_copy.has_record(start + 1, end)
        assert not store.log_copy.has_record(start, end - 1)


@pytest.mark.parametrize("number", [1, 7, 20, 59])
def test_a_log_that_is_cut_holds_what_it_held_before(number: int) -> None:
    @simulated
    async def check() -> None:
        disk = SimulatedDisk(1)
        async with opened(disk) as store, opened(SimulatedDisk(2)) as shorter:
            await fill(shorter, 0, number)
            await fill(store, 0, number)
            held, log = everything(store), log_of(store)
            await asyncio.sleep(5)  # for a checkpoint
            await fill(store, number, 60)
            whole = log_of(store)
            place = place_of(store, number)
            end = len(log)  # of the last record, which may be before the end of its segment
            await store.log_copy.cut(store.log_copy.record_start(place + 1))
            assert everything(store) == held
            assert store.max_physical_offset == place
            assert log_of(store)[:end] == log
            for each in range(60):
                found = store.query("TU"[each % 2], f"k{each}", count_max=9).records
                assert len(found) == (1 if each < number else 0)
            kept = set_aside(disk)
            assert b"".join(kept[start] for start in sorted(kept)) == whole[place:]
            # It goes on as if the rest had never been there.
            await fill(store, number, 60)
            assert {key: len(each) for key, each in everything(store).items()} == {
                ("T", 0): 10, ("T", 1): 10, ("T", 2): 10, ("U", 0): 10, ("U", 1): 10, ("U", 2): 10
            }  # fmt: skip
            after = everything(store)
        async with opened(disk) as store:
            assert everything(store) == after
            assert len(store.query("U", "k59", count_max=9).records) == 1

    check()


@simulated
async def test_a_queue_that_was_only_in_what_is_cut_is_gone() -> None:
    async with opened(SimulatedDisk()) as store:
        await put_many(store, 3)
        end = store.max_physical_offset
        await put_many(store, 3, topic="lost")
        await store.log_copy.cut(end)
        assert store.topics() == ["T"]
        assert (await put(store, draft(b"first", topic="lost"))).queue_offset == 0


@simulated
async def test_a_log_cut_at_its_start_may_begin_elsewhere() -> None:
    disk = SimulatedDisk(1)
    async with opened(SimulatedDisk(2)) as master:
        await put_many(master, 100)
        async with opened(disk) as store:
            await fill(store, 0, 30)
            whole = log_of(store)
            await store.log_copy.cut(0)
            assert (store.max_physical_offset, store.topics()) == (0, [])
            kept = set_aside(disk)
            assert b"".join(kept[start] for start in sorted(kept)) == whole
            offset = master.last_segment_offset
            store.append_raw(offset, master.log_slice(offset, 9999))
            assert store.min_physical_offset == offset
            assert bodies(store) == bodies(master)[store.min_offset("T", 0) :]
        async with opened(disk) as store:
            assert bodies(store) == bodies(master)[store.min_offset("T", 0) :]


@simulated
async def test_what_comes_in_place_of_a_deleted_topics_messages_is_not_deleted() -> None:
    disk = SimulatedDisk(1)
    async with opened(disk) as store:
        await put_many(store, 2)
        end = store.max_physical_offset
        await put_many(store, 3, topic="U")
        await store.delete_topic("U")
        await store.log_copy.cut(end)
        await put_many(store, 2, topic="U")
    for path in (FOLDER / "checkpoint", FOLDER / "checkpoint.bak"):
        disk.remove(path)  # so that all is read from the log
    async with opened(disk) as store:
        assert bodies(store, "U") == [b"body 0", b"body 1"]


@simulated
async def test_a_cut_that_the_disk_refuses_harms_nothing_and_can_be_made_later() -> None:
    disk = SimulatedDisk(1)
    async with opened(disk) as store:
        await fill(store, 0, 30)
        place, held = place_of(store, 9), everything(store)
        with disk.full(), pytest.raises(StoreError, match="No space left"):
            await store.log_copy.cut(place)
        assert log_of(store)[place:]
        await store.log_copy.cut(place)
        assert store.max_physical_offset == place
        assert sum(map(len, everything(store).values())) == 9
        await fill(store, 9, 30)
        assert {key: len(each) for key, each in everything(store).items()} == {
            key: len(each) for key, each in held.items()
        }


async def live(disk: SimulatedDisk, number: int) -> None:
    """Cut a log at this message, which the disk may end."""
    store = new_store(disk)
    await store.open(is_copy=True)
    await store.log_copy.cut(place_of(store, number) if number else 0)
    await fill(store, 100, 140)  # so it ends behind the checkpoint of the log before
    disk.kill_users()
    store.kill()


@pytest.mark.parametrize("number", [0, 9, 26])
@pytest.mark.parametrize("is_power_lost", [False, True])
def test_a_crash_while_it_is_cut_leaves_the_one_log_or_the_other(
    number: int, is_power_lost: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def begin(disk: SimulatedDisk) -> None:
        async with opened(disk) as store:
            await fill(store, 0, 30)

    async def look(disk: SimulatedDisk) -> list[int]:
        store = new_store(disk)
        await store.open(is_copy=True)
        found = everything(store).values()
        numbers = sorted(int(body) for messages in found for _, body in messages)
        for each in numbers:
            place_of(store, each)  # by key, so all indexes agree
        await store.close()
        return numbers

    caplog.set_level(logging.ERROR)
    for changes in itertools.count():
        disk = SimulatedDisk(seed=changes)
        run(begin(disk))
        disk.changes_left = changes
        try:
            run(live(disk, number))
        except Killed:
            disk.kill_users()
        is_whole_life = disk.changes_left > 0
        disk.changes_left = None
        if is_power_lost:
            disk.lose_power()
        numbers = run(look(disk))
        old = [each for each in numbers if each < 100]
        new = [each for each in numbers if each >= 100]
        assert old == list(range(len(old)))
        assert new == list(range(100, 100 + len(new)))
        assert not new or len(old) == number
        if is_whole_life:
            break
    assert "lost" not in caplog.text
    assert is_power_lost or new == list(range(100, 140))
