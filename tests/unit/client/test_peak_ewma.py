"""The cheaper of two: latency times attempts in flight."""

import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketpipe.client.peak_ewma import PeakEwma
from rocketpipe.client.queue_choice import Outcome, PeakEwmaSettings
from rocketpipe.message import MessageQueue
from tests.unit.client.policies import A, B, C, D, Sender, is_even, queues_of

FAILURES = [Outcome.REFUSED, Outcome.LOST, Outcome.UNREACHABLE]


def warmed_up(*brokers: str, settings: PeakEwmaSettings | None = None) -> Sender:
    """A sender that has heard of all these brokers: 3 ms each."""
    sender = Sender(settings or "peak-ewma", *brokers)
    for broker in brokers:
        sender.policy.finished(broker, sender.now, 0.003, Outcome.OK)
    return sender


def until_taken(sender: Sender, broker: str) -> float:
    """How long that broker is left alone while all the others go on answering in 3 ms."""
    start = sender.now
    while not sender.brokers(20)[broker]:
        sender.now += 0.5
        for other in {queue.broker_name for queue in sender.queues} - {broker}:
            sender.policy.finished(other, sender.now, 0.003, Outcome.OK)
    return sender.now - start


def test_the_faster_of_two_is_taken() -> None:
    sender = warmed_up(A, B)
    sender.attempt(A, latency=0.02)
    assert sender.brokers(50) == {B: 50}
    choice = sender.choose()
    assert choice.reason == "faster of two: 3.0 ms x 1 in flight"
    assert choice.passed_over == ((A, "20.0 ms x 1 in flight"),)


def test_what_is_in_flight_counts() -> None:
    sender = warmed_up(A, B)
    sender.attempt(A, latency=0.01)
    taken: Counter[str] = Counter()
    for _ in range(40):
        broker = sender.choose().queue.broker_name
        taken[broker] += 1
        sender.policy.started(broker, sender.now)
    assert taken[B] == pytest.approx(31, abs=1)  # 10 ms x 9 = 3 ms x 30
    assert "x 32 in flight" in sender.choose().reason + str(sender.choose().passed_over)


def test_a_peak_counts_at_once_and_fades_slowly() -> None:
    sender = warmed_up(A, B)
    sender.attempt(A, latency=0.6)
    for _ in range(5):
        sender.attempt(A, latency=0.003)
    assert sender.brokers(50) == {B: 50}
    assert until_taken(sender, A) == pytest.approx(53, abs=1)  # 10 s x ln(600 / 3)


def test_the_average_moves_with_time_not_with_the_number_of_answers() -> None:
    sender = warmed_up(A, B)
    sender.policy.finished(A, sender.now, 0.1, Outcome.OK)
    sender.now += 10
    sender.policy.finished(A, sender.now, 0.002, Outcome.OK)
    sender.policy.finished(B, sender.now, 0.001, Outcome.OK)
    share = 2.718281828**-1
    latency = 0.1 * share + 0.002 * (1 - share)
    assert dict([*sender.choose().passed_over]) == {A: f"{latency * 1000:.1f} ms x 1 in flight"}


@pytest.mark.parametrize("outcome", FAILURES)
def test_a_failure_costs_its_penalty_however_fast_it_came(outcome: Outcome) -> None:
    sender = warmed_up(A, B)
    sender.attempt(A, outcome, latency=0.001)
    assert sender.brokers(50) == {B: 50}
    assert until_taken(sender, A) == pytest.approx(81, abs=1)  # 10 s x ln(10 s / 3 ms)


def test_a_busy_broker_is_passed_over_briefly() -> None:
    sender = warmed_up(A, B)
    sender.attempt(A, Outcome.BUSY, latency=0.0005)
    sender.attempt(B, latency=0.2)
    assert sender.brokers(50) == {B: 50}
    assert sender.choose().passed_over[0][1].startswith("busy, ")
    sender.now += 0.8
    assert sender.brokers(50) == {A: 50}


def test_when_all_are_busy_the_least_loaded_is_taken() -> None:
    sender = warmed_up(A, B)
    for broker in (A, B):
        sender.attempt(broker, Outcome.BUSY)
    sender.policy.started(A, sender.now)
    assert sender.brokers(50) == {B: 50}


def test_decay_penalty_and_the_time_for_the_busy_are_settings() -> None:
    quick = warmed_up(A, B, settings=PeakEwmaSettings(decay=1))
    quick.attempt(A, latency=0.6)
    assert until_taken(quick, A) == pytest.approx(5.3, abs=0.6)
    lenient = warmed_up(A, B, settings=PeakEwmaSettings(failure_latency=0.6))
    lenient.attempt(A, Outcome.LOST, latency=0.001)
    assert until_taken(lenient, A) == pytest.approx(53, abs=1)
    patient = warmed_up(A, B, settings=PeakEwmaSettings(busy_isolation=30))
    patient.attempt(A, Outcome.BUSY)
    assert until_taken(patient, A) == pytest.approx(30, abs=1)


@pytest.mark.parametrize("history", ["new", "failed", "busy", "not heard of for long"])
def test_a_broker_in_doubt_is_explored_by_one_attempt_at_a_time(history: str) -> None:
    sender = warmed_up(A, B, C) if history != "new" else warmed_up(A, B)
    sender.queues = queues_of(A, B, C)
    if history == "failed":
        sender.attempt(C, Outcome.LOST, latency=1.0)
    if history == "busy":
        sender.attempt(C, Outcome.BUSY, latency=0.001)
    sender.now += 9 if history == "busy" else 200
    for _ in range(3):
        for broker in (A, B):
            sender.policy.finished(broker, sender.now, 0.003, Outcome.OK)
        taken: Counter[str] = Counter()
        for _ in range(64):
            broker = sender.choose().queue.broker_name
            taken[broker] += 1
            sender.policy.started(broker, sender.now)
        assert taken[C] == 1
        for broker in taken.elements():
            sender.policy.finished(broker, sender.now, 0.003, Outcome.ABANDONED)
    # Once it has answered, it gets its share.
    sender.attempt(C)
    for broker in (A, B):
        sender.policy.finished(broker, sender.now, 0.003, Outcome.OK)
    assert sender.brokers(300)[C] > 50


def test_at_the_start_the_attempts_are_shared_out_evenly() -> None:
    sender = Sender("peak-ewma", A, B, C, D)
    taken: Counter[str] = Counter()
    for _ in range(64):
        broker = sender.choose().queue.broker_name
        taken[broker] += 1
        sender.policy.started(broker, sender.now)
    assert taken == {A: 16, B: 16, C: 16, D: 16}


def test_two_sick_brokers_drawn_together_do_not_hide_a_healthy_one() -> None:
    sender = warmed_up(A, B, C, D)
    for broker in (A, B, C):
        sender.attempt(broker, Outcome.LOST, latency=1.0)
    assert sender.brokers(200) == {D: 200}
    reasons = {sender.choose().reason for _ in range(50)}
    assert any(reason.startswith("fastest of all: ") for reason in reasons)
    sender.attempt(D, Outcome.BUSY)
    sender.attempt(A)  # it answers again, and is still costly
    assert sender.brokers(200) == {A: 200}


def test_a_frozen_broker_holds_up_only_a_few_of_many_senders() -> None:
    sender = warmed_up(A, B)
    for _ in range(200):  # A answers nothing, B all
        broker = sender.choose().queue.broker_name
        sender.policy.started(broker, sender.now)
        sender.now += 0.003
        if broker == B:
            sender.policy.finished(B, sender.now, 0.003, Outcome.OK)
    assert "x 2 in flight" in sender.choose().passed_over[0][1]


def test_brokers_are_drawn_as_often_as_they_have_queues_and_queues_in_turn() -> None:
    sender = Sender("peak-ewma", A)
    sender.queues = queues_of(A, queues=6) + queues_of(B, queues=2) + queues_of(C, queues=2)
    for broker in (A, B, C):
        sender.policy.finished(broker, sender.now, 0.003, Outcome.OK)
    taken = Counter(sender.choose().queue for _ in range(5000))
    by_broker: Counter[str] = Counter()
    for queue, count in taken.items():
        by_broker[queue.broker_name] += count
    assert by_broker[A] == pytest.approx(3000, rel=0.1)
    assert by_broker[B] == pytest.approx(1000, rel=0.15)
    for broker in (A, B, C):
        mine = [queue for queue in sender.queues if queue.broker_name == broker]
        assert is_even(taken, mine)


@given(st.lists(st.sampled_from([A, B, C, D]), min_size=2).filter(lambda them: len(set(them)) > 1))
def test_the_two_are_never_the_same_and_may_be_any(owners: list[str]) -> None:
    """Whatever the order of the queues, and however many more one broker has than another."""
    policy = PeakEwma(PeakEwmaSettings(), random.Random(1))
    route = tuple(MessageQueue("orders", broker, number) for number, broker in enumerate(owners))
    pairs = set()
    for broker in owners:
        policy.finished(broker, 0.0, 0.003, Outcome.OK)
    for _ in range(60):
        choice = policy.choose(route, 0.0, ())
        assert [broker for broker, _ in choice.passed_over] != [choice.queue.broker_name]
        pairs.add(choice.queue.broker_name)
    if len(owners) <= 4:
        assert pairs == set(owners)


@given(
    st.lists(
        st.tuples(
            st.booleans(), st.sampled_from([A, B]), st.sampled_from(sorted(Outcome, key=str))
        ),
        max_size=60,
    )
)
def test_attempts_in_flight_are_counted_and_never_below_none(history: list[Any]) -> None:
    sender = warmed_up(A, B)
    expected = {A: 0, B: 0}
    for starts, broker, outcome in history:
        if starts:
            sender.policy.started(broker, sender.now)
            expected[broker] += 1
        else:
            sender.policy.finished(broker, sender.now, 0.003, outcome)
            expected[broker] = max(0, expected[broker] - 1)
    choice = sender.choose()
    told = {choice.queue.broker_name: choice.reason, **dict(choice.passed_over)}
    for broker, text in told.items():
        assert text.endswith(f"x {expected[broker] + 1} in flight")


def test_a_quick_refusal_of_a_message_does_not_pass_for_quick_storing() -> None:
    sender = warmed_up(A, B)
    sender.attempt(A, latency=0.02)
    sender.now += 5
    sender.policy.finished(B, sender.now, 0.003, Outcome.OK)
    for _ in range(100):
        sender.policy.finished(A, sender.now, 0.0001, Outcome.MESSAGE_REFUSED)
    assert sender.brokers(50) == {B: 50}


def test_a_broker_in_use_is_remembered_while_others_come_and_go() -> None:
    sender = warmed_up(A, B)
    for _ in range(3):
        sender.policy.started(A, sender.now)
    for number in range(200):
        sender.now += 60
        for broker in (A, B, f"broker-{number}"):
            sender.attempt(broker)
    assert sender.choose().passed_over[0][1].endswith("x 4 in flight")


def test_nothing_is_isolated_and_nothing_probed() -> None:
    sender = warmed_up(A, B)
    sender.attempt(A, Outcome.LOST)
    assert sender.policy.isolated(sender.now) == {}
    assert list(sender.policy.brokers_to_probe(sender.now)) == []
