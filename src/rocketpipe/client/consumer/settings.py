"""The settings of consumers, with RocketMQ's defaults."""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, fields, replace
from typing import Any, TypeVar

from rocketpipe.client.allocation import allocation_rule
from rocketpipe.client.setting_checks import require_count, require_positive, require_type
from rocketpipe.client.settings import ClientSettings, check_group
from rocketpipe.errors import InvalidSetting
from rocketpipe.wire.allocation import Allocation
from rocketpipe.wire.bodies.heartbeat import ConsumeFromWhere, MessageModel

FIRST, LAST = "first", "last"
CONCURRENT_RECONSUME_MAX = 16  # Java's, where nothing is set
DELAY_LEVEL_MAX = 18


@dataclass(frozen=True)
class ConsumerSettings(ClientSettings):
    """What pull and push consumers have in common."""

    consumer_group: str
    _: KW_ONLY
    namespace: str | None = None
    """Put before topics and groups on the wire, so that several users can share a cluster."""
    consume_from: str | int = LAST
    """Where a group begins in a queue of which it has no offset yet: `first`, `last`, or a time in
    ms since 1970. A broker that still holds a young queue's first message says first for last, and
    one of 4.x for a time too."""
    allocation: str | Callable[..., Any] = "averagely"
    """How the members of a group share queues: averagely, circle, consistent-hash, or a function
    such as `by_config` and `by_machine_room` give; it is asked about each topic, and about the one
    of retries, `%RETRY%<group>`. All members must have the same."""
    rebalance_interval: float = 20.0
    """How often a member looks whether queues are still shared rightly, if nobody tells it to."""
    persist_offset_interval: float = 5.0
    """How often it stores how far it is."""
    pull_batch_size: int = 32
    """How many messages a pull asks for. A stock broker gives 32 at most."""
    pull_timeout: float = 30.0
    """For the answer to a pull. More than `suspend_timeout`, or held pulls would fail."""
    suspend_timeout: float = 15.0
    """How long a broker holds a pull for which it has nothing yet."""
    queue_messages_max: int = 1000
    """How many messages of a queue may wait here before no more are pulled."""
    queue_bytes_max: int = 100 * 1024 * 1024
    """How many bytes of a queue may."""
    messages_max: int = 50_000
    """How many messages of all queues may."""
    bytes_max: int = 512 * 1024 * 1024
    """How many bytes of all queues may."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_group("consumer_group", self.consumer_group)
        if self.consumer_group == "DEFAULT_CONSUMER":
            raise InvalidSetting("consumer_group is DEFAULT_CONSUMER: choose a name of your own")
        if self.namespace is not None:
            check_group("namespace", self.namespace)
        is_time = type(self.consume_from) is int and self.consume_from >= 0
        if not is_time and self.consume_from not in (FIRST, LAST):
            raise InvalidSetting(
                f"consume_from is {self.consume_from!r}: it must be first, last or a time in ms"
            )
        allocation_rule(self.allocation)
        require_positive(
            self,
            *("rebalance_interval", "persist_offset_interval", "pull_timeout", "suspend_timeout"),
        )
        if self.pull_timeout <= self.suspend_timeout:
            raise InvalidSetting(
                f"pull_timeout is {self.pull_timeout!r}: it must be more than suspend_timeout"
            )
        require_count(
            self,
            *("pull_batch_size", "queue_messages_max", "queue_bytes_max"),
            *("messages_max", "bytes_max"),
        )

    @property
    def consume_from_where(self) -> ConsumeFromWhere:
        """What brokers are told, in their words."""
        if self.consume_from == FIRST:
            return ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
        if self.consume_from == LAST:
            return ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
        return ConsumeFromWhere.CONSUME_FROM_TIMESTAMP

    @property
    def allocate(self) -> Allocation:
        """The rule that `allocation` names."""
        return allocation_rule(self.allocation)


@dataclass(frozen=True)
class PullConsumerSettings(ConsumerSettings):
    """What a pull consumer does by itself."""

    _: KW_ONLY
    auto_commit: bool = True
    """Whether what `poll` gave counts as consumed when `poll` is called again, and is stored then
    and when; else only `commit` stores offsets."""
    poll_messages_max: int = 500
    """How many messages one `poll` gives, if it is not told."""
    skip_gaps: bool = False
    """Whether to go on where a queue goes on, when messages that were to be read are gone; else
    that is an OffsetGap."""
    pulls_in_flight_max: int = 32
    """How many pulls `pull_range` keeps on their way at once; fewer where answers are large."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_type(self, bool, "auto_commit", "skip_gaps")
        require_count(self, "poll_messages_max", "pulls_in_flight_max")


@dataclass(frozen=True)
class PushConsumerSettings(ConsumerSettings):
    """How a push consumer hands messages to its listener."""

    _: KW_ONLY
    message_model: MessageModel | str = "clustering"
    """clustering: each message goes to one member of the group. broadcasting: to every one."""
    orderly: bool = False
    """Whether the messages of each queue go to the listener in order, one batch after another."""
    workers: int = 20
    """How many batches the listener is given at a time: a plain function in threads, a coroutine
    in tasks of the event loop."""
    consume_batch_size: int = 1
    """How many messages the listener is given at once, at most; all of one queue."""
    queue_span_max: int = 2000
    """How far the last message that was pulled from a queue may be from the first that is not
    consumed, unless orderly: so much may come again when a consumer is killed."""
    max_reconsume_times: int | None = None
    """How often a message that the listener fails to consume comes again before it goes to the
    group's dead letters; by default 16, and without end when orderly."""
    suspend_queue_time: float = 1.0
    """When orderly: how long a queue rests after the listener failed."""
    consume_timeout: float = 900.0
    """A message on which the listener works for so long is sent back, unless orderly: another
    member may have more luck."""
    close_timeout: float = 30.0
    """How long closing, or giving away a queue when orderly, waits for listeners; what they have
    not finished then comes again."""
    pop: bool = False
    """Whether brokers, from 5.0 on, share out messages instead of queues: then any member may get
    any message, and a slow one holds up nobody. Neither for orderly nor for broadcasting, and
    `consume_from` may not be a time."""
    invisible_time: float = 60.0
    """With pop: how long nobody else gets a message that a listener has; then it comes again."""
    offset_folder: str | None = None
    """Where broadcasting keeps offsets; `~/.rocketmq_offsets` as in Java, which can read them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_type(self, bool, "orderly", "pop")
        require_count(self, "workers", "consume_batch_size", "queue_span_max")
        require_positive(self, "suspend_queue_time", "consume_timeout", "close_timeout")
        require_positive(self, "invisible_time")
        if self.max_reconsume_times is not None:
            require_count(self, "max_reconsume_times", minimum=0)
        require_type(self, str | None, "offset_folder")
        is_broadcasting = self.is_broadcasting
        if self.pop and (self.orderly or is_broadcasting):
            raise InvalidSetting("pop is for concurrent consumers in clustering alone")
        if self.pop and self.consume_from not in (FIRST, LAST):
            raise InvalidSetting(
                f"consume_from is {self.consume_from!r}: with pop a group begins first or last"
            )

    @property
    def model(self) -> MessageModel:
        """The message model by RocketMQ's own name."""
        models = {"clustering": MessageModel.CLUSTERING, "broadcasting": MessageModel.BROADCASTING}
        model = models.get(str(self.message_model).lower())
        if model is None:
            raise InvalidSetting(
                f"message_model is {self.message_model!r}: clustering and broadcasting exist"
            )
        return model

    @property
    def is_broadcasting(self) -> bool:
        """Whether every member gets every message."""
        return self.model is MessageModel.BROADCASTING


S = TypeVar("S", bound=ConsumerSettings)


def consumer_settings(kind: type[S], consumer_group: str | S, settings: dict[str, Any]) -> S:
    """The settings as a user gives them: all in one object, or by name."""
    known = {each.name for each in fields(kind)}
    if unknown := settings.keys() - known:
        raise InvalidSetting(f"a consumer has no setting {', '.join(sorted(unknown))}")
    if isinstance(consumer_group, kind):
        return replace(consumer_group, **settings)
    if isinstance(consumer_group, ConsumerSettings):
        raise InvalidSetting(f"{type(consumer_group).__name__} are not those of this consumer")
    return kind(consumer_group, **settings)
