"""Queues chosen by something in the message."""

import json
from pathlib import Path
from typing import Any

import pytest

from rocketpipe.client.selectors import at_random, by_hash
from rocketpipe.errors import InvalidMessage
from rocketpipe.message import Message, MessageQueue

GOLDEN = Path(__file__).parents[2] / "golden" / "hashes.json"
CASES = json.loads(GOLDEN.read_text("utf-8"))["cases"]["tags"]
QUEUES = [MessageQueue("orders", "broker-a", n) for n in range(7)]
MESSAGE = Message("orders", b"body", sharding_key="user-1")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["tag"])
def test_a_text_goes_to_the_queue_java_would_send_it_to(case: dict[str, Any]) -> None:
    chosen = by_hash(QUEUES, MESSAGE, case["tag"])
    assert chosen.queue_id == abs(case["java_string_hash"]) % 7


@pytest.mark.parametrize(
    ("number", "hash_code"),
    [
        (0, 0),
        (12345, 12345),
        (-8, -8),
        (-(1 << 31), -(1 << 31)),  # Math.abs of which is negative in Java, but not of a remainder
        (1 << 32, 1),  # Long.hashCode: both halves, one upon the other
        (1 << 31, -(1 << 31)),
        (-(1 << 31) - 1, -(1 << 31)),
        ((5 << 32) + 6, 3),
    ],
)
def test_a_number_goes_by_its_hash_code_in_java(number: int, hash_code: int) -> None:
    assert by_hash(QUEUES, MESSAGE, number).queue_id == abs(hash_code) % 7


def test_without_an_argument_the_sharding_key_stands_for_it() -> None:
    assert by_hash(QUEUES, MESSAGE, None) == by_hash(QUEUES, MESSAGE, "user-1")


@pytest.mark.parametrize("arg", [1.5, b"bytes", True, object()])
def test_what_has_no_hash_of_javas_is_refused(arg: object) -> None:
    with pytest.raises(InvalidMessage, match="by_hash takes text or a number"):
        by_hash(QUEUES, MESSAGE, arg)


def test_a_message_without_a_sharding_key_needs_an_argument() -> None:
    with pytest.raises(InvalidMessage, match="not None"):
        by_hash(QUEUES, Message("orders", b"body"), None)


def test_at_random_every_queue_has_its_turn() -> None:
    assert {at_random(QUEUES, MESSAGE, None) for _ in range(1000)} == set(QUEUES)
