"""What a user sends, what a broker stores and a consumer receives, and where either lives."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, field
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from rocketpipe.errors import MQError
from rocketpipe.host import pack_host
from rocketpipe.lazy_dataclass import dataclass


class SendStatus(Enum):
    """How safe a broker says an accepted message is."""

    SEND_OK = "SEND_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class MessageQueue:
    """One queue of a topic on one broker; sorted as every RocketMQ client sorts them."""

    topic: str
    broker_name: str
    queue_id: int


class _NoProperties(dict[str, str]):
    """Those of every message that has none: one for all, since most have none, and for reading."""

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("a message is never changed: make another, with dataclasses.replace")

    __setitem__ = __delitem__ = __ior__ = _refuse
    update = setdefault = pop = popitem = clear = _refuse
    __hash__ = object.__hash__  # type: ignore[assignment]  # a default value must have one

    def __reduce__(self) -> str:
        return "NO_PROPERTIES"  # a copy is the same one


NO_PROPERTIES = _NoProperties()


@dataclass(frozen=True, slots=True)
class Message:
    """What a user sends. Nothing here is ever changed: not the message, nor what it was made of."""

    topic: str
    body: bytes
    _: KW_ONLY
    tags: str | None = None
    # Always a tuple once inside; a single str is one key.
    keys: Sequence[str] = field(default=(), metadata={"post_init": True})
    flag: int = 0  # the user's own; RocketMQ only carries it
    properties: Mapping[str, str] = field(
        default=NO_PROPERTIES, hash=False, metadata={"post_init": True}
    )
    delay_level: int = 0  # 1 to 18; 0 is at once
    # Timer messages, RocketMQ 5.x: give at most one. A broker prefers seconds, then ms, then at.
    delay_seconds: int | None = None
    delay_ms: int | None = None
    deliver_at_ms: int | None = None
    sharding_key: str | None = None
    wait_store_ok: bool = True  # False: answered without waiting for disk and slave

    def __post_init__(self) -> None:
        if type(self.keys) is not tuple:
            keys = (self.keys,) if isinstance(self.keys, str) else tuple(self.keys)
            object.__setattr__(self, "keys", keys)
        if self.properties is not NO_PROPERTIES:
            object.__setattr__(self, "properties", dict(self.properties))


class Attempt(NamedTuple):
    """One try at sending: where it went, why there, and how it ended.

    This and SendResult are tuples, since one of each is made for every message sent.
    """

    queue: MessageQueue
    address: str | None  # of the broker; None when it was not known
    started_ms: int  # wall time
    elapsed: float  # in seconds
    status: SendStatus | None  # when the broker stored it,
    error: MQError | None  # and when it did not
    reason: str  # why the policy chose this broker
    passed_over: tuple[tuple[str, str], ...]  # which it did not choose, and why

    def __str__(self) -> str:
        # One-way, there is neither.
        end = self.status.name if self.status is not None else str(self.error or "handed over")
        where = f"{self.queue.broker_name} queue {self.queue.queue_id}"
        text = f"{where} ({self.reason}), {self.elapsed * 1000:.0f} ms: {end}"
        passed_over = "; ".join(f"{broker} {why}" for broker, why in self.passed_over)
        return f"{text} [passed over: {passed_over}]" if passed_over else text


class SendResult(NamedTuple):
    """Where a broker stored a message, and the way there."""

    status: SendStatus
    message_id: str  # the producer's; of a batch, all of them joined by commas
    offset_message_id: str  # the broker's; likewise
    queue: MessageQueue
    queue_offset: int  # of a batch, the first one's
    transaction_id: str | None
    recall_handle: str | None  # takes a timed message back; brokers from 5.3.2 on give one
    region_id: str
    is_traced: bool  # whether the broker wants a trace of it
    attempts: tuple[Attempt, ...]

    @property
    def message_ids(self) -> tuple[str, ...]:
        """One for each message of a batch."""
        return tuple(self.message_id.split(","))


class TransactionState(Enum):
    """How a sender's own work ended, and with it the transaction; in Java's words."""

    COMMIT = "COMMIT_MESSAGE"
    ROLLBACK = "ROLLBACK_MESSAGE"
    UNKNOWN = "UNKNOW"  # sic; the broker will ask again


class TransactionResult(NamedTuple):
    """What became of a message sent in a transaction."""

    send_result: SendResult  # of the half message
    state: TransactionState


class _UnreadProperties:
    """The place of properties as they are stored, until somebody asks for them: many never do."""

    __slots__ = ("_unread_properties",)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:  # called where a slot is empty
            if name != "properties":
                raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")
            # Like Java we replace what is not UTF-8: a producer may have sent anything.
            text = str(self._unread_properties, "utf-8", "replace")
            properties = decode_properties(text)
            object.__setattr__(self, name, properties)
            return properties


@dataclass(frozen=True, slots=True)
class StoredMessage(_UnreadProperties):
    """A message as a broker stored it and a consumer receives it.

    `properties` is shared, not copied: read it, do not write to it.
    """

    topic: str
    body: bytes
    properties: Mapping[str, str] = field(hash=False)
    queue_id: int
    queue_offset: int
    physical_offset: int
    flag: int
    sys_flag: int
    body_crc: int  # of the body as stored, which may be compressed
    born_timestamp_ms: int
    born_host: str  # "10.0.0.1:51234", "[fe80::1]:51234"
    store_timestamp_ms: int
    store_host: str
    reconsume_times: int
    prepared_transaction_offset: int
    store_size: int  # of the whole record, in bytes
    broker_name: str | None = None  # where a client read it; no record says so itself

    @property
    def queue(self) -> MessageQueue:
        """Where it was read; one that comes again was read in a queue of its retry topic."""
        return MessageQueue(self.topic, self.broker_name or "", self.queue_id)

    @property
    def tags(self) -> str | None:
        """Its tag; None if it has none."""
        return self.properties.get("TAGS")

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys by which it can be found; none if it has none."""
        return tuple(key for key in self.properties.get("KEYS", "").split(" ") if key)

    @property
    def message_id(self) -> str:
        """The id its producer gave it; without one, the id of the place it is stored at."""
        return self.properties.get("UNIQ_KEY") or self.offset_message_id

    @property
    def offset_message_id(self) -> str:
        """The id of the place where it is stored: host, port and offset."""
        return offset_message_id(self.store_host, self.physical_offset)


def decode_properties(text: str) -> dict[str, str]:
    """The properties in a string. A pair without name or value is none; of two, the last wins.

    Here and not in `wire.properties`, whose format it is, because a stored message needs it.
    """
    properties = {}
    for pair in text.split("\x02"):
        name, _, value = pair.partition("\x01")
        if value and name:
            properties[name] = value
    return properties


def offset_message_id(store_host: str, physical_offset: int) -> str:
    """The id of a place in a broker's commit log: host, port and offset, 32 or 56 hex digits.

    Here and not in `wire`, which imports this module; `wire.message_id` reads it back.
    """
    packed = pack_host(store_host) + physical_offset.to_bytes(8, "big", signed=True)
    return packed.hex().upper()
