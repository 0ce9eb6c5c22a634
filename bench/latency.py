"""From the call of `send` to that of the listener, in one process:
HOW NAMESRV TOPIC GROUP RATE SECONDS WARM_UP_SECONDS.

HOW is `plain` (a blocking producer and a plain listener) or `async` (both on one event loop). The
twin of java/SendToListener.java: a body holds the message's number and the time, by the clock of
this process.
"""

import asyncio
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from struct import Struct

sys.path.insert(0, str(Path(__file__).parents[1]))

from rocketpipe import (
    AsyncProducer,
    AsyncPushConsumer,
    Message,
    Producer,
    PushConsumer,
    StoredMessage,
)

BODY_BYTES = 200
HEAD = Struct(">iq")
PADDING = bytes(BODY_BYTES - HEAD.size)
POLL_PAUSE = 0.2
FIRST_TIMEOUT = 30.0
TIMEOUT = 60.0


class Load:
    """What is sent when, and what became of it."""

    def __init__(self, topic: str, rate: int, seconds: float, warm_up_seconds: float) -> None:
        self._topic = topic
        self._rate = rate
        self._warm_up = round(rate * warm_up_seconds)
        self._total = self._warm_up + round(rate * seconds)
        self._latencies: dict[int, int] = {}  # in nanoseconds, by number
        self.has_begun = False  # the consumer, to consume

    def message(self, number: int = -1) -> Message:
        return Message(self._topic, HEAD.pack(number, time.perf_counter_ns()) + PADDING)

    def heard(self, messages: list[StoredMessage]) -> None:
        now = time.perf_counter_ns()
        number, sent_at = HEAD.unpack_from(messages[0].body)
        if number < 0:
            self.has_begun = True
        else:
            self._latencies.setdefault(number, now - sent_at)

    def pauses(self) -> Iterator[tuple[int, float]]:
        """Each message's number, and how long to wait before it is sent.

        The broker looks for new messages about once a millisecond: sends that keep step with that
        would all wait equally long.
        """
        began, dice = time.perf_counter(), random.Random(1)
        for number in range(self._total):
            due = began + (number + dice.random()) / self._rate
            yield number, max(0.0, due - time.perf_counter())

    def is_missing_some(self) -> bool:
        return len(self._latencies) < self._total

    def report(self) -> str:
        """A line that `latency` reads."""
        measured = sorted(self._latencies[each] for each in range(self._warm_up, self._total))
        p50, p99 = measured[len(measured) // 2], measured[len(measured) * 99 // 100]
        return f"p50 and p99: {p50 / 1e3} {p99 / 1e3}"


def plain(namesrv: str, topic: str, group: str, load: Load) -> None:
    with (
        PushConsumer(group, load.heard, subscriptions={topic: "*"}, namesrv=namesrv),
        Producer(group, namesrv=namesrv) as producer,
    ):
        while not load.has_begun:
            producer.send(load.message(), timeout=FIRST_TIMEOUT)
            time.sleep(POLL_PAUSE)
        for number, pause in load.pauses():
            time.sleep(pause)
            producer.send(load.message(number))
        deadline = time.monotonic() + TIMEOUT
        while load.is_missing_some():
            assert time.monotonic() < deadline
            time.sleep(POLL_PAUSE)


async def on_one_loop(namesrv: str, topic: str, group: str, load: Load) -> None:
    async def listener(messages: list[StoredMessage]) -> None:
        load.heard(messages)

    async with (
        AsyncPushConsumer(group, listener, subscriptions={topic: "*"}, namesrv=namesrv),
        AsyncProducer(group, namesrv=namesrv) as producer,
    ):
        while not load.has_begun:
            await producer.send(load.message(), timeout=FIRST_TIMEOUT)
            await asyncio.sleep(POLL_PAUSE)
        for number, pause in load.pauses():
            # A sleep of asyncio's is rounded up to whole milliseconds from its last event on, which
            # was an answer of the broker: so sends would keep step with it.
            await asyncio.to_thread(time.sleep, pause)
            await producer.send(load.message(number))
        async with asyncio.timeout(TIMEOUT):
            while load.is_missing_some():  # noqa: ASYNC110  # the wait is not what is measured
                await asyncio.sleep(POLL_PAUSE)


if __name__ == "__main__":
    how, namesrv, topic, group, rate, seconds, warm_up_seconds = sys.argv[1:]
    load = Load(topic, int(rate), float(seconds), float(warm_up_seconds))
    if how == "plain":
        plain(namesrv, topic, group, load)
    else:
        asyncio.run(on_one_loop(namesrv, topic, group, load))
    print(load.report())
