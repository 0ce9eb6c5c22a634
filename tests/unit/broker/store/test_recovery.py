"""What a store makes of a folder that a crash, a bad disk or a clumsy hand has left."""

import asyncio
import logging
from copy import deepcopy
from dataclasses import replace
from itertools import product

import pytest

from rocketpipe.broker.store import log_scan, recovery
from rocketpipe.broker.store.message_store import MessageStore
from rocketpipe.broker.store.values import ReadStatus
from rocketpipe.errors import StoreError, StoreLocked
from rocketpipe.testing.simulated_disk import SimulatedDisk
from rocketpipe.testing.simulated_loop import run
from rocketpipe.wire.record import encode_blank
from tests.stores import (
    FOLDER,
    LOG,
    SMALL,
    bodies,
    draft,
    everything,
    killed,
    messages,
    new_store,
    opened,
    properties,
    put,
    put_many,
    simulated,
)

FIRST = LOG / f"{0:020}"
# One segment, and no checkpoint before the end: all is found by reading the log.
LARGE = replace(SMALL, commit_log_segment_bytes=100_000, checkpoint_bytes=1 << 30)
SCANNED = replace(SMALL, checkpoint_bytes=1 << 30, checkpoint_interval=1e9)


async def recovered(disk: SimulatedDisk, *queues: tuple[str, int]) -> list[list[bytes]]:
    """The bodies of these queues that a store finds, which can also be added to."""
    async with killed(disk, LARGE) as store:
        found = [bodies(store, *queue) for queue in queues]
        for topic, queue_id in queues:
            result = await put(store, draft(b"new", topic, queue_id))
            assert result.queue_offset == store.max_offset(topic, queue_id) - 1
            assert bodies(store, topic, queue_id)[-1] == b"new"
        return found


async def three_messages(disk: SimulatedDisk) -> list[int]:
    """The ends of three records: A, B and C, of which B is in another queue."""
    async with killed(disk, LARGE) as store:
        for body, queue_id in ((b"A", 0), (b"B", 1), (b"C", 0)):
            await put(store, draft(body, queue_id=queue_id, properties=properties(TAGS="t")))
        first, third = (store.physical_offset_at("T", 0, offset) for offset in (0, 1))
        second = store.physical_offset_at("T", 1, 0)
        assert (first, store.max_physical_offset) == (0, third + (third - second))
        return [second, third, store.max_physical_offset]


@simulated
async def test_a_log_cut_at_any_byte_of_its_last_record_keeps_the_others() -> None:
    disk = SimulatedDisk()
    _, start, end = await three_messages(disk)
    for size in range(start, end):
        cut = deepcopy(disk)
        cut.cut(FIRST, size)
        assert await recovered(cut, ("T", 0), ("T", 1)) == [[b"A"], [b"B"]]
        async with killed(cut, LARGE) as store:  # the new ones stand right behind the old
            assert store.record_at(start) is not None


# What no checksum and no other number of the log covers, by its place in a record.
UNCOVERED = [
    *range(16, 20),  # flag
    *range(36, 40),  # sysFlag
    *range(40, 56),  # born timestamp and host
    *range(56, 72),  # store timestamp and host
    *range(72, 84),  # reconsume times, prepared transaction offset
]  # fmt: skip


@pytest.mark.slow
@simulated
async def test_a_flipped_bit_is_found_wherever_something_covers_it() -> None:
    disk = SimulatedDisk()
    start, end, _ = await three_messages(disk)
    topic_start = end - start - 2 - len(properties(TAGS="t")) - 1
    # B is alone in its queue, so its topic and queue id could become any other that is empty.
    unnoticed = {*UNCOVERED, *range(12, 16), *range(topic_start, end - start)}
    for place, bit in product(range(end - start), range(8)):
        flipped = deepcopy(disk)
        flipped.flip_bit(FIRST, 8 * (start + place) + bit)
        a_and_c, b = await recovered(flipped, ("T", 0), ("T", 1))
        assert a_and_c == [b"A", b"C"], f"byte {place}, bit {bit}: the other messages are kept"
        is_size_of_a_host = place == 39 and bit in (4, 5)
        if place not in unnoticed or is_size_of_a_host:
            assert b == [], f"byte {place}, bit {bit}: the damaged message is not given out"


@simulated
async def test_a_flipped_bit_in_topic_queue_id_or_queue_offset_breaks_the_count() -> None:
    disk = SimulatedDisk()
    async with killed(disk, LARGE) as store:
        await put_many(store, 3)
        start = store.physical_offset_at("T", 0, 1)
    topic_at = 88 + len(b"body 1") + 1
    for place, bit in product((*range(12, 16), *range(20, 28), topic_at), range(8)):
        flipped = deepcopy(disk)
        flipped.flip_bit(FIRST, 8 * (start + place) + bit)
        (found,) = await recovered(flipped, ("T", 0))
        assert found == [b"body 0", b"body 2"], f"byte {place}, bit {bit}"


@simulated
async def test_a_lost_message_leaves_a_gap_that_is_read_over() -> None:
    disk = SimulatedDisk()
    async with killed(disk, LARGE) as store:
        await put_many(store, 5)
        places = [store.physical_offset_at("T", 0, offset) for offset in range(5)]
    disk.flip_bit(FIRST, 8 * (places[1] + 88))  # its body
    disk.flip_bit(FIRST, 8 * (places[3] + 4))  # its magic
    async with killed(disk, LARGE) as store:
        assert [(m.queue_offset, m.body) for m in messages(store)] == [
            *((0, b"body 0"), (2, b"body 2"), (4, b"body 4"))
        ]
        read = store.read("T", 0, 1, count_max=1, bytes_max=100)
        assert (read.status, read.next_offset) == (ReadStatus.NO_MATCHED_MESSAGE, 2)
        times = [store.store_time_at("T", 0, offset) for offset in range(5)]
        assert times == sorted(times)


@simulated
async def test_properties_that_never_reached_the_disk_are_noticed() -> None:
    disk = SimulatedDisk()
    async with killed(disk, LARGE) as store:
        for value in ("a", "b", "c"):
            await put(store, draft(b"", properties=properties(A=value * 1000)))
        second = store.physical_offset_at("T", 0, 1)
    for start, end in ((95, 600), (300, 812), (1050, 1095)):
        damaged = deepcopy(disk)
        damaged._files[FIRST].data[second + start : second + end] = bytes(end - start)
        async with killed(damaged, LARGE) as store:
            assert [m.queue_offset for m in messages(store)] == [0, 2]


@simulated
async def test_the_offset_of_a_lost_message_is_not_given_to_another() -> None:
    disk = SimulatedDisk()
    async with killed(disk, LARGE) as store:
        await put(store, draft(b"lost"))
        place = store.max_physical_offset
        await put(store, draft(b"other", queue_id=1))
    disk.flip_bit(FIRST, 8 * (place - 5))
    async with killed(disk, LARGE) as store:
        assert (await put(store, draft(b"next"))).queue_offset == 1


def test_damage_and_a_torn_end_are_told(caplog: pytest.LogCaptureFixture) -> None:
    disk = SimulatedDisk()
    start, _, size = run(three_messages(disk))
    disk.flip_bit(FIRST, 8 * (start + 88))
    disk.cut(FIRST, size - 1)
    with caplog.at_level(logging.WARNING):
        run(recovered(disk, ("T", 0)))
    assert "was not closed in order" in caplog.text
    # With C torn, B is the last whole frame, but its body is damaged: all from there on is cut.
    assert f"{size - 1 - start} bytes at {start}" in caplog.text


def test_a_record_larger_than_what_is_read_at_once_recovers() -> None:
    settings = replace(LARGE, commit_log_segment_bytes=1 << 24, message_bytes_max=1 << 22)
    disk = SimulatedDisk()

    async def large() -> None:
        async with killed(disk, settings) as store:
            for size in (100, 3 << 20, 100, 1 << 20, 100):
                await put(store, draft(bytes(size)))

    async def look() -> list[int]:
        async with killed(disk, settings) as store:
            return [len(body) for body in bodies(store)]

    run(large())
    assert run(look()) == [100, 3 << 20, 100, 1 << 20, 100]
    disk.flip_bit(FIRST, 8 * (400 + (2 << 20)))  # within the 3 MiB
    assert run(look()) == [100, 100, 1 << 20, 100]
    disk.flip_bit(FIRST, 8 * (100 + 91 + 1 + 7))  # the size of that record
    assert run(look()) == [100, 100, 1 << 20, 100]


@pytest.mark.parametrize("window_bytes", [*range(100, 230, 9), 2048])
def test_the_next_record_is_found_wherever_the_reading_stops(
    window_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_scan, "_WINDOW_BYTES", window_bytes)

    @simulated
    async def check() -> None:
        disk = SimulatedDisk()
        async with killed(disk, LARGE) as store:
            for size in (5, 700, 5, 5):
                await put(store, draft(bytes(size)))
            second = store.physical_offset_at("T", 0, 1)
        disk.flip_bit(FIRST, 8 * (second + 4))
        async with killed(disk, LARGE) as store:
            assert [len(body) for body in bodies(store)] == [5, 5, 5]

    check()


@simulated
async def test_a_deletion_holds_from_the_moment_it_is_written_down() -> None:
    outcomes = set()
    for step in range(30):
        disk = SimulatedDisk(step)
        async with opened(disk) as store:
            await put_many(store, 10)
        async with killed(disk) as store:
            deleting = asyncio.create_task(store.delete_topic("T"))
            await asyncio.wait([deleting], timeout=0.001 * step)
            deleting.cancel()
            await asyncio.wait([deleting])
            is_written = "deletedTopics.json" in disk.names(FOLDER / "config")
        async with opened(disk) as store:
            assert (store.topics() == []) == is_written
            assert (await put(store, draft())).queue_offset == (0 if is_written else 10)
        outcomes.add(is_written)
    assert outcomes == {True, False}


def test_what_is_built_anew_does_not_pile_up_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "_RECORDS_IN_MEMORY", 10)

    @simulated
    async def check() -> None:
        disk = SimulatedDisk()
        async with killed(disk, LARGE) as store:
            await put_many(store, 45)
        async with killed(disk, LARGE) as store:
            assert len(store._queues["T", 0]._tail) == 5 * 20
            await store._indexes.checkpoint(store._log.sync)
        disk.lose_power()
        async with opened(disk, LARGE) as store:
            assert len(bodies(store)) == 45

    check()


@pytest.mark.parametrize("segment", range(1, 4))
def test_a_segment_that_is_missing_costs_what_was_in_it(segment: int) -> None:
    disk = SimulatedDisk()

    async def fill() -> list[int]:
        async with killed(disk) as store:
            await put_many(store, 100)
            return store._log.segment_starts

    async def look() -> None:
        async with killed(disk) as store:
            found = [m.queue_offset for m in messages(store)]
            lost = sorted(set(range(100)) - set(found))
            assert lost == list(range(lost[0], lost[-1] + 1))
            assert 10 < len(lost) < 30
            assert (await put(store, draft(b"new"))).queue_offset == 100

    starts = run(fill())
    disk.remove(LOG / f"{starts[segment]:020}")
    disk.remove(FOLDER / "checkpoint")
    disk.remove(FOLDER / "checkpoint.bak")
    run(look())


@pytest.mark.parametrize(
    "lost",
    [
        "checkpoint*",
        "checkpoint",
        "consumequeue/*",
        "consumequeue/T/0/*",
        "consumequeue/T/0/00000000000000000160",
        "index/*",
        "*index/*",
        "config/*",
    ],
)
@pytest.mark.parametrize("is_closed", [True, False])
def test_what_is_derived_from_the_log_is_built_anew(lost: str, is_closed: bool) -> None:
    disk = SimulatedDisk()

    async def fill() -> object:
        async with (opened if is_closed else killed)(disk) as store:
            for number in range(60):
                keys = properties(KEYS=f"k{number}", TAGS="t")
                await put(store, draft(b"%d" % number, queue_id=number % 3, properties=keys))
            for _ in range(10):
                await put(store, draft(topic="deleted"))
            await store.delete_topic("deleted")
            await put(store, draft(b"of a new life", topic="deleted"))
            return look_at(store)

    async def look() -> object:
        async with opened(disk) as store:
            return look_at(store)

    def look_at(store: MessageStore) -> object:
        by_key = [store.query("T", f"k{n}", count_max=9).records for n in range(60)]
        return everything(store), [len(found) for found in by_key]

    before = run(fill())
    for path in list(disk._files):
        if path.relative_to(FOLDER).match(lost) or (
            lost.endswith("/*") and str(path.relative_to(FOLDER)).startswith(lost[:-1].strip("*"))
        ):
            disk.remove(path)
    if lost == "config/*":
        return  # deletions are remembered there: it is not derived, and not built anew
    assert run(look()) == before
    assert run(look()) == before


def test_a_log_that_is_shorter_than_the_checkpoint_rules() -> None:
    disk = SimulatedDisk()

    async def fill() -> int:
        async with opened(disk, LARGE) as store:
            await put_many(store, 10)
            return store.physical_offset_at("T", 0, 4)

    disk.cut(FIRST, run(fill()) + 3)
    assert run(recovered(disk, ("T", 0))) == [[b"body %d" % n for n in range(4)]]


def test_a_damaged_checkpoint_is_not_believed() -> None:
    disk = SimulatedDisk()

    async def fill() -> None:
        async with opened(disk) as store:
            await put_many(store, 30)

    run(fill())
    for name in ("checkpoint", "checkpoint.bak"):
        if name in disk.names(FOLDER):
            disk.flip_bit(FOLDER / name, 8 * 30)
    assert len(run(recovered(disk, ("T", 0)))[0]) == 30


@simulated
async def test_two_brokers_cannot_open_one_folder() -> None:
    disk = SimulatedDisk()
    async with opened(disk) as store:
        with pytest.raises(StoreLocked, match="/store is open in another broker"):
            await new_store(disk).open()
        await put(store, draft())
    async with opened(disk) as store:
        assert bodies(store) == [b"body"]


@simulated
async def test_a_folder_that_fails_says_so_and_is_let_go() -> None:
    disk = SimulatedDisk()
    disk.open(LOG / "README", create=True).close()
    with pytest.raises(StoreError, match="README"):
        await new_store(disk).open()
    disk.remove(LOG / "README")
    disk.remove(FOLDER / "abort")
    disk.capacity_bytes = 0
    with pytest.raises(StoreError, match="No space left"):
        await new_store(disk).open()
    disk.capacity_bytes = 1 << 30
    async with opened(disk) as store:
        await put(store, draft())


@simulated
async def test_the_abort_marker_is_there_while_the_store_is_open() -> None:
    disk = SimulatedDisk()
    async with opened(disk):
        assert "abort" in disk.names(FOLDER)
    assert "abort" not in disk.names(FOLDER)
    async with killed(disk):
        pass
    assert "abort" in disk.names(FOLDER)


@simulated
async def test_files_may_change_their_sizes_between_two_runs() -> None:
    disk = SimulatedDisk()
    for size, entries in ((2048, 8), (700, 16), (5000, 7), (300, 100), (100_000, 100)):
        settings = replace(
            SMALL,
            commit_log_segment_bytes=size,
            consume_queue_segment_entries=entries,
            index_slots=entries,
            checkpoint_bytes=1,
        )
        async with killed(disk, settings) as store:
            before = len(bodies(store))
            await put_many(store, 20)
            await asyncio.sleep(1)
            assert len(bodies(store)) == before + 20
    disk.remove(FOLDER / "checkpoint")
    disk.remove(FOLDER / "checkpoint.bak")
    async with opened(disk) as store:
        assert len(bodies(store)) == 100


@simulated
async def test_a_new_segment_is_not_taken_for_the_torn_one_that_had_its_name() -> None:
    disk = SimulatedDisk()
    async with killed(disk, SCANNED) as store:
        await put_many(store, 100)
    for name in disk.names(LOG)[:-1]:
        disk.cut(LOG / name, 1000 if name == FIRST.name else 0)  # found torn, and all behind it
    disk.cut(LOG / disk.names(LOG)[-1], 0)
    async with opened(disk, SCANNED) as store:
        kept = len(bodies(store))
        assert 0 < kept < 20
        await put_many(store, 100)
        assert bodies(store)[kept:] == [b"body %d" % number for number in range(100)]


@simulated
async def test_nothing_is_written_behind_the_filler_of_a_segment_that_a_kill_left_short() -> None:
    disk = SimulatedDisk()
    async with killed(disk) as store:
        end = (await put(store, draft(b"before"))).end_offset
    segment = disk.open(LOG / f"{0:020}")
    segment.write_at(end, encode_blank(SMALL.commit_log_segment_bytes - end))
    segment.close()
    async with killed(disk) as store:
        await put(store, draft(b"after"))
        assert bodies(store) == [b"before", b"after"]
    async with opened(disk) as store:
        assert bodies(store) == [b"before", b"after"]
