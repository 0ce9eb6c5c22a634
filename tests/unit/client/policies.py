"""Queues, brokers and a clock that the tests of the policies share."""

import random
from collections import Counter
from collections.abc import Collection, Sequence

from rocketpipe.client.queue_choice import Choice, Outcome, PolicySettings, policy_settings
from rocketpipe.message import MessageQueue

A, B, C, D = "broker-a", "broker-b", "broker-c", "broker-d"


def queues_of(*brokers: str, queues: int = 4, topic: str = "orders") -> tuple[MessageQueue, ...]:
    return tuple(
        MessageQueue(topic, broker, number) for broker in brokers for number in range(queues)
    )


class Sender:
    """A policy, a clock, and a route to choose from."""

    def __init__(
        self, policy: str | PolicySettings, *brokers: str, queues: int = 4, seed: int = 1
    ) -> None:
        self.policy = policy_settings(policy).build(random.Random(seed))
        self.queues = queues_of(*brokers, queues=queues)
        self.now = 1000.0

    def choose(self, avoid: Collection[str] = ()) -> Choice:
        return self.policy.choose(self.queues, self.now, avoid)

    def brokers(self, times: int, avoid: Collection[str] = ()) -> Counter[str]:
        """Which brokers that many choices take."""
        return Counter(self.choose(avoid).queue.broker_name for _ in range(times))

    def attempt(self, broker: str, outcome: Outcome = Outcome.OK, latency: float = 0.003) -> None:
        """One attempt from start to end; the clock moves on."""
        self.policy.started(broker, self.now)
        self.now += latency
        self.policy.finished(broker, self.now, latency, outcome)


def is_even(counts: Counter[MessageQueue], queues: Sequence[MessageQueue]) -> bool:
    return max(counts[queue] for queue in queues) - min(counts[queue] for queue in queues) <= 1
