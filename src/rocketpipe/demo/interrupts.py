"""The first SIGINT or SIGTERM is a KeyboardInterrupt, any more are ignored: so that nobody who is
impatient keeps us from ending what we started."""

import asyncio
import signal
from collections.abc import Coroutine
from types import FrameType
from typing import Any, Self, TypeVar

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_T = TypeVar("_T")


class Interrupts:
    """For the main thread, in a `with`."""

    def __init__(self) -> None:
        self._is_interrupted = False

    def __enter__(self) -> Self:
        self._before = {number: signal.getsignal(number) for number in _SIGNALS}
        self._listen()
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Its result; an interrupt cancels it, and is raised when it has cleaned up.

        Of several errors at once, as a TaskGroup raises them, it is the first.
        """

        async def main() -> _T:
            loop, task = asyncio.get_running_loop(), asyncio.current_task()
            assert task is not None
            for number in _SIGNALS:
                loop.add_signal_handler(number, self._cancel, task)
            try:
                return await work
            finally:
                for number in _SIGNALS:
                    loop.remove_signal_handler(number)
                self._listen()

        try:
            return asyncio.run(main())
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None
        except BaseExceptionGroup as group:
            raise _first(group) from group

    def _listen(self) -> None:
        for number in _SIGNALS:
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if not self._is_interrupted:
            self._is_interrupted = True
            raise KeyboardInterrupt

    def _cancel(self, task: "asyncio.Task[Any]") -> None:
        if not self._is_interrupted:
            self._is_interrupted = True
            task.cancel()


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
