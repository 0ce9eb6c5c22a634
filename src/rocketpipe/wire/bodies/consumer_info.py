"""What a broker asks of a running consumer: how it is doing (307), and to try one message (309)."""

from dataclasses import field
from enum import StrEnum
from typing import Annotated

from rocketpipe.lazy_dataclass import dataclass
from rocketpipe.message import MessageQueue
from rocketpipe.wire.bodies.codec import Body
from rocketpipe.wire.bodies.heartbeat import SubscriptionData


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessQueueInfo(Body):
    """How far a consumer is with one queue. `cached` is what it has pulled and not yet consumed."""

    commit_offset: int = 0
    cached_msg_min_offset: int = 0
    cached_msg_max_offset: int = 0
    cached_msg_count: int = 0
    cached_msg_size_in_mib: Annotated[int, "cachedMsgSizeInMiB"] = 0
    transaction_msg_min_offset: int = 0
    transaction_msg_max_offset: int = 0
    transaction_msg_count: int = 0
    locked: bool = False
    try_unlock_times: int = 0
    last_lock_timestamp: int = 0
    dropped: Annotated[bool, "droped"] = False
    last_pull_timestamp: int = 0
    last_consume_timestamp: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PopProcessQueueInfo(Body):
    wait_ack_count: int = 0
    dropped: Annotated[bool, "droped"] = False
    last_pop_timestamp: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeStatus(Body):
    """How fast a consumer reads one topic; times in ms."""

    pull_rt: Annotated[float, "pullRT"] = 0.0
    pull_tps: Annotated[float, "pullTPS"] = 0.0
    consume_rt: Annotated[float, "consumeRT"] = 0.0
    consume_ok_tps: Annotated[float, "consumeOKTPS"] = 0.0
    consume_failed_tps: Annotated[float, "consumeFailedTPS"] = 0.0
    consume_failed_msgs: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerRunningInfo(Body):
    """The answer to 307."""

    properties: dict[str, str] = field(default_factory=dict)  # PROP_NAMESERVER_ADDR and others
    subscription_set: tuple[SubscriptionData, ...] = ()
    mq_table: dict[MessageQueue, ProcessQueueInfo] = field(default_factory=dict)
    mq_pop_table: dict[MessageQueue, PopProcessQueueInfo] = field(default_factory=dict)
    status_table: dict[str, ConsumeStatus] = field(default_factory=dict)  # by topic
    user_consumer_info: dict[str, str] = field(default_factory=dict)
    jstack: str | None = None


class ConsumeResult(StrEnum):
    CR_SUCCESS = "CR_SUCCESS"
    CR_LATER = "CR_LATER"
    CR_ROLLBACK = "CR_ROLLBACK"
    CR_COMMIT = "CR_COMMIT"
    CR_THROW_EXCEPTION = "CR_THROW_EXCEPTION"
    CR_RETURN_NULL = "CR_RETURN_NULL"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeMessageDirectlyResult(Body):
    """The answer to 309."""

    consume_result: ConsumeResult | None = None
    order: bool = False
    auto_commit: bool = True
    remark: str | None = None
    spent_time_mills: int = 0
