"""Fault scripts: what they promise for a run of any length on any cluster."""

import pytest

from rocketpipe.demo.scenario import (
    SCENARIOS,
    Happening,
    Scenario,
    Trouble,
    find_scenario,
    script,
)
from rocketpipe.errors import InvalidSetting

BROKERS = ["broker-a", "broker-b", "broker-c"]


def test_the_default_scenario_has_each_fault_the_demo_promises() -> None:
    events, left_out = script(find_scenario("all"), 100, BROKERS, set(Trouble))
    assert left_out == []
    assert [(event.trouble.value, event.broker) for event in events] == [
        ("slow", "broker-b"),
        ("busy", "broker-c"),
        ("killed", "broker-a"),
        ("lost-answers", "broker-b"),
    ]


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=lambda each: each.name)
def test_one_trouble_at_a_time_and_all_is_well_in_the_end(scenario: Scenario) -> None:
    events, _ = script(scenario, 70, BROKERS, set(Trouble))
    ends = [0.0]
    for event in events:
        assert ends[-1] < event.at < event.until
        ends.append(event.until)
    assert ends[-1] < 0.9 * 70, "a broker that comes back must have time to be used again"


def test_a_script_is_in_seconds_of_its_run() -> None:
    scenario = Scenario("x", "", [Happening(Trouble.SLOW, 0, 0.5, 0.75)])
    ((at, until, broker, trouble),), _ = script(scenario, 40, BROKERS, set(Trouble))
    assert (at, until, broker, trouble) == (20, 30, "broker-a", Trouble.SLOW)


def test_what_a_cluster_can_not_suffer_is_left_out_and_said() -> None:
    events, left_out = script(find_scenario("all"), 60, BROKERS[:1], {Trouble.KILLED})
    assert [event.trouble for event in events] == [Trouble.KILLED]
    assert [line.split(":")[0] for line in left_out] == ["slow", "busy", "lost-answers"]
    events, left_out = script(find_scenario("all"), 60, BROKERS[:2], set(Trouble))
    assert "busy" not in [event.trouble for event in events]
    assert left_out == ["busy: there are 2 brokers, and not one more"]


@pytest.mark.parametrize(
    ("broker", "start", "end"), [(-1, 0.1, 0.2), (0, 0.2, 0.2), (0, -0.1, 0.2), (0, 0.5, 1.1)]
)
def test_a_happening_is_inside_its_run(broker: int, start: float, end: float) -> None:
    with pytest.raises(InvalidSetting):
        Happening(Trouble.SLOW, broker, start, end)


def test_an_unknown_scenario_names_those_there_are() -> None:
    with pytest.raises(InvalidSetting, match="'slowly': all, slow, busy, "):
        find_scenario("slowly")
