"""Listeners: a user's code that consumes messages, and the workers that call it."""

import asyncio
import inspect
import logging
import queue
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

from rocketpipe.client.consumer.process_queue import ProcessQueue
from rocketpipe.client.consumer.settings import DELAY_LEVEL_MAX
from rocketpipe.client.threads import Threads
from rocketpipe.errors import InvalidSetting
from rocketpipe.message import StoredMessage

log = logging.getLogger(__name__)


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
    """Messages of one queue that a listener is to be given together."""

    process_queue: ProcessQueue
    messages: Sequence[StoredMessage]
    may_start: Callable[[], bool]
    started_at: float | None = None  # by the loop's time
    was_called: bool = False  # else it was too late to give them to the listener


Done = Callable[[Batch, Outcome], None]  # called on the event loop, once for each batch


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
        self._is_closed = False

    def submit(self, batch: Batch) -> None:
        if not self._is_closed:
            self._batches.append(batch)
            if self._looking < self._count:
                self._looking += 1
                task = asyncio.get_running_loop().create_task(self._run())
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def call(self, messages: Sequence[StoredMessage]) -> Outcome:
        """What the listener says; what it raises, this does."""
        outcome: Any = self._listener(list(messages))
        return checked(await outcome, messages)

    async def close(self, timeout: float) -> None:
        """Begin with no more, and wait for those at work; for so long."""
        self._is_closed = True
        while self._batches:
            self._done(self._batches.popleft(), None)
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=timeout)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def _run(self) -> None:
        try:
            await self._work()
        finally:
            self._looking -= 1

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while self._batches:
            batch = self._batches.popleft()
            outcome: Outcome = None
            if batch.may_start():
                batch.started_at = loop.time()
                batch.was_called = True
                try:
                    outcome = await self.call(batch.messages)
                except asyncio.CancelledError:
                    if cast("asyncio.Task[None]", asyncio.current_task()).cancelling():
                        batch.was_called = False  # as far as anybody knows
                        self._done(batch, None)
                        raise
                    outcome = self._failed()  # something of its own was cancelled
                except Exception:
                    outcome = self._failed()
            self._done(batch, outcome)

    def _failed(self) -> Retry:
        log.exception("a listener failed: the messages will come again")
        return Retry()


class ThreadWorkers:
    """Call a plain function, which may block, in so many threads.

    The threads take batches from one queue without the event loop's help, and tell it of many at
    once: a hop between threads for each message would cost more than most listeners do.
    """

    def __init__(self, listener: Listener, count: int, done: Done) -> None:
        self._listener = listener
        self._count = count
        self._done = done
        self._loop = asyncio.get_running_loop()
        self._batches: queue.SimpleQueue[Batch | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._pending = 0  # submitted, and not done yet as far as the loop knows
        self._idle = asyncio.Event()
        self._finished: deque[tuple[Batch, Outcome]] = deque()
        self._lock = threading.Lock()
        self._is_told = False  # the loop will look at what is finished
        self._is_closed = False
        self._direct = Threads("rocketpipe-direct", 1)

    def submit(self, batch: Batch) -> None:
        if self._is_closed:
            return
        self._pending += 1
        self._batches.put(batch)
        if len(self._threads) < min(self._count, self._pending):
            name = f"rocketpipe-consumer-{len(self._threads)}"
            thread = threading.Thread(target=self._run, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    async def call(self, messages: Sequence[StoredMessage]) -> Outcome:
        """What the listener says; what it raises, this does."""
        return checked(await self._direct.call(self._listener, list(messages)), messages)

    async def close(self, timeout: float) -> None:
        """Begin with no more, and wait for those at work; for so long."""
        self._is_closed = True
        with suppress(queue.Empty):
            while True:
                batch = self._batches.get_nowait()
                assert batch is not None
                self._pending -= 1
                self._done(batch, None)
        for _ in self._threads:
            self._batches.put(None)
        try:
            async with asyncio.timeout(timeout):
                while self._pending:
                    self._idle.clear()
                    await self._idle.wait()
        except TimeoutError:
            log.warning("listeners still work: what they were given will come again")
        self._direct.close()

    def _run(self) -> None:
        while (batch := self._batches.get()) is not None:
            outcome: Outcome = None
            if not self._is_closed and batch.may_start():
                batch.started_at = self._loop.time()
                batch.was_called = True
                try:
                    outcome = checked(self._listener(list(batch.messages)), batch.messages)
                except BaseException:  # whatever it is, the thread is ours
                    log.exception("a listener failed: the messages will come again")
                    outcome = Retry()
            self._finished.append((batch, outcome))
            with self._lock:
                is_told, self._is_told = self._is_told, True
            if not is_told:
                try:
                    self._loop.call_soon_threadsafe(self._collect)
                except RuntimeError:
                    return  # the loop is closed, and nobody wants to know

    def _collect(self) -> None:
        with self._lock:
            self._is_told = False
        while self._finished:
            batch, outcome = self._finished.popleft()
            self._pending -= 1
            self._done(batch, outcome)
        if not self._pending:
            self._idle.set()


Workers = TaskWorkers | ThreadWorkers


def workers(listener: Listener, count: int, done: Done) -> Workers:
    """Who calls this listener."""
    return (TaskWorkers if is_async(listener) else ThreadWorkers)(listener, count, done)
