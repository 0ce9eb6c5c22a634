"""What the facts say of brokers over time: shares of traffic, and what faults did to them."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rocketpipe.report.facts import Event, ReportFacts, Traffic

BROKERS_IN_COLOUR = 7
OTHERS = "all others"


def broker_names(facts: ReportFacts) -> list[str]:
    """Every broker that anything is known of, by name."""
    told = {each.broker for each in (*facts.brokers, *facts.windows) if each.broker}
    return sorted(told | {each.broker for each in facts.events if each.broker})


def colours(facts: ReportFacts) -> dict[str, str]:
    """The class of each broker's colour; those with a fault, or most traffic, have their own."""
    traffic = {each.broker: each.attempts for each in facts.brokers}
    sick = {each.broker for each in facts.events}
    names = broker_names(facts)
    first = sorted(names, key=lambda name: (name not in sick, -traffic.get(name, 0), name))
    chosen = sorted(first[:BROKERS_IN_COLOUR])
    own = {name: f"b{number}" for number, name in enumerate(chosen)}
    return {name: own.get(name, "rest") for name in names}


def by_window(rows: Iterable[Traffic], *, failed: bool = False) -> dict[int, dict[str, int]]:
    """What each broker took in each window, in order; with `failed`, what was tried there."""
    windows: defaultdict[int, dict[str, int]] = defaultdict(dict)
    for row in rows:
        if row.start_ms is not None and row.broker is not None:
            windows[row.start_ms][row.broker] = row.attempts - (0 if failed else row.failed)
    return dict(sorted(windows.items()))


@dataclass(frozen=True, slots=True)
class Effect:
    """A broker's share of the traffic before a fault and during it."""

    event: Event
    before: float | None
    during: float | None


def effects(facts: ReportFacts, *, failed: bool = False) -> list[Effect]:
    """For each fault of a single broker. Before: all windows before any fault began."""
    windows = by_window(facts.windows, failed=failed)
    healthy_until = min((event.at_ms for event in facts.events), default=facts.ended_ms)
    found = []
    for event in facts.events:
        if event.broker is None:
            continue
        until = event.until_ms if event.until_ms is not None else facts.ended_ms
        before = _share(windows, event.broker, facts.window_ms, facts.started_ms, healthy_until)
        during = _share(windows, event.broker, facts.window_ms, event.at_ms, until)
        found.append(Effect(event, before, during))
    return found


def _share(
    windows: Mapping[int, Mapping[str, int]], broker: str, length: int, since: int, until: int
) -> float | None:
    """Of the windows in that time; if none lies there wholly, of the one that holds its start."""
    inside = [start for start in windows if start >= since and start + length <= until]
    if not inside:
        inside = [start for start in windows if start <= since < start + length and until > since]
    total = sum(sum(windows[start].values()) for start in inside)
    return sum(windows[start].get(broker, 0) for start in inside) / total if total else None


def stacked(
    windows: Mapping[int, Mapping[str, int]], names: Sequence[str]
) -> dict[str, list[float]]:
    """For each name, where its part of each window begins, as a share of all."""
    edges: dict[str, list[float]] = {name: [] for name in names}
    for counts in windows.values():
        total = sum(counts.values())
        at = 0.0
        for name in names:
            edges[name].append(at)
            at += counts.get(name, 0) / total if total else 0.0
    return edges
