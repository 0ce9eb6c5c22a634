"""Pulling messages, looking them up, and the offsets that consumers and queues have reached."""

from typing import Annotated, ClassVar, NamedTuple, Self

from rocketpipe.codes import RequestCode, ResponseCode
from rocketpipe.lazy_dataclass import dataclass
from rocketpipe.wire.frame import RemotingCommand
from rocketpipe.wire.headers import Done, Header, Long, RawBody, Request


@dataclass(frozen=True, slots=True, kw_only=True)
class PullMessageReply(Header):
    """Where to pull from next. What was found is in the answer's body, as stored messages."""

    suggest_which_broker_id: Long
    next_begin_offset: Long
    min_offset: Long
    max_offset: Long
    offset_delta: Long | None = None
    topic_sys_flag: int | None = None
    group_sys_flag: int | None = None
    forbidden_type: int | None = None


class PullAnswer(NamedTuple):
    """All of an answer to a pull: its code and its body matter as much as its fields."""

    code: int
    remark: str | None
    header: PullMessageReply
    body: bytes  # stored messages

    @classmethod
    def from_answer(cls, answer: RemotingCommand) -> Self:
        header = PullMessageReply.from_ext_fields(answer.ext_fields)
        return cls(answer.code, answer.remark, header, answer.body)


@dataclass(frozen=True, slots=True, kw_only=True)
class PullMessage(Request[PullAnswer]):
    code = RequestCode.PULL_MESSAGE
    reply = PullAnswer
    accepts: ClassVar[frozenset[int]] = frozenset(
        {
            ResponseCode.SUCCESS,
            ResponseCode.PULL_NOT_FOUND,
            ResponseCode.PULL_RETRY_IMMEDIATELY,
            ResponseCode.PULL_OFFSET_MOVED,
        }
    )

    consumer_group: str
    topic: str
    queue_id: int
    queue_offset: Long
    max_msg_nums: int
    sys_flag: int  # PULL_* below
    commit_offset: Long
    suspend_timeout_millis: Long
    subscription: str | None = None
    sub_version: Long
    expression_type: str | None = None
    max_msg_bytes: int | None = None
    request_source: int | None = None
    proxy_forward_client_id: Annotated[str | None, "proxyFrowardClientId"] = None  # sic
    lite_topic: str | None = None
    broker_name: Annotated[str | None, "bname"] = None


PULL_COMMIT_OFFSET = 1
PULL_SUSPEND = 2  # hold the request until something arrives
PULL_SUBSCRIPTION = 4  # the filter is in the request
PULL_CLASS_FILTER = 8
PULL_LITE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class LitePullMessage(PullMessage):
    """PullMessage by another code, so that 5.x brokers can tell pull consumers from push ones."""

    code = RequestCode.LITE_PULL_MESSAGE


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryMessageReply(Header):
    """How far the index reaches."""

    index_last_update_timestamp: Long
    index_last_update_phyoffset: Long


class QueryAnswer(NamedTuple):
    """All of an answer to a query."""

    header: QueryMessageReply
    body: bytes  # stored messages

    @classmethod
    def from_answer(cls, answer: RemotingCommand) -> Self:
        return cls(QueryMessageReply.from_ext_fields(answer.ext_fields), answer.body)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryMessage(Request[QueryAnswer]):
    """Messages by key: the broker compares hashes, so the asker has to compare keys."""

    code = RequestCode.QUERY_MESSAGE
    reply = QueryAnswer

    topic: str
    key: str
    max_num: int
    begin_timestamp: Long
    end_timestamp: Long
    index_type: str | None = None
    last_key: str | None = None
    unique_key_query: Annotated[bool | None, "_UNIQUE_KEY_QUERY"] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewMessageById(Request[RawBody]):
    """One stored message, by its place in the commit log."""

    code = RequestCode.VIEW_MESSAGE_BY_ID
    reply = RawBody

    offset: Long
    topic: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Offset(Header):
    offset: Long


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryConsumerOffset(Request[Offset]):
    code = RequestCode.QUERY_CONSUMER_OFFSET
    reply = Offset

    consumer_group: str
    topic: str
    queue_id: int
    set_zero_if_not_found: bool | None = None
    broker_name: Annotated[str | None, "bname"] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateConsumerOffset(Request[Done]):
    code = RequestCode.UPDATE_CONSUMER_OFFSET
    reply = Done

    consumer_group: str
    topic: str
    queue_id: int
    commit_offset: Long
    broker_name: Annotated[str | None, "bname"] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOffsetByTimestamp(Request[Offset]):
    code = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
    reply = Offset

    topic: str
    queue_id: int
    timestamp: Long
    boundary_type: str | None = None  # lower (the default) or upper
    lite_topic: str | None = None
    broker_name: Annotated[str | None, "bname"] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetMaxOffset(Request[Offset]):
    """The offset that the next message of the queue will get."""

    code = RequestCode.GET_MAX_OFFSET
    reply = Offset

    topic: str
    queue_id: int
    committed: bool | None = None
    broker_name: Annotated[str | None, "bname"] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetMinOffset(Request[Offset]):
    code = RequestCode.GET_MIN_OFFSET
    reply = Offset

    topic: str
    queue_id: int
    broker_name: Annotated[str | None, "bname"] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EarliestMsgStoretime(Header):
    timestamp: Long  # -1: nothing is stored


@dataclass(frozen=True, slots=True, kw_only=True)
class GetEarliestMsgStoretime(Request[EarliestMsgStoretime]):
    code = RequestCode.GET_EARLIEST_MSG_STORETIME
    reply = EarliestMsgStoretime

    topic: str
    queue_id: int
    broker_name: Annotated[str | None, "bname"] = None
