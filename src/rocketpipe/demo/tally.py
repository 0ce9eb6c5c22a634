"""What the senders know themselves: how each send ended, and how each broker does just now.

It is the other side of the books: what is reconciled later, from tables, has to agree with it.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from rocketpipe.client.hooks import SendContext, SendHook
from rocketpipe.codes import ResponseCode
from rocketpipe.errors import BrokerError, ConnectFailed, ConnectionLost, MQError, NoRoute
from rocketpipe.message import SendResult

RECENT_SECONDS = 2.0
SLOW_SECONDS_MIN = 0.2  # a broker whose usual answer takes longer is shown as slow

STORED, BUSY, UNREACHABLE, FAILED = "stored", "busy", "unreachable", "failed"


@dataclass(slots=True)
class Totals:
    """Of one topic. `sends` counts calls of `send`, each of which has a message id of its own."""

    sends: int = 0
    acknowledged: int = 0
    failed: int = 0
    retried: int = 0  # acknowledged after more than one attempt
    resent: int = 0  # by the shop, since the send before had failed
    waiting: int = 0  # behind an event of the same customer
    latencies: list[float] = field(default_factory=list)  # of the acknowledged, in seconds
    message_ids: list[str] = field(default_factory=list)  # of the acknowledged

    @property
    def on_their_way(self) -> int:
        return self.sends - self.acknowledged - self.failed


@dataclass(frozen=True, slots=True)
class BrokerNow:
    """How a broker did in the last seconds."""

    name: str
    per_second: float  # messages stored
    share: float  # of all that were stored
    p50: float | None  # of the attempts that were answered
    p99: float | None
    state: str


class Tally:
    """Told of every attempt and of every send."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.topics: dict[str, Totals] = defaultdict(Totals)
        self.errors: Counter[str] = Counter()
        self._now = now
        self._recent: dict[str, deque[tuple[float, float, str]]] = defaultdict(deque)

    def acknowledged(self, topic: str, result: SendResult, took: float) -> None:
        totals = self.topics[topic]
        totals.acknowledged += 1
        totals.retried += len(result.attempts) > 1
        totals.latencies.append(took)
        totals.message_ids.append(result.message_id)

    def failed(self, topic: str, error: MQError) -> None:
        self.topics[topic].failed += 1
        self.errors[type(error).__name__] += 1

    def attempted(self, broker: str, elapsed: float, error: MQError | None) -> None:
        self._recent[broker].append((self._now(), elapsed, _kind(error)))

    def brokers(
        self, names: Sequence[str], isolated: Mapping[str, int], producers: int
    ) -> list[BrokerNow]:
        """All that are known, those with these names first; `isolated` says by how many."""
        since = self._now() - RECENT_SECONDS
        for recent in self._recent.values():
            while recent and recent[0][0] < since:
                recent.popleft()
        names = list(dict.fromkeys((*names, *sorted(self._recent))))
        stored = {
            name: sum(kind == STORED for *_, kind in self._recent.get(name, ())) for name in names
        }
        total = sum(stored.values())
        return [
            BrokerNow(
                name,
                stored[name] / RECENT_SECONDS,
                stored[name] / total if total else 0.0,
                quantile(self._latencies(name), 0.5),
                quantile(self._latencies(name), 0.99),
                self._state(name, isolated.get(name, 0), producers),
            )
            for name in names
        ]

    def _latencies(self, broker: str) -> list[float]:
        return [elapsed for _, elapsed, kind in self._recent.get(broker, ()) if kind == STORED]

    def _state(self, broker: str, isolated_by: int, producers: int) -> str:
        recent = self._recent[broker]
        kinds = Counter(kind for *_, kind in recent)
        usual = quantile(self._latencies(broker), 0.5)
        if kinds[UNREACHABLE]:
            state = "down" if recent[-1][-1] == UNREACHABLE else "just back"
        elif kinds[BUSY]:
            state = "busy"
        elif kinds[FAILED]:
            state = "silent" if not kinds[STORED] else "loses answers"
        elif usual is not None:
            state = "slow" if usual >= SLOW_SECONDS_MIN else "available"
        else:
            state = "unused"
        if isolated_by:
            state += f", isolated {isolated_by}/{producers}"
        return state


class Watch(SendHook):
    """Tells a tally of every attempt of its producer."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally

    def after(self, context: SendContext) -> None:
        attempt = context.attempt
        assert attempt is not None
        self._tally.attempted(attempt.queue.broker_name, attempt.elapsed, attempt.error)


def quantile(values: Sequence[float], share: float) -> float | None:
    """The value that this share of them do not exceed; None of nothing."""
    ordered = sorted(values)
    return ordered[max(0, -int(-share * len(ordered) // 1) - 1)] if ordered else None


def _kind(error: MQError | None) -> str:
    if error is None:
        return STORED
    if isinstance(error, ConnectFailed | ConnectionLost | NoRoute):
        return UNREACHABLE
    if isinstance(error, BrokerError) and error.code == ResponseCode.SYSTEM_BUSY:
        return BUSY
    return FAILED
