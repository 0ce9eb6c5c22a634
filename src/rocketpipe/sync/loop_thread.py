"""The event loops behind the blocking clients of a process: whoever needs one drives it.

There are two, one for clients that are called and one for those that listen. Each starts with its
first client and ends with its last, or when the interpreter exits. It has a thread of its own,
which drives it while nobody calls. A blocking call finds it

- undriven, and drives it until it has its answer. That spares two switches between threads, half of
  the time that a send takes before and after the broker's;
- or driven, by the thread or by another caller, and leaves its coroutine there and waits.

The thread lends the loop to callers who come often: after it has done a call, it rests until none
has come for a while, or until somebody needs it. The loop of clients that listen it never lends:
what comes unasked has to be heard at once. Were there only one loop, to send in a process that also
consumes would cost the two switches. It has a second thread as relief: so the one that drove when a
message came can go with it to the listener (`hand_over`), and need not wake another for that.

In the main thread Python runs signal handlers between any two instructions, and one that raises
would tear through the work of everybody who shares the loop. So they wait while a caller drives
there: see signals.py. It costs a few microseconds.

A fork copies no threads, so in the child nothing of this lives: its clients say so at once, and
the first one started there starts a thread there.
"""

import asyncio
import atexit
import logging
import os
import selectors
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, wait
from typing import Any, Generic, TypeVar, cast

from rocketpipe.errors import IllegalState
from rocketpipe.sync.signals import SignalsLater

log = logging.getLogger(__name__)

T = TypeVar("T")

REST_SECONDS = 0.02  # enough for whoever sends one after another
EXIT_TIMEOUT = 5.0  # how long clients that nobody closed may hold up the end of the program

Close = Callable[[], Coroutine[Any, Any, None]]


class DrivenLoop(asyncio.SelectorEventLoop):
    """One that can have its driver for something else: see `LoopThread`."""

    hand_over: Callable[[Callable[[], object]], bool]


class LoopThread:
    """Get it with `enter`; give it back with `leave`."""

    @staticmethod
    def enter(client: object, close: Close, *, listens: bool = False) -> "LoopThread":
        """The loop of such clients, which will close this one at exit unless it has left."""
        with _lock:
            if listens not in _shared:
                name = "rocketpipe-listening" if listens else "rocketpipe-loop"
                _shared[listens] = LoopThread(name, lends=not listens, has_relief=listens)
            thread = _shared[listens]
            thread._clients[client] = close
            return thread

    def leave(self, client: object) -> None:
        """The last client to leave ends the thread."""
        with _lock:
            self._clients.pop(client, None)
            is_last = _shared.get(not self._lends) is self and not self._clients
            if is_last:
                del _shared[not self._lends]
        if is_last:
            self.end()

    def __init__(
        self, name: str = "rocketpipe-loop", *, lends: bool = True, has_relief: bool = False
    ) -> None:
        self._clients: dict[object, Close] = {}
        self._lends = lends
        self._selector = selectors.DefaultSelector()
        self.loop = DrivenLoop(self._selector)
        self.loop.hand_over = self._hand_over
        self._state = threading.Lock()  # of what follows, but for jobs
        self._mail: list[Callable[[], object]] = []
        self._is_mail_known = False  # to the loop: one wake-up serves all that is in it
        self._is_driven = False
        self._driven_for: _Job[Any] | None = None  # a caller's, while he drives
        self._turns_of_callers = 0
        self._is_ending = False
        self._is_over = False
        self.jobs = 0  # started and not done; whoever drives counts
        self._wanted = threading.Event()  # the thread is: somebody waits, and nobody drives
        self.is_abandoned = False
        self._errand: Callable[[], object] | None = None  # of the thread that drives
        self._away: threading.Thread | None = None  # on such an errand
        self._is_relief_there = False
        self._relief = threading.Semaphore(0)  # a thread waits for it that is to drive next
        self._threads = [threading.Thread(target=self._run, name=name, daemon=True)]
        if has_relief:
            self._threads.append(threading.Thread(target=self._relieve, name=name, daemon=True))
        for thread in self._threads:
            thread.start()

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """What the coroutine returns or raises. Who is torn away from waiting cancels it."""
        self._admit(coroutine)
        answered = threading.Lock()
        answered.acquire()

        def on_done() -> None:
            answered.release()
            self._lend(job)

        job = _Job(coroutine, self, on_done)
        try:
            with SignalsLater(self._stop_driving):
                is_mine = self._take_wheel(job)
                if is_mine:
                    self._drive(job)
            if not is_mine and not self.post(job.start):
                return run_alone(coroutine)
            answered.acquire()
        except BaseException:
            self._give_up(job)
            raise
        return job.result()

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> "Future[T]":
        """A future of what the coroutine returns; cancelling it cancels the coroutine."""
        self._admit(coroutine)
        future: Future[T] = Future()
        job = _Job(coroutine, self, lambda: _pass_on(job, future))
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
        with self._state:
            if self._is_over:
                return False
            self._mail.append(work)
            is_driven = self._is_driven
            is_news, self._is_mail_known = not self._is_mail_known, is_driven
        if not is_driven:
            self._wanted.set()
        elif is_news:
            self._wake()
        return True

    def _wake(self) -> None:
        try:
            self.loop.call_soon_threadsafe(self._read_mail)
        except RuntimeError:
            pass  # it is closed, and has read its mail before

    def _read_mail(self) -> None:
        with self._state:
            mail, self._mail = self._mail, []
            self._is_mail_known = False
        for work in mail:
            work()

    # Driving. Nobody relies on how long another drives: who stops leaves the rest to the thread.

    def _take_wheel(self, job: "_Job[Any] | None") -> bool:
        """Whether we may drive: a caller for his job, or the thread for nobody in particular."""
        with self._state:
            may_not = job is not None and (not self._lends or self._is_ending)
            if self._is_driven or self._is_over or may_not:
                return False
            self._is_driven = True
            self._driven_for = job
            self._turns_of_callers += job is not None
            return True

    def _drive(self, job: "_Job[Any] | None" = None) -> None:
        try:
            self._read_mail()
            if job is not None:
                job.start()
            self.loop.run_forever()
        finally:
            with self._state:
                self._is_driven = False
                self._driven_for = None
                is_rest = self.jobs > 0 or self._mail or self._is_ending
            if is_rest:
                self._wanted.set()

    def _stop_driving(self) -> None:
        """Whoever drives, soon; may be called in any thread."""
        self.loop.call_soon_threadsafe(self._stop)

    def _stop(self) -> None:
        if not self._is_over:  # the last turn is not to be stopped
            self.loop.stop()

    def _lend(self, job: "_Job[Any]") -> None:
        """The call is answered: whoever drove for it goes, or leaves the loop to the next one."""
        if job is self._driven_for or (self.jobs == 0 and self._lends):
            self._stop()

    def _run(self) -> None:
        while not self._is_ending:
            if self._take_wheel(None):
                try:
                    self._drive()
                except BaseException:  # of a callback's, such as sys.exit() in a user's hook
                    log.exception("the event loop goes on after this")
            if self._errand is None:
                self._rest()
            else:
                self._go_away(self._errand)
        while not self._take_wheel(None):
            if self._is_over:
                return  # the other thread has ended it
            self._wanted.wait(REST_SECONDS)
        with self._state:
            self._is_over = True
        with asyncio.Runner(loop_factory=lambda: self.loop) as runner:
            runner.run(self._read_last_mail())
        # Runner has cancelled and awaited whatever was left.
        self._relief.release()

    def _hand_over(self, errand: Callable[[], object]) -> bool:
        """Have the thread that drives do this as soon as this turn of the loop is over, while
        another one drives; False if there is no other. To be called on the loop."""
        if self._is_over or not self._is_relief_there or self._errand is not None:
            return False
        self._errand = errand
        self._stop()
        return True

    def _go_away(self, errand: Callable[[], object]) -> None:
        self._errand = None
        self._away = threading.current_thread()
        self._is_relief_there = False  # it is taken; we may be back before it has begun
        self._relief.release()
        try:
            errand()
        except BaseException:
            log.exception("the thread of the event loop goes on after this")
        self._away = None
        self._wait_for_turn()

    def _relieve(self) -> None:
        self._wait_for_turn()
        self._run()

    def _wait_for_turn(self) -> None:
        self._is_relief_there = True
        self._relief.acquire()

    def _rest(self) -> None:
        """Leave the loop to callers until none has come for a while, or we are needed."""
        turns = -1
        while turns != self._turns_of_callers:
            turns = self._turns_of_callers
            if self._wanted.wait(REST_SECONDS):
                break
        self._wanted.clear()

    async def _read_last_mail(self) -> None:
        self._read_mail()  # who wrote in time is cancelled, but does not wait forever

    def end(self, timeout: float | None = None) -> None:
        """Cancel what still runs there, and the thread is gone."""
        with self._state:
            self._is_ending = True
        self._wanted.set()
        try:
            self._stop_driving()
        except RuntimeError:
            pass  # it has ended already
        for thread in self._threads:
            if thread is not self._away:  # with a user's function, for as long as that takes
                thread.join(timeout)


class _Job(Generic[T]):
    """A coroutine on its way to the loop and through it."""

    __slots__ = ("_coroutine", "_error", "_has_begun", "_on_done", "_owner", "_result", "_task")

    def __init__(
        self,
        coroutine: Coroutine[Any, Any, T],
        owner: LoopThread,
        on_done: Callable[[], object],
    ) -> None:
        self._coroutine = coroutine
        self._owner = owner
        self._on_done = on_done
        self._task: asyncio.Task[None] | None = None
        self._result: T | None = None
        self._error: BaseException | None = None
        self._has_begun = False

    def start(self) -> None:
        self._owner.jobs += 1
        self._task = self._owner.loop.create_task(self._run())
        self._task.add_done_callback(self._never_began)

    async def _run(self) -> None:
        # Done is told from within, and not by a callback of the task: that would come one turn of
        # the loop later, which is a tenth of what a send costs us.
        self._has_begun = True
        try:
            self._result = await self._coroutine
        except BaseException as error:
            self._error = error
        self._end()

    def _never_began(self, task: asyncio.Task[None]) -> None:
        if not self._has_begun:  # cancelled before its first step
            self._coroutine.close()
            self._error = asyncio.CancelledError()
            self._end()

    def _end(self) -> None:
        self._owner.jobs -= 1
        self._on_done()

    def result(self) -> T:
        """What it returned or raised."""
        if self._error is None:
            return cast(T, self._result)
        if isinstance(self._error, asyncio.CancelledError):
            raise IllegalState("this client was closed meanwhile")
        raise self._error

    def cancel(self) -> None:
        if self._task is None:  # mail is read in order, so it will never start
            self._coroutine.close()
        else:
            self._task.cancel()


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


def _pass_on(job: _Job[T], future: "Future[T]") -> None:
    if not future.set_running_or_notify_cancel():
        return  # the user cancelled it
    try:
        result = job.result()
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(result)


_lock = threading.Lock()  # of _shared, and who their clients are
_shared: dict[bool, LoopThread] = {}  # by whether their clients listen
_abandoned: list[LoopThread] = []  # a loop that is thrown away complains that it was not closed


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()
    for thread in _shared.values():
        thread.abandon()
        _abandoned.append(thread)
    _shared.clear()


@atexit.register
def _at_exit() -> None:
    for listens in (True, False):  # a listener may still have something to send
        if thread := _shared.get(listens):
            thread.close_all(EXIT_TIMEOUT)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
