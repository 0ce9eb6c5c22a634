"""What is remembered of each broker's faults: how long it is isolated, and whether it is reachable.

The rules, for both generations of RocketMQ's table:

- An answer isolates its broker for as long as the latency table says; a failure counts as an answer
  that took very long; flow control isolates briefly, because it is the broker that asks for it.
- An isolation is never made shorter by another fault.
- It ends early when a message is stored without undue delay by an attempt that started after the
  isolation did. RocketMQ 4 lets any fast answer end it, even one that was on its way before the
  fault; RocketMQ 5 lets none, so that a broker which has recovered is passed over all the same.
- A broker is unreachable from a failed attempt, or a failed probe, until it answers either.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf

from rocketpipe.client.policy import Outcome
from rocketpipe.client.recent import Recent
from rocketpipe.errors import InvalidSetting


@dataclass(frozen=True, slots=True)
class LatencyTable:
    """For how many seconds a broker is isolated whose answer took at least so many seconds."""

    rows: Sequence[tuple[float, float]]  # (latency, isolation), the latencies ascending
    _latencies: tuple[float, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        try:
            rows = tuple((float(latency), float(isolation)) for latency, isolation in self.rows)
        except (TypeError, ValueError):
            raise InvalidSetting(
                f"latency table {self.rows!r}: it must be rows of (latency, isolation) in seconds"
            ) from None
        latencies = tuple(latency for latency, _ in rows)
        if not all(0 <= number < inf for row in rows for number in row):
            raise InvalidSetting(f"latency table {rows}: seconds must be finite and not below 0")
        if any(low >= high for low, high in pairwise(latencies)):
            raise InvalidSetting(f"latency table {rows}: latencies must ascend from row to row")
        object.__setattr__(self, "rows", rows)
        object.__setattr__(self, "_latencies", latencies)

    def isolation(self, latency: float) -> float:
        """For how many seconds after an answer that took so long."""
        row = bisect_right(self._latencies, latency)
        return self.rows[row - 1][1] if row else 0.0


class FaultItem:
    """What is remembered of one broker."""

    __slots__ = (
        "answered_at",
        "available_at",
        "isolated_at",
        "latency",
        "reachable",
        "used",
        "why",
    )

    def __init__(self) -> None:
        self.latency = 0.0  # of its latest attempt; for a failure, what that counts as
        self.isolated_at = -inf  # its latest fault
        self.available_at = -inf
        self.why = ""  # it is isolated for so long
        self.reachable = True
        self.answered_at = -inf
        self.used = -inf


class FaultTable:
    """The fault items of all brokers; one that has none is available and reachable."""

    def __init__(
        self, latency_table: LatencyTable, *, failure_latency: float, busy_isolation: float
    ) -> None:
        self._latency_table = latency_table
        self._failure_latency = failure_latency
        self._busy_isolation = busy_isolation
        self._items: Recent[FaultItem] = Recent()
        self.all_clear_at = -inf  # from then on no broker is isolated, unless a new fault comes

    def finished(self, broker: str, now: float, latency: float, outcome: Outcome) -> None:
        if outcome is Outcome.ABANDONED:
            return
        item = self._items.get(broker)
        if item is None:
            item = FaultItem()
            self._items.add(broker, item, now)
        if item.available_at <= now:
            item.used = now

        if outcome is Outcome.OK or outcome is Outcome.MESSAGE_REFUSED:
            item.latency = latency
            item.reachable = True
            item.answered_at = now
            isolation = self._latency_table.isolation(latency)
            if isolation:
                self._isolate(item, now, isolation, f"took {latency * 1000:.0f} ms")
            elif outcome is Outcome.OK and item.isolated_at <= now - latency:
                self._release(item, now)
        elif outcome is Outcome.BUSY:
            item.reachable = True
            self._isolate(item, now, self._busy_isolation, outcome.value)
        else:
            # Not the time it took: a refused connection would pass for a very fast answer.
            item.latency = max(latency, self._failure_latency)
            item.reachable = False
            isolation = self._latency_table.isolation(item.latency)
            why = f"{outcome.value} after {latency * 1000:.0f} ms"
            self._isolate(item, now, isolation, why)

    def probed(self, broker: str, *, reachable: bool) -> None:
        """A probe tells who can be reached. How fast messages are stored, it can't tell."""
        item = self._items.get(broker)
        if item is not None:
            item.reachable = reachable

    def silent(self, now: float, seconds: float) -> list[str]:
        """The brokers from which no send has heard for so long, and those that are unreachable."""
        self._items.forget(now)
        return [
            broker
            for broker, item in self._items.items()
            if not item.reachable or now - item.answered_at >= seconds
        ]

    def is_available(self, broker: str, now: float) -> bool:
        item = self._items.get(broker)
        return item is None or item.available_at <= now

    def is_reachable(self, broker: str) -> bool:
        item = self._items.get(broker)
        return item is None or item.reachable

    def rank(self, broker: str) -> tuple[float, float]:
        """Sorts isolated brokers, the better ones first: by latency, then by their return."""
        item = self._items[broker]
        return item.latency, item.available_at

    def why_isolated(self, broker: str, now: float) -> str:
        item = self._items[broker]
        unreachable = "" if item.reachable else "unreachable, "
        return f"{unreachable}isolated for {item.available_at - now:.1f} s: {item.why}"

    def isolated(self, now: float) -> Mapping[str, float]:
        return {
            broker: item.available_at - now
            for broker, item in self._items.items()
            if item.available_at > now
        }

    def _isolate(self, item: FaultItem, now: float, seconds: float, why: str) -> None:
        item.isolated_at = now
        if now + seconds > item.available_at:
            item.available_at = item.used = now + seconds
            item.why = why
            self.all_clear_at = max(self.all_clear_at, item.available_at)

    def _release(self, item: FaultItem, now: float) -> None:
        if item.available_at > now:
            item.available_at = item.used = now
            self.all_clear_at = max(each.available_at for each in self._items.values())
