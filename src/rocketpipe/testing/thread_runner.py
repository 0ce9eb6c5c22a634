"""A server on a thread of its own in this process.

A thread of its own is what makes freezing real: it stands still, and with it every timer and every
connection, while the kernel goes on to accept connections for it. So it does for a process that was
sent SIGSTOP.
"""

import threading
from concurrent.futures import Future

from rocketpipe.broker.faults import FaultControl
from rocketpipe.sync.loop_thread import LoopThread
from rocketpipe.testing.embedded_servers import BrokerCore, ServerPlan, core_of


class ThreadRunner:
    """Runs a server by its plan; see ServerRunner."""

    def __init__(self, plan: ServerPlan) -> None:
        self._core = core_of(plan)
        self._thread: LoopThread | None = None
        self._thaw: threading.Event | None = None

    @property
    def plan(self) -> ServerPlan:
        return self._core.plan

    @property
    def is_running(self) -> bool:
        return self._thread is not None and self._core.is_running

    @property
    def is_frozen(self) -> bool:
        return self._thaw is not None

    @property
    def faults(self) -> FaultControl:
        return self._broker.faults

    def start_nowait(self) -> "Future[None]":
        if self._thread is None:
            self._thread = LoopThread(f"rocketpipe-{self.plan.name}", lends=False)
        return self._thread.submit(self._core.start())

    def stop(self) -> None:
        self.thaw()
        if self._thread is not None:
            try:
                self._thread.call(self._core.stop())
            finally:
                self._end_thread()

    def kill(self) -> None:
        if self._thread is not None:
            killing = self._thread.submit(self._core.kill())
            self.thaw()
            try:
                killing.result()
            finally:
                self._end_thread()

    def freeze(self) -> None:
        if self._thread is not None and self._thaw is None:
            stands, thaw = threading.Event(), threading.Event()

            def stand_still() -> None:
                stands.set()
                thaw.wait()

            self._thread.post(stand_still)
            stands.wait()
            self._thaw = thaw

    def thaw(self) -> None:
        thaw, self._thaw = self._thaw, None
        if thaw is not None:
            thaw.set()

    def register(self) -> None:
        if self._thread is not None:
            self._thread.call(self._broker.register())

    def cut_connections(self) -> None:
        if self._thread is not None:
            self._thread.call(self._broker.cut_connections())

    def abandon(self) -> None:
        # A fork copies no threads, but sockets: they would keep the parent's ports taken.
        if self._thread is not None:
            self._thread.abandon()
        self._thread = self._thaw = None

    @property
    def _broker(self) -> BrokerCore:
        assert isinstance(self._core, BrokerCore), "a NameServer has none of this"
        return self._core

    def _end_thread(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.end()
