"""A store whose process is killed before each change it makes to its files, one after another.

Between two system calls nothing of the loop's runs, so no crash that is planned in simulated time
would ever come there; a SIGKILL does.
"""

import asyncio
import itertools

import pytest

from rocketpipe.broker.store.message_store import MessageStore
from rocketpipe.broker.store.values import PutResult, PutStatus
from rocketpipe.testing.simulated_disk import Killed, SimulatedDisk
from rocketpipe.testing.simulated_loop import run
from tests.stores import draft, killed, messages, new_store

SIZES = (3, 900, 40, 700, 10, 300)  # so that segments end with more or less room left
QUEUES = 2


class Books:
    """What was acknowledged: bodies by queue and offset."""

    def __init__(self) -> None:
        self.stored: dict[tuple[int, int], bytes] = {}
        self._number = itertools.count()

    def put(self, store: MessageStore, size: int) -> None:
        number = next(self._number)
        queue_id, body = number % QUEUES, b"%d:" % number + b"x" * size

        def done(result: PutResult) -> None:
            assert result.status is PutStatus.PUT_OK
            assert (queue_id, result.queue_offset) not in self.stored, "a place was given twice"
            self.stored[queue_id, result.queue_offset] = body

        store.put(draft(body, queue_id=queue_id), done)

    def check(self, store: MessageStore) -> None:
        found: dict[tuple[int, int], bytes] = {}
        for queue_id in range(QUEUES):
            read = messages(store, queue_id=queue_id)
            assert [each.queue_offset for each in read] == list(range(len(read))), "a gap"
            found |= {(queue_id, each.queue_offset): each.body for each in read}
        assert found.items() >= self.stored.items()


async def live(disk: SimulatedDisk, books: Books) -> None:
    """A life with several checkpoints and segments, which the disk may end."""
    store = new_store(disk)
    await store.open()
    for size in SIZES * 2:
        books.put(store, size)
        await asyncio.sleep(0.7)
    await store.close()


async def live_on(disk: SimulatedDisk, books: Books) -> None:
    for _ in range(2):
        async with killed(disk) as store:
            books.check(store)
            for size in SIZES:
                books.put(store, size)
                await asyncio.sleep(0.1)
    async with killed(disk) as store:
        books.check(store)


@pytest.mark.final
@pytest.mark.slow
def test_what_was_acknowledged_is_there_whichever_change_was_the_last() -> None:
    for changes in itertools.count():
        disk, books = SimulatedDisk(seed=changes), Books()
        disk.changes_left = changes
        try:
            run(live(disk, books))
        except Killed:
            disk.kill_users()
        is_whole_life = disk.changes_left > 0
        disk.changes_left = None
        try:
            run(live_on(disk, books))
        except BaseException as error:
            error.add_note(f"killed after {changes} changes")
            raise
        if is_whole_life:
            break
    assert changes > 50
