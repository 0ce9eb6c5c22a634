"""Which messages may be sent, and which batches."""

from dataclasses import replace
from typing import Any

import pytest

from rocketpipe.client.checks import FORBIDDEN_TOPICS, check_batch, check_message, check_topic
from rocketpipe.errors import InvalidMessage
from rocketpipe.message import Message
from rocketpipe.wire.properties import RESERVED_NAMES

GOOD = Message("orders", b"body")


def check(message: Any) -> None:
    check_message(message, body_bytes_max=100)


def test_a_message_with_everything_may_be_sent() -> None:
    check(
        Message(
            "%|aZ09_-" + "x" * 119,
            bytes(100),
            tags="paid",
            keys=["o-1", "ö-2"],
            flag=-(1 << 31),
            properties={"a b": "c\x01d", "INNER_MULTI_DISPATCH": "x"},
            sharding_key="s",
            wait_store_ok=False,
        )
    )


@pytest.mark.parametrize("name", ["delay_level", "delay_seconds", "delay_ms", "deliver_at_ms"])
def test_each_kind_of_delay_may_be_given_alone(name: str) -> None:
    for value in (5, 0):
        delay: dict[str, Any] = {name: value}
        check(replace(GOOD, **delay))


@pytest.mark.parametrize(
    ("changes", "because"),
    [
        ({"topic": ""}, "blank"),
        ({"topic": "  "}, "blank"),
        ({"topic": "a b"}, "letters"),
        ({"topic": "a.b"}, "letters"),
        ({"topic": "topic\n"}, "letters"),
        ({"topic": "grüße"}, "letters"),
        ({"topic": "x" * 128}, "128 characters"),
        ({"topic": None}, "not text"),
        ({"topic": 7}, "not text"),
        ({"body": b""}, "empty"),
        ({"body": bytes(101)}, "101 bytes; 100 are allowed"),
        ({"body": "text"}, "it must be bytes"),
        ({"body": None}, "it must be bytes"),
        ({"body": bytearray(b"x")}, "it must be bytes"),
        ({"tags": 7}, "tags"),
        ({"sharding_key": 7}, "sharding_key"),
        ({"keys": [""]}, "key ''"),
        ({"keys": ["a b"]}, "key 'a b'"),
        ({"keys": ["a\tb"]}, "key"),
        ({"keys": [7]}, "key 7"),
        ({"flag": 1 << 31}, "32 bits"),
        ({"flag": -(1 << 31) - 1}, "32 bits"),
        ({"flag": "7"}, "32 bits"),
        ({"properties": {"": "x"}}, "blank"),
        ({"properties": {"x": " "}}, "blank"),
        ({"properties": {"x": 7}}, "must be text"),
        ({"properties": {7: "x"}}, "must be text"),
        ({"properties": {"UNIQ_KEY": "x"}}, "RocketMQ's own"),
        ({"delay_level": -1}, "delay_level -1"),
        ({"delay_level": 1.5}, "whole number"),
        ({"delay_seconds": -1}, "negative"),
        ({"delay_ms": 1.5}, "whole number"),
        ({"deliver_at_ms": "soon"}, "whole number"),
        ({"delay_level": 1 << 31}, "beyond"),
        ({"deliver_at_ms": 1 << 63}, "beyond"),
        ({"wait_store_ok": "false"}, "wait_store_ok is 'false'"),
        ({"wait_store_ok": []}, "wait_store_ok"),
        ({"delay_level": 1, "delay_ms": 5}, "not several"),
        ({"delay_seconds": 1, "delay_ms": 5}, "not several"),
    ],
    ids=repr,
)
def test_what_brokers_would_refuse_is_refused(changes: dict[str, Any], because: str) -> None:
    with pytest.raises(InvalidMessage, match=because):
        check(replace(GOOD, **changes))


@pytest.mark.parametrize("name", sorted(RESERVED_NAMES))
def test_no_name_of_rocketmqs_own_may_be_used(name: str) -> None:
    with pytest.raises(InvalidMessage, match="choose another name"):
        check(replace(GOOD, properties={name: "x"}))


@pytest.mark.parametrize("topic", sorted(FORBIDDEN_TOPICS))
def test_the_brokers_own_topics_are_refused(topic: str) -> None:
    with pytest.raises(InvalidMessage, match="brokers' own"):
        check_topic(topic)


def test_the_topics_of_the_system_that_anybody_may_send_to_are_not() -> None:
    check_topic("TBW102")
    check_topic("RMQ_SYS_TRACE_TOPIC")


@pytest.mark.parametrize("message", [None, "text", b"bytes", ("orders", b"body")])
def test_what_is_not_a_message_is_refused(message: object) -> None:
    with pytest.raises(InvalidMessage, match="is not a Message"):
        check(message)


# Batches.


def test_messages_alike_may_travel_together() -> None:
    check_batch([GOOD])
    check_batch([GOOD, replace(GOOD, body=b"other", tags="x", flag=7)])


@pytest.mark.parametrize(
    ("messages", "because"),
    [
        ([], "no messages"),
        ([GOOD, replace(GOOD, topic="other")], "one topic, not both 'orders' and 'other'"),
        ([GOOD, replace(GOOD, wait_store_ok=False)], "alike"),
        ([replace(GOOD, delay_level=1)], "delayed"),
        ([GOOD, replace(GOOD, delay_seconds=0)], "delayed"),
        ([GOOD, replace(GOOD, delay_ms=1)], "delayed"),
        ([GOOD, replace(GOOD, deliver_at_ms=1)], "delayed"),
        ([replace(GOOD, topic="%RETRY%group")], "retry topic"),
    ],
)
def test_a_batch_that_brokers_would_refuse_is_refused(
    messages: list[Message], because: str
) -> None:
    with pytest.raises(InvalidMessage, match=because):
        check_batch(messages)
