"""What is put, how it is written, and what is refused."""

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise

import pytest

from rocketpipe.broker.store.indexes import Placed, messages_of
from rocketpipe.broker.store.values import MessageDraft, PutResult, PutStatus
from rocketpipe.host import pack_host
from rocketpipe.message import StoredMessage
from rocketpipe.testing.simulated_disk import SimulatedDisk
from rocketpipe.testing.simulated_loop import WALL_START_MS, SimulatedClock, run
from rocketpipe.wire.batch import BatchMember, encode_batch
from rocketpipe.wire.hashing import tags_code
from rocketpipe.wire.record import blank_size, decode_record
from rocketpipe.wire.sys_flag import (
    STORE_HOST_V6,
    TRANSACTION_COMMIT,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
)
from tests.stores import (
    LOG,
    SMALL,
    bodies,
    draft,
    everything,
    messages,
    new_store,
    opened,
    properties,
    put,
    put_many,
    simulated,
)


@simulated
async def test_a_message_is_stored_with_all_that_was_said_of_it() -> None:
    async with opened(SimulatedDisk()) as store:
        await put(store, draft())
        await asyncio.sleep(0.25)
        result = await put(
            store,
            MessageDraft(
                topic="orders",
                queue_id=3,
                body=b"a body",
                properties=properties(TAGS="paid", KEYS="a b"),
                born_timestamp_ms=17,
                born_host=pack_host("10.0.0.1:5"),
                store_host=pack_host("[::1]:10911"),
                flag=4,
                sys_flag=TRANSACTION_COMMIT,
                reconsume_times=5,
                prepared_transaction_offset=6,
            ),
        )
        record = store.record_at(result.physical_offsets[0])
        assert record is not None
        stored = decode_record(record)
        assert stored == StoredMessage(
            topic="orders",
            body=b"a body",
            properties={"TAGS": "paid", "KEYS": "a b"},
            queue_id=3,
            queue_offset=0,
            physical_offset=result.physical_offsets[0],
            flag=4,
            sys_flag=TRANSACTION_COMMIT | STORE_HOST_V6,
            body_crc=stored.body_crc,
            born_timestamp_ms=17,
            born_host="10.0.0.1:5",
            store_timestamp_ms=result.store_timestamp_ms,
            store_host="[::1]:10911",
            reconsume_times=5,
            prepared_transaction_offset=6,
            store_size=result.size,
        )
        assert 250 <= result.store_timestamp_ms - WALL_START_MS < 300
        assert result.end_offset == store.max_physical_offset
        assert messages(store, "orders", 3) == [stored]


@simulated
async def test_each_queue_counts_its_own_messages() -> None:
    async with opened(SimulatedDisk()) as store:
        for number in range(30):
            result = await put(store, draft(b"%d" % number, queue_id=number % 3))
            assert result.queue_offset == number // 3
        assert store.queue_ids("T") == [0, 1, 2]
        for queue_id in range(3):
            assert bodies(store, "T", queue_id) == [b"%d" % n for n in range(queue_id, 30, 3)]


@simulated
async def test_what_is_put_in_one_turn_of_the_loop_is_written_in_one_call() -> None:
    disk = SimulatedDisk()
    async with opened(disk, replace(SMALL, commit_log_segment_bytes=1 << 20)) as store:
        writes, results = disk.writes, list[PutResult]()
        for number in range(100):
            store.put(draft(b"%d" % number), results.append)
        assert store.max_offset("T", 0) == len(results) == 0  # nothing is promised yet
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert disk.writes == writes + 1
        assert [result.queue_offset for result in results] == list(range(100))
        assert bodies(store) == [b"%d" % n for n in range(100)]


@simulated
async def test_no_record_spans_two_segments() -> None:
    disk = SimulatedDisk()
    async with opened(disk) as store:
        results: list[PutResult] = []
        for number in range(100):
            store.put(draft(bytes(number)), results.append)
        await asyncio.sleep(0.001)
        places = [(result.physical_offsets[0], result.size) for result in results]
        assert [len(body) for body in bodies(store)] == list(range(100))
    segments = [int(name) for name in disk.names(LOG)]
    assert segments == list(range(0, segments[-1] + 1, 2048))
    for start, next_start in pairwise(segments):
        data = disk.content(LOG / f"{start:020}")
        assert len(data) == 2048
        end = max(place + size for place, size in places if place < next_start)
        assert end <= next_start - 8
        assert blank_size(data, end - start) == next_start - end
    for place, size in places:
        assert place // 2048 == (place + size - 1) // 2048


@simulated
async def test_a_record_that_leaves_room_for_the_filler_alone_still_fits() -> None:
    async with opened(SimulatedDisk()) as store:
        overhead = (await put(store, draft(b""))).size
        used = store.max_physical_offset
        exact = await put(store, draft(bytes(1024)))
        left = 2048 - used - exact.size
        last = await put(store, draft(bytes(left - 8 - overhead)))
        assert last.end_offset == 2040
        assert (await put(store, draft(b""))).physical_offsets == (2048,)


@simulated
async def test_a_batch_takes_consecutive_places_of_one_segment() -> None:
    disk = SimulatedDisk()
    async with opened(disk) as store:
        await put_many(store, 15)
        members = [BatchMember(b"m%d" % n, {"KEYS": f"k{n}"}, n) for n in range(8)]
        results: list[PutResult] = []
        store.put_batch(draft(encode_batch(members), properties=properties(A="b")), results.append)
        await put_many(store, 3)
        (result,) = results
        assert (result.status, result.queue_offset) == (PutStatus.PUT_OK, 15)
        assert len({offset // 2048 for offset in result.physical_offsets}) == 1
        stored = messages(store)[15:23]
        assert [m.body for m in stored] == [member.body for member in members]
        assert [m.properties for m in stored] == [member.properties for member in members]
        assert [m.flag for m in stored] == list(range(8))
        assert [m.physical_offset for m in stored] == list(result.physical_offsets)
        assert result.size == sum(m.store_size for m in stored)
        assert result.end_offset == stored[-1].physical_offset + stored[-1].store_size
        assert len(store.query("T", "k3", count_max=9).records) == 1


@simulated
async def test_what_prepares_or_undoes_another_message_has_no_place_in_a_queue() -> None:
    disk = SimulatedDisk()
    async with opened(disk) as store:
        await put(store, draft(b"before"))
        for kind in (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK):
            keys = properties(UNIQ_KEY=f"id{kind}")
            result = await put(store, draft(b"half", sys_flag=kind, properties=keys))
            assert result.queue_offset == 0
            assert store.record_at(result.physical_offsets[0]) is not None
        await put(store, draft(b"after", sys_flag=TRANSACTION_COMMIT))
        before = everything(store)
        assert before == {("T", 0): [(0, b"before"), (1, b"after")]}
        assert len(store.query("T", f"id{TRANSACTION_PREPARED}", count_max=9).records) == 1
        assert not store.query("T", f"id{TRANSACTION_ROLLBACK}", count_max=9).records
    disk.remove_folder(LOG.parent / "consumequeue")
    async with opened(disk) as store:
        assert everything(store) == before


@pytest.mark.parametrize(
    ("topic", "level", "expected"),
    [
        ("SCHEDULE_TOPIC_XXXX", "1", 2000),
        ("SCHEDULE_TOPIC_XXXX", "2", 7500),
        ("SCHEDULE_TOPIC_XXXX", "9", 7500),
        ("SCHEDULE_TOPIC_XXXX", "0", None),
        ("SCHEDULE_TOPIC_XXXX", "x", None),
        ("other", "1", None),
    ],
)
def test_a_delayed_message_has_its_delivery_time_for_a_tag(
    topic: str, level: str, expected: int | None
) -> None:
    async def check() -> None:
        async with opened(SimulatedDisk(), replace(SMALL, delay_levels=(2.0, 7.5))) as store:
            codes: list[int] = []
            result = await put(
                store, draft(topic=topic, properties=properties(TAGS="t", DELAY=level))
            )

            def look(code: int) -> bool:
                codes.append(code)
                return True

            store.read(topic, 0, 0, count_max=1, bytes_max=1, accepts=look)
            (code,) = codes
            due = tags_code("t") if expected is None else result.store_timestamp_ms + expected
            assert code == due

    run(check())


@pytest.mark.parametrize(
    "message",
    [
        draft(topic=""),
        draft(topic="../../etc"),
        draft(topic=".."),
        draft(topic="a\0b"),
        draft(topic="\ud800"),
        draft(topic="x" * 256),
        draft(bytes(1025)),
        draft(properties="x" * 32768),
        draft(properties="\ud800"),
        *(draft(properties=text) for text in ("\0", "\0a\1b\2", "a\1b\0", f"a\1{64 * chr(0)}b\2")),
        draft(queue_id=1 << 31),
        draft(flag=-(1 << 40)),
        draft(bytes(1000), properties=properties(LONG="x" * 1000)),  # larger than a segment
    ],
)
def test_what_cannot_be_stored_is_refused_and_changes_nothing(message: MessageDraft) -> None:
    async def check() -> None:
        async with opened(SimulatedDisk()) as store:
            await put_many(store, 3)
            size = store.max_physical_offset
            results: list[PutResult] = []
            store.put(message, results.append)
            assert [result.status for result in results] == [PutStatus.MESSAGE_ILLEGAL]
            assert results[0].reason
            assert not results[0].is_stored
            await asyncio.sleep(0.001)
            assert (store.max_physical_offset, store.stats.puts_refused) == (size, 1)
            assert (await put(store, draft())).queue_offset == 3

    run(check())


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\0\0\0\0",
        encode_batch([BatchMember(b"a")])[:-1],
        encode_batch([BatchMember(bytes(1020))]),
        encode_batch([BatchMember(bytes(10)) for _ in range(25)]),  # larger than a segment
    ],
)
def test_a_batch_is_stored_whole_or_not_at_all(body: bytes) -> None:
    async def check() -> None:
        async with opened(SimulatedDisk()) as store:
            results: list[PutResult] = []
            store.put_batch(draft(body), results.append)
            assert [result.status for result in results] == [PutStatus.MESSAGE_ILLEGAL]
            await asyncio.sleep(0.001)
            assert store.max_physical_offset == 0

    run(check())


@simulated
async def test_a_store_that_is_not_open_takes_nothing() -> None:
    store = new_store(SimulatedDisk())
    refused = [await store.put_and_wait(draft())]
    await store.open()
    assert store.refusal is None
    await store.close()
    refused.append(await store.put_and_wait(draft()))
    for result in refused:
        assert result.status is PutStatus.SERVICE_NOT_AVAILABLE
        assert result.reason == store.refusal == "the store is closed"
    assert store.busy_seconds() == 0.0


@simulated
async def test_store_times_never_go_back() -> None:
    disk = SimulatedDisk()
    async with opened(disk) as store:
        first = await put(store, draft())
        assert isinstance(store._clock, SimulatedClock)
        store._clock.wall_shift_ms = -5000
        assert (await put(store, draft())).store_timestamp_ms == first.store_timestamp_ms
    async with opened(disk) as store:
        assert isinstance(store._clock, SimulatedClock)
        store._clock.wall_shift_ms = -5000
        assert (await put(store, draft())).store_timestamp_ms == first.store_timestamp_ms


@simulated
async def test_listeners_hear_of_each_message_once_it_can_be_read() -> None:
    async with opened(SimulatedDisk()) as store:
        heard: list[tuple[str, int, int, int, int]] = []
        reached: list[int] = []

        def listen(topic: str, queue_id: int, arrivals: Iterable[Placed]) -> None:
            for each in messages_of(arrivals):
                found = store.read(topic, queue_id, each[0], count_max=1, bytes_max=1)
                assert found.sizes
                heard.append((topic, queue_id, *each))

        def fail(*_: object) -> None:
            raise RuntimeError("on purpose")

        store.on_arrival += [fail, listen]
        store.on_written += [fail, reached.append]
        result = await put(store, draft(queue_id=2, properties=properties(TAGS="t")))
        (place,) = result.physical_offsets
        assert heard == [("T", 2, 0, tags_code("t"), place)]
        heard.clear()
        for queue_id in (2, 2, 3, 2):
            store.put(draft(queue_id=queue_id), lambda _: None)
        await asyncio.sleep(0.001)
        offsets = [(queue_id, offset) for _, queue_id, offset, *_ in heard]
        assert offsets == [(2, 1), (2, 2), (2, 3), (3, 0)]  # those of a queue together
        assert reached[-1] == store.max_physical_offset


@simulated
async def test_a_callback_that_fails_harms_nobody_else() -> None:
    async with opened(SimulatedDisk()) as store:
        results: list[PutResult] = []

        def fail(_: PutResult) -> None:
            raise RuntimeError("on purpose")

        store.put(draft(), fail)
        store.put(draft(), results.append)
        await asyncio.sleep(0.001)
        assert len(results) == 1


@simulated
async def test_what_was_done_is_counted() -> None:
    async with opened(SimulatedDisk()) as store:
        results = await put_many(store, 3)
        store.read("T", 0, 0, count_max=9, bytes_max=1000)
        store.read("T", 0, 3, count_max=9, bytes_max=1000)
        size = sum(result.size for result in results)
        stats = store.stats
        assert (stats.messages_put, stats.bytes_put, stats.puts_refused) == (3, size, 0)
        assert (stats.messages_read, stats.bytes_read) == (3, size)
        assert (stats.reads_found, stats.reads_missed) == (1, 1)


@simulated
async def test_what_is_put_by_those_who_are_told_is_written_too() -> None:
    async with opened(SimulatedDisk()) as store:
        told: list[int] = []

        def tell_and_put(result: PutResult) -> None:
            told.append(result.queue_offset)
            if len(told) < 5:
                store.put(draft(b"%d" % len(told)), tell_and_put)

        store.put(draft(b"0"), tell_and_put)
        await asyncio.sleep(1)
        assert told == [0, 1, 2, 3, 4]
        assert bodies(store) == [b"%d" % number for number in range(5)]
