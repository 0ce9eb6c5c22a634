"""What a broker asks of its clients, on the connections they opened."""

from typing import Annotated

from rocketpipe.codes import RequestCode
from rocketpipe.lazy_dataclass import dataclass
from rocketpipe.wire.bodies.consumer_info import ConsumeMessageDirectlyResult, ConsumerRunningInfo
from rocketpipe.wire.bodies.offsets import ConsumerStatus
from rocketpipe.wire.headers import Done, Long, Request


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckTransactionState(Request[Done]):
    """How did this transaction end? One-way: the client answers with an EndTransaction."""

    code = RequestCode.CHECK_TRANSACTION_STATE
    reply = Done

    tran_state_table_offset: Long
    commit_log_offset: Long
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None
    topic: str | None = None
    broker_name: Annotated[str | None, "bname"] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NotifyConsumerIdsChanged(Request[Done]):
    """A group's members changed: rebalance now. One-way."""

    code = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
    reply = Done

    consumer_group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetConsumerClientOffset(Request[Done]):
    """Go on from these offsets; body: ResetOffsetBody. One-way."""

    code = RequestCode.RESET_CONSUMER_CLIENT_OFFSET
    reply = Done

    topic: str
    group: str
    queue_id: int = -1
    offset: Long | None = None
    timestamp: Long
    is_force: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GetConsumerStatusFromClient(Request[ConsumerStatus]):
    code = RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT
    reply = ConsumerStatus

    topic: str
    group: str
    client_addr: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetConsumerRunningInfo(Request[ConsumerRunningInfo]):
    """Asked of a broker, which asks the client."""

    code = RequestCode.GET_CONSUMER_RUNNING_INFO
    reply = ConsumerRunningInfo

    consumer_group: str
    client_id: str
    jstack_enable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeMessageDirectly(Request[ConsumeMessageDirectlyResult]):
    """Hand this message to a listener now. Asked of a broker, which asks the client."""

    code = RequestCode.CONSUME_MESSAGE_DIRECTLY
    reply = ConsumeMessageDirectlyResult

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None
    topic_sys_flag: int | None = None
    group_sys_flag: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PushReplyMessageToClient(Request[Done]):
    """The reply this client waits for, matched by its CORRELATION_ID property."""

    code = RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT
    reply = Done

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: int
    queue_id: int
    sys_flag: int
    born_timestamp: Long
    flag: int
    properties: str | None = None
    reconsume_times: int | None = None
    unit_mode: bool = False
    born_host: str
    store_host: str
    store_timestamp: Long
