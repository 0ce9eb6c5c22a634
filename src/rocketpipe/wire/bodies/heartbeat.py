"""What a client tells its brokers about itself: its producers, its consumers, what these read."""

from dataclasses import replace
from enum import StrEnum
from typing import Annotated, Self

from rocketpipe.lazy_dataclass import dataclass
from rocketpipe.wire.bodies.codec import Body
from rocketpipe.wire.hashing import java_string_hash
from rocketpipe.wire.subscription import parse_tag_expression


class ConsumeType(StrEnum):
    CONSUME_ACTIVELY = "CONSUME_ACTIVELY"  # pull
    CONSUME_PASSIVELY = "CONSUME_PASSIVELY"  # push
    CONSUME_POP = "CONSUME_POP"


class MessageModel(StrEnum):
    CLUSTERING = "CLUSTERING"
    BROADCASTING = "BROADCASTING"
    LITE_SELECTIVE = "LITE_SELECTIVE"  # 5.5


class ConsumeFromWhere(StrEnum):
    CONSUME_FROM_LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    CONSUME_FROM_FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    CONSUME_FROM_TIMESTAMP = "CONSUME_FROM_TIMESTAMP"
    # Deprecated; Java takes these three for CONSUME_FROM_LAST_OFFSET.
    CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST = (
        "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST"
    )
    CONSUME_FROM_MIN_OFFSET = "CONSUME_FROM_MIN_OFFSET"
    CONSUME_FROM_MAX_OFFSET = "CONSUME_FROM_MAX_OFFSET"


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionData(Body):
    """Which messages of a topic a group reads. An empty tag set is every tag."""

    topic: str
    sub_string: str
    tags_set: frozenset[str] = frozenset()
    code_set: frozenset[int] = frozenset()  # the tags' hashes, by which a broker filters
    sub_version: int = 0  # the time in ms at which it was made
    expression_type: str = "TAG"  # or "SQL92"
    class_filter_mode: bool = False

    @classmethod
    def of_tags(cls, topic: str, expression: str | None, *, sub_version: int) -> Self:
        """A subscription to `TagA || TagB`, or with `*`, nothing or None to every tag."""
        tag_filter = parse_tag_expression(expression)
        return cls(
            topic=topic,
            sub_string=tag_filter.expression,
            tags_set=tag_filter.tags,
            code_set=tag_filter.codes,
            sub_version=sub_version,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerData(Body):
    group_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerData(Body):
    """A consumer group as one of its clients runs it."""

    group_name: str
    consume_type: ConsumeType
    message_model: MessageModel
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    subscription_data_set: tuple[SubscriptionData, ...] = ()
    unit_mode: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatData(Body):
    """The body of 34. With a fingerprint it is a heartbeat of version 2."""

    client_id: Annotated[str, "clientID"]
    producer_data_set: tuple[ProducerData, ...] = ()
    consumer_data_set: tuple[ConsumerData, ...] = ()
    heartbeat_fingerprint: int = 0
    without_sub: bool = False  # the subscriptions are left out: they are as last time

    def compute_fingerprint(self) -> int:
        """A number that changes when a group or a subscription does, and is not 0.

        Java's rule (HeartbeatData.computeHeartbeatFingerprint). A broker only compares it with the
        last one, so keep groups and subscriptions in one order.
        """
        consumers = tuple(map(_without_versions, self.consumer_data_set))
        bare = HeartbeatData(
            client_id="", producer_data_set=self.producer_data_set, consumer_data_set=consumers
        )
        return java_string_hash(bare.encode().decode()) or 1


def _without_versions(consumer: ConsumerData) -> ConsumerData:
    subscriptions = (replace(each, sub_version=0) for each in consumer.subscription_data_set)
    return replace(consumer, subscription_data_set=tuple(subscriptions))
