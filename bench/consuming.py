"""Consumes topics whole with our consumers: HOW NAMESRV WARM_UP_TOPIC TOPIC GROUP.

HOW is `push` (a plain listener, which is called in threads), `push-async` (a coroutine), or the
number of pulls that `pull_range` has on their way. All that the listeners do is count, and what
`pull_range` brings is not decoded. What is told is of the second topic.
"""

import asyncio
import sys
import threading
from itertools import count
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.measuring import Stopwatch
from rocketpipe import (
    Admin,
    AsyncPullConsumer,
    AsyncPushConsumer,
    MessageQueue,
    PushConsumer,
    StoredMessage,
)

TIMEOUT = 280.0

Ranges = dict[MessageQueue, tuple[int, int]]


def ranges(namesrv: str, topic: str) -> Ranges:
    """The first offset of each queue, and the one after its last."""
    with Admin(namesrv=namesrv) as admin:
        return {
            queue: (admin.min_offset(queue), admin.max_offset(queue))
            for queue in admin.subscribe_queues(topic)
        }


class Counter:
    """Counts messages in any thread, and the time from the first on."""

    def __init__(self, namesrv: str, topic: str) -> None:
        self._last = sum(end - start for start, end in ranges(namesrv, topic).values())
        self._numbers = count(1)
        self.report = ""
        self.has_all = threading.Event()

    def add(self, messages: list[StoredMessage]) -> None:
        for _ in messages:
            number = next(self._numbers)  # never the same in two threads
            if number == 1:
                self._watch = Stopwatch()
            elif number == self._last:
                self.report = self._watch.report(self._last)
                self.has_all.set()


def push(namesrv: str, topic: str, group: str) -> str:
    counter = Counter(namesrv, topic)
    settings: dict[str, Any] = {"consume_from": "first", "namesrv": namesrv}
    with PushConsumer(group, counter.add, subscriptions={topic: "*"}, **settings):
        assert counter.has_all.wait(TIMEOUT)
    return counter.report


def push_async(namesrv: str, topic: str, group: str) -> str:
    counter = Counter(namesrv, topic)
    settings: dict[str, Any] = {"consume_from": "first", "namesrv": namesrv}

    async def listener(messages: list[StoredMessage]) -> None:
        counter.add(messages)

    async def consume() -> None:
        async with AsyncPushConsumer(group, listener, subscriptions={topic: "*"}, **settings):
            assert await asyncio.to_thread(counter.has_all.wait, TIMEOUT)

    asyncio.run(consume())
    return counter.report


def pull(namesrv: str, topic: str, group: str, pulls_in_flight_max: int) -> str:
    """One queue after another."""
    wanted = ranges(namesrv, topic)

    async def read() -> str:
        async with AsyncPullConsumer(
            group, namesrv=namesrv, pulls_in_flight_max=pulls_in_flight_max
        ) as consumer:
            watch = Stopwatch()
            for queue, (start, end) in wanted.items():
                async for answer in consumer.pull_range(queue, start, end):
                    assert answer
            return watch.report(sum(end - start for start, end in wanted.values()))

    return asyncio.run(read())


def consume(how: str, namesrv: str, topic: str, group: str) -> str:
    """A line that `figures` reads."""
    if how.isdigit():
        return pull(namesrv, topic, group, int(how))
    return {"push": push, "push-async": push_async}[how](namesrv, topic, group)


if __name__ == "__main__":
    how, namesrv, warm_up_topic, topic, group = sys.argv[1:]
    consume(how, namesrv, warm_up_topic, f"{group}-warm-up")
    print(consume(how, namesrv, topic, group))
