"""What names a popped message: receipts, the topics of retries, and the offsets of an answer.

A receipt (the property POP_CK, and `extraInfo` in headers) is a text of eight words, and so is what
the answer to a pop says of its queues: `0 2 17` is queue 2 of the topic itself, from offset 17 on.
ExtraInfoUtil and KeyBuilder are the classes of Apache's that have these rules.
"""

from collections.abc import Sequence
from typing import NamedTuple, Self

from rocketpipe.errors import MalformedHeader
from rocketpipe.wire.java_text import read_integer

NORMAL, RETRY_V1, RETRY_V2 = "0", "1", "2"  # the kinds of topic that a receipt may be of
RETRY_MARKS = {RETRY_V1: "_", RETRY_V2: "+"}  # what stands between group and topic in their names
RETRY_PREFIX = "%RETRY%"

# In the place of a revive queue: the message is one of an ordered pop.
ORDERED = 999


class Receipt(NamedTuple):
    """Which pop gave the message, and where the message is."""

    start_offset: int  # where the pop began to read the queue
    pop_time: int
    invisible_time: int
    revive_queue_id: int
    kind: str
    broker_name: str
    queue_id: int = -1
    queue_offset: int = -1

    @classmethod
    def parse(cls, text: str) -> Self:
        """MalformedHeader when it is none."""
        words = text.split(" ")
        if len(words) < 6:
            raise MalformedHeader(f"extraInfo has {len(words)} words: {text!r:.100}")
        try:
            start, pop_time, invisible_time = (read_integer(word, 64) for word in words[:3])
            place = [read_integer(word, 64) for word in words[6:8]]
            return cls(
                start,
                pop_time,
                invisible_time,
                read_integer(words[3], 32),
                words[4],
                words[5],
                *place,
            )
        except ValueError as error:
            raise MalformedHeader(f"extraInfo: {error}") from error

    def __str__(self) -> str:
        return " ".join(map(str, self))

    @property
    def is_ordered(self) -> bool:
        return self.revive_queue_id == ORDERED


def pop_retry_topic(group: str, topic: str, kind: str) -> str:
    """Where the messages of a topic come again that the group popped and did not acknowledge."""
    return f"{RETRY_PREFIX}{group}{RETRY_MARKS[kind]}{topic}"


def real_topic(group: str, topic: str, kind: str) -> str:
    """The topic that a receipt of this kind is of; `topic` is the one that was popped from."""
    if kind == NORMAL:
        return topic
    if kind not in RETRY_MARKS:
        raise MalformedHeader(f"{kind!r:.20} is no kind of topic")
    return pop_retry_topic(group, topic, kind)


def kind_of(topic: str) -> str:
    if not topic.startswith(RETRY_PREFIX):
        return NORMAL
    return RETRY_V2 if RETRY_MARKS[RETRY_V2] in topic else RETRY_V1


# What the answer to a pop says of each queue; those of all queues are joined by `;`.


def start_offset_info(kind: str, queue_id: int, start: int) -> str:
    return f"{kind} {queue_id} {start}"


def start_offsets(info: str) -> dict[int, int]:
    """Where a pop began to read each queue of the topic itself, or MalformedHeader."""
    starts = {}
    for part in filter(None, info.split(";")):
        try:
            kind, queue_id, offset = part.split(" ")
            if kind == NORMAL:
                starts[read_integer(queue_id, 32)] = read_integer(offset, 64)
        except ValueError as error:
            raise MalformedHeader(f"startOffsetInfo: {part!r:.100}") from error
    return starts


def message_offset_info(kind: str, queue_id: int, offsets: Sequence[int]) -> str:
    return f"{kind} {queue_id} {','.join(map(str, offsets))}"


def order_count_info(queue_id: int, offsets: Sequence[int], counts: dict[int, int]) -> str:
    """How often the messages of an ordered pop were popped before, by offset and least of all."""
    words = [f"{NORMAL} qo{queue_id}%{offset} {count}" for offset, count in counts.items()]
    least = min(counts.values()) if len(counts) == len(offsets) else 0
    return ";".join([*words, f"{NORMAL} {queue_id} {least}"])
