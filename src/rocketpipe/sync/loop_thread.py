"""The event loop behind all blocking clients of a process, on a thread of its own.

It starts with the first client and ends with the last, or when the interpreter exits. A blocking
call hands its coroutine over and waits; that is all, for these reasons:

- The hop costs two switches between threads. A coroutine that yields once took 14 microseconds when
  its caller drove the loop, 30 through this thread and 70 through asyncio's
  run_coroutine_threadsafe. What makes the difference is a plain lock to wait on, and a mailbox that
  wakes the loop once for all that is in it. Java's producer hops in the same way between its
  caller and Netty.
- To drive the loop on the calling thread would spare the hop. But in the main thread Python runs
  signal handlers between any two instructions, and one that raises (Ctrl-C, an alarm of a test
  runner or a web server) would tear through the work of everybody who shares the loop. Waiting on
  a lock, the caller can be torn away and nothing else is hurt.

A fork copies no threads, so in the child nothing of this lives: its clients say so at once, and
the first one started there starts a thread there.
"""

import asyncio
import atexit
import os
import selectors
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, wait
from typing import Any, Generic, TypeVar

from rocketpipe.errors import IllegalState

T = TypeVar("T")

EXIT_TIMEOUT = 5.0  # how long clients that nobody closed may hold up the end of the program

Close = Callable[[], Coroutine[Any, Any, None]]


class LoopThread:
    """Get it with `enter`; give it back with `leave`."""

    @staticmethod
    def enter(client: object, close: Close) -> "LoopThread":
        """The thread of this process, which will close the client at exit unless it has left."""
        global _current
        with _lock:
            if _current is None:
                _current = LoopThread()
            _current._clients[client] = close
            return _current

    def leave(self, client: object) -> None:
        """The last client to leave ends the thread."""
        global _current
        with _lock:
            self._clients.pop(client, None)
            is_last = _current is self and not self._clients
            if is_last:
                _current = None
        if is_last:
            self.end()

    def __init__(self, name: str = "rocketpipe-loop") -> None:
        self._clients: dict[object, Close] = {}
        self._selector = selectors.DefaultSelector()
        self._loop = asyncio.SelectorEventLoop(self._selector)
        self._mail: list[Callable[[], object]] = []
        self._mail_lock = threading.Lock()
        self._is_mail_known = False  # to the loop: one wake-up serves all that is in it
        self._is_over = False
        self.is_abandoned = False
        self._ended = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """What the coroutine returns or raises. Who is torn away from waiting cancels it."""
        self._admit(coroutine)
        answered = threading.Lock()
        answered.acquire()
        job = _Job(coroutine, self._loop, lambda _: answered.release())
        try:
            if not self.post(job.start):
                return run_alone(coroutine)
            answered.acquire()
        except BaseException:
            self._give_up(job)
            raise
        assert job.task is not None
        try:
            return job.task.result()
        except asyncio.CancelledError:
            raise IllegalState("this client was closed meanwhile") from None

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> "Future[T]":
        """A future of what the coroutine returns; cancelling it cancels the coroutine."""
        self._admit(coroutine)
        future: Future[T] = Future()
        job = _Job(coroutine, self._loop, lambda task: _pass_on(task, future))
        try:
            if not self.post(job.start):
                future.set_result(run_alone(coroutine))
        except BaseException:
            self._give_up(job)
            raise
        future.add_done_callback(lambda done: done.cancelled() and self.post(job.cancel))
        return future

    def _admit(self, coroutine: Coroutine[Any, Any, object]) -> None:
        try:
            self.require_usable()
        except IllegalState:
            coroutine.close()
            raise

    def _give_up(self, job: "_Job[Any]") -> None:
        self.post(job.cancel)
        self._wake()  # the first post may have been torn away before it did

    def require_usable(self) -> None:
        """IllegalState where nothing may or can be called."""
        refuse_event_loops()
        if self.is_abandoned:
            raise IllegalState("started in another process: make a new client in this one")

    def close_all(self, timeout: float) -> None:
        """Close every client, for so long, and end."""

        async def close() -> None:
            closing = [close() for close in self._clients.values()]
            await asyncio.gather(*closing, return_exceptions=True)

        wait([self.submit(close())], timeout)
        self.end(timeout)

    def abandon(self) -> None:
        """We are in a forked child, where this thread does not exist."""
        self.is_abandoned = True
        # The sockets do exist, and would keep the parent's connections open after it closed them.
        # Their numbers stay taken: who owns them may still close them.
        null = os.open(os.devnull, os.O_RDWR)
        for key in list((self._selector.get_map() or {}).values()):
            os.dup2(null, key.fd, inheritable=False)
        os.close(null)

    def post(self, work: Callable[[], object]) -> bool:
        """Have the loop do this soon; False if it is over."""
        with self._mail_lock:
            if self._is_over:
                return False
            self._mail.append(work)
            is_news, self._is_mail_known = not self._is_mail_known, True
        if is_news:
            self._wake()
        return True

    def _wake(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._read_mail)
        except RuntimeError:
            pass  # it is closed, and has read its mail before

    def _read_mail(self) -> None:
        with self._mail_lock:
            mail, self._mail = self._mail, []
            self._is_mail_known = False
        for work in mail:
            work()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._main())
        # Runner has cancelled and awaited whatever was left.

    async def _main(self) -> None:
        await self._ended.wait()
        with self._mail_lock:
            self._is_over = True
        self._read_mail()  # who wrote in time is cancelled, but does not wait forever

    def end(self, timeout: float | None = None) -> None:
        """Cancel what still runs there, and the thread is gone."""
        self.post(self._ended.set)
        self._thread.join(timeout)


class _Job(Generic[T]):
    """A coroutine on its way to the loop and through it."""

    __slots__ = ("_coroutine", "_loop", "_on_done", "task")

    def __init__(
        self,
        coroutine: Coroutine[Any, Any, T],
        loop: asyncio.AbstractEventLoop,
        on_done: Callable[[asyncio.Task[T]], object],
    ) -> None:
        self._coroutine = coroutine
        self._loop = loop
        self._on_done = on_done
        self.task: asyncio.Task[T] | None = None

    def start(self) -> None:
        self.task = self._loop.create_task(self._coroutine)
        self.task.add_done_callback(self._on_done)

    def cancel(self) -> None:
        if self.task is None:  # mail is read in order, so it will never start
            self._coroutine.close()
        else:
            self.task.cancel()


def refuse_event_loops() -> None:
    """IllegalState where an event loop runs, which a blocking call would stop."""
    if asyncio._get_running_loop() is not None:
        raise IllegalState("a blocking call would stop the event loop here: use the Async class")


def run_alone(coroutine: Coroutine[Any, Any, T]) -> T:
    """What the coroutine returns or raises without any loop thread: it should end at once."""
    try:
        refuse_event_loops()
        loop = asyncio.new_event_loop()
        try:
            return loop.run_until_complete(coroutine)
        finally:
            loop.close()
    finally:
        coroutine.close()


def _pass_on(task: asyncio.Task[T], future: "Future[T]") -> None:
    if not future.set_running_or_notify_cancel():
        return  # the user cancelled it
    if task.cancelled():
        future.set_exception(IllegalState("this client was closed meanwhile"))
    elif error := task.exception():
        future.set_exception(error)
    else:
        future.set_result(task.result())


_lock = threading.Lock()  # of _current, and who its clients are
_current: LoopThread | None = None
_abandoned: list[LoopThread] = []  # a loop that is thrown away complains that it was not closed


def _after_fork() -> None:
    global _lock, _current
    _lock = threading.Lock()
    if _current is not None:
        _current.abandon()
        _abandoned.append(_current)
        _current = None


@atexit.register
def _at_exit() -> None:
    if _current is not None:
        _current.close_all(EXIT_TIMEOUT)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
