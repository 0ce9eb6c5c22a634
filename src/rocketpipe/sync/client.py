"""What all blocking clients have in common: a life, and the way to the loop."""

import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from rocketpipe.sync.loop_thread import LoopThread, refuse_event_loops, run_alone

T = TypeVar("T")


class AsyncClient(Protocol):
    async def start(self) -> None: ...

    async def close(self) -> None: ...


class BlockingClient:
    """The face of an async client. It has no logic: each method hands over that of the same name.

    Many threads may use it at once. In a forked child it is of no use, and says so.
    """

    _LISTENS = False  # to what comes unasked: see loop_thread.py

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self._loop_thread: LoopThread | None = None
        self._is_closing = False
        self._lock = threading.Lock()  # of the two above

    def start(self) -> None:
        """Get ready; a client can be started once."""
        refuse_event_loops()
        with self._lock:
            is_first = self._loop_thread is None
            if self._loop_thread is None:
                self._loop_thread = LoopThread.enter(
                    self, self._client.close, listens=self._LISTENS
                )
        try:
            self._call(self._client.start())
        except BaseException:
            if is_first:
                self._loop_thread.leave(self)
            raise

    def close(self) -> None:
        """Let what is on its way end, then leave. Closing twice is no error."""
        if self._loop_thread is not None and self._loop_thread.is_abandoned:
            return  # its connections are the parent's
        refuse_event_loops()
        with self._lock:
            if self._is_closing:
                return
            self._is_closing = True
        try:
            self._call(self._client.close())
        finally:
            if self._loop_thread is not None:
                self._loop_thread.leave(self)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """What it returns or raises, waited for."""
        if self._loop_thread is None:
            return run_alone(coroutine)
        return self._loop_thread.call(coroutine)

    def _submit(self, coroutine: Coroutine[Any, Any, T]) -> "Future[T]":
        """A future of what it returns."""
        if self._loop_thread is None:
            future: Future[T] = Future()
            future.set_result(run_alone(coroutine))
            return future
        return self._loop_thread.submit(coroutine)

    def _require_usable(self) -> None:
        """IllegalState where nothing may or can be called."""
        refuse_event_loops()
        if self._loop_thread is not None:
            self._loop_thread.require_usable()
