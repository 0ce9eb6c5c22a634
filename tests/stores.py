"""Stores on simulated disks, drafts to put into them, and ways to look at what they hold."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from rocketpipe.broker.store.message_store import MessageStore
from rocketpipe.broker.store.settings import StoreSettings
from rocketpipe.broker.store.values import MessageDraft, PutResult, PutStatus, ReadStatus
from rocketpipe.host import pack_host
from rocketpipe.message import StoredMessage
from rocketpipe.testing.simulated_disk import SimulatedDisk
from rocketpipe.testing.simulated_loop import SimulatedClock, run
from rocketpipe.wire.record import decode_records

T = TypeVar("T")

FOLDER = Path("/store")
LOG = FOLDER / "commitlog"
HOST = pack_host("127.0.0.1:10911")
# Small, so that a short test meets the ends of files.
SMALL = StoreSettings(
    commit_log_segment_bytes=2048,
    consume_queue_segment_entries=8,
    index_slots=16,
    index_entries_max=24,
    checkpoint_bytes=3000,
    checkpoint_interval=2.0,
    message_bytes_max=1024,
)


def draft(
    body: bytes = b"body", topic: str = "T", queue_id: int = 0, **fields: Any
) -> MessageDraft:
    return MessageDraft(
        **{
            "topic": topic,
            "queue_id": queue_id,
            "body": body,
            "properties": "",
            "born_timestamp_ms": 1,
            "born_host": HOST,
            "store_host": HOST,
            **fields,
        }
    )


def properties(**values: str) -> str:
    return "".join(f"{name}\x01{value}\x02" for name, value in values.items())


def new_store(disk: SimulatedDisk, settings: StoreSettings = SMALL) -> MessageStore:
    clock = SimulatedClock(asyncio.get_running_loop())
    return MessageStore(FOLDER, settings, disk=disk, clock=clock)


@asynccontextmanager
async def opened(
    disk: SimulatedDisk, settings: StoreSettings = SMALL
) -> AsyncIterator[MessageStore]:
    """A store that is closed in order at the end."""
    store = new_store(disk, settings)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def killed(
    disk: SimulatedDisk, settings: StoreSettings = SMALL
) -> AsyncIterator[MessageStore]:
    """A store whose process dies at the end; the machine lives on."""
    store = new_store(disk, settings)
    await store.open()
    try:
        yield store
    finally:
        store.kill()
        disk.kill_users()


async def put(store: MessageStore, message: MessageDraft) -> PutResult:
    """What became of a message that is expected to be stored."""
    result = await store.put_and_wait(message)
    assert result.status is PutStatus.PUT_OK, result
    return result


async def put_many(store: MessageStore, count: int, **fields: Any) -> list[PutResult]:
    return [await put(store, draft(b"body %d" % number, **fields)) for number in range(count)]


def messages(store: MessageStore, topic: str = "T", queue_id: int = 0) -> list[StoredMessage]:
    """All that a consumer would read of a queue, checked for order and place."""
    found: list[StoredMessage] = []
    offset = store.min_offset(topic, queue_id)
    while offset < store.max_offset(topic, queue_id):
        read = store.read(topic, queue_id, offset, count_max=5, bytes_max=4000)
        assert read.next_offset > offset, read
        if read.status is ReadStatus.FOUND:
            some = decode_records(read.records, decompressing=False)
            assert [message.store_size for message in some] == list(read.sizes)
            for message in some:
                assert (message.topic, message.queue_id) == (topic, queue_id)
                assert offset <= message.queue_offset < read.next_offset
            found += some
        offset = read.next_offset
    offsets = [message.queue_offset for message in found]
    assert offsets == sorted(set(offsets))
    return found


def bodies(store: MessageStore, topic: str = "T", queue_id: int = 0) -> list[bytes]:
    return [message.body for message in messages(store, topic, queue_id)]


def everything(store: MessageStore) -> dict[tuple[str, int], list[tuple[int, bytes]]]:
    return {
        (topic, queue_id): [(m.queue_offset, m.body) for m in messages(store, topic, queue_id)]
        for topic in store.topics()
        for queue_id in store.queue_ids(topic)
    }


def simulated(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Run an async test on simulated time."""

    def run_it() -> None:
        run(test())

    run_it.__name__ = test.__name__
    run_it.__doc__ = test.__doc__
    return run_it
