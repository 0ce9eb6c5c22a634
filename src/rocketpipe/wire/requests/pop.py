"""POP consumption of 5.x: the broker shares out messages, not queues. JSON headers only."""

from typing import Annotated, ClassVar, NamedTuple, Self

from rocketpipe.codes import RequestCode, ResponseCode
from rocketpipe.lazy_dataclass import dataclass
from rocketpipe.wire.frame import RemotingCommand
from rocketpipe.wire.headers import Done, Header, Long, Request


@dataclass(frozen=True, slots=True, kw_only=True)
class PopMessageReply(Header):
    """What was popped is in the answer's body, as stored messages."""

    pop_time: Long
    invisible_time: Long
    revive_qid: int
    rest_num: Long
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None


class PopAnswer(NamedTuple):
    """All of an answer to a pop; only one that found something has a header."""

    header: PopMessageReply | None
    body: bytes  # stored messages

    @classmethod
    def from_answer(cls, answer: RemotingCommand) -> Self:
        if answer.code != ResponseCode.SUCCESS:
            return cls(None, b"")
        return cls(PopMessageReply.from_ext_fields(answer.ext_fields), answer.body)


@dataclass(frozen=True, slots=True, kw_only=True)
class PopMessage(Request[PopAnswer]):
    code = RequestCode.POP_MESSAGE
    reply = PopAnswer
    accepts: ClassVar[frozenset[int]] = frozenset(
        {
            ResponseCode.SUCCESS,
            ResponseCode.PULL_NOT_FOUND,
            ResponseCode.POLLING_FULL,
            ResponseCode.POLLING_TIMEOUT,
        }
    )

    consumer_group: str
    topic: str
    queue_id: int  # -1: any
    max_msg_nums: int
    invisible_time: Long
    poll_time: Long
    born_time: Long
    init_mode: int  # 0: from the oldest, 1: from the newest
    exp_type: str | None = None
    exp: str | None = None
    order: bool | None = None
    attempt_id: str | None = None
    broker_name: Annotated[str | None, "bname"] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PeekMessage(Request[PopMessageReply]):
    code = RequestCode.PEEK_MESSAGE
    reply = PopMessageReply

    consumer_group: str
    topic: str
    queue_id: int
    max_msg_nums: int
    broker_name: Annotated[str | None, "bname"] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AckMessage(Request[Done]):
    code = RequestCode.ACK_MESSAGE
    reply = Done

    consumer_group: str
    topic: str
    queue_id: int
    extra_info: str
    offset: Long
    lite_topic: str | None = None
    broker_name: Annotated[str | None, "bname"] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchAckMessage(Request[Done]):
    """Many at once; body: BatchAckRequest."""

    code = RequestCode.BATCH_ACK_MESSAGE
    reply = Done


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeInvisibleTimeReply(Header):
    pop_time: Long
    invisible_time: Long
    revive_qid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeMessageInvisibletime(Request[ChangeInvisibleTimeReply]):
    code = RequestCode.CHANGE_MESSAGE_INVISIBLETIME
    reply = ChangeInvisibleTimeReply

    consumer_group: str
    topic: str
    queue_id: int
    extra_info: str
    offset: Long
    invisible_time: Long
    suspend: bool = False
    lite_topic: str | None = None
    broker_name: Annotated[str | None, "bname"] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NotificationReply(Header):
    has_msg: bool
    polling_full: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification(Request[NotificationReply]):
    """Tell me when there is something to pop."""

    code = RequestCode.NOTIFICATION
    reply = NotificationReply

    consumer_group: str
    topic: str
    queue_id: int
    poll_time: Long
    born_time: Long
    exp_type: str | None = None
    exp: str | None = None
    order: bool | None = None
    attempt_id: str | None = None
    broker_name: Annotated[str | None, "bname"] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PollingInfoReply(Header):
    polling_num: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PollingInfo(Request[PollingInfoReply]):
    code = RequestCode.POLLING_INFO
    reply = PollingInfoReply

    consumer_group: str
    topic: str
    queue_id: int
    broker_name: Annotated[str | None, "bname"] = None
