"""The small interface through which a producer chooses queues and tells how its attempts ended.

A policy decides and does nothing else: no I/O, the time comes in as monotonic seconds, the dice at
its making. So the producer and a simulation use the very same objects.
"""

import random
from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from typing import NamedTuple, Protocol, runtime_checkable

from rocketpipe.message import MessageQueue


class Outcome(Enum):
    """How an attempt at a broker ended, as far as the broker is to blame."""

    OK = "stored"  # any of the four statuses
    MESSAGE_REFUSED = "refused this one message"  # the broker is well
    REFUSED = "refused"  # an error about itself: SYSTEM_ERROR, SERVICE_NOT_AVAILABLE, ...
    BUSY = "was busy"  # SYSTEM_BUSY: flow control
    LOST = "gave no answer"  # a timeout, or the connection broke
    UNREACHABLE = "could not be reached"
    ABANDONED = "was not waited for"  # the caller gave up, which says nothing about the broker


class Choice(NamedTuple):
    """The queue to send to, and the reasons for it and against the others."""

    queue: MessageQueue
    reason: str
    passed_over: tuple[tuple[str, str], ...]  # broker and why


class Policy(Protocol):
    """Which queue next? What a policy takes no interest in, it leaves as it is here."""

    def choose(self, queues: Sequence[MessageQueue], now: float, avoid: Collection[str]) -> Choice:
        """One of these queues, which are of one topic and at least one.

        Brokers in `avoid` have failed for this send, the worst last: the latest, but one that was
        only busy comes before the others. None of them is chosen while another broker has a queue;
        once all have failed, any but the worst.

        Hand in the same tuple until the route changes: what is worked out from it is kept.
        """
        ...

    def started(self, broker: str, now: float) -> None:
        """An attempt is on its way. That is no answer, and makes no broker look better."""
        return

    def finished(self, broker: str, now: float, latency: float, outcome: Outcome) -> None:
        """That attempt has ended, `latency` seconds after it started."""
        return

    def brokers_to_probe(self, now: float) -> Sequence[str]:
        """The brokers to ask now whether they answer at all; call it every second or so."""
        return ()

    def probed(self, broker: str, now: float, *, reachable: bool) -> None:
        """That broker was asked, and answered or not."""
        return

    def isolated(self, now: float) -> Mapping[str, float]:
        """The brokers that are avoided at present, and for how many seconds more."""
        return {}


@runtime_checkable
class PolicySettings(Protocol):
    """What a policy is made from. A policy of your own comes in through such an object."""

    def build(self, dice: random.Random) -> Policy:
        """A policy that knows nothing yet."""
        ...
