"""Whether a message may be sent: what brokers would refuse is refused before anything is sent."""

import re
from collections.abc import Sequence
from functools import lru_cache

from rocketpipe.client.replies import Reply
from rocketpipe.errors import InvalidMessage
from rocketpipe.message import Message, MessageQueue
from rocketpipe.wire.properties import RESERVED_NAMES

TOPIC_CHARACTERS_MAX = 127
RETRY_PREFIX = "%RETRY%"

# TopicValidator.NOT_ALLOWED_SEND_TOPIC_SET: brokers write to these themselves.
FORBIDDEN_TOPICS = frozenset(
    {
        "SCHEDULE_TOPIC_XXXX",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC",
        "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
    }
)

_TOPIC = re.compile(r"[%|a-zA-Z0-9_-]+")
_INT_MAX = (1 << 31) - 1
_LONG_MAX = (1 << 63) - 1


@lru_cache(maxsize=4096)  # topics are few, and every message has one
def check_topic(topic: str) -> None:
    """InvalidMessage unless a producer may send to it."""
    if not topic.strip():
        raise InvalidMessage(f"topic {topic!r} is blank")
    if not _TOPIC.fullmatch(topic):
        raise InvalidMessage(f"topic {topic!r:.200}: it takes letters, digits, %, |, _ and - only")
    if len(topic) > TOPIC_CHARACTERS_MAX:
        raise InvalidMessage(
            f"topic {topic!r:.200} has {len(topic)} characters; {TOPIC_CHARACTERS_MAX} are allowed"
        )
    if topic in FORBIDDEN_TOPICS:
        raise InvalidMessage(f"topic {topic!r} is the brokers' own: nobody may send to it")


def check_message(message: Message, *, body_bytes_max: int) -> None:
    """InvalidMessage unless it may be sent. What a property string can't carry, that says."""
    if not isinstance(message, Message):
        raise InvalidMessage(f"{message!r:.100} is not a Message")
    if not isinstance(message.topic, str):
        raise InvalidMessage(f"topic {message.topic!r:.100} is not text")
    check_topic(message.topic)
    body = message.body
    if not isinstance(body, bytes):
        raise InvalidMessage(f"the body is {type(body).__name__}: it must be bytes")
    if not body:
        raise InvalidMessage("the body is empty")
    if len(body) > body_bytes_max:
        raise InvalidMessage(f"a body of {len(body)} bytes; {body_bytes_max} are allowed")
    if message.properties:
        _check_properties(message)
    for text in (message.tags, message.sharding_key):
        if text is not None and not _is_text(text):
            raise InvalidMessage(f"{text!r:.100} is not text: tags and sharding_key must be")
    for key in message.keys:
        if not _is_text(key) or not key or any(map(str.isspace, key)):
            raise InvalidMessage(f"key {key!r:.100}: a key is text, not empty, without blanks")
    if type(message.flag) is not int or not -_INT_MAX - 1 <= message.flag <= _INT_MAX:
        raise InvalidMessage(f"flag {message.flag!r:.100} is not a number of 32 bits")
    if type(message.wait_store_ok) is not bool:
        raise InvalidMessage(f"wait_store_ok is {message.wait_store_ok!r:.100}: it must be a bool")
    if is_delayed(message):
        _check_delay(message)


def check_batch(messages: Sequence[Message]) -> None:
    """InvalidMessage unless these, each of which is well, may travel together."""
    if not messages:
        raise InvalidMessage("a batch of no messages")
    first = messages[0]
    for message in messages:
        if message.topic != first.topic:
            raise InvalidMessage(
                f"a batch has one topic, not both {first.topic!r} and {message.topic!r}"
            )
        if message.wait_store_ok != first.wait_store_ok:
            raise InvalidMessage("the messages of a batch wait for the store alike, or none does")
        if is_delayed(message):
            raise InvalidMessage("a message of a batch can't be delayed")
        if isinstance(message, Reply):
            raise InvalidMessage("a reply can't be part of a batch")
    if first.topic.startswith(RETRY_PREFIX):
        raise InvalidMessage("a batch can't go to a retry topic")


def check_queue(what: str, queue: object, topic: str) -> MessageQueue:
    """The queue, or InvalidMessage unless a message of this topic may go to it."""
    if not isinstance(queue, MessageQueue):
        raise InvalidMessage(f"{what}: {queue!r:.100} is not a MessageQueue")
    if queue.topic != topic:
        raise InvalidMessage(f"{what}: a message of topic {topic!r} can't go to {queue}")
    if type(queue.queue_id) is not int or queue.queue_id < 0:  # which a broker takes for any queue
        raise InvalidMessage(f"{what}: the id in {queue} is not a whole number from 0")
    return queue


def is_delayed(message: Message) -> bool:
    return (
        message.delay_level != 0
        or message.delay_seconds is not None
        or message.delay_ms is not None
        or message.deliver_at_ms is not None
    )


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _check_properties(message: Message) -> None:
    for name, value in message.properties.items():
        if not _is_text(name) or not _is_text(value):
            raise InvalidMessage(f"property {name!r:.100}: name and value must be text")
        if not name.strip() or not value.strip():
            raise InvalidMessage(f"property {name!r}: neither name nor value may be blank")
        if name in RESERVED_NAMES:
            raise InvalidMessage(f"property {name!r} is RocketMQ's own: choose another name")


def _check_delay(message: Message) -> None:
    times = (message.delay_seconds, message.delay_ms, message.deliver_at_ms)
    given = [each for each in times if each is not None]
    for number in (message.delay_level, *given):
        if type(number) is not int:
            raise InvalidMessage(f"a delivery time of {number!r:.100}: it must be a whole number")
    if message.delay_level < 0:
        raise InvalidMessage(f"delay_level {message.delay_level}: levels start at 1; 0 is at once")
    if len(given) + (message.delay_level > 0) > 1:
        raise InvalidMessage(
            "give one of delay_level, delay_seconds, delay_ms and deliver_at_ms, not several"
        )
    if given and given[0] < 0:
        raise InvalidMessage(f"a delivery time of {given[0]}: it may not be negative")
    if message.delay_level > _INT_MAX or (given and given[0] > _LONG_MAX):
        raise InvalidMessage("a delivery time beyond what brokers can read")
