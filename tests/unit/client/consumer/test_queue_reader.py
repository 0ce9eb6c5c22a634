"""Reading one queue: what is pulled and handed over when, with a puller that only pretends."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest

from rocketpipe.client.consumer import queue_reader
from rocketpipe.client.consumer.process_queue import Cache, ProcessQueue
from rocketpipe.client.consumer.pulling import Pulled, PullStatus
from rocketpipe.client.consumer.queue_reader import QueueReader
from rocketpipe.client.consumer.settings import PushConsumerSettings
from rocketpipe.message import MessageQueue, StoredMessage
from rocketpipe.wire.bodies.heartbeat import SubscriptionData
from rocketpipe.wire.record import encode_record
from tests.stored_message import stored_message

DEADLINE = 20.0
MESSAGES = 20  # in the queue,
PER_PULL = 4  # of which a pull brings so many

ALL = SubscriptionData.of_tags("orders", "*", sub_version=1)


class Reading:
    """A reader of a queue, and what it did, in order."""

    def __init__(self, turns: int = 5, **settings: Any) -> None:
        self._turns = turns  # of the loop, until an answer comes
        self.events: list[tuple[str, int]] = []
        self.handed_over: list[int] = []
        self.damaged: set[int] = set()  # the next answer from these offsets on
        wanted = PushConsumerSettings("group", namesrv="127.0.0.1:9876", **settings)
        self.cache = Cache(wanted)
        self.queue = ProcessQueue(MessageQueue("orders", "broker-a", 0), 0, self.cache)
        self.gate = asyncio.Event()
        self.gate.set()
        self._reader = QueueReader(
            *(cast(Any, None), wanted, cast(Any, self), self.cache, self.queue),
            lambda: ALL,
            is_member=True,
            gate=self.gate,
            take=self._take,
            moved=lambda queue, pulled: None,
        )

    @contextmanager
    def running(self) -> Iterator[None]:
        task = asyncio.get_running_loop().create_task(self._reader.run())
        try:
            yield
        finally:
            task.cancel()

    async def pull(self, queue: MessageQueue, offset: int, *_args: Any, **_kwargs: Any) -> Pulled:
        """As a Puller does it."""
        self.events.append(("pull", offset))
        for _ in range(self._turns):
            await asyncio.sleep(0)
        if offset >= MESSAGES:
            await asyncio.Event().wait()
        end = min(offset + PER_PULL, MESSAGES)
        body = b"".join(
            encode_record(stored_message(queue_offset=each)) for each in range(offset, end)
        )
        if offset in self.damaged:
            self.damaged.remove(offset)
            body = body[:-1]
        return Pulled(PullStatus.FOUND, end, 0, MESSAGES, body, "")

    def _take(self, queue: ProcessQueue, messages: list[StoredMessage]) -> None:
        self.events.append(("take", messages[0].queue_offset))
        self.handed_over += [each.queue_offset for each in messages]

    async def until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE):
            while not is_so():  # noqa: ASYNC110  # it is the reader that is to be watched
                await asyncio.sleep(0.001)


def test_the_next_pull_leaves_before_messages_are_handed_over_while_there_are_more() -> None:
    async def main() -> None:
        reading = Reading()
        with reading.running():
            await reading.until(lambda: ("pull", MESSAGES) in reading.events)
        assert reading.handed_over == list(range(MESSAGES))
        assert reading.events[:4] == [("pull", 0), ("pull", 4), ("take", 0), ("pull", 8)]
        assert reading.events[-2:] == [("take", 16), ("pull", 20)]  # the last ones come at once
        assert reading.queue.commit_offset == 0
        assert reading.queue.next_offset == MESSAGES

    asyncio.run(main())


def test_no_pull_leaves_for_which_there_will_be_no_room() -> None:
    async def main() -> None:
        reading = Reading(queue_messages_max=2 * PER_PULL)
        with reading.running():
            await reading.until(lambda: len(reading.handed_over) == 2 * PER_PULL)
            await asyncio.sleep(0.05)
            assert reading.events[-1] == ("take", 4)
            reading.queue.done([stored_message(queue_offset=each) for each in range(8)])
            await reading.until(lambda: len(reading.handed_over) == 4 * PER_PULL)
            await asyncio.sleep(0.05)
            assert reading.events[-1] == ("take", 12)

    asyncio.run(main())


@pytest.mark.parametrize("turns", [1, 5])
def test_after_a_damaged_answer_nothing_is_handed_over_before_it_has_come_whole(
    turns: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(queue_reader, "ERROR_PAUSE", 0.01)

    async def main() -> None:
        reading = Reading(turns)
        reading.damaged = {4, 16}
        with reading.running():
            await reading.until(lambda: len(reading.handed_over) == MESSAGES)
        assert reading.handed_over == list(range(MESSAGES))
        assert reading.events.count(("pull", 4)) == reading.events.count(("pull", 16)) == 2

    asyncio.run(main())


def test_what_is_on_its_way_when_a_queue_is_lost_is_dropped() -> None:
    async def main() -> None:
        reading = Reading()
        with reading.running():
            while ("pull", 4) not in reading.events:  # noqa: ASYNC110
                await asyncio.sleep(0)
            reading.queue.drop()
            await asyncio.sleep(0.05)
        assert reading.handed_over == []
        assert reading.events[-1] == ("pull", 4)
        assert reading.queue.next_offset == 0

    asyncio.run(main())
