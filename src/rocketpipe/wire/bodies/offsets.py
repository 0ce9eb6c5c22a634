"""How far queues reach and how far consumers are: statistics, resets and the tables slaves copy."""

from dataclasses import field

from rocketpipe.lazy_dataclass import dataclass
from rocketpipe.message import MessageQueue
from rocketpipe.wire.bodies.codec import Body
from rocketpipe.wire.bodies.heartbeat import SubscriptionData
from rocketpipe.wire.bodies.topics import DataVersion


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicOffset(Body):
    """What a queue holds: offsets from `min_offset` up to, and without, `max_offset`."""

    min_offset: int
    max_offset: int
    last_update_timestamp: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicStatsTable(Body):
    """The answer to 202."""

    offset_table: dict[MessageQueue, TopicOffset] = field(default_factory=dict)
    topic_put_tps: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetWrapper(Body):
    """How far a group is with a queue."""

    broker_offset: int
    consumer_offset: int
    pull_offset: int = 0
    last_timestamp: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeStats(Body):
    """The answer to 208."""

    offset_table: dict[MessageQueue, OffsetWrapper] = field(default_factory=dict)
    consume_tps: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetOffsetBody(Body):
    """The body of 220 and the answer to 222: the offsets to go on from."""

    offset_table: dict[MessageQueue, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueOffset(Body):
    topic: str
    broker_name: str
    queue_id: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetOffsetBodyForC(Body):
    """The body of 220 for clients whose language is CPP, which can't read objects as keys."""

    offset_table: tuple[QueueOffset, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerStatus(Body):
    """A client's answer to 221 (the first table), and a broker's to 223 (the second)."""

    message_queue_table: dict[MessageQueue, int] = field(default_factory=dict)
    consumer_table: dict[str, dict[MessageQueue, int]] = field(default_factory=dict)  # by client id


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueTimeSpan(Body):
    """When the messages of a queue were stored, in ms, and how late a group is with them."""

    message_queue: MessageQueue
    min_time_stamp: int = 0
    max_time_stamp: int = 0
    consume_time_stamp: int = 0
    delay_time: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeTimeSpan(Body):
    """The answer to 303."""

    consume_time_span_set: tuple[QueueTimeSpan, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeQueueData(Body):
    """One entry of a consume queue."""

    physic_offset: int
    physic_size: int
    tags_code: int = 0
    extend_data_json: str | None = None
    bit_map: str | None = None
    eval: bool = False
    msg: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeQueueAnswer(Body):
    """The answer to 321."""

    queue_data: tuple[ConsumeQueueData, ...] = ()
    min_queue_index: int = 0
    max_queue_index: int = 0
    subscription_data: SubscriptionData | None = None
    filter_data: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOffsetWrapper(Body):
    """The answer to 43, and config/consumerOffset.json: by `topic@group`, then by queue id."""

    offset_table: dict[str, dict[int, int]] = field(default_factory=dict)
    data_version: DataVersion | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayOffsetWrapper(Body):
    """The answer to 45, and config/delayOffset.json: by delay level."""

    offset_table: dict[int, int] = field(default_factory=dict)
    data_version: DataVersion | None = None
