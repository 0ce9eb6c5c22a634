"""How clients make themselves known to a broker, and share queues among them."""

from typing import Annotated

from rocketpipe.codes import RequestCode
from rocketpipe.lazy_dataclass import dataclass
from rocketpipe.wire.bodies.groups import ConsumerIdList, LockBatchAnswer, QueryAssignmentAnswer
from rocketpipe.wire.headers import Done, Header, Request


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartBeatReply(Header):
    """5.x brokers say whether a heartbeat may leave out what did not change."""

    is_support_heart_beat_v2: Annotated[bool, "IS_SUPPORT_HEART_BEAT_V2"] = False
    is_sub_change: Annotated[bool, "IS_SUB_CHANGE"] = True


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartBeat(Request[HeartBeatReply]):
    """Who this client is; body: HeartbeatData."""

    code = RequestCode.HEART_BEAT
    reply = HeartBeatReply


@dataclass(frozen=True, slots=True, kw_only=True)
class UnregisterClient(Request[Done]):
    """One group of this client is gone."""

    code = RequestCode.UNREGISTER_CLIENT
    reply = Done

    client_id: Annotated[str, "clientID"]
    producer_group: str | None = None
    consumer_group: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetConsumerListByGroup(Request[ConsumerIdList]):
    code = RequestCode.GET_CONSUMER_LIST_BY_GROUP
    reply = ConsumerIdList

    consumer_group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckClientConfig(Request[Done]):
    """Does the broker understand this subscription? Body: groups.CheckClientConfig."""

    code = RequestCode.CHECK_CLIENT_CONFIG
    reply = Done


@dataclass(frozen=True, slots=True, kw_only=True)
class LockBatchMq(Request[LockBatchAnswer]):
    """Lock queues for an orderly consumer; body: LockBatchRequest."""

    code = RequestCode.LOCK_BATCH_MQ
    reply = LockBatchAnswer


@dataclass(frozen=True, slots=True, kw_only=True)
class UnlockBatchMq(Request[Done]):
    """Give queues back; body: LockBatchRequest."""

    code = RequestCode.UNLOCK_BATCH_MQ
    reply = Done


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryAssignment(Request[QueryAssignmentAnswer]):
    """Which queues should this consumer read, and how; body: QueryAssignmentRequest."""

    code = RequestCode.QUERY_ASSIGNMENT
    reply = QueryAssignmentAnswer


@dataclass(frozen=True, slots=True, kw_only=True)
class SetMessageRequestMode(Request[Done]):
    """Whether a group pulls or pops; body: GroupRequestMode."""

    code = RequestCode.SET_MESSAGE_REQUEST_MODE
    reply = Done
