"""Isolation by latency, as RocketMQ 4 and 5 do it."""

from typing import Any

import pytest

from rocketpipe.client.fault_table import LatencyTable
from rocketpipe.client.latency_fault import JAVA4_TABLE, JAVA5_TABLE
from rocketpipe.client.queue_choice import Java4Settings, Java5Settings, Outcome
from rocketpipe.errors import InvalidSetting
from tests.unit.client.policies import A, B, C, D, Sender

both = pytest.mark.parametrize("name", ["java4", "java5"])
FAILURES = [Outcome.REFUSED, Outcome.LOST, Outcome.UNREACHABLE]


@pytest.mark.parametrize(
    ("latency", "java4", "java5"),
    [
        (0.0, 0, 0),
        (0.049, 0, 0),
        (0.05, 0, 0),
        (0.549, 0, 0),
        (0.55, 30, 2),
        (0.999, 30, 2),
        (1.0, 60, 2),
        (1.8, 60, 5),
        (2.0, 120, 5),
        (3.0, 180, 6),
        (5.0, 180, 10),
        (14.9, 180, 10),
        (15.0, 600, 30),
        (1000.0, 600, 30),
    ],
)
def test_the_tables_are_those_of_rocketmq(latency: float, java4: float, java5: float) -> None:
    assert JAVA4_TABLE.isolation(latency) == java4
    assert JAVA5_TABLE.isolation(latency) == java5
    assert (Java4Settings().failure_latency, Java5Settings().failure_latency) == (30, 10)


def test_a_latency_below_the_table_does_not_isolate() -> None:
    table = LatencyTable([(0.1, 1), (0.2, 5)])
    assert [table.isolation(latency) for latency in (0.09, 0.1, 0.2)] == [0, 1, 5]
    assert LatencyTable([]).isolation(100) == 0


def test_a_table_keeps_what_it_was_made_of() -> None:
    rows = [(1.0, 2.0)]
    table = LatencyTable(rows)
    rows[0] = (1.0, 5.0)
    assert table.isolation(1) == 2
    assert table == LatencyTable(((1, 2),))


@pytest.mark.parametrize(
    "rows",
    [
        [(1, 2, 3)],
        [1],
        None,
        [("a", 1)],
        [(1, None)],
        [(-1, 0)],
        [(1, float("inf"))],
        [(float("nan"), 1)],
        [(1, 1), (1, 2)],
        [(2, 1), (1, 2)],
    ],
)
def test_a_table_that_makes_no_sense_is_refused(rows: Any) -> None:
    with pytest.raises(InvalidSetting, match="latency table"):
        LatencyTable(rows)


@pytest.mark.parametrize("settings", [Java4Settings, Java5Settings])
def test_a_table_has_to_be_one(settings: Any) -> None:
    with pytest.raises(InvalidSetting, match="not a LatencyTable"):
        settings(latency_table=[(1, 2)])


@both
def test_a_slow_broker_is_isolated_for_the_time_of_the_table(name: str) -> None:
    sender = Sender(name, A, B)
    sender.attempt(A, latency=0.612)
    seconds = {"java4": 30.0, "java5": 2.0}[name]
    assert sender.policy.isolated(sender.now) == pytest.approx({A: seconds})
    sender.now += 0.25
    choice = sender.choose()
    assert choice.queue.broker_name == B
    assert choice.passed_over == ((A, f"isolated for {seconds - 0.25:.1f} s: took 612 ms"),)
    sender.now += seconds - 0.26
    assert sender.brokers(80) == {B: 80}
    sender.now += 0.02
    assert sender.brokers(80) == {A: 40, B: 40}
    assert sender.policy.isolated(sender.now) == {}


@both
@pytest.mark.parametrize("outcome", FAILURES)
def test_a_failure_counts_as_very_slow_however_fast_it_came(name: str, outcome: Outcome) -> None:
    sender = Sender(name, A, B)
    sender.attempt(A, outcome, latency=0.001)
    assert sender.policy.isolated(sender.now) == pytest.approx(
        {A: {"java4": 600.0, "java5": 10.0}[name]}
    )
    assert sender.choose().passed_over[0][1].endswith(f": {outcome.value} after 1 ms")


@both
def test_a_failure_after_longer_than_it_counts_as_counts_in_full(name: str) -> None:
    sender = Sender(name, A, B)
    sender.attempt(A, Outcome.LOST, latency=15.0)
    assert sender.policy.isolated(sender.now) == pytest.approx(
        {A: {"java4": 600.0, "java5": 30.0}[name]}
    )


@both
def test_a_busy_broker_is_passed_over_briefly(name: str) -> None:
    sender = Sender(name, A, B)
    sender.attempt(A, Outcome.BUSY, latency=0.2)
    assert sender.policy.isolated(sender.now) == pytest.approx({A: 1.0})
    assert sender.choose().passed_over == ((A, "isolated for 1.0 s: was busy"),)


@pytest.mark.parametrize("settings", [Java4Settings, Java5Settings])
def test_the_table_and_what_faults_count_as_are_settings(settings: Any) -> None:
    table = LatencyTable([(0.5, 7), (4, 70), (5, 700)])
    sender = Sender(settings(latency_table=table, failure_latency=4, busy_isolation=3), A, B, C)
    for broker, outcome in ((A, Outcome.OK), (B, Outcome.REFUSED), (C, Outcome.BUSY)):
        sender.policy.finished(broker, sender.now, 0.6, outcome)
    assert sender.policy.isolated(sender.now) == pytest.approx({A: 7.0, B: 70.0, C: 3.0})


@both
def test_a_slow_refusal_of_a_message_is_slow_all_the_same(name: str) -> None:
    sender = Sender(name, A, B)
    sender.attempt(A, Outcome.MESSAGE_REFUSED, latency=0.612)
    assert set(sender.policy.isolated(sender.now)) == {A}


@both
def test_no_later_fault_makes_an_isolation_shorter(name: str) -> None:
    """RocketMQ 4 sets the end anew with each answer."""
    sender = Sender(name, A, B)
    sender.attempt(A, Outcome.LOST, latency=1.0)
    ends = sender.now + sender.policy.isolated(sender.now)[A]
    why = sender.choose().passed_over[0][1].partition(":")[2]
    for outcome in (Outcome.BUSY, Outcome.OK, Outcome.MESSAGE_REFUSED):
        sender.attempt(A, outcome, latency=0.6)
        assert sender.policy.isolated(sender.now)[A] == pytest.approx(ends - sender.now)
        assert sender.choose().passed_over[0][1].partition(":")[2] == why


@both
def test_a_worse_fault_makes_an_isolation_longer(name: str) -> None:
    sender = Sender(name, A, B)
    for outcome in (Outcome.BUSY, Outcome.OK, Outcome.LOST):
        before = sender.policy.isolated(sender.now).get(A, 0.0)
        sender.attempt(A, outcome, latency=0.6)
        assert sender.policy.isolated(sender.now)[A] > before
    assert "gave no answer after 600 ms" in sender.choose().passed_over[0][1]


@both
def test_a_message_stored_in_time_ends_the_isolation(name: str) -> None:
    sender = Sender(name, A, B)
    sender.attempt(B, latency=0.6)
    sender.attempt(A, Outcome.LOST, latency=1.0)
    sender.attempt(A, latency=0.003)
    assert set(sender.policy.isolated(sender.now)) == {B}
    assert sender.brokers(8) == {A: 8}
    sender.attempt(B, latency=0.003)
    assert sender.policy.isolated(sender.now) == {}
    assert sender.brokers(8) == {A: 4, B: 4}


@both
def test_an_answer_that_was_under_way_before_the_fault_does_not_end_the_isolation(
    name: str,
) -> None:
    """RocketMQ 4 lets the late answer of one attempt cover up the loss of another."""
    sender = Sender(name, A, B)
    sender.attempt(A, Outcome.LOST, latency=1.0)
    sender.policy.finished(A, sender.now + 0.1, 0.2, Outcome.OK)
    assert set(sender.policy.isolated(sender.now + 0.1)) == {A}
    # A new fault counts from its own time, also where it does not prolong the isolation.
    sender.attempt(A, Outcome.BUSY, latency=0.5)
    sender.policy.finished(A, sender.now + 0.1, 0.3, Outcome.OK)
    assert set(sender.policy.isolated(sender.now + 0.1)) == {A}


@both
def test_a_refused_message_does_not_end_an_isolation(name: str) -> None:
    """It was refused before it came to storing, which is where brokers are slow."""
    sender = Sender(name, A, B)
    sender.attempt(A, latency=0.6)
    sender.attempt(A, Outcome.MESSAGE_REFUSED)
    assert set(sender.policy.isolated(sender.now)) == {A}


@pytest.mark.parametrize("name", ["java4", "java5"])
def test_an_isolation_longer_than_the_memory_is_not_forgotten(name: str) -> None:
    table = LatencyTable([(0.5, 5000)])
    settings = {"java4": Java4Settings, "java5": Java5Settings}[name](latency_table=table)
    sender = Sender(settings, A, B)
    sender.attempt(A, Outcome.LOST)
    sender.attempt(A, Outcome.BUSY)
    sender.now += 4000
    for number in range(100):
        sender.attempt(f"broker-{number}")
    sender.policy.brokers_to_probe(sender.now)
    assert sender.brokers(80) == {B: 80}


def test_java4_takes_the_better_half_when_every_broker_is_isolated() -> None:
    sender = Sender("java4", A, B, C, D)
    for broker, latency in ((A, 0.9), (B, 0.6), (C, 0.7), (D, 0.8)):
        sender.attempt(broker, latency=latency)
    assert sender.brokers(80) == {B: 40, C: 40}
    choice = sender.choose()
    assert choice.reason == "every broker is isolated, the better half in turn"
    assert [broker for broker, _ in choice.passed_over] == [A, D]
    # Among equally slow ones, who is available sooner.
    sender.now += 0.7
    for broker in (C, B, D):
        sender.policy.finished(broker, sender.now, 0.7, Outcome.OK)
        sender.now += 0.01
    assert sender.brokers(80) == {C: 40, B: 40}


def test_java4_has_at_least_one_in_its_better_half() -> None:
    sender = Sender("java4", A, B, C)
    for broker, latency in ((A, 0.9), (B, 0.6), (C, 0.7)):
        sender.attempt(broker, latency=latency)
    assert sender.brokers(80) == {B: 80}
    assert sender.brokers(80, avoid=[B]) == {C: 80}
    assert sender.brokers(80, avoid=[B, C]) == {A: 80}


def test_java4_does_not_take_a_refused_connection_for_a_fast_broker() -> None:
    """RocketMQ 4 sorts by the time an attempt took, and none ends as soon as one at a dead port."""
    sender = Sender("java4", A, B)
    sender.attempt(A, Outcome.UNREACHABLE, latency=0.001)
    sender.attempt(B, latency=0.8)
    assert sender.brokers(80) == {B: 80}


def test_java4_drops_brokers_that_have_no_queue_of_the_topic() -> None:
    """RocketMQ 4 picks them all the same, and then forgets what it knew about them."""
    sender = Sender("java4", B, C, D)
    sender.attempt(A, latency=0.6)
    for broker, latency in ((B, 0.7), (C, 0.8), (D, 0.9)):
        sender.attempt(broker, latency=latency)
    assert sender.brokers(80) == {B: 80}
    assert A in sender.policy.isolated(sender.now)


def test_java5_prefers_brokers_that_can_be_reached_when_every_broker_is_isolated() -> None:
    sender = Sender("java5", A, B, C)
    sender.attempt(A, Outcome.LOST)
    sender.attempt(B, latency=0.6)
    sender.attempt(C, Outcome.BUSY)
    assert sender.brokers(80) == {B: 40, C: 40}
    choice = sender.choose()
    assert choice.reason == "every broker is isolated, the reachable in turn"
    assert [broker for broker, _ in choice.passed_over] == [A]
    assert choice.passed_over[0][1].startswith("unreachable, isolated for ")
    assert sender.brokers(80, avoid=[B]) == {C: 80}


def test_java5_takes_all_in_turn_when_none_can_be_reached() -> None:
    sender = Sender("java5", A, B)
    for broker in (A, B):
        sender.attempt(broker, Outcome.UNREACHABLE)
    assert sender.brokers(80) == {A: 40, B: 40}
    assert sender.choose().reason == "every broker is isolated and unreachable, in turn"


def test_an_unreachable_broker_is_back_when_its_isolation_is_over() -> None:
    """RocketMQ issue 7812: without a detector it stayed out for good."""
    sender = Sender(Java5Settings(detector=False), A, B)
    sender.attempt(A, Outcome.UNREACHABLE)
    sender.now += 10.1
    assert sender.brokers(80) == {A: 40, B: 40}


@pytest.mark.parametrize("outcome", [Outcome.OK, Outcome.MESSAGE_REFUSED, Outcome.BUSY])
def test_whoever_answers_is_reachable_again(outcome: Outcome) -> None:
    sender = Sender("java5", A, B)
    for broker in (A, B):
        sender.attempt(broker, Outcome.LOST)
    sender.attempt(A, outcome, latency=0.6)
    assert sender.brokers(80) == {A: 80}


def test_reachability_goes_both_ways_with_the_probes() -> None:
    """RocketMQ issue 11146: a failed probe is ignored once a broker has passed for reachable."""
    sender = Sender("java5", A, B)
    for broker in (A, B):
        sender.attempt(broker, latency=5.0)
    sender.policy.probed(A, sender.now, reachable=False)
    assert sender.brokers(80) == {B: 80}
    sender.policy.probed(A, sender.now, reachable=True)
    sender.policy.probed(B, sender.now, reachable=False)
    assert sender.brokers(80) == {A: 80}
    sender.policy.probed(B, sender.now, reachable=True)
    assert sender.brokers(80) == {A: 40, B: 40}
    assert set(sender.policy.isolated(sender.now)) == {A, B}  # of speed a probe tells nothing


def test_silent_and_unreachable_brokers_are_probed_every_three_seconds() -> None:
    sender = Sender("java5", A, B, C)
    assert list(sender.policy.brokers_to_probe(sender.now)) == []
    sender.now += 3
    sender.attempt(A)
    sender.attempt(B, Outcome.LOST)
    sender.attempt(C)
    assert list(sender.policy.brokers_to_probe(sender.now)) == [B]  # who just answered need not
    sender.now += 2.9
    assert list(sender.policy.brokers_to_probe(sender.now)) == []
    sender.attempt(C)
    sender.now += 0.1
    assert list(sender.policy.brokers_to_probe(sender.now)) == [A, B]
    sender.policy.probed(B, sender.now, reachable=True)
    sender.now += 3
    assert list(sender.policy.brokers_to_probe(sender.now)) == [A, B, C]


def test_an_answer_does_not_spare_an_unreachable_broker_its_probe() -> None:
    sender = Sender("java5", A, B)
    sender.attempt(A)
    sender.attempt(A, Outcome.UNREACHABLE)
    assert list(sender.policy.brokers_to_probe(sender.now)) == [A]


def test_the_detector_is_a_setting_and_so_is_its_pace() -> None:
    for settings, expected in (
        (Java5Settings(detector=False), []),
        (Java5Settings(probe_interval=0.5), [A]),
    ):
        sender = Sender(settings, A, B)
        sender.policy.brokers_to_probe(sender.now)
        sender.attempt(A)
        sender.now += 0.5
        assert list(sender.policy.brokers_to_probe(sender.now)) == expected


def test_a_broker_nobody_sends_to_is_probed_no_more_after_a_while() -> None:
    sender = Sender("java5", A, B)
    sender.attempt(A, Outcome.LOST)
    probed = []
    for _ in range(400):
        sender.now += 3
        for broker in sender.policy.brokers_to_probe(sender.now):
            sender.policy.probed(broker, sender.now, reachable=False)
            probed.append(sender.now)
    assert 600 < probed[-1] - 1000 < 620


def test_a_probe_of_an_unknown_broker_is_no_news() -> None:
    sender = Sender("java5", A, B)
    sender.policy.probed(A, sender.now, reachable=False)
    assert list(sender.policy.brokers_to_probe(sender.now)) == []


def test_java4_has_no_detector() -> None:
    sender = Sender("java4", A, B)
    sender.attempt(A, Outcome.LOST)
    sender.policy.probed(A, sender.now, reachable=True)
    assert list(sender.policy.brokers_to_probe(sender.now)) == []
