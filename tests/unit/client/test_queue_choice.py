"""What holds for every policy, and the flaws of RocketMQ's queue choice that none of ours has."""

import pickle
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketpipe.client.queue_choice import (
    POLICIES,
    Choice,
    Java4Settings,
    Outcome,
    Policy,
    RoundRobin,
    RoundRobinSettings,
    policy_settings,
)
from rocketpipe.errors import InvalidSetting
from rocketpipe.message import MessageQueue
from tests.unit.client.policies import A, B, C, D, Sender, is_even, queues_of

every_policy = pytest.mark.parametrize("name", POLICIES)
# Those that give each queue the same share, as long as nothing tells brokers apart.
in_turn = pytest.mark.parametrize("name", ["round-robin", "java4", "java5"])
latency_fault = pytest.mark.parametrize("name", ["java4", "java5"])
FAULTS = [Outcome.REFUSED, Outcome.BUSY, Outcome.LOST, Outcome.UNREACHABLE]

# A history of sends at some brokers, with time going by.
brokers = st.sampled_from([A, B, C, D])
events = st.lists(
    st.one_of(
        st.tuples(st.just("start"), brokers, st.none(), st.none()),
        st.tuples(
            st.just("finish"), brokers, st.floats(0, 20), st.sampled_from(sorted(Outcome, key=str))
        ),
        st.tuples(st.just("probe"), brokers, st.booleans(), st.none()),
        st.tuples(st.just("wait"), st.none(), st.floats(0, 700), st.none()),
    ),
    max_size=40,
)
routes = st.lists(brokers, min_size=1, unique=True).flatmap(
    lambda names: st.tuples(*(st.integers(1, 5) for _ in names)).map(
        lambda counts: tuple(
            MessageQueue("orders", name, number)
            for name, count in zip(names, counts, strict=True)
            for number in range(count)
        )
    )
)


def live(policy: Policy, history: list[Any], now: float = 0.0) -> Iterator[float]:
    """Play a history to a policy; yields the time after each event."""
    for what, broker, number, outcome in history:
        if what == "start":
            policy.started(broker, now)
        elif what == "finish":
            policy.finished(broker, now, number, outcome)
        elif what == "probe":
            policy.brokers_to_probe(now)
            policy.probed(broker, now, reachable=number)
        else:
            now += number
        yield now


@every_policy
@given(route=routes, history=events, avoid=st.lists(brokers), seed=st.integers(0, 9))
def test_the_choice_is_one_of_the_queues_and_avoids_brokers_that_failed(
    name: str, route: tuple[MessageQueue, ...], history: list[Any], avoid: list[str], seed: int
) -> None:
    """RocketMQ issue 1302: a retry picks the broker that just failed."""
    policy = policy_settings(name).build(random.Random(seed))
    present = {queue.broker_name for queue in route}
    for now in live(policy, [*history, ("wait", None, 0.0, None)]):
        choice = policy.choose(route, now, avoid)
        chosen = choice.queue.broker_name
        assert any(choice.queue is queue for queue in route)
        assert choice.reason
        assert all(why and broker != chosen for broker, why in choice.passed_over)
        if present - set(avoid):
            assert chosen not in avoid
        elif len(present) > 1:
            latest = [broker for broker in avoid if broker in present][-1]
            assert chosen != latest


@latency_fault
@given(route=routes, history=events)
def test_an_isolated_broker_is_no_first_choice_while_another_is_available(
    name: str, route: tuple[MessageQueue, ...], history: list[Any]
) -> None:
    policy = policy_settings(name).build(random.Random(1))
    present = {queue.broker_name for queue in route}
    for now in live(policy, history):
        isolated = policy.isolated(now)
        choice = policy.choose(route, now, ())
        if present - set(isolated):
            assert choice.queue.broker_name not in isolated
            assert {broker for broker, _ in choice.passed_over} == present & set(isolated)


@every_policy
@given(route=routes, history=events)
def test_the_same_seed_gives_the_same_choices(
    name: str, route: tuple[MessageQueue, ...], history: list[Any]
) -> None:
    def choices() -> list[Choice]:
        policy = policy_settings(name).build(random.Random(7))
        return [policy.choose(route, now, ()) for now in live(policy, history)]

    assert choices() == choices()


@every_policy
@pytest.mark.parametrize("fault", FAULTS)
def test_with_every_broker_at_fault_a_send_still_goes_out(name: str, fault: Outcome) -> None:
    sender = Sender(name, A, B, C)
    for broker in (A, B, C):
        sender.attempt(broker, fault)
    assert set(sender.brokers(100)) <= {A, B, C}


@every_policy
def test_a_retry_goes_elsewhere_also_when_all_others_are_at_fault(name: str) -> None:
    sender = Sender(name, A, B, C)
    for broker in (B, C):
        sender.attempt(broker, Outcome.LOST, latency=1.0)
    assert A not in sender.brokers(50, avoid=[A])


@every_policy
def test_once_all_brokers_failed_any_but_the_latest_is_tried_again(name: str) -> None:
    sender = Sender(name, A, B, C, queues=1)
    assert set(sender.brokers(200, avoid=[C, A, B])) == {A, C}
    choice = sender.choose([C, A, B])
    assert choice.reason.startswith("every broker failed for this send, ")
    assert (B, "failed for this send") in choice.passed_over
    assert set(sender.brokers(200, avoid=[B, A, B, "broker-x", C, "broker-y"])) == {A, B}


@every_policy
def test_a_single_broker_is_tried_again(name: str) -> None:
    sender = Sender(name, A)
    assert sender.brokers(8, avoid=[A]) == {A: 8}
    assert sender.choose([A]).passed_over == ()


@in_turn
def test_each_topic_takes_its_queues_in_turn(name: str) -> None:
    sender = Sender(name, A, B, queues=3)
    first = sender.queues.index(sender.choose().queue)
    taken = [sender.queues.index(sender.choose().queue) for _ in range(12)]
    assert taken == [(first + step) % 6 for step in range(1, 13)]
    assert sender.choose().reason == "in turn"
    assert sender.choose().passed_over == ()


@in_turn
def test_producers_start_at_different_queues(name: str) -> None:
    starts = {Sender(name, A, B, seed=seed).choose().queue for seed in range(100)}
    assert len(starts) == 8


@every_policy
def test_topics_in_alternation_each_use_all_their_queues(name: str) -> None:
    """With one index for all, two topics that alternate would use every other queue each."""
    policy = policy_settings(name).build(random.Random(1))
    routes = [queues_of(A, B, topic=topic) for topic in ("orders", "payments")]
    taken = Counter(policy.choose(route, 0.0, ()).queue for _ in range(2000) for route in routes)
    for route in routes:
        assert min(taken[queue] for queue in route) > 150


@every_policy
@pytest.mark.parametrize("fault", [Outcome.LOST, None])
def test_the_traffic_of_a_broker_left_out_spreads_over_all_other_queues(
    name: str, fault: Outcome | None
) -> None:
    """RocketMQ issue 5672: the queues that are skipped all fall on one neighbour."""
    sender = Sender(name, A, B, C, D)
    topics = [sender.queues, queues_of(A, B, C, D, queues=3, topic="payments")]
    avoid: list[str] = []
    if fault is None:
        avoid.append(B)  # as a retry does
    else:
        sender.attempt(B, fault, latency=1.0)
    taken: Counter[MessageQueue] = Counter()
    for _ in range(3600):
        for route in topics:
            taken[sender.policy.choose(route, sender.now, avoid).queue] += 1
            # First choices in between must not disturb the turns of retries, nor these them.
            sender.policy.choose(route, sender.now, [C])
    for route in topics:
        left = [queue for queue in route if queue.broker_name != B]
        used = {queue: taken[queue] for queue in left}
        if name == "peak-ewma":  # leaves it to the dice
            assert all(abs(used[queue] / (3600 / len(left)) - 1) < 0.2 for queue in left), used
        elif name == "round-robin" and fault:  # which knows of no faults
            assert is_even(taken, route)
            continue
        else:
            assert is_even(taken, left)
        assert sum(used.values()) == 3600


@every_policy
def test_choosing_changes_no_queue_and_loses_no_broker(name: str) -> None:
    """RocketMQ issue 7779: the chosen queue is renamed in place, and a broker's queue is gone."""
    sender = Sender(name, A, B)
    before = [(queue.topic, queue.broker_name, queue.queue_id) for queue in sender.queues]
    for broker in (A, B):
        sender.attempt(broker, Outcome.LOST, latency=3.0)
    for _ in range(50):
        chosen = sender.choose().queue
        assert any(chosen is queue for queue in sender.queues)
    assert before == [(queue.topic, queue.broker_name, queue.queue_id) for queue in sender.queues]
    sender.now += 10_000
    for broker in (A, B):
        sender.policy.finished(broker, sender.now, 0.003, Outcome.OK)
    assert {sender.choose().queue for _ in range(400)} == set(sender.queues)


@every_policy
@pytest.mark.parametrize("outcome", [Outcome.MESSAGE_REFUSED, Outcome.ABANDONED])
def test_one_illegal_message_or_a_caller_who_gives_up_is_not_held_against_a_broker(
    name: str, outcome: Outcome
) -> None:
    sender, untouched = Sender(name, A, B), Sender(name, A, B)
    for each in (sender, untouched):
        for broker in (A, B):
            each.attempt(broker, latency=0.01)
    for _ in range(10):
        sender.attempt(A, outcome, latency=0.001)
    untouched.now = sender.now
    assert sender.policy.isolated(sender.now) == {}
    assert [sender.choose() for _ in range(100)] == [untouched.choose() for _ in range(100)]


@every_policy
def test_submitting_is_not_answering(name: str) -> None:
    """RocketMQ's async send reports the time it took to submit as if it were a fast answer."""
    sender = Sender(name, A, B)
    for broker in (A, B):
        sender.attempt(broker, latency=0.01)
    sender.attempt(A, Outcome.LOST, latency=1.0)
    isolated = sender.policy.isolated(sender.now)
    for _ in range(20):
        sender.policy.started(A, sender.now)
    assert sender.policy.isolated(sender.now) == isolated
    if name != "round-robin":  # which knows of no faults
        assert sender.brokers(100) == {B: 100}


@every_policy
def test_a_new_route_is_used_at_once_and_an_old_broker_no_more(name: str) -> None:
    sender = Sender(name, A, B)
    assert set(sender.brokers(100)) == {A, B}
    sender.queues = queues_of(B, C)
    assert set(sender.brokers(100)) == {B, C}


@in_turn
def test_a_new_route_with_the_same_brokers_keeps_the_turn(name: str) -> None:
    sender = Sender(name, A, B)
    place = sender.queues.index(sender.choose().queue)
    for step in range(1, 20):
        sender.queues = queues_of(A, B)  # equal, and yet another
        chosen = sender.choose().queue
        assert any(chosen is queue for queue in sender.queues)
        assert sender.queues.index(chosen) == (place + step) % 8


@in_turn
def test_a_topic_in_use_keeps_its_turn_while_others_come_and_go(name: str) -> None:
    sender = Sender(name, A, B)
    place = sender.queues.index(sender.choose().queue)
    for step in range(1, 200):
        sender.now += 60
        sender.policy.choose(queues_of(A, B, topic=f"topic-{step}"), sender.now, ())
        assert sender.queues.index(sender.choose().queue) == (place + step) % 8


@in_turn
def test_a_list_that_changes_is_not_mistaken_for_what_it_was(name: str) -> None:
    policy = policy_settings(name).build(random.Random(1))
    route = list(queues_of(A, B))
    taken = Counter(policy.choose(route, 0.0, ()).queue for _ in range(16))
    assert is_even(taken, route)
    del route[:4]
    assert {policy.choose(route, 0.0, ()).queue for _ in range(16)} == set(queues_of(B))


class Watched(tuple[MessageQueue, ...]):
    """A route that notices when somebody looks through it."""

    looks = 0

    def __iter__(self) -> Iterator[MessageQueue]:
        self.looks += 1
        return super().__iter__()


@every_policy
def test_a_healthy_choice_does_not_look_through_the_queues(name: str) -> None:
    sender = Sender(name, A, B)
    sender.queues = Watched(sender.queues)
    sender.brokers(100)
    looks = sender.queues.looks
    sender.brokers(1000)
    assert sender.queues.looks == looks


def bytes_of(policy: Policy) -> int:
    return len(pickle.dumps(policy))


@every_policy
def test_brokers_and_topics_that_come_and_go_are_forgotten(name: str) -> None:
    policy = policy_settings(name).build(random.Random(1))
    sizes = []
    for number in range(1200):
        now = number * 20.0
        old, new = f"broker-{number:04}", f"broker-{number + 1:04}"
        for topic in ("orders", f"topic-{number:04}"):
            policy.choose(queues_of(old, new, queues=1, topic=topic), now, [old])
        policy.started(old, now)
        policy.finished(old, now, 0.7, Outcome.LOST if number % 2 else Outcome.OK)
        if number % 10 == 0:
            sizes.append(bytes_of(policy))
    assert max(sizes[60:]) <= max(sizes[:60]) * 1.1  # and not twice as much


@in_turn
def test_a_topic_remembers_a_bounded_number_of_sets_of_brokers(name: str) -> None:
    names = [f"broker-{number:02}" for number in range(12)]
    sender = Sender(name, *names, queues=1)
    dice, sizes = random.Random(1), []
    for _ in range(500):
        sender.choose(dice.sample(names, 6))
        sizes.append(bytes_of(sender.policy))
    assert max(sizes[100:]) <= max(sizes[:100]) * 1.1


@every_policy
def test_a_policy_is_found_by_its_name(name: str) -> None:
    assert policy_settings(name) == POLICIES[name]()


def test_settings_come_back_as_they_are() -> None:
    settings = Java4Settings(busy_isolation=3)
    assert policy_settings(settings) is settings
    assert isinstance(RoundRobinSettings().build(random.Random(1)), RoundRobin)


@pytest.mark.parametrize("policy", ["java6", "", "Java4", None, 4, Java4Settings, [], object()])
def test_any_other_policy_is_refused_with_the_names_there_are(policy: Any) -> None:
    with pytest.raises(InvalidSetting, match="round-robin, java4, java5, peak-ewma"):
        policy_settings(policy)


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        *[(name, "failure_latency") for name in ("java4", "java5", "peak-ewma")],
        *[(name, "busy_isolation") for name in ("java4", "java5", "peak-ewma")],
        ("java5", "probe_interval"),
        ("peak-ewma", "decay"),
    ],
)
@pytest.mark.parametrize("value", [0, -1, float("inf"), float("nan"), "1", None, True])
def test_a_time_that_is_none_is_refused(name: str, setting: str, value: Any) -> None:
    with pytest.raises(InvalidSetting, match=f"{setting} is .*: it must be a number of seconds"):
        POLICIES[name](**{setting: value})


@every_policy
def test_any_monotonic_clock_will_do_one_that_starts_below_zero_too(name: str) -> None:
    sender = Sender(name, A, B)
    sender.now = -1e6
    sender.attempt(A)
    sender.attempt(B, Outcome.LOST)
    assert sender.choose().queue.broker_name in {A, B}
