"""Which queue the next message goes to: the policies by name, and the simplest of them."""

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from rocketpipe.client.latency_fault import Java4Settings, Java5Settings
from rocketpipe.client.peak_ewma import PeakEwmaSettings
from rocketpipe.client.policy import Choice, Outcome, Policy, PolicySettings
from rocketpipe.client.turns import Turns, field_without
from rocketpipe.errors import InvalidSetting
from rocketpipe.message import MessageQueue

__all__ = [
    "POLICIES",
    "Choice",
    "Java4Settings",
    "Java5Settings",
    "Outcome",
    "PeakEwmaSettings",
    "Policy",
    "PolicySettings",
    "RoundRobin",
    "RoundRobinSettings",
    "policy_name",
    "policy_settings",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundRobinSettings:
    """Nothing to set."""

    def build(self, dice: random.Random) -> Policy:
        """A policy that knows nothing yet."""
        return RoundRobin(dice)


class RoundRobin(Policy):
    """RocketMQ's default: the queues in turn from a random one, brokers that failed left out."""

    def __init__(self, dice: random.Random) -> None:
        self._turns = Turns(dice)

    def choose(self, queues: Sequence[MessageQueue], now: float, avoid: Collection[str]) -> Choice:
        turns = self._turns.of(queues, now)
        if not avoid:
            return Choice(turns.all.next(), "in turn", ())
        brokers, passed_over, because = field_without(turns.brokers, avoid)
        return Choice(turns.among(brokers).next(), because + "in turn", passed_over)


POLICIES: Mapping[str, type[PolicySettings]] = MappingProxyType(
    {
        "round-robin": RoundRobinSettings,
        "java4": Java4Settings,
        "java5": Java5Settings,
        "peak-ewma": PeakEwmaSettings,
    }
)


def policy_name(policy: str | PolicySettings) -> str:
    """What to call it in records; a policy of the user's own by its class."""
    if isinstance(policy, str):
        return policy
    names = (name for name, settings in POLICIES.items() if type(policy) is settings)
    return next(names, type(policy).__name__.removesuffix("Settings"))


def policy_settings(policy: str | PolicySettings) -> PolicySettings:
    """The settings of the policy of that name, all by default; or the settings you have."""
    if isinstance(policy, str) and policy in POLICIES:
        return POLICIES[policy]()
    if isinstance(policy, PolicySettings) and not isinstance(policy, type):
        return policy
    names = ", ".join(POLICIES)
    raise InvalidSetting(f"policy is {policy!r}: it must be one of {names}, or settings of one")
