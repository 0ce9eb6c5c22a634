"""How much goes in and out: in all and per second, of the broker and of its groups."""

from collections import deque
from datetime import UTC, datetime
from typing import NamedTuple

from rocketpipe.broker.store.message_store import StoreStats
from rocketpipe.clock import Clock

SAMPLE_INTERVAL = 1.0
SAMPLES_MAX = 600  # ten minutes: the longest time that RocketMQ tells a rate of
PERIOD = 10.0  # of what is counted by name
PERIODS_MAX = 6  # a minute


class _Sample(NamedTuple):
    at: float
    put: int
    found: int
    missed: int
    transferred: int


class _ByName:
    """Counts by name; of the last minute and not more, so that what is quiet costs nothing."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._before: deque[dict[str, int]] = deque(maxlen=PERIODS_MAX)

    def add(self, name: str, count: int) -> None:
        self._counts[name] = self._counts.get(name, 0) + count

    def next_period(self) -> None:
        self._before.append(self._counts)
        self._counts = {}

    def total(self, name: str) -> int:
        return self._counts.get(name, 0) + sum(each.get(name, 0) for each in self._before)


class Rates:
    """Counts what happens, and looks at the store's own counts once a second."""

    def __init__(self, stats: StoreStats, clock: Clock) -> None:
        self.put_yesterday_morning = self.put_this_morning = 0  # totals at midnight
        self.got_yesterday_morning = self.got_this_morning = 0
        self._stats = stats
        self._clock = clock
        self._samples: deque[_Sample] = deque([self._now()], maxlen=SAMPLES_MAX + 1)
        self._day = self._today()
        self._by_group = _ByName()
        self._counted_since = deque([clock.monotonic()], maxlen=PERIODS_MAX + 1)

    def read(self, group: str, topic: str, count: int) -> None:
        """So many messages went to a group."""
        self._by_group.add(f"{topic}@{group}", count)

    def sample(self) -> None:
        """Look at the clock and the counts: once a second."""
        now = self._now()
        self._samples.append(now)
        if now.at - self._counted_since[-1] >= PERIOD:
            self._counted_since.append(now.at)
            self._by_group.next_period()
        if self._today() != self._day:
            self._day = self._today()
            self.put_yesterday_morning, self.put_this_morning = self.put_this_morning, now.put
            self.got_yesterday_morning, self.got_this_morning = (
                self.got_this_morning,
                now.transferred,
            )

    def group_get_tps(self, group: str, topic: str) -> float:
        """Messages of the topic that went to the group, per second, over the last minute."""
        return self._by_group.total(f"{topic}@{group}") / self._counted_seconds()

    def describe(self, *counts: str) -> str:
        """`put`, `found`, `missed` and `transferred`, or a sum of them, per second: over the last
        ten seconds, minute and ten minutes, as RocketMQ writes it."""
        last = self._samples[-1]
        texts = []
        for seconds in (10, 60, 600):
            first = self._samples[max(0, len(self._samples) - 1 - seconds)]
            grown = sum(getattr(last, name) - getattr(first, name) for name in counts)
            texts.append(str(grown / (last.at - first.at) if last.at > first.at else 0.0))
        return " ".join(texts)

    def _counted_seconds(self) -> float:
        return max(self._clock.monotonic() - self._counted_since[0], SAMPLE_INTERVAL)

    def _now(self) -> _Sample:
        stats = self._stats
        return _Sample(
            self._clock.monotonic(),
            stats.messages_put,
            stats.reads_found,
            stats.reads_missed,
            stats.messages_read,
        )

    def _today(self) -> int:
        return datetime.fromtimestamp(self._clock.wall_ms() / 1000, UTC).astimezone().toordinal()
