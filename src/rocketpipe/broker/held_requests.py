"""Requests that wait for their answer: until something comes that they want, or their time is up.

How it works
- A request is held by its key, so that what comes finds whom to wake, and by its connection, so
  that it goes when that does. Who is woken looks once more for what it wants.
- Nobody is woken inside the store, nor many in one turn of the event loop: those to wake stand in a
  line, the first first. What arrives in the meantime is in their answers too.
- Deadlines are rounded up to a tenth of a second, and all that share one end together: a held
  request costs no timer, and going early costs nothing either.
"""

import asyncio
import math
from collections import deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from rocketpipe.remoting.connection import Connection
from rocketpipe.wire.frame import RemotingCommand

K = TypeVar("K")

TICK = 0.1
SUSPEND_SECONDS_MAX = 120.0  # by then its connection counts as dead
WAKE_MAX = 50  # in one turn of the loop


class Held:
    """A request with all that is needed to answer it later; each kind adds what it reads anew."""

    __slots__ = ("connection", "key", "request", "tick")

    def __init__(self, connection: Connection, request: RemotingCommand, key: Hashable) -> None:
        self.connection = connection
        self.request = request
        self.key = key
        self.tick = 0  # when its time is up


H = TypeVar("H", bound=Held)


class HeldRequests(Generic[H]):
    """Requests that wait; `resume` is called with each when it has waited enough."""

    def __init__(self) -> None:
        self.resume: Callable[[H], None] = lambda held: None
        self._count = 0
        # Dicts for their order.
        self._by_key: dict[Hashable, dict[H, None]] = {}
        self._by_connection: dict[Connection, dict[H, None]] = {}
        self._by_tick: dict[int, dict[H, None]] = {}
        self._woken: deque[H] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_tick = 0

    def __len__(self) -> int:
        return self._count + len(self._woken)

    @property
    def woken(self) -> int:
        """How many stand in line to be answered."""
        return len(self._woken)

    def hold(self, held: H, seconds: float) -> None:
        """Keep it for so long."""
        self._count += 1
        # A connection may send many and go at any time; only its own are looked at then.
        self._by_connection.setdefault(held.connection, {})[held] = None
        self._by_key.setdefault(held.key, {})[held] = None
        self._set_deadline(held, min(seconds, SUSPEND_SECONDS_MAX))

    def forget_connection(self, connection: Connection) -> None:
        for held in list(self._by_connection.get(connection, ())):
            self._remove(held)

    def close(self) -> None:
        """Forget them all: their connections are about to close."""
        if self._timer is not None:
            self._timer.cancel()
        for held in [held for same in self._by_connection.values() for held in same]:
            self._remove(held)
        self._woken.clear()

    def _wake(self, held: H) -> None:
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

    def _remove(self, held: H) -> None:
        self._count -= 1
        _take_out(self._by_key, held.key, held)
        _take_out(self._by_connection, held.connection, held)
        _take_out(self._by_tick, held.tick, held)

    # Deadlines.

    def _set_deadline(self, held: H, seconds: float) -> None:
        held.tick = _tick_after(max(seconds, 0.0))
        self._by_tick.setdefault(held.tick, {})[held] = None
        if self._timer is None or held.tick < self._timer_tick:
            self._set_timer(held.tick)

    def _move_deadline(self, held: H, seconds: float) -> None:
        """Let its time be up after so long at most."""
        if _tick_after(seconds) < held.tick:
            _take_out(self._by_tick, held.tick, held)
            self._set_deadline(held, seconds)

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


def _take_out(table: dict[K, dict[H, None]], key: K, held: H) -> None:
    held_there = table.get(key)
    if held_there is not None:
        held_there.pop(held, None)
        if not held_there:
            del table[key]
