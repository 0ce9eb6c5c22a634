"""Ways to choose a queue by something in the message, for `send(..., selector=, arg=)`."""

import random
from collections.abc import Callable, Sequence
from typing import Any

from rocketpipe.errors import InvalidMessage
from rocketpipe.message import Message, MessageQueue
from rocketpipe.wire.hashing import java_string_hash

Selector = Callable[[Sequence[MessageQueue], Message, Any], MessageQueue]


def by_hash(queues: Sequence[MessageQueue], message: Message, arg: Any) -> MessageQueue:
    """The same queue for the same `arg`, text or a number, in Java and here.

    Without an `arg` the message's sharding key stands for it. Java's SelectMessageQueueByHash.
    """
    key = arg if arg is not None else message.sharding_key
    return queues[queue_number(key, len(queues))]


def queue_number(key: object, count: int) -> int:
    """Which of so many queues is that of a key."""
    return abs(_java_hash(key)) % count


def at_random(queues: Sequence[MessageQueue], message: Message, arg: Any) -> MessageQueue:
    """Any queue. Java's SelectMessageQueueByRandom."""
    return random.choice(queues)


def _java_hash(key: object) -> int:
    if isinstance(key, str):
        return java_string_hash(key)
    if isinstance(key, bool) or not isinstance(key, int):
        raise InvalidMessage(f"by_hash takes text or a number, not {key!r:.100}")
    if -(1 << 31) <= key < 1 << 31:
        return key  # Integer.hashCode
    folded = (key ^ key >> 32) & 0xFFFFFFFF  # Long.hashCode
    return folded - (1 << 32) if folded & 0x80000000 else folded
