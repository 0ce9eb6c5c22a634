"""How far a job is: what it tells while it runs."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["Progress"]


@dataclass(frozen=True)
class Progress:
    """So many rows are done, of `total` where that is known; `lag` wait in their queues."""

    rows: int
    rows_per_second: float
    lag: int | None = None
    total: int | None = None


OnProgress = Callable[[Progress], None]


def lag_of(progress: Any, *, before: bool = False) -> int | None:
    """How many offsets a stream has not read after a micro-batch, of those that were there when it
    began; or had not read before it. None where its progress does not say."""
    lags = [_lag(source, before) for source in progress.sources]
    known = [lag for lag in lags if lag is not None]
    return sum(known) if known else None


def _lag(source: Any, before: bool) -> int | None:
    read = (source.startOffset or '{"topics": {}}') if before else source.endOffset
    try:
        latest, done = _by_queue(source.latestOffset), _by_queue(read)
    except (TypeError, ValueError, KeyError, AttributeError):
        return None
    return sum(max(0, offset - done.get(queue, 0)) for queue, offset in latest.items())


def _by_queue(offsets: str) -> dict[tuple[str, str, str], int]:
    return {
        (topic, broker, queue): offset
        for topic, brokers in json.loads(offsets)["topics"].items()
        for broker, queues in brokers.items()
        for queue, offset in queues.items()
    }
