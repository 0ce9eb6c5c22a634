"""Messages whose bytes are made already, as one who writes whole columns at a time makes them."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple, overload

from rocketpipe.message import Message, MessageQueue
from rocketpipe.wire import properties as names
from rocketpipe.wire.batch import split_batch
from rocketpipe.wire.properties import decode_properties, encode_properties


class Encoded(NamedTuple):
    """One message, or several of one topic as a batch; each is legal, and has an id in it."""

    topic: str
    message_count: int  # a batch has several
    message_id: str  # of a batch, all of them joined by commas
    body: bytes  # of a batch, its members as `wire.batch` lays them out
    properties: str  # of a batch, those of the whole
    queue: MessageQueue | None = None  # where it has to go; else the policy chooses
    # The writer's first of this topic: nothing else of his is there before it is acknowledged, and
    # whoever finds its first message once knows that nothing of the writer was sent twice.
    is_first: bool = False

    @property
    def is_batch(self) -> bool:
        return self.message_count > 1

    @property
    def messages(self) -> Sequence[Message]:
        """The same as a hook wants to see them; decoded only if one looks."""
        return _Decoded(self)

    def members(self) -> "list[Encoded]":
        """Each message of a batch by itself."""
        return [
            Encoded(self.topic, 1, message_id, body, properties.decode(), self.queue)
            for message_id, (_, body, properties) in zip(
                self.message_id.split(","), split_batch(self.body), strict=True
            )
        ]

    def first_member(self) -> "Encoded":
        """The first message of a batch by itself; of anything else, all of it."""
        return self.members()[0] if self.is_batch else self


def properties_of_all(namespace: str | None) -> str:
    """What the properties of every message say, whoever encodes them."""
    properties = {names.WAIT: "true"}
    if namespace:
        properties[names.INSTANCE_ID] = namespace
    return encode_properties(properties)


class _Decoded(Sequence[Message]):
    def __init__(self, encoded: Encoded) -> None:
        self._encoded = encoded

    def __len__(self) -> int:
        return self._encoded.message_count

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | Sequence[Message]:
        return self._messages[index]

    def __iter__(self) -> Iterator[Message]:
        return iter(self._messages)

    @cached_property
    def _messages(self) -> list[Message]:
        encoded = self._encoded
        members = encoded.members() if encoded.is_batch else [encoded]
        return [_message(each) for each in members]


def _message(encoded: Encoded) -> Message:
    properties = decode_properties(encoded.properties)
    deliver_at = properties.get(names.TIMER_DELIVER_MS)
    return Message(
        encoded.topic,
        encoded.body,
        tags=properties.get(names.TAGS),
        keys=properties.get(names.KEYS, "").split(),
        properties={
            name: value for name, value in properties.items() if name not in names.RESERVED_NAMES
        },
        delay_level=int(properties.get(names.DELAY, 0)),
        deliver_at_ms=None if deliver_at is None else int(deliver_at),
        sharding_key=properties.get(names.SHARDING_KEY),
    )
