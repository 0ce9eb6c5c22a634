"""What clients and brokers ask of a NameServer."""

from typing import Annotated

from rocketpipe.codes import RequestCode
from rocketpipe.lazy_dataclass import dataclass
from rocketpipe.wire.bodies.route import (
    BrokerMemberGroupAnswer,
    ClusterInfo,
    KVTable,
    TopicList,
    TopicRouteData,
)
from rocketpipe.wire.headers import Done, Header, Long, RawBody, Request


@dataclass(frozen=True, slots=True, kw_only=True)
class GetRouteinfoByTopic(Request[TopicRouteData]):
    code = RequestCode.GET_ROUTEINFO_BY_TOPIC
    reply = TopicRouteData

    topic: str
    accept_standard_json_only: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetBrokerClusterInfo(Request[ClusterInfo]):
    code = RequestCode.GET_BROKER_CLUSTER_INFO
    reply = ClusterInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class PutKvConfig(Request[Done]):
    code = RequestCode.PUT_KV_CONFIG
    reply = Done

    namespace: str
    key: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KvConfig(Header):
    value: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetKvConfig(Request[KvConfig]):
    code = RequestCode.GET_KV_CONFIG
    reply = KvConfig

    namespace: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteKvConfig(Request[Done]):
    code = RequestCode.DELETE_KV_CONFIG
    reply = Done

    namespace: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GetKvlistByNamespace(Request[KVTable]):
    code = RequestCode.GET_KVLIST_BY_NAMESPACE
    reply = KVTable

    namespace: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterBrokerReply(Header):
    """For a slave: where its master is."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterBroker(Request[RegisterBrokerReply]):
    """Body: RegisterBrokerBody."""

    code = RequestCode.REGISTER_BROKER
    reply = RegisterBrokerReply

    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str
    broker_id: Long
    heartbeat_timeout_millis: Long | None = None
    enable_acting_master: bool | None = None
    compressed: bool = False
    body_crc32: int = 0  # 0: unchecked


@dataclass(frozen=True, slots=True, kw_only=True)
class UnregisterBroker(Request[Done]):
    code = RequestCode.UNREGISTER_BROKER
    reply = Done

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Long


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerHeartbeat(Request[Done]):
    """Still here; nothing changed."""

    code = RequestCode.BROKER_HEARTBEAT
    reply = Done

    cluster_name: str
    broker_addr: str
    broker_name: str
    broker_id: Long | None = None
    epoch: int | None = None
    max_offset: Long | None = None
    confirm_offset: Long | None = None
    heartbeat_timeout_millis: Annotated[Long | None, "heartbeatTimeoutMills"] = None  # sic
    election_priority: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryDataVersionReply(Header):
    changed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryDataVersion(Request[QueryDataVersionReply]):
    """Has anything changed since this version? Body both ways: DataVersion."""

    code = RequestCode.QUERY_DATA_VERSION
    reply = QueryDataVersionReply

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Long


@dataclass(frozen=True, slots=True, kw_only=True)
class GetBrokerMemberGroup(Request[BrokerMemberGroupAnswer]):
    """The master and slaves of one broker name."""

    code = RequestCode.GET_BROKER_MEMBER_GROUP
    reply = BrokerMemberGroupAnswer

    cluster_name: str
    broker_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GetAllTopicListFromNameserver(Request[TopicList]):
    code = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
    reply = TopicList


@dataclass(frozen=True, slots=True, kw_only=True)
class GetTopicsByCluster(Request[TopicList]):
    code = RequestCode.GET_TOPICS_BY_CLUSTER
    reply = TopicList

    cluster: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GetSystemTopicListFromNs(Request[TopicList]):
    code = RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS
    reply = TopicList


@dataclass(frozen=True, slots=True, kw_only=True)
class GetUnitTopicList(Request[TopicList]):
    """Topics whose sys flag has the unit bit."""

    code = RequestCode.GET_UNIT_TOPIC_LIST
    reply = TopicList


@dataclass(frozen=True, slots=True, kw_only=True)
class GetHasUnitSubTopicList(Request[TopicList]):
    """Topics whose sys flag has the unit subscription bit."""

    code = RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST
    reply = TopicList


@dataclass(frozen=True, slots=True, kw_only=True)
class GetHasUnitSubUnunitTopicList(Request[TopicList]):
    """Topics whose sys flag has the unit subscription bit but not the unit bit."""

    code = RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST
    reply = TopicList


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopicInNamesrv(Request[Done]):
    code = RequestCode.DELETE_TOPIC_IN_NAMESRV
    reply = Done

    topic: str
    cluster_name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterTopicInNamesrv(Request[Done]):
    """Body: TopicRouteData with its queue data."""

    code = RequestCode.REGISTER_TOPIC_IN_NAMESRV
    reply = Done

    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WipeWritePermReply(Header):
    wipe_topic_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WipeWritePermOfBroker(Request[WipeWritePermReply]):
    code = RequestCode.WIPE_WRITE_PERM_OF_BROKER
    reply = WipeWritePermReply

    broker_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AddWritePermReply(Header):
    add_topic_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AddWritePermOfBroker(Request[AddWritePermReply]):
    code = RequestCode.ADD_WRITE_PERM_OF_BROKER
    reply = AddWritePermReply

    broker_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateNamesrvConfig(Request[Done]):
    """Body: properties text."""

    code = RequestCode.UPDATE_NAMESRV_CONFIG
    reply = Done


@dataclass(frozen=True, slots=True, kw_only=True)
class GetNamesrvConfig(Request[RawBody]):
    code = RequestCode.GET_NAMESRV_CONFIG
    reply = RawBody
