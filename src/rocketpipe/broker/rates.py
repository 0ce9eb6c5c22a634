"""How much goes in and out: in all and per second, of the broker and of its groups."""

from collections import deque
from datetime import UTC, datetime
from typing import NamedTuple

from rocketpipe.broker.store.message_store import StoreStats
from rocketpipe.clock import Clock

SAMPLE_INTERVAL = 1.0
SAMPLES_MAX = 600  # ten minutes: the longest time that RocketMQ tells a rate of
# What is counted by name is told of the last minute, hour and day; and counted in periods of:
SPANS = (60.0, 3600.0, 86400.0)
PERIODS = (10.0, 600.0, 3600.0)


class _Sample(NamedTuple):
    at: float
    put: int
    found: int
    missed: int
    transferred: int


class _ByName:
    """Counts by name over a span of time, in periods: what is older than the span costs nothing."""

    def __init__(self, span: float, period: float, now: float) -> None:
        periods = round(span / period)
        self._period = period
        self._counts: dict[str, int] = {}
        self._before: deque[dict[str, int]] = deque(maxlen=periods)
        self._since = deque([now], maxlen=periods + 1)

    def add(self, name: str, count: int) -> None:
        self._counts[name] = self._counts.get(name, 0) + count

    def ended_period(self, now: float) -> dict[str, int] | None:
        """What was counted in the period that ends now, if one does; another begins."""
        if now - self._since[-1] < self._period:
            return None
        ended, self._counts = self._counts, {}
        self._before.append(ended)
        self._since.append(now)
        return ended

    def current(self, name: str) -> int:
        """What has been counted since the last period ended."""
        return self._counts.get(name, 0)

    def total(self, name: str) -> int:
        return self.current(name) + sum(each.get(name, 0) for each in self._before)

    def seconds(self, now: float) -> float:
        """How long it has counted what `total` tells."""
        return max(now - self._since[0], SAMPLE_INTERVAL)


class Rates:
    """Counts what happens, and looks at the store's own counts once a second."""

    def __init__(self, stats: StoreStats, clock: Clock) -> None:
        self.put_yesterday_morning = self.put_this_morning = 0  # totals at midnight
        self.got_yesterday_morning = self.got_this_morning = 0
        self._stats = stats
        self._clock = clock
        self._samples: deque[_Sample] = deque([self._now()], maxlen=SAMPLES_MAX + 1)
        self._day = self._today()
        # Each counts what the one before it has counted in a period; so a read is counted once.
        self._by_group = [
            _ByName(span, period, clock.monotonic())
            for span, period in zip(SPANS, PERIODS, strict=True)
        ]

    def read(self, group: str, topic: str, count: int) -> None:
        """So many messages went to a group."""
        self._by_group[0].add(f"{topic}@{group}", count)

    def sample(self) -> None:
        """Look at the clock and the counts: once a second."""
        now = self._now()
        self._samples.append(now)
        ended: dict[str, int] | None = None
        for counts in self._by_group:
            for name, count in (ended or {}).items():
                counts.add(name, count)
            ended = counts.ended_period(now.at)
        if self._today() != self._day:
            self._day = self._today()
            self.put_yesterday_morning, self.put_this_morning = self.put_this_morning, now.put
            self.got_yesterday_morning, self.got_this_morning = (
                self.got_this_morning,
                now.transferred,
            )

    def group_get_tps(self, group: str, topic: str) -> float:
        """Messages of the topic that went to the group, per second, over the last minute."""
        count, seconds = self.group_gets(group, topic)[0]
        return count / seconds

    def group_gets(self, group: str, topic: str) -> list[tuple[int, float]]:
        """The same as a count and the seconds it took: of the last minute, hour and day."""
        name, now = f"{topic}@{group}", self._clock.monotonic()
        told = []
        not_there_yet = 0  # what the shorter spans have not handed on
        for counts in self._by_group:
            told.append((counts.total(name) + not_there_yet, counts.seconds(now)))
            not_there_yet += counts.current(name)
        return told

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
