"""POP: acknowledgements of many messages at once, and what a broker keeps of ordered pops."""

import base64
import binascii
from collections.abc import Iterable, Iterator
from dataclasses import field
from typing import Annotated

from rocketpipe.errors import MalformedBody
from rocketpipe.lazy_dataclass import dataclass
from rocketpipe.wire.bodies.codec import Body

BIT_SET_CHARACTERS_MAX = 16 * 1024  # for about a hundred thousand offsets


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchAck(Body):
    """Messages of one pop of one queue: which of them counts from its start, a bit each."""

    consumer_group: Annotated[str, "c"]
    topic: Annotated[str, "t"]
    retry: Annotated[str, "r"] = "0"  # the kind of topic, as in a receipt
    start_offset: Annotated[int, "so"] = 0
    queue_id: Annotated[int, "q"] = 0
    revive_queue_id: Annotated[int, "rq"] = 0
    pop_time: Annotated[int, "pt"] = 0
    invisible_time: Annotated[int, "it"] = 0
    bit_set: Annotated[str, "b"] = ""

    def offsets(self) -> Iterator[int]:
        """The queue offsets that are acknowledged; MalformedBody when the bits make no sense."""
        if len(self.bit_set) > BIT_SET_CHARACTERS_MAX:
            raise MalformedBody("BatchAck.b: more than any pop gives")
        try:
            data = base64.b64decode(self.bit_set, validate=True)
        except binascii.Error as error:
            raise MalformedBody(f"BatchAck.b: {error}") from None
        for place, byte in enumerate(data):
            for bit in range(8):
                if byte >> bit & 1:
                    yield self.start_offset + place * 8 + bit


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchAckRequest(Body):
    """The body of 200151."""

    broker_name: str | None = None
    acks: tuple[BatchAck, ...] = ()


def bit_set(places: Iterable[int]) -> str:
    """A Java BitSet in which these are set, as `BatchAck` carries it."""
    bits = 0
    for place in places:
        bits |= 1 << place
    return base64.b64encode(bits.to_bytes((bits.bit_length() + 7) // 8, "little")).decode()


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderedPop(Body):
    """The last pop of a queue by a group that consumes in order (ConsumerOrderInfoManager)."""

    pop_time: int
    invisible_time: Annotated[int, "i"]
    offsets: Annotated[tuple[int, ...], "o"]  # from the second on, how far from the first
    visible_at: Annotated[dict[int, int], "ot"] = field(default_factory=dict)  # by offset, in ms
    consumed_times: Annotated[dict[int, int], "oc"] = field(default_factory=dict)  # by offset
    last_consume_timestamp: Annotated[int, "l"] = 0
    acknowledged: Annotated[int, "cm"] = 0  # a bit for each offset
    attempt_id: Annotated[str | None, "a"] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderedPopTable(Body):
    """All of these, by `topic@group` and queue id: config/consumerOrderInfo.json."""

    table: dict[str, dict[int, OrderedPop]] = field(default_factory=dict)
