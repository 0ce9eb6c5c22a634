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
from typing import NamedTuple

from rocketpipe.codes import request_name
from rocketpipe.errors import MQError, RequestTimeout
from rocketpipe.wire.frame import RemotingCommand


class Late(NamedTuple):
    """Who still wants an answer that missed its deadline, and for how long."""

    tell: Callable[[RemotingCommand], object]
    until: float  # by the loop's clock


class _Waiting(NamedTuple):
    future: asyncio.Future[RemotingCommand]
    deadline: float
    address: str
    code: int
    timeout: float


class Unanswered:
    def __init__(self, expired: Callable[[], object]) -> None:
        """`expired` is called when some have waited for too long, and wait no more."""
        self._loop = asyncio.get_running_loop()
        self._expired = expired
        self._waiting: dict[int, _Waiting] = {}  # by opaque
        self._late: dict[int, Callable[[RemotingCommand], object]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, opaque: int) -> bool:
        return opaque in self._waiting

    def expect(
        self, command: RemotingCommand, address: str, deadline: float, timeout: float
    ) -> asyncio.Future[RemotingCommand]:
        """The answer to a command that was sent; address and timeout are for the error to tell."""
        future: asyncio.Future[RemotingCommand] = self._loop.create_future()
        self._waiting[command.opaque] = _Waiting(future, deadline, address, command.code, timeout)
        if deadline < self._timer_at:
            self._set_timer(deadline)
        return future

    def expect_late(self, opaque: int, late: Late) -> None:
        """Its deadline is over, but somebody would still like to know."""
        self._late[opaque] = late.tell
        self._loop.call_at(late.until, self._late.pop, opaque, None)

    def forget(self, opaque: int) -> None:
        self._waiting.pop(opaque, None)

    def hear(self, answer: RemotingCommand) -> bool:
        """Whether anybody waits for this."""
        waiting = self._waiting.pop(answer.opaque, None)
        if waiting is not None and not waiting.future.done():
            waiting.future.set_result(answer)
            return True
        tell = self._late.pop(answer.opaque, None)
        if tell is not None:
            tell(answer)
        return tell is not None

    def end(self, error: MQError) -> None:
        """Nothing will be answered any more."""
        if self._timer is not None:
            self._timer.cancel()
        for waiting in self._waiting.values():
            if not waiting.future.done():
                waiting.future.set_exception(copy.copy(error))

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
                continue
            expired.append(opaque)
            if not waiting.future.done():
                name = request_name(waiting.code)
                error = RequestTimeout(waiting.address, name, waiting.timeout)
                waiting.future.set_exception(error)
        for opaque in expired:
            del self._waiting[opaque]
        self._timer = None
        self._set_timer(max(earliest, now + len(self._waiting) * 1e-6))
        if expired:
            self._expired()
