"""How a load fared: how many, how fast, and a bar for people to watch meanwhile."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rocketpipe.clock import Clock


class Load:
    """Counts what has finished. Threads may share it: it only ever appends."""

    def __init__(self, clock: Clock) -> None:
        self.first_error: BaseException | None = None
        self._clock = clock
        self._started = clock.monotonic()
        self._latencies: list[float] = []  # of those that went well
        self._failures: list[None] = []

    def finished(self, started: float, error: BaseException | None) -> None:
        if error is None:
            self._latencies.append(self._clock.monotonic() - started)
        else:
            self._failures.append(None)
            self.first_error = self.first_error or error

    def report(self) -> dict[str, float]:
        took = self._clock.monotonic() - self._started
        latencies = sorted(self._latencies)

        def percentile(share: float) -> float:
            return latencies[int((len(latencies) - 1) * share)] * 1000 if latencies else 0.0

        return {
            "sent": len(latencies),
            "failed": len(self._failures),
            "seconds": round(took, 3),
            "per_second": round(len(latencies) / took, 1) if took > 0 else 0.0,
            "p50_ms": round(percentile(0.5), 3),
            "p99_ms": round(percentile(0.99), 3),
            "max_ms": round(percentile(1.0), 3),
        }


@contextmanager
def progress_bar(total: int | None, what: str) -> Iterator[Callable[[], None]]:
    """A bar on stderr, if a person looks at that; call what it gives for each that is done."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=total)
        yield lambda: progress.advance(task)
