"""Queues in turn, one topic at a time.

RocketMQ keeps one index for a topic and skips the queues of brokers it will not use, so that all
of their traffic falls on the next broker's first queue. And an index that two kinds of choices
share can go round with them: when every send takes two numbers, half of the queues get none. Here
each topic, and in it each set of brokers that may be used, goes round by an index of its own.
"""

import random
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from rocketpipe.client.recent import Recent
from rocketpipe.message import MessageQueue


class Turns:
    """Where each topic stands."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self._topics: Recent[TopicTurns] = Recent()

    def of(self, queues: Sequence[MessageQueue], now: float) -> "TopicTurns":
        """The turns of these queues' topic; costs nothing to speak of while the tuple stays."""
        topic = queues[0].topic
        turns = self._topics.get(topic)
        if turns is None:
            turns = TopicTurns(self._dice)
            self._topics.add(topic, turns, now)
        if turns.queues is not queues:
            # Only a tuple stays what it is; whatever else comes in is copied, each time.
            turns.renew(queues if isinstance(queues, tuple) else tuple(queues))
        turns.used = now
        return turns


class TopicTurns:
    """The queues of one topic, to be taken in turn from all brokers or from some."""

    all: "Ring"  # the healthy case, at hand
    used: float

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self._rings: dict[frozenset[str], Ring] = {}
        self._ones: dict[str, Ring] = {}  # a broker each: faster found than in _rings
        self.queues: tuple[MessageQueue, ...] = ()
        self.brokers: tuple[str, ...] = ()

    def renew(self, queues: tuple[MessageQueue, ...]) -> None:
        """Take over a new route; where the same brokers take turns, their turn is kept."""
        self.queues = queues
        self.brokers = tuple(dict.fromkeys(queue.broker_name for queue in queues))
        present = frozenset(self.brokers)
        self._rings = {
            brokers: self._ring(brokers, ring.position)
            for brokers, ring in self._rings.items()
            if brokers <= present
        }
        self._ones = {}
        self.all = self.among(present)

    def among(self, brokers: Iterable[str]) -> "Ring":
        """The queues of these brokers, of which there is at least one."""
        brokers = frozenset(brokers)
        ring = self._rings.get(brokers)
        if ring is None:
            # Brokers can come in very many sets. Who loses its turn starts at a random place again.
            if len(self._rings) >= 16 + len(self.brokers):
                self._rings.clear()
            ring = self._rings[brokers] = self._ring(brokers, self._dice.getrandbits(31))
        return ring

    def one(self, broker: str) -> "Ring":
        """The queues of this broker."""
        ring = self._ones.get(broker)
        if ring is None:
            ring = self._ones[broker] = self.among((broker,))
        return ring

    def _ring(self, brokers: frozenset[str], position: int) -> "Ring":
        return Ring([queue for queue in self.queues if queue.broker_name in brokers], position)


class Ring:
    """Some queues, in turn."""

    __slots__ = ("_owners", "_queues", "_spans", "position")

    def __init__(self, queues: list[MessageQueue], position: int) -> None:
        self._queues = queues
        self.position = position % len(queues)
        self._owners: list[str] = []
        self._spans: dict[str, tuple[int, int]] = {}

    def next(self) -> MessageQueue:
        position = self.position
        self.position = (position + 1) % len(self._queues)
        return self._queues[position]

    def two_brokers(self, dice: random.Random) -> tuple[str, str]:
        """Two different brokers, each as likely as it has queues; at least two are needed."""
        if not self._owners:
            self._owners = sorted(queue.broker_name for queue in self._queues)
            for place, broker in enumerate(self._owners):
                start = self._spans.get(broker, (place,))[0]
                self._spans[broker] = start, place - start + 1
        # random() is several times as fast as randrange().
        owners, draw = self._owners, dice.random
        first = owners[int(draw() * len(owners))]
        start, count = self._spans[first]
        place = int(draw() * (len(owners) - count))
        return first, owners[place if place < start else place + count]


class Field(NamedTuple):
    """Which brokers one attempt may go to, before anything is known about how they are."""

    brokers: Sequence[str]
    passed_over: tuple[tuple[str, str], ...]
    because: str  # how a reason begins


def field_without(brokers: Sequence[str], avoid: Collection[str]) -> Field:
    """All brokers but those that failed for this send; if all did, all but the worst."""
    left, because = [broker for broker in brokers if broker not in avoid], ""
    if not left:
        because = "every broker failed for this send, "
        worst = [broker for broker in avoid if broker in brokers][-1]
        left = [broker for broker in brokers if broker != worst] or [worst]
    passed_over = tuple(
        (broker, "failed for this send") for broker in brokers if broker not in left
    )
    return Field(left, passed_over, because)
