"""Listeners: a user's code that consumes messages, and the workers that call it.

To wake a worker costs more than most listeners do. So new batches wake one worker, however many
they are, and none while one is on its way; and a worker that was woken and leaves batches behind
wakes the next. While a listener is quick the first has taken all batches before the second comes;
while it is slow all are at work soon.
"""

import asyncio
import inspect
import logging
import queue
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from rocketpipe.client.consumer.process_queue import ProcessQueue
from rocketpipe.client.consumer.settings import DELAY_LEVEL_MAX
from rocketpipe.client.threads import Threads
from rocketpipe.errors import InvalidSetting
from rocketpipe.message import StoredMessage

log = logging.getLogger(__name__)

T = TypeVar("T")

WATCH_PAUSE = 0.002


@dataclass(frozen=True, slots=True)
class Retry:
    """What a listener returns, instead of None, to get messages again later.

    The messages before `start` are consumed. `delay_level` 0 lets the broker choose: 10 s, 30 s,
    1 min and so on; -1 sends them to the dead letters at once. An orderly consumer goes on with the
    first of them after `suspend_queue_time`, whatever the level.
    """

    delay_level: int = 0
    start: int = 0

    def __post_init__(self) -> None:
        level = self.delay_level
        if type(level) is not int or not -1 <= level <= DELAY_LEVEL_MAX:
            raise InvalidSetting(f"delay_level is {level!r}: it must be from -1 to 18")
        if type(self.start) is not int or self.start < 0:
            raise InvalidSetting(f"start is {self.start!r}: it must be a whole number from 0")


Outcome = Retry | None
Listener = Callable[[list[StoredMessage]], Outcome | Awaitable[Outcome]]


@dataclass(slots=True, eq=False)
class Batch:
    """Messages of one queue that a listener is to be given together.

    There may be thousands of them, mostly of one message, and Python's garbage collector looks at
    every object again and again: so a batch makes its list when it is asked for it.
    """

    process_queue: ProcessQueue
    pulled: list[StoredMessage]  # of which these are a part:
    may_start: Callable[[], bool]
    start: int = 0
    stop: int | None = None
    started_at: float | None = None  # by the loop's time
    was_called: bool = False  # else it was too late to give them to the listener
    outcome: Outcome = None

    @property
    def messages(self) -> list[StoredMessage]:
        """A list of one's own."""
        return self.pulled[self.start : self.stop]


# Called on the event loop with batches that have ended, in order; each comes once.
Done = Callable[[list[Batch]], None]


def is_async(listener: object) -> bool:
    return inspect.iscoroutinefunction(listener) or inspect.iscoroutinefunction(
        getattr(listener, "__call__", None)  # noqa: B004  # of an object, to look at it
    )


def checked(outcome: object, messages: Sequence[StoredMessage]) -> Outcome:
    """What a listener returned; TypeError unless that is None or Retry."""
    if outcome is None or (isinstance(outcome, Retry) and outcome.start < len(messages)):
        return outcome
    if inspect.iscoroutine(outcome):
        outcome.close()
    raise TypeError(f"a listener returned {outcome!r:.100}, not None or Retry for a message")


class TaskWorkers:
    """Call a coroutine, so many times at once, in tasks of the event loop."""

    def __init__(self, listener: Listener, count: int, done: Done) -> None:
        self._listener = listener
        self._count = count
        self._done = done
        self._batches: deque[Batch] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        # Not the number of tasks: one that has found no more batches is a task for a while yet.
        self._looking = 0
        self._is_coming = False  # one that has just been woken
        self._finished: list[Batch] = []  # and not told yet
        self._is_closed = False

    def submit(self, batches: Sequence[Batch]) -> None:
        if not self._is_closed:
            self._batches.extend(batches)
            self._wake_one()

    async def call(self, messages: Sequence[StoredMessage]) -> Outcome:
        """What the listener says; what it raises, this does."""
        outcome: Any = self._listener(list(messages))
        return checked(await outcome, messages)

    async def close(self, timeout: float) -> None:
        """Begin with no more, and wait for those at work; for so long."""
        self._is_closed = True
        self._done(_take_all(self._batches))
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=timeout)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
            self._tell()

    def _wake_one(self) -> None:
        if self._batches and self._looking < self._count and not self._is_coming:
            self._looking += 1
            self._is_coming = True
            task = asyncio.get_running_loop().create_task(self._run())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _run(self) -> None:
        try:
            await self._work()
        finally:
            self._looking -= 1

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        self._is_coming = False
        is_first = True
        while self._batches:
            batch = self._batches.popleft()
            if is_first:
                is_first = False
                self._wake_one()
            if batch.may_start():
                batch.started_at = loop.time()
                batch.was_called = True
                try:
                    returned: Any = await cast(Any, self._listener(batch.messages))
                    if returned is not None:
                        batch.outcome = checked(returned, batch.messages)
                except asyncio.CancelledError:
                    if cast("asyncio.Task[None]", asyncio.current_task()).cancelling():
                        batch.was_called = False  # as far as anybody knows
                        self._finish(batch)
                        raise
                    batch.outcome = self._failed()  # something of its own was cancelled
                except Exception:
                    batch.outcome = self._failed()
            self._finish(batch)

    def _finish(self, batch: Batch) -> None:
        if not self._finished:
            asyncio.get_running_loop().call_soon(self._tell)
        self._finished.append(batch)

    def _tell(self) -> None:
        finished, self._finished = self._finished, []
        self._done(finished)

    def _failed(self) -> Retry:
        log.exception("a listener failed: the messages will come again")
        return Retry()


class ThreadWorkers:
    """Call a plain function, which may block, in so many threads.

    The threads take batches without the event loop's help, and to tell it of each that is finished
    would cost more than most listeners do. So while there are any the loop looks by itself every so
    often what is finished, and when nothing was it waits to be told: a listener may take long. Who
    is in a hurry is told besides when no more batches wait, as he may have the next.
    """

    def __init__(
        self, listener: Listener, count: int, done: Done, *, in_a_hurry: bool = False
    ) -> None:
        self._listener = listener
        self._count = count
        self._done = done
        self._is_in_a_hurry = in_a_hurry
        self._loop = asyncio.get_running_loop()
        self._batches: deque[Batch] = deque()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()  # for what follows
        self._sleeping = 0  # threads that nobody has woken yet
        self._is_coming = False  # one that was woken, and has not looked yet
        self._is_closed = False
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._finished: deque[Batch] = deque()
        self._is_told = False  # the loop will look at what is finished, as soon as it can
        self._is_watching = False  # it will do so in a while
        self._pending = 0  # submitted, and not done yet as far as the loop knows
        self._idle = asyncio.Event()
        self._direct = Threads("rocketpipe-direct", 1)

    def submit(self, batches: Sequence[Batch]) -> None:
        if not self._is_closed:
            self._pending += len(batches)
            self._batches.extend(batches)
            self._watch_on()
            self._wake_one()

    async def call(self, messages: Sequence[StoredMessage]) -> Outcome:
        """What the listener says; what it raises, this does."""
        return checked(await self._direct.call(self._listener, list(messages)), messages)

    async def close(self, timeout: float) -> None:
        """Begin with no more, and wait for those at work; for so long."""
        with self._lock:
            self._is_closed = True
            for _ in range(self._sleeping):
                self._wake.put(None)
        unstarted = _take_all(self._batches)
        self._pending -= len(unstarted)
        self._done(unstarted)
        try:
            async with asyncio.timeout(timeout):
                while self._pending:
                    self._idle.clear()
                    await self._idle.wait()
        except TimeoutError:
            log.warning("listeners still work: what they were given will come again")
        self._direct.close()

    def _wake_one(self) -> None:
        with self._lock:
            if not self._batches or self._is_coming or self._is_closed:
                return
            if self._sleeping:
                self._is_coming = True
                self._sleeping -= 1
                self._wake.put(None)
            elif len(self._threads) < self._count:
                name = f"rocketpipe-consumer-{len(self._threads)}"
                thread = threading.Thread(target=self._run, name=name, daemon=True)
                self._threads.append(thread)
                thread.start()

    def _run(self) -> None:
        while True:
            self._is_coming = False
            self._work()
            with self._lock:
                if self._is_closed:
                    return
                if self._batches:
                    continue
                self._sleeping += 1
            self._wake.get()

    def _work(self) -> None:
        """Take batches until there are none."""
        is_first = True
        while True:
            try:
                batch = self._batches.popleft()
            except IndexError:
                return
            if is_first:
                is_first = False
                self._wake_one()
            if not self._is_closed and batch.may_start():
                batch.started_at = self._loop.time()
                batch.was_called = True
                try:
                    returned = self._listener(batch.messages)
                    if returned is not None:
                        batch.outcome = checked(returned, batch.messages)
                except BaseException:  # whatever it is, the thread is ours
                    log.exception("a listener failed: the messages will come again")
                    batch.outcome = Retry()
            self._finished.append(batch)
            if not self._is_told and not (
                self._is_watching and (self._batches or not self._is_in_a_hurry)
            ):
                self._is_told = True
                try:
                    self._loop.call_soon_threadsafe(self._told)
                except RuntimeError:
                    self._is_closed = True  # as the loop is, and nobody wants to know
                    return

    # Threads look at the two flags after they have finished something. So the loop lowers a flag
    # before it looks for the last time: nothing is left that nobody tells of.

    def _told(self) -> None:
        self._is_told = False
        self._collect()
        self._watch_on()

    def _watch_on(self) -> None:
        if self._pending and not self._is_watching:
            self._is_watching = True
            self._loop.call_later(WATCH_PAUSE, self._watch)

    def _watch(self) -> None:
        self._is_watching = False
        if self._finished:
            self._collect()
            self._watch_on()

    def _collect(self) -> None:
        finished = _take_all(self._finished)
        self._pending -= len(finished)
        self._done(finished)
        if not self._pending:
            self._idle.set()


def _take_all(items: deque[T]) -> list[T]:
    """What is there, also while other threads take from it and add to it."""
    taken: list[T] = []
    with suppress(IndexError):
        for _ in range(len(items)):
            taken.append(items.popleft())  # noqa: PERF401  # one by one, or an error loses them
    return taken


Workers = TaskWorkers | ThreadWorkers


def workers(listener: Listener, count: int, done: Done, *, in_a_hurry: bool = False) -> Workers:
    """Who calls this listener; whoever is in a hurry wants to know at once when nothing is left."""
    if is_async(listener):
        return TaskWorkers(listener, count, done)
    return ThreadWorkers(listener, count, done, in_a_hurry=in_a_hurry)
