"""The shop's messages are what a shop's could be, and the same for the same seed."""

import json
from collections import Counter, defaultdict
from itertools import islice

from rocketpipe.client.checks import check_message
from rocketpipe.demo.orders import Event, Shop


def events(count: int, seed: int = 1) -> list[Event]:
    shop = Shop(seed=seed, orders_topic="orders", activity_topic="activity")
    return [shop.next_event(1_750_000_000_000 + number) for number in range(count)]


EVENTS = events(5000)


def test_the_same_seed_gives_the_same_messages() -> None:
    assert events(200) == EVENTS[:200]
    assert events(200, seed=2) != EVENTS[:200]


def test_every_message_can_be_sent_and_says_what_it_is() -> None:
    for event in EVENTS:
        message = event.message
        check_message(message, body_bytes_max=4 << 20)
        body = json.loads(message.body)
        assert body["customer"] == event.customer
        assert message.tags == body.get("step", body.get("action"))
        assert message.keys
        assert (message.sharding_key == event.customer) is event.is_ordered
        assert message.topic == ("orders" if event.is_ordered else "activity")


def test_the_order_events_of_a_customer_are_numbered_and_follow_each_other() -> None:
    numbers: defaultdict[str, list[int]] = defaultdict(list)
    steps: defaultdict[str, list[str]] = defaultdict(list)
    for event in EVENTS:
        if event.sequence is not None:
            numbers[event.customer].append(event.sequence)
            body = json.loads(event.message.body)
            steps[body["order"]].append(body["step"])
    assert all(each == list(range(1, len(each) + 1)) for each in numbers.values())
    assert {each[0] for each in steps.values()} == {"created"}
    whole = ["created", "paid", "packed", "shipped", "delivered"]
    assert whole in steps.values()
    assert all(len(set(each)) == len(each) <= len(whole) for each in steps.values())


def test_few_customers_order_most_and_few_messages_are_large() -> None:
    customers = Counter(event.customer for event in EVENTS)
    top = sum(count for _, count in islice(customers.most_common(), 20))
    assert 0.4 < top / len(EVENTS) < 0.7
    sizes = sorted(len(event.message.body) for event in EVENTS)
    assert 200 < sizes[len(sizes) // 2] < 500
    assert sizes[-1] > 4096, "some are compressed"
    assert 0.35 < sum(event.is_ordered for event in EVENTS) / len(EVENTS) < 0.45
