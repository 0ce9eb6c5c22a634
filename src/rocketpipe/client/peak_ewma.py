"""Two random brokers, and the one of them that is likely to answer sooner.

A broker's cost is its latency times the attempts it would then have in flight. The latency is a
moving average that jumps to every peak at once and comes down slowly (Finagle's Peak EWMA). While
nothing is heard of a broker the average falls, so that a slow or failed broker is tried again; but
as long as it is in doubt it gets one attempt at a time, or all senders would try it at once.
"""

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import exp, inf

from rocketpipe.client.policy import Choice, Outcome, Policy
from rocketpipe.client.recent import Recent
from rocketpipe.client.setting_checks import require_positive
from rocketpipe.client.turns import Turns, field_without
from rocketpipe.message import MessageQueue

OUT_OF_THE_QUESTION = 1e9  # a cost above any real one, in seconds; yet they still compare


@dataclass(frozen=True, slots=True, kw_only=True)
class PeakEwmaSettings:
    """Finagle's decay; the rest is ours."""

    decay: float = 10.0  # in this time what is known of a broker loses two thirds of its weight
    failure_latency: float = 10.0  # what a failed attempt counts as
    busy_isolation: float = 1.0  # flow control: so long a broker is taken only if all are no better

    def __post_init__(self) -> None:
        require_positive(self, "decay", "failure_latency", "busy_isolation")

    def build(self, dice: random.Random) -> Policy:
        """A policy that knows nothing yet."""
        return PeakEwma(self, dice)


class BrokerLoad:
    """What is known of one broker: how fast it was, and how much it has to do for us."""

    __slots__ = ("answered_at", "busy_until", "in_flight", "latency", "measured_at", "used")

    def __init__(self) -> None:
        self.in_flight = 0
        self.latency = 0.0  # as it was at measured_at; it falls from then on
        self.measured_at = -inf
        self.answered_at = -inf  # a fault sets it back: what was proven is so no more
        self.busy_until = -inf
        self.used = -inf


UNKNOWN = BrokerLoad()


class PeakEwma(Policy):
    """Takes the cheaper of two random brokers, and that broker's queues in turn."""

    def __init__(self, settings: PeakEwmaSettings, dice: random.Random) -> None:
        self._settings = settings
        self._decay = settings.decay
        self._dice = dice
        self._turns = Turns(dice)
        self._loads: Recent[BrokerLoad] = Recent()

    def choose(self, queues: Sequence[MessageQueue], now: float, avoid: Collection[str]) -> Choice:
        turns = self._turns.of(queues, now)
        if avoid or len(turns.brokers) == 1:
            brokers, passed_over, because = field_without(turns.brokers, avoid)
            ring = turns.among(brokers)
            if len(brokers) == 1:
                return Choice(ring.next(), because + "the only broker", passed_over)
        else:
            brokers, passed_over, because, ring = turns.brokers, (), "", turns.all

        best, other = ring.two_brokers(self._dice)
        if self._cost(other, now) < self._cost(best, now):
            best, other = other, best
        if self._is_in_doubt(best, now):
            # Two sick brokers may have been drawn together, while a third is well.
            best = min((best, *brokers), key=lambda broker: self._cost(broker, now))
            others = [broker for broker in brokers if broker != best]
            reason = f"{because}fastest of all: {self._describe(best, now)}"
            passed_over += tuple((broker, self._describe(broker, now)) for broker in others)
        else:
            reason = f"{because}faster of two: {self._describe(best, now)}"
            passed_over += ((other, self._describe(other, now)),)
        return Choice(turns.one(best).next(), reason, passed_over)

    def started(self, broker: str, now: float) -> None:
        load = self._load(broker, now)
        load.in_flight += 1

    def finished(self, broker: str, now: float, latency: float, outcome: Outcome) -> None:
        load = self._load(broker, now)
        load.in_flight = max(0, load.in_flight - 1)
        if outcome is Outcome.ABANDONED:
            return
        if outcome is Outcome.OK or outcome is Outcome.MESSAGE_REFUSED:
            load.answered_at = now
        else:
            load.answered_at = -inf
            if outcome is Outcome.BUSY:
                load.busy_until = now + self._settings.busy_isolation
            else:
                latency = max(latency, self._settings.failure_latency)

        kept = exp((load.measured_at - now) / self._decay)
        fallen = load.latency * kept
        load.latency = latency if latency >= fallen else fallen + latency * (1 - kept)
        load.measured_at = now

    def _load(self, broker: str, now: float) -> BrokerLoad:
        load = self._loads.get(broker)
        if load is None:
            load = BrokerLoad()
            self._loads.add(broker, load, now)
        load.used = now
        return load

    def _cost(self, broker: str, now: float) -> float:
        load = self._loads.get(broker, UNKNOWN)
        cost = load.latency * exp((load.measured_at - now) / self._decay) * (load.in_flight + 1)
        if load.busy_until > now or (load.in_flight and now - load.answered_at > self._decay):
            cost += OUT_OF_THE_QUESTION * (load.in_flight + 1)
        return cost

    def _is_in_doubt(self, broker: str, now: float) -> bool:
        """Whether it has not answered lately, or asked to be spared."""
        load = self._loads.get(broker, UNKNOWN)
        return load.busy_until > now or now - load.answered_at > self._decay

    def _describe(self, broker: str, now: float) -> str:
        load = self._loads.get(broker, UNKNOWN)
        latency = load.latency * exp((load.measured_at - now) / self._decay)
        busy = "busy, " if load.busy_until > now else ""
        return f"{busy}{latency * 1000:.1f} ms x {load.in_flight + 1} in flight"
