"""Time, passed in wherever it is needed: so that tests may run on simulated time."""

import time
from typing import Protocol


class Clock(Protocol):
    """The two times there are: one to measure with, one to print."""

    def monotonic(self) -> float:
        """Seconds since some fixed moment; never goes back."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970, as RocketMQ writes timestamps; may jump when it is set."""


class SystemClock:
    """The clock of this machine."""

    def monotonic(self) -> float:
        return time.monotonic()

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000
