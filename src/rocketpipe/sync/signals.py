"""Signals that come while the main thread works for others."""

import signal
import threading

# Of the module `signal`, without its search for names: sixty handlers in 3 microseconds, not 60.
from _signal import getsignal as get_handler  # type: ignore[import-not-found]
from _signal import signal as set_handler
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

_SIGNALS = sorted(signal.valid_signals())
Handler = Callable[[int, FrameType | None], Any]


class SignalsLater:
    """Within it, no handler of a signal runs; `on_signal` is told, and they run at its end.

    Python runs handlers in the main thread, between any two instructions. One that raises (Ctrl-C,
    an alarm of a test runner or a web server) would tear through whatever goes on there.
    """

    def __init__(self, on_signal: Callable[[], object]) -> None:
        self._on_signal = on_signal
        self._handlers: dict[int, Handler] = {}
        self._noted: list[tuple[int, FrameType | None]] = []
        self._is_later = False

    def __enter__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return  # there it can't happen
        for number in _SIGNALS:
            handler = get_handler(number)
            if callable(handler):
                self._handlers[number] = handler
                set_handler(number, self._note)
        self._is_later = True

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._is_later = False
        for number, handler in self._handlers.items():
            set_handler(number, handler)
        for number, frame in self._noted:
            self._handlers[number](number, frame)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._is_later:
            self._noted.append((number, frame))
            self._on_signal()
        else:  # it came between the lines above
            self._handlers[number](number, frame)
