"""Pulls that found nothing and wait: until a message comes that they want, or their time is up.

How it works
- A pull is held by its queue, so that an arrival finds whom to wake, and by its connection, so that
  it goes when that does. Who is woken asks the store once more, and is answered whatever it finds.
- Nobody is woken inside the store, nor many in one turn of the event loop: those to wake stand in a
  line, the first first. What arrives in the meantime is in their answers too.
- Deadlines are rounded up to a tenth of a second, and all that share one end together: a held pull
  costs no timer, and going early costs nothing either.
- A message that a pull does not want moves its deadline to five seconds later at most: then it is
  told how far it got, so that a group with a choosy filter does not seem to stand still.
"""

import asyncio
import math
from collections import deque
from collections.abc import Callable
from functools import cache, partial
from typing import TypeVar

from rocketpipe.broker.message_filter import MessageFilter
from rocketpipe.broker.pull_checks import Pull
from rocketpipe.broker.settings import BrokerSettings
from rocketpipe.broker.store.message_store import MessageStore
from rocketpipe.codes import ResponseCode
from rocketpipe.remoting.connection import Connection
from rocketpipe.remoting.dispatch import Refusal
from rocketpipe.wire.frame import RemotingCommand

K = TypeVar("K")

TICK = 0.1
SKIPPED_SECONDS_MAX = 5.0  # Apache looks at every held pull so often
SUSPEND_SECONDS_MAX = 120.0  # by then its connection counts as dead
WAKE_MAX = 50  # in one turn of the loop


class HeldPull:
    """A pull with all that is needed to answer it later."""

    __slots__ = ("connection", "filter", "pull", "request", "tick")

    def __init__(
        self,
        connection: Connection,
        request: RemotingCommand,
        pull: Pull,
        wanted: MessageFilter,
    ) -> None:
        self.connection = connection
        self.request = request
        self.pull = pull
        self.filter = wanted
        self.tick = 0  # when its time is up


_Held = dict[HeldPull, None]  # for its order


class HeldPulls:
    """Pulls that wait; `resume` is called with each when it has waited enough."""

    def __init__(self, settings: BrokerSettings, store: MessageStore) -> None:
        self.resume: Callable[[HeldPull], None] = lambda held: None
        self._settings = settings
        self._store = store
        self._count = 0
        self._by_queue: dict[tuple[str, int], _Held] = {}
        self._by_connection: dict[Connection, _Held] = {}
        self._by_tick: dict[int, _Held] = {}
        self._woken: deque[HeldPull] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_tick = 0

    def __len__(self) -> int:
        return self._count + len(self._woken)

    @property
    def woken(self) -> int:
        """How many stand in line to be answered."""
        return len(self._woken)

    def hold(self, held: HeldPull, seconds: float) -> None:
        """Keep it for so long, or refuse to when there are too many."""
        if len(self) >= self._settings.pull_thread_pool_queue_capacity:
            raise Refusal(
                ResponseCode.SYSTEM_BUSY, "[OVERLOAD]system busy, start flow control for a while"
            )
        self._count += 1
        # A connection may send many and go at any time; only its own are looked at then.
        self._by_connection.setdefault(held.connection, {})[held] = None
        self._by_queue.setdefault((held.pull.topic, held.pull.queue_id), {})[held] = None
        self._set_deadline(held, min(seconds, SUSPEND_SECONDS_MAX))

    def arrived(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        tags_code: int,
        physical_offset: int,
        *_: int,
    ) -> None:
        """A message can be read: to be told by the store."""
        waiting = self._by_queue.get((topic, queue_id))
        if waiting is None:
            return
        properties = cache(partial(self._store.properties_at, physical_offset))
        for held in list(waiting):
            if queue_offset < held.pull.offset:
                continue  # on a slave that is behind
            if held.filter.wants(tags_code, properties):
                self._wake(held)
            else:
                self._move_deadline(held)

    def wake_group(self, group: str, topic: str, queue_id: int) -> None:
        """There is something to tell to this group's consumers of the queue."""
        for held in list(self._by_queue.get((topic, queue_id), ())):
            if held.pull.group == group:
                self._wake(held)

    def forget_connection(self, connection: Connection) -> None:
        for held in list(self._by_connection.get(connection, ())):
            self._remove(held)

    def close(self) -> None:
        """Forget them all: their connections are about to close."""
        if self._timer is not None:
            self._timer.cancel()
        for table in (self._by_queue, self._by_connection, self._by_tick):
            table.clear()
        self._woken.clear()
        self._count = 0

    def _wake(self, held: HeldPull) -> None:
        self._remove(held)
        if not self._woken:
            asyncio.get_running_loop().call_soon(self._resume_some)
        self._woken.append(held)

    def _resume_some(self) -> None:
        for _ in range(WAKE_MAX):
            if not self._woken:
                return
            self.resume(self._woken.popleft())
        if self._woken:
            asyncio.get_running_loop().call_soon(self._resume_some)

    def _remove(self, held: HeldPull) -> None:
        self._count -= 1
        _take_out(self._by_queue, (held.pull.topic, held.pull.queue_id), held)
        _take_out(self._by_connection, held.connection, held)
        _take_out(self._by_tick, held.tick, held)

    # Deadlines.

    def _set_deadline(self, held: HeldPull, seconds: float) -> None:
        held.tick = _tick_after(max(seconds, 0.0))
        self._by_tick.setdefault(held.tick, {})[held] = None
        if self._timer is None or held.tick < self._timer_tick:
            self._set_timer(held.tick)

    def _move_deadline(self, held: HeldPull) -> None:
        if _tick_after(SKIPPED_SECONDS_MAX) < held.tick:
            _take_out(self._by_tick, held.tick, held)
            self._set_deadline(held, SKIPPED_SECONDS_MAX)

    def _set_timer(self, tick: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_tick = tick
        self._timer = asyncio.get_running_loop().call_at(tick * TICK, self._expire)

    def _expire(self) -> None:
        self._timer = None
        for tick in sorted(tick for tick in self._by_tick if tick <= self._timer_tick):
            for held in list(self._by_tick[tick]):
                self._wake(held)
        if self._by_tick:
            self._set_timer(min(self._by_tick))


def _tick_after(seconds: float) -> int:
    return math.ceil((asyncio.get_running_loop().time() + seconds) / TICK)


def _take_out(table: dict[K, _Held], key: K, held: HeldPull) -> None:
    held_there = table.get(key)
    if held_there is not None:
        held_there.pop(held, None)
        if not held_there:
            del table[key]
