"""An asyncio event loop on simulated time: a simulated hour takes milliseconds, and no one waits.

    def test_it_gives_up_after_an_hour() -> None:
        run(give_up_after_an_hour())

Where a real loop would sleep until its next timer, this one sets its clock to that moment. It all
happens in one thread and in an order that depends on nothing outside, so a run can be repeated.
"""

import asyncio
import itertools
import selectors
from collections.abc import Coroutine, Generator
from typing import Any, Never, TypeVar
from weakref import WeakSet

T = TypeVar("T")

STEPS_MAX = 100_000
TIME_MAX = 86_400.0
WALL_START_MS = 1_750_000_000_000  # a day in June 2025: as good as any

_NO_SOCKETS = "a real socket is outside of simulated time: use SimulatedNetwork"


def run(
    main: Coroutine[Any, Any, T], *, steps_max: int = STEPS_MAX, time_max: float = TIME_MAX
) -> T:
    """What `main` returns, as with asyncio.run(), but on simulated time.

    Fails also when a callback failed, or a task whose outcome nobody asked for; when nothing is
    left to happen and `main` is not done; when the loop turns more than `steps_max` times at one
    moment; and when `main` takes longer than `time_max` simulated seconds. (Beyond fifty days the
    floats of asyncio's timers are too coarse for it.)
    """
    loop = SimulatedLoop(steps_max=steps_max, time_max=time_max)
    try:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            result = runner.run(main)
    except BaseException as error:
        for failure in loop.failures():
            error.add_note(f"And nobody saw this fail: {failure!r}")
        raise
    if failures := loop.failures():
        raise BaseExceptionGroup("callbacks or tasks failed, and nobody saw it", failures)
    return result


class SimulatedLoop(asyncio.SelectorEventLoop):
    """The loop that `run` uses; time starts at 0."""

    def __init__(self, *, steps_max: int = STEPS_MAX, time_max: float = TIME_MAX) -> None:
        self._waiting = _NoWaiting(self, steps_max, time_max)
        self._serial_numbers = itertools.count()
        self._tasks: WeakSet[asyncio.Task[Any]] = WeakSet()
        self._failures: list[BaseException] = []
        super().__init__(self._waiting)
        self._waiting.is_sealed = True
        self.set_task_factory(self._make_task)
        self.set_exception_handler(self._remember)

    def time(self) -> float:
        return self._waiting.now

    def failures(self) -> list[BaseException]:
        """What failed in callbacks, and in tasks that nobody asked for their outcome."""
        failures = list(self._failures)
        for task in self._tasks:
            # asyncio reports these when the garbage collector finds them: too late for us.
            if task.done() and task._log_traceback:
                failure = task.exception()
                assert failure is not None
                failures.append(failure)
        return failures

    def create_future(self) -> asyncio.Future[Any]:
        return _Future(next(self._serial_numbers), loop=self)

    def run_in_executor(self, *_: object) -> Never:
        raise RuntimeError("a thread would run outside of simulated time: pass in a fake")

    async def create_connection(self, *_: object, **__: object) -> Never:
        raise RuntimeError(_NO_SOCKETS)

    async def create_server(self, *_: object, **__: object) -> Never:
        raise RuntimeError(_NO_SOCKETS)

    def _make_task(
        self,
        loop: asyncio.AbstractEventLoop,
        main: Coroutine[Any, Any, T] | Generator[Any, None, T],
        **kwargs: Any,
    ) -> asyncio.Task[T]:
        task: _Task[T] = _Task(next(self._serial_numbers), main, loop=loop, **kwargs)
        self._tasks.add(task)
        return task

    def _remember(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        message = context["message"]
        failure = context.get("exception") or RuntimeError(message)
        failure.add_note(f"asyncio says: {message}")
        self._failures.append(failure)


class SimulatedClock:
    """A Clock that shows a loop's time; the wall's starts on a fixed day."""

    wall_shift_ms = 0
    """Change it as one who sets the wall clock forth or back would."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def monotonic(self) -> float:
        return self._loop.time()

    def wall_ms(self) -> int:
        return WALL_START_MS + round(self._loop.time() * 1000) + self.wall_shift_ms


class _NoWaiting(selectors.SelectSelector):
    """Where a real loop would sleep, moves the simulated clock instead."""

    def __init__(self, loop: SimulatedLoop, steps_max: int, time_max: float) -> None:
        super().__init__()
        self.now = 0.0
        self.is_sealed = False
        self._loop = loop
        self._steps = 0
        self._steps_max = steps_max
        self._time_allowance = time_max
        self._time_max = time_max

    def register(self, *args: Any, **kwargs: Any) -> selectors.SelectorKey:
        # The loop itself has a socket, made before this is sealed, to be woken by other threads.
        if self.is_sealed:
            raise RuntimeError(_NO_SOCKETS)
        return super().register(*args, **kwargs)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError(
                f"every task is waiting, and nothing is left to happen{self._who_waits()}"
            )
        if timeout > 0:
            self.now += timeout
            self._steps = 0
        self._steps += 1
        # What a limit stopped is cancelled next; for its clean-up it may take as much again.
        if self._steps > self._steps_max:
            self._steps = 0
            raise RuntimeError(
                f"{self._steps_max} turns of the loop, and it is still {self.now:.6f} s: "
                f"some task is busy without end{self._who_waits()}"
            )
        if self.now > self._time_max:
            self._time_max = self.now + self._time_allowance
            raise RuntimeError(
                f"{self._time_allowance:g} simulated seconds are over, and the run is not"
                f"{self._who_waits()}"
            )
        return []

    def _who_waits(self) -> str:
        lines = []
        for task in asyncio.all_tasks(self._loop):
            stack = task.get_stack()
            where = f"{stack[-1].f_code.co_filename}:{stack[-1].f_lineno}" if stack else "?"
            lines.append(f"\n  {task.get_name()}: {task.get_coro()!r} at {where}")
        return "".join(lines)


class _Task(asyncio.Task[T]):
    # asyncio keeps tasks in sets, and some of its steps (a TaskGroup cancelling its tasks) take
    # them in the order of the set. By their own hash, their address, this differs between runs.
    def __init__(self, serial_number: int, main: Any, **kwargs: Any) -> None:
        self._serial_number = serial_number
        super().__init__(main, **kwargs)

    def __hash__(self) -> int:
        return self._serial_number


class _Future(asyncio.Future[T]):
    def __init__(self, serial_number: int, **kwargs: Any) -> None:
        self._serial_number = serial_number
        super().__init__(**kwargs)

    def __hash__(self) -> int:
        return self._serial_number
