"""What happens to which broker, and when: the fault scripts, as data.

A scenario is written in shares of a run, so that it fits one of any length; `script` makes seconds
of it for the brokers there are, and says what it had to leave out.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

from rocketpipe.errors import InvalidSetting


class Trouble(StrEnum):
    """What can be wrong with a broker."""

    SLOW = "slow"
    BUSY = "busy"
    KILLED = "killed"
    FROZEN = "frozen"
    LOST_ANSWERS = "lost-answers"


SLOW_SECONDS = (0.4, 0.9)  # until a slow broker answers; stored it has at once
LOST_ANSWERS_MAX = 12  # each keeps its sender waiting, so a handful tells enough


@dataclass(frozen=True, slots=True)
class Happening:
    """A trouble of one broker, the first being 0, from one share of the run to another."""

    trouble: Trouble
    broker: int
    start: float
    end: float

    def __post_init__(self) -> None:
        if self.broker < 0 or not 0 <= self.start < self.end <= 1:
            raise InvalidSetting(f"{self}: neither broker nor time can be so")


@dataclass(frozen=True, slots=True)
class Scenario:
    """A script of troubles; those of one broker do not overlap."""

    name: str
    summary: str
    happenings: Sequence[Happening]


class Event(NamedTuple):
    """A trouble of a run, in seconds since its start."""

    at: float
    until: float
    broker: str
    trouble: Trouble

    @property
    def what(self) -> str:
        return WORDS[self.trouble]


WORDS: Mapping[Trouble, str] = MappingProxyType(
    {
        Trouble.SLOW: f"answers after {SLOW_SECONDS[0]:g} to {SLOW_SECONDS[1]:g} s",
        Trouble.BUSY: "is busy and refuses what is sent to it",
        Trouble.KILLED: "is killed, and comes back",
        Trouble.FROZEN: "stands still, with its connections open",
        Trouble.LOST_ANSWERS: f"stores, but {LOST_ANSWERS_MAX} of its answers are lost",
    }
)


def _alone(trouble: Trouble, summary: str, broker: int = 0) -> Scenario:
    return Scenario(trouble.value, summary, (Happening(trouble, broker, 0.25, 0.6),))


SCENARIOS: Mapping[str, Scenario] = MappingProxyType(
    {
        each.name: each
        for each in (
            Scenario(
                "all",
                "one broker after another is slow, busy, killed, and loses answers",
                (
                    Happening(Trouble.SLOW, 1, 0.12, 0.28),
                    Happening(Trouble.BUSY, 2, 0.36, 0.48),
                    Happening(Trouble.KILLED, 0, 0.56, 0.70),
                    Happening(Trouble.LOST_ANSWERS, 1, 0.80, 0.88),
                ),
            ),
            _alone(Trouble.SLOW, "one broker answers late", 1),
            _alone(Trouble.BUSY, "one broker refuses for a while", 1),
            _alone(Trouble.KILLED, "one broker is killed and comes back"),
            _alone(Trouble.FROZEN, "one broker stands still and goes on"),
            _alone(Trouble.LOST_ANSWERS, "one broker stores, and its answers are lost", 1),
            Scenario(
                "hard",
                "one broker is killed, another stands still: what any cluster can suffer",
                (
                    Happening(Trouble.KILLED, 0, 0.15, 0.40),
                    Happening(Trouble.FROZEN, 1, 0.60, 0.75),
                ),
            ),
            Scenario("calm", "nothing goes wrong", ()),
        )
    }
)


def find_scenario(name: str) -> Scenario:
    """That of this name, or InvalidSetting with the names there are."""
    try:
        return SCENARIOS[name]
    except KeyError:
        known = ", ".join(SCENARIOS)
        raise InvalidSetting(f"scenario is {name!r}: {known} exist") from None


def script(
    scenario: Scenario, seconds: float, brokers: Sequence[str], able: Collection[Trouble]
) -> tuple[list[Event], list[str]]:
    """The events of a run in their order, and what was left out of it and why, a line each.

    `able` is what the cluster can be made to suffer.
    """
    events, left_out = [], []
    for each in sorted(scenario.happenings, key=lambda happening: happening.start):
        if each.trouble not in able:
            left_out.append(f"{each.trouble}: this cluster can't be made to")
        elif each.broker >= len(brokers):
            left_out.append(f"{each.trouble}: there are {len(brokers)} brokers, and not one more")
        else:
            at, until = each.start * seconds, each.end * seconds
            events.append(Event(at, until, brokers[each.broker], each.trouble))
    return events, left_out
