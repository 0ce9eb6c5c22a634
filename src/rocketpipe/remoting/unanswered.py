"""The requests of one connection that have no answer yet, and how long they may wait for it.

One timer serves all their deadlines. It is set to the earliest and looks at them all when it rings;
as answers usually come long before, it rings about once per timeout. When they do not come it rests
a microsecond per request between looks, which take a tenth of that: so a frozen peer can't keep the
loop busy, and the last of 65535 deadlines is kept 66 ms late.
"""

import asyncio
import copy
import math
from collections.abc import Callable
from typing import NamedTuple, Protocol

from rocketpipe.codes import request_name
from rocketpipe.compiled import Pull
from rocketpipe.errors import MQError, RequestTimeout
from rocketpipe.wire.frame import RemotingCommand

_OPAQUE_MAX = 0x7FFFFFFF


class Late(NamedTuple):
    """Who still wants an answer that missed its deadline, and for how long."""

    tell: Callable[[RemotingCommand], object]
    until: float  # by the loop's clock


class Waiter(Protocol):
    """Who waits for an answer: a future, or one that is told at once, in the same words."""

    def done(self) -> bool:
        """Whether he waits no more."""

    def set_result(self, answer: RemotingCommand, /) -> object: ...

    def set_exception(self, error: MQError, /) -> object: ...


class PullWaiter(Waiter, Protocol):
    """Who waits for the answer to a pull, and takes a plain one as `compiled.read_pull` read it."""

    def set_result(self, answer: RemotingCommand | Pull, /) -> object: ...


class Waiting(NamedTuple):
    waiter: Waiter
    deadline: float
    address: str  # this and what follows is for an error to tell
    code: int
    timeout: float


class Unanswered:
    def __init__(self, expired: Callable[[], object]) -> None:
        """`expired` is called when some have waited for too long, and wait no more."""
        self._loop = asyncio.get_running_loop()
        self._expired = expired
        self._opaque = 0
        self._waiting: dict[int, Waiting] = {}  # by opaque
        self.pulls: dict[int, PullWaiter] = {}  # who is among those
        self._late: dict[int, Callable[[RemotingCommand], object]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf

    def __len__(self) -> int:
        return len(self._waiting)

    def next_opaque(self) -> int:
        """A number for a request, by which its answer is known."""
        while True:
            self._opaque = self._opaque % _OPAQUE_MAX + 1
            if self._opaque not in self._waiting:
                return self._opaque

    def expect(self, opaque: int, waiting: Waiting) -> None:
        """A request was sent."""
        self._waiting[opaque] = waiting
        if waiting.deadline < self._timer_at:
            self._set_timer(waiting.deadline)

    def expect_late(self, opaque: int, late: Late) -> None:
        """Its deadline is over, but somebody would still like to know."""
        self._late[opaque] = late.tell
        self._loop.call_at(late.until, self._late.pop, opaque, None)

    def forget(self, opaque: int) -> None:
        self._waiting.pop(opaque, None)

    def hear(self, answer: RemotingCommand) -> bool:
        """Whether anybody waits for this."""
        waiting = self._waiting.pop(answer.opaque, None)
        if self.pulls:
            self.pulls.pop(answer.opaque, None)
        if waiting is not None and not waiting.waiter.done():
            waiting.waiter.set_result(answer)
            return True
        tell = self._late.pop(answer.opaque, None)
        if tell is not None:
            tell(answer)
        return tell is not None

    def hear_pull(self, pull: Pull) -> None:
        """One of `pulls` was answered."""
        opaque = pull[1]
        del self._waiting[opaque]
        waiter = self.pulls.pop(opaque)
        if not waiter.done():
            waiter.set_result(pull)

    def end(self, error: MQError) -> None:
        """Nothing will be answered any more."""
        if self._timer is not None:
            self._timer.cancel()
        for waiting in list(self._waiting.values()):
            if not waiting.waiter.done():
                waiting.waiter.set_exception(copy.copy(error))

    def _set_timer(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        self._timer = self._loop.call_at(at, self._expire) if at < math.inf else None

    def _expire(self) -> None:
        now = self._loop.time()
        earliest = math.inf
        expired = []
        for opaque, waiting in self._waiting.items():
            if waiting.deadline > now:
                earliest = min(earliest, waiting.deadline)
            else:
                expired.append(opaque)
        over = [self._waiting.pop(opaque) for opaque in expired]
        for opaque in expired if self.pulls else ():
            self.pulls.pop(opaque, None)
        self._timer = None
        self._set_timer(max(earliest, now + len(self._waiting) * 1e-6))
        for waiting in over:
            if not waiting.waiter.done():
                name = request_name(waiting.code)
                error = RequestTimeout(waiting.address, name, waiting.timeout)
                waiting.waiter.set_exception(error)
        if expired:
            self._expired()
