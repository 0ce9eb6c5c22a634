"""Sending messages, ending transactions, taking timed messages back."""

from collections.abc import Mapping
from typing import Annotated, ClassVar

from rocketpipe.codes import RequestCode, ResponseCode
from rocketpipe.lazy_dataclass import dataclass
from rocketpipe.wire.headers import Done, Header, Long, Request


@dataclass(frozen=True, slots=True, kw_only=True)
class SendMessageReply(Header):
    """Where a message was put; of a batch, where its first."""

    msg_id: str  # the offset message id; of a batch, all of them joined by commas
    queue_id: int
    queue_offset: Long
    transaction_id: str | None = None
    batch_uniq_id: str | None = None
    recall_handle: str | None = None
    region_id: Annotated[str | None, "MSG_REGION"] = None
    trace_on: Annotated[str | None, "TRACE_ON"] = None


# All four mean that the message is in the master's log.
_STORED = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SendMessage(Request[SendMessageReply]):
    code = RequestCode.SEND_MESSAGE
    reply = SendMessageReply
    accepts: ClassVar[frozenset[int]] = _STORED

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: int
    queue_id: int  # negative: the broker picks one
    sys_flag: int
    born_timestamp: Long
    flag: int
    properties: str | None = None
    reconsume_times: int | None = None
    unit_mode: bool | None = None
    max_reconsume_times: int | None = None
    batch: bool | None = None  # rules over the code: true makes the body a batch
    broker_name: Annotated[str | None, "bname"] = None


_SHORT_NAMES = {
    "producer_group": "a",
    "topic": "b",
    "default_topic": "c",
    "default_topic_queue_nums": "d",
    "queue_id": "e",
    "sys_flag": "f",
    "born_timestamp": "g",
    "flag": "h",
    "properties": "i",
    "reconsume_times": "j",
    "unit_mode": "k",
    "max_reconsume_times": "l",
    "batch": "m",
    "broker_name": "n",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SendMessageV2(SendMessage):
    """SendMessage with its fields named by single letters: what Java's producer sends."""

    code = RequestCode.SEND_MESSAGE_V2
    short_names: ClassVar[Mapping[str, str]] = _SHORT_NAMES


@dataclass(frozen=True, slots=True, kw_only=True)
class SendBatchMessage(SendMessageV2):
    code = RequestCode.SEND_BATCH_MESSAGE


@dataclass(frozen=True, slots=True, kw_only=True)
class SendReplyMessage(SendMessage):
    """The reply of request-reply, which the broker pushes to the client that asked."""

    code = RequestCode.SEND_REPLY_MESSAGE


@dataclass(frozen=True, slots=True, kw_only=True)
class SendReplyMessageV2(SendMessageV2):
    code = RequestCode.SEND_REPLY_MESSAGE_V2


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSendMsgBack(Request[Done]):
    """A message that a consumer could not handle, to come again later."""

    code = RequestCode.CONSUMER_SEND_MSG_BACK
    reply = Done

    offset: Long  # in the commit log
    group: str
    delay_level: int
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: int | None = None
    broker_name: Annotated[str | None, "bname"] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTransaction(Request[Done]):
    code = RequestCode.END_TRANSACTION
    reply = Done

    producer_group: str
    tran_state_table_offset: Long  # the half message's queue offset
    commit_log_offset: Long
    commit_or_rollback: int  # the transaction bits of a sysFlag: 8 commit, 12 rollback, 0 unknown
    from_transaction_check: bool | None = None
    msg_id: str
    transaction_id: str | None = None
    topic: str | None = None
    broker_name: Annotated[str | None, "bname"] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallMessageReply(Header):
    msg_id: str
    region_id: Annotated[str | None, "MSG_REGION"] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallMessage(Request[RecallMessageReply]):
    """Take back a timed message that was not delivered yet."""

    code = RequestCode.RECALL_MESSAGE
    reply = RecallMessageReply

    producer_group: str | None = None
    topic: str
    recall_handle: str
    broker_name: Annotated[str | None, "bname"] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeCheckHalfMessage(Request[Done]):
    """Check a transaction again that was given up."""

    code = RequestCode.RESUME_CHECK_HALF_MESSAGE
    reply = Done

    topic: str | None = None
    msg_id: str | None = None
