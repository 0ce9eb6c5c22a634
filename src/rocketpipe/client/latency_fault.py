"""RocketMQ's latency fault tolerance, of 4.x and of 5.x: brokers that were slow are left alone.

Both take the queues of all available brokers in turn, and differ in their tables and in where they
go when every broker is isolated (MQFaultStrategy.selectOneMessageQueue). In RocketMQ this is off
unless `sendLatencyFaultEnable` is set.
"""

import random
from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from rocketpipe.client.fault_table import FaultTable, LatencyTable
from rocketpipe.client.policy import Choice, Outcome, Policy
from rocketpipe.client.setting_checks import require_positive
from rocketpipe.client.turns import Turns, field_without
from rocketpipe.errors import InvalidSetting
from rocketpipe.message import MessageQueue

JAVA4_TABLE = LatencyTable(
    [(0.05, 0), (0.1, 0), (0.55, 30), (1, 60), (2, 120), (3, 180), (15, 600)]
)  # 4.x to 5.1.3
JAVA5_TABLE = LatencyTable(
    [(0.05, 0), (0.1, 0), (0.55, 2), (1.8, 5), (3, 6), (5, 10), (15, 30)]
)  # from 5.1.4


@dataclass(frozen=True, slots=True, kw_only=True)
class Java4Settings:
    """RocketMQ 4's defaults."""

    latency_table: LatencyTable = JAVA4_TABLE
    failure_latency: float = 30.0  # what a failed attempt counts as, in the table
    # Flow control speaks of a queue that is full or 200 ms long, or of a disk that took a second:
    # a matter of moments. RocketMQ counts it as any failure, which here would be ten minutes.
    busy_isolation: float = 1.0

    def __post_init__(self) -> None:
        check_table(self)

    def build(self, dice: random.Random) -> Policy:
        """A policy that knows nothing yet."""
        return Java4(self, dice)


@dataclass(frozen=True, slots=True, kw_only=True)
class Java5Settings:
    """RocketMQ 5's defaults."""

    latency_table: LatencyTable = JAVA5_TABLE
    failure_latency: float = 10.0  # what a failed attempt counts as, in the table
    busy_isolation: float = 1.0  # as in Java4Settings
    detector: bool = True  # ask silent brokers whether they answer; RocketMQ's default is not to
    probe_interval: float = 3.0

    def __post_init__(self) -> None:
        check_table(self)
        require_positive(self, "probe_interval")

    def build(self, dice: random.Random) -> Policy:
        """A policy that knows nothing yet."""
        return Java5(self, dice)


def check_table(settings: Java4Settings | Java5Settings) -> None:
    require_positive(settings, "failure_latency", "busy_isolation")
    if not isinstance(settings.latency_table, LatencyTable):
        raise InvalidSetting(f"latency_table is {settings.latency_table!r}: not a LatencyTable")


class LatencyFault(Policy):
    """Takes the queues of all available brokers in turn."""

    def __init__(self, settings: Java4Settings | Java5Settings, dice: random.Random) -> None:
        self._turns = Turns(dice)
        self._faults = FaultTable(
            settings.latency_table,
            failure_latency=settings.failure_latency,
            busy_isolation=settings.busy_isolation,
        )

    def choose(self, queues: Sequence[MessageQueue], now: float, avoid: Collection[str]) -> Choice:
        turns = self._turns.of(queues, now)
        if now >= self._faults.all_clear_at and not avoid:
            return Choice(turns.all.next(), "in turn", ())

        brokers, passed_over, because = field_without(turns.brokers, avoid)
        available = [broker for broker in brokers if self._faults.is_available(broker, now)]
        chosen, how = (available, "in turn") if available else self._second_best(brokers)
        passed_over += tuple(
            (broker, self._faults.why_isolated(broker, now))
            for broker in brokers
            if broker not in chosen
        )
        return Choice(turns.among(chosen).next(), because + how, passed_over)

    @abstractmethod
    def _second_best(self, brokers: Sequence[str]) -> tuple[Sequence[str], str]:
        """Which of these brokers take turns when all of them are isolated, and the reason."""

    def finished(self, broker: str, now: float, latency: float, outcome: Outcome) -> None:
        self._faults.finished(broker, now, latency, outcome)

    def isolated(self, now: float) -> Mapping[str, float]:
        return self._faults.isolated(now)


class Java4(LatencyFault):
    """When all are isolated: the better half of them (LatencyFaultToleranceImpl.pickOneAtLeast).

    RocketMQ picks from all brokers it knows, and then drops the one it picked if that has no
    writable queue of this topic. Here only brokers with such a queue come into question.
    """

    def _second_best(self, brokers: Sequence[str]) -> tuple[Sequence[str], str]:
        better = sorted(brokers, key=self._faults.rank)[: max(1, len(brokers) // 2)]
        return better, "every broker is isolated, the better half in turn"


class Java5(LatencyFault):
    """When all are isolated: those that can be reached; if none can be, all."""

    def __init__(self, settings: Java5Settings, dice: random.Random) -> None:
        super().__init__(settings, dice)
        self._settings = settings
        self._probes_at = -inf

    def _second_best(self, brokers: Sequence[str]) -> tuple[Sequence[str], str]:
        reachable = [broker for broker in brokers if self._faults.is_reachable(broker)]
        if reachable:
            return reachable, "every broker is isolated, the reachable in turn"
        return brokers, "every broker is isolated and unreachable, in turn"

    def brokers_to_probe(self, now: float) -> Sequence[str]:
        if not self._settings.detector or now < self._probes_at:
            return ()
        self._probes_at = now + self._settings.probe_interval
        return self._faults.silent(now, self._settings.probe_interval)

    def probed(self, broker: str, now: float, *, reachable: bool) -> None:
        self._faults.probed(broker, reachable=reachable)
