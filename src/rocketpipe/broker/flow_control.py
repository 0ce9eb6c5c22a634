"""When a broker says that it is busy: sends wait while the disk does, but not for long, nor many.

RocketMQ has threads that send and a queue before them. Here a send goes to the store at once, and a
queue forms only when the store is behind: when the disk has not taken what it was given. Then the
same rules hold. A send that waits too long is refused, all are when the disk takes even longer, and
so is who comes then, or finds the queue full. The texts are Apache's.

What the store was given it offers to the disk at the end of the loop's turn. So that a long turn is
not taken for a slow disk, whether it is behind is found out between turns only.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from rocketpipe.broker.settings import BrokerSettings
from rocketpipe.broker.store.message_store import MessageStore
from rocketpipe.clock import Clock
from rocketpipe.codes import ResponseCode
from rocketpipe.remoting.connection import Connection
from rocketpipe.remoting.dispatch import Handler, Outcome, Refusal, failure_answer
from rocketpipe.wire.frame import RemotingCommand

log = logging.getLogger(__name__)

BEHIND_SECONDS = 0.01
SCAN_INTERVAL = 0.01  # as RocketMQ's BrokerFastFailure
RUN_MAX = 1000  # of those that waited, in one turn of the loop

PlainHandler = Callable[[Connection, RemotingCommand], Outcome]


class _Waiting(NamedTuple):
    since: float
    connection: Connection
    request: RemotingCommand
    handler: PlainHandler


class FlowControl:
    """Lets sends pass while the store keeps up; else they wait, or are refused."""

    def __init__(self, settings: BrokerSettings, store: MessageStore, clock: Clock) -> None:
        self.unanswered = 0  # sends that passed, and whose messages the store is working on
        self._settings = settings
        self._store = store
        self._clock = clock
        self._is_behind = False
        self._look_handle: asyncio.Handle | None = None
        self._queue: deque[_Waiting] = deque()
        self._queue_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        store.on_written.append(self._written)

    @property
    def queue_size(self) -> int:
        """How many sends wait."""
        return len(self._queue)

    @property
    def head_wait_seconds(self) -> float:
        """How long the first has waited."""
        return self._clock.monotonic() - self._queue[0].since if self._queue else 0.0

    def guard(self, handler: PlainHandler) -> Handler:
        """The handler, which is then called at once, later or never."""

        def guarded(connection: Connection, request: RemotingCommand) -> Outcome:
            if self._may_pass() and not self._queue:
                outcome = handler(connection, request)
                if self._look_handle is None:
                    self._look_soon()
                return outcome
            self._wait(_Waiting(self._clock.monotonic(), connection, request, handler))
            return None

        return guarded

    def may_take(self, quantity: int) -> bool:
        """Whether so many sends would pass now."""
        capacity = self._settings.send_thread_pool_queue_capacity
        return self._may_pass() and not self._queue and self.unanswered + quantity <= capacity

    def took(self, quantity: int) -> None:
        """So many have passed."""
        self.unanswered += quantity
        if self._look_handle is None:
            self._look_soon()

    def close(self) -> None:
        """Refuse who still waits."""
        for handle in (self._timer, self._look_handle):
            if handle is not None:
                handle.cancel()
        while self._queue:
            self._refuse_next("PCBUSY_CLEAN_QUEUE")

    def _look_soon(self) -> None:
        """Look in the next turn, after the store has offered to the disk what it has."""
        if self._look_handle is not None:
            self._look_handle.cancel()
        self._look_handle = asyncio.get_running_loop().call_soon(self._look)

    def _look(self) -> None:
        self._is_behind = self._store.busy_seconds() >= BEHIND_SECONDS
        self._look_handle = None
        self._run()
        if self.unanswered:
            loop = asyncio.get_running_loop()
            self._look_handle = loop.call_later(SCAN_INTERVAL, self._look_soon)

    def _may_pass(self) -> bool:
        return (
            not self._is_behind
            and self.unanswered < self._settings.send_thread_pool_queue_capacity
            and not self._settings.is_slave
        )

    def _is_stuck(self) -> bool:
        return self._store.busy_seconds() > self._settings.store.os_page_cache_busy_timeout

    def _wait(self, waiting: _Waiting) -> None:
        settings = self._settings
        if settings.is_slave or self._is_stuck():
            raise _busy("[REJECTREQUEST]system busy, start flow control for a while")
        if (
            len(self._queue) + self.unanswered >= settings.send_thread_pool_queue_capacity
            or self._queue_bytes >= settings.send_queue_bytes_max
        ):
            raise _busy("[OVERLOAD]system busy, start flow control for a while")
        self._queue.append(waiting)
        self._queue_bytes += len(waiting.request.body)
        if self._timer is None:
            self._set_timer()

    # What becomes of those that wait.

    def _set_timer(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(SCAN_INTERVAL, self._scan)

    def _scan(self) -> None:
        self._timer = None
        if self._settings.broker_fast_failure_enable:
            while self._queue and self._is_stuck():
                self._refuse_next("PCBUSY_CLEAN_QUEUE")
            while self.head_wait_seconds >= self._settings.wait_time_in_send_queue:
                self._refuse_next("TIMEOUT_CLEAN_QUEUE")
        self._run()
        if self._queue:
            self._set_timer()

    def _written(self, _: int) -> None:
        if self._is_behind:
            self._look_soon()

    def _run(self) -> None:
        for _ in range(RUN_MAX):
            if not self._queue or not self._may_pass():
                return
            waiting = self._take_next()
            try:
                outcome = waiting.handler(waiting.connection, waiting.request)
            except Exception as error:
                outcome = failure_answer(waiting.request, error)
            waiting.connection.answer(waiting.request, outcome)

    def _refuse_next(self, what: str) -> None:
        waiting = self._take_next()
        period = round((self._clock.monotonic() - waiting.since) * 1000)
        remark = (
            f"[{what}]broker busy, start flow control for a while, "
            f"period in queue: {period}ms, size of queue: {len(self._queue)}"
        )
        answer = waiting.request.answer(ResponseCode.SYSTEM_BUSY, remark)
        waiting.connection.answer(waiting.request, answer)

    def _take_next(self) -> _Waiting:
        waiting = self._queue.popleft()
        self._queue_bytes -= len(waiting.request.body)
        return waiting


def _busy(remark: str) -> Refusal:
    return Refusal(ResponseCode.SYSTEM_BUSY, remark)
