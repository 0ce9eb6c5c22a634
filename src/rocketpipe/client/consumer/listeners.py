"""Listeners: a user's code that consumes messages, and the workers that call it.

To wake a worker costs more than most listeners do. So new messages wake one worker, however many
they are, and none while one is on its way; and a worker that was woken and leaves some behind wakes
the next. While a listener is quick the first has taken them all before the second comes; while it
is slow all are at work soon.
"""

import asyncio
import inspect
import logging
import queue
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
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
class Parcel:
    """Messages of one queue that came together, for a listener to be given a part at a time.

    Any worker may take the next part. There may be thousands of them, mostly of one message, and
    Python's garbage collector looks at every object again and again: so a part is but the index at
    which it begins.
    """

    process_queue: ProcessQueue
    messages: list[StoredMessage]
    part_size: int
    may_start: Callable[[], bool]
    starts: Iterator[int] = field(init=False)  # of the parts that nobody has taken yet
    consumed: list[int] = field(default_factory=list)  # not told of yet, and so the next:
    failed: list[tuple[int, Retry]] = field(default_factory=list)
    not_given: list[int] = field(default_factory=list)  # it was too late for them
    given_up: set[int] = field(default_factory=set)  # they were sent back before it said anything

    def __post_init__(self) -> None:
        self.starts = iter(range(0, len(self.messages), self.part_size))

    @property
    def part_count(self) -> int:
        return -(-len(self.messages) // self.part_size)

    def part(self, start: int) -> list[StoredMessage]:
        """A list of one's own."""
        return self.messages[start : start + self.part_size]

    def take_consumed(self) -> list[StoredMessage]:
        """The messages of all parts that were consumed since the last time."""
        starts = _take_all(self.consumed)
        if len(starts) == self.part_count:
            return self.messages
        return [message for start in starts for message in self.part(start)]

    def take_failed(self) -> list[tuple[list[StoredMessage], Retry]]:
        """Those that were not, and what the listener said of them."""
        return [
            (self.part(start), said)
            for start, said in _take_all(self.failed)
            if start not in self.given_up
        ]

    def take_not_given(self) -> list[StoredMessage]:
        return [message for start in _take_all(self.not_given) for message in self.part(start)]


# What a worker has given to the listener, where that begins, and since when, by the loop's time.
AtWork = tuple[Parcel, int, float]

# Called on the event loop with parcels of which parts are finished.
Done = Callable[[Iterable[Parcel]], None]
HandOver = Callable[[Callable[[], object]], bool]  # see LoopThread


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
        self._parcels: deque[Parcel] = deque()
        self.at_work: dict[object, AtWork] = {}  # by task
        self._tasks: set[asyncio.Task[None]] = set()
        # Not the number of tasks: one that has found no more parts is a task for a while yet.
        self._looking = 0
        self._is_coming = False  # one that has just been woken
        self._finished: list[Parcel] = []  # parts of them, which were not told of yet
        self._is_closed = False

    def submit(self, parcel: Parcel) -> None:
        if not self._is_closed:
            self._parcels.append(parcel)
            self._wake_one()

    async def call(self, messages: Sequence[StoredMessage]) -> Outcome:
        """What the listener says; what it raises, this does."""
        outcome: Any = self._listener(list(messages))
        return checked(await outcome, messages)

    async def close(self, timeout: float) -> None:
        """Begin with no more, and wait for those at work; for so long."""
        self._is_closed = True
        self._done(_unstarted(self._parcels))
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=timeout)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
            self._tell()

    def _wake_one(self) -> None:
        if self._parcels and self._looking < self._count and not self._is_coming:
            self._looking += 1
            self._is_coming = True
            task = asyncio.get_running_loop().create_task(self._run())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _run(self) -> None:
        task = asyncio.current_task()
        try:
            await self._work(task)
        finally:
            self._looking -= 1
            self.at_work.pop(task, None)

    async def _work(self, task: object) -> None:
        time, listener = asyncio.get_running_loop().time, self._listener
        self._is_coming = False
        is_first = True
        while self._parcels:
            parcel = self._parcels[0]
            messages, size = parcel.messages, parcel.part_size
            for start in parcel.starts:  # others may take some of them
                if start + size >= len(messages):
                    self._parcels.popleft()
                if is_first:
                    is_first = False
                    self._wake_one()
                try:
                    if not parcel.may_start():
                        parcel.not_given.append(start)
                        continue
                    self.at_work[task] = parcel, start, time()
                    said: Any = await cast(Any, listener(messages[start : start + size]))
                    if said is None or checked(said, parcel.part(start)) is None:
                        parcel.consumed.append(start)
                    else:
                        parcel.failed.append((start, said))
                except asyncio.CancelledError:
                    if cast("asyncio.Task[None]", task).cancelling():
                        parcel.not_given.append(start)  # as far as anybody knows
                        raise
                    parcel.failed.append((start, _failed()))  # something of its own was cancelled
                except Exception:
                    parcel.failed.append((start, _failed()))
                finally:
                    if not self._finished:
                        asyncio.get_running_loop().call_soon(self._tell)
                    self._finished.append(parcel)

    def _tell(self) -> None:
        self._done(dict.fromkeys(_take_all(self._finished)))


class ThreadWorkers:
    """Call a plain function, which may block, in so many threads.

    The threads take parts without the event loop's help, and to tell it of each that is finished
    would cost more than most listeners do. So while there are any the loop looks by itself every so
    often what is finished, and when nothing was it waits to be told: a listener may take long. Who
    is in a hurry is told besides when no more parcels wait, as he may have the next.
    """

    def __init__(
        self, listener: Listener, count: int, done: Done, *, in_a_hurry: bool = False
    ) -> None:
        self._listener = listener
        self._count = count
        self._done = done
        self._is_in_a_hurry = in_a_hurry
        self._loop = asyncio.get_running_loop()
        self._parcels: deque[Parcel] = deque()
        self.at_work: dict[object, AtWork] = {}  # by thread
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()  # for what follows, and to take a parcel away
        self._sleeping = 0  # threads that nobody has woken yet
        self._is_coming = False  # one that was woken, and has not looked yet
        self._is_closed = False
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._finished: list[Parcel] = []  # one for each part
        self._is_told = False  # the loop will look at what is finished, as soon as it can
        self._is_watching = False  # it will do so in a while
        self._pending = 0  # parts that are not done yet as far as the loop knows
        self._idle = asyncio.Event()
        self._direct = Threads("rocketpipe-direct", 1)
        # The thread that drives the loop of a blocking client is the quickest to be had.
        self._hand_over: HandOver | None = getattr(self._loop, "hand_over", None)

    def submit(self, parcel: Parcel) -> None:
        if not self._is_closed:
            self._pending += parcel.part_count
            self._parcels.append(parcel)
            self._watch_on()
            self._wake_one(self._hand_over)

    async def call(self, messages: Sequence[StoredMessage]) -> Outcome:
        """What the listener says; what it raises, this does."""
        return checked(await self._direct.call(self._listener, list(messages)), messages)

    async def close(self, timeout: float) -> None:
        """Begin with no more, and wait for those at work; for so long."""
        with self._lock:
            self._is_closed = True
            for _ in range(self._sleeping):
                self._wake.put(None)
            unstarted = _unstarted(self._parcels)
        self._pending -= sum(unstarted.values())
        self._done(unstarted)
        try:
            async with asyncio.timeout(timeout):
                while self._pending:
                    self._idle.clear()
                    await self._idle.wait()
        except TimeoutError:
            log.warning("listeners still work: what they were given will come again")
        self._direct.close()

    def _wake_one(self, hand_over: HandOver | None = None) -> None:
        with self._lock:
            if not self._parcels or self._is_coming or self._is_closed:
                return
            if self._sleeping:
                self._is_coming = True
                self._sleeping -= 1
                if hand_over is None or self.at_work or not hand_over(self._stand_in):
                    self._wake.put(None)
            elif len(self._threads) < self._count:
                name = f"rocketpipe-consumer-{len(self._threads)}"
                thread = threading.Thread(target=self._run, name=name, daemon=True)
                self._threads.append(thread)
                thread.start()

    def _run(self) -> None:
        while self._work_till_none():
            self._wake.get()

    def _stand_in(self) -> None:
        """Do what one of those that sleep would have been woken for, who sleeps on."""
        if not self._work_till_none():
            self._wake.put(None)  # it is over, and nobody else will tell

    def _work_till_none(self) -> bool:
        """Whether there may be more: then whoever did it counts as sleeping again."""
        thread = threading.current_thread()
        while True:
            self._is_coming = False
            self._work(thread)
            self.at_work.pop(thread, None)
            with self._lock:
                if self._is_closed:
                    return False
                if not self._parcels:
                    self._sleeping += 1
                    return True

    def _work(self, thread: object) -> None:
        """Take parts until there are none."""
        time, listener = self._loop.time, self._listener
        is_first = True
        while True:
            try:
                parcel = self._parcels[0]
            except IndexError:
                return
            messages, size = parcel.messages, parcel.part_size
            for start in parcel.starts:  # other threads may take some of them
                if start + size >= len(messages):
                    self._put_away(parcel)
                if is_first:
                    is_first = False
                    self._wake_one()
                if self._is_closed or not parcel.may_start():
                    parcel.not_given.append(start)
                else:
                    self.at_work[thread] = parcel, start, time()
                    try:
                        said = listener(messages[start : start + size])
                        if said is None or checked(said, parcel.part(start)) is None:
                            parcel.consumed.append(start)
                        else:
                            parcel.failed.append((start, cast(Retry, said)))
                    except BaseException:  # whatever it is, the thread is ours
                        parcel.failed.append((start, _failed()))
                self._finished.append(parcel)
                if not self._is_told and not (
                    self._is_watching and (self._parcels or not self._is_in_a_hurry)
                ):
                    self._is_told = True
                    try:
                        self._loop.call_soon_threadsafe(self._told)
                    except RuntimeError:
                        self._is_closed = True  # as the loop is, and nobody wants to know
                        return
            self._put_away(parcel)  # if another has taken its last part, but not come that far

    def _put_away(self, parcel: Parcel) -> None:
        """One of which all parts are taken; another thread may have done so already."""
        with self._lock:
            if self._parcels and self._parcels[0] is parcel:
                self._parcels.popleft()

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
        self._done(dict.fromkeys(finished))
        if not self._pending:
            self._idle.set()


def _failed() -> Retry:
    log.exception("a listener failed: the messages will come again")
    return Retry()


def _take_all(items: list[T]) -> list[T]:
    """What is there; what other threads add meanwhile stays."""
    taken = items[:]
    del items[: len(taken)]
    return taken


def _unstarted(parcels: deque[Parcel]) -> dict[Parcel, int]:
    """Take them all; how many parts of each nobody has begun, which are not given any more."""
    counts = {}
    while parcels:
        parcel = parcels.popleft()
        starts = list(parcel.starts)
        parcel.not_given += starts
        counts[parcel] = len(starts)
    return counts


Workers = TaskWorkers | ThreadWorkers


def workers(listener: Listener, count: int, done: Done, *, in_a_hurry: bool = False) -> Workers:
    """Who calls this listener; whoever is in a hurry wants to know at once when nothing is left."""
    if is_async(listener):
        return TaskWorkers(listener, count, done)
    return ThreadWorkers(listener, count, done, in_a_hurry=in_a_hurry)
