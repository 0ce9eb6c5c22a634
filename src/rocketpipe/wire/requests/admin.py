"""Looking after a broker: topics, groups, progress, settings, and what its slaves fetch."""

from typing import Annotated

from rocketpipe.codes import RequestCode
from rocketpipe.lazy_dataclass import dataclass
from rocketpipe.wire.bodies.groups import (
    ConsumerConnection,
    GroupList,
    ProducerConnection,
    ProducerTable,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
)
from rocketpipe.wire.bodies.offsets import (
    ConsumeQueueAnswer,
    ConsumerOffsetWrapper,
    ConsumerStatus,
    ConsumeStats,
    ConsumeTimeSpan,
    DelayOffsetWrapper,
    ResetOffsetBody,
    TopicStatsTable,
)
from rocketpipe.wire.bodies.route import KVTable, TopicList
from rocketpipe.wire.bodies.statistics import BrokerStatsData, ConsumeStatsList, HaRuntimeInfo
from rocketpipe.wire.bodies.timers import TimerCheckpoint
from rocketpipe.wire.bodies.topics import TopicConfig, TopicConfigSerializeWrapper
from rocketpipe.wire.headers import Done, Header, Long, RawBody, Request


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateAndCreateTopic(Request[Done]):
    code = RequestCode.UPDATE_AND_CREATE_TOPIC
    reply = Done

    topic: str
    default_topic: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int
    topic_filter_type: str
    topic_sys_flag: int | None = None
    order: bool
    attributes: str | None = None
    force: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateAndCreateTopicList(Request[Done]):
    """Body: TopicConfigList."""

    code = RequestCode.UPDATE_AND_CREATE_TOPIC_LIST
    reply = Done


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopicInBroker(Request[Done]):
    code = RequestCode.DELETE_TOPIC_IN_BROKER
    reply = Done

    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GetAllTopicConfig(Request[TopicConfigSerializeWrapper]):
    code = RequestCode.GET_ALL_TOPIC_CONFIG
    reply = TopicConfigSerializeWrapper

    topic_seq: int | None = None
    max_topic_num: int | None = None
    data_version: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetTopicConfig(Request[TopicConfig]):
    code = RequestCode.GET_TOPIC_CONFIG
    reply = TopicConfig

    topic: str
    logical: Annotated[bool | None, "lo"] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetTopicStatsInfo(Request[TopicStatsTable]):
    code = RequestCode.GET_TOPIC_STATS_INFO
    reply = TopicStatsTable

    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GetConsumeStats(Request[ConsumeStats]):
    code = RequestCode.GET_CONSUME_STATS
    reply = ConsumeStats

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateAndCreateSubscriptiongroup(Request[Done]):
    """Body: SubscriptionGroupConfig."""

    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    reply = Done


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateAndCreateSubscriptiongroupList(Request[Done]):
    """Body: SubscriptionGroupList."""

    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST
    reply = Done


@dataclass(frozen=True, slots=True, kw_only=True)
class GetAllSubscriptiongroupConfig(Request[SubscriptionGroupWrapper]):
    code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
    reply = SubscriptionGroupWrapper

    group_seq: int | None = None
    max_group_num: int | None = None
    data_version: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetSubscriptiongroupConfig(Request[SubscriptionGroupConfig]):
    code = RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG
    reply = SubscriptionGroupConfig

    group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteSubscriptiongroup(Request[Done]):
    code = RequestCode.DELETE_SUBSCRIPTIONGROUP
    reply = Done

    group_name: str
    clean_offset: bool = False
    remove_offset: bool | None = None  # its name in 4.9


@dataclass(frozen=True, slots=True, kw_only=True)
class GetConsumerConnectionList(Request[ConsumerConnection]):
    code = RequestCode.GET_CONSUMER_CONNECTION_LIST
    reply = ConsumerConnection

    consumer_group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GetProducerConnectionList(Request[ProducerConnection]):
    code = RequestCode.GET_PRODUCER_CONNECTION_LIST
    reply = ProducerConnection

    producer_group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GetAllProducerInfo(Request[ProducerTable]):
    code = RequestCode.GET_ALL_PRODUCER_INFO
    reply = ProducerTable


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryTopicConsumeByWho(Request[GroupList]):
    code = RequestCode.QUERY_TOPIC_CONSUME_BY_WHO
    reply = GroupList

    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InvokeBrokerToResetOffset(Request[ResetOffsetBody]):
    code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
    reply = ResetOffsetBody

    topic: str
    group: str
    queue_id: int = -1  # all of them
    offset: Long | None = None
    timestamp: Long  # -1: the newest
    is_force: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class InvokeBrokerToGetConsumerStatus(Request[ConsumerStatus]):
    code = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
    reply = ConsumerStatus

    topic: str
    group: str
    client_addr: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryConsumeTimeSpan(Request[ConsumeTimeSpan]):
    code = RequestCode.QUERY_CONSUME_TIME_SPAN
    reply = ConsumeTimeSpan

    topic: str
    group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryConsumeQueue(Request[ConsumeQueueAnswer]):
    code = RequestCode.QUERY_CONSUME_QUEUE
    reply = ConsumeQueueAnswer

    topic: str
    queue_id: int
    index: Long
    count: int
    consumer_group: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CloneGroupOffset(Request[Done]):
    code = RequestCode.CLONE_GROUP_OFFSET
    reply = Done

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewBrokerStatsData(Request[BrokerStatsData]):
    code = RequestCode.VIEW_BROKER_STATS_DATA
    reply = BrokerStatsData

    stats_name: str
    stats_key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GetBrokerConsumeStats(Request[ConsumeStatsList]):
    code = RequestCode.GET_BROKER_CONSUME_STATS
    reply = ConsumeStatsList

    is_order: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GetSystemTopicListFromBroker(Request[TopicList]):
    code = RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER
    reply = TopicList


@dataclass(frozen=True, slots=True, kw_only=True)
class GetBrokerRuntimeInfo(Request[KVTable]):
    code = RequestCode.GET_BROKER_RUNTIME_INFO
    reply = KVTable


@dataclass(frozen=True, slots=True, kw_only=True)
class GetBrokerConfig(Request[RawBody]):
    code = RequestCode.GET_BROKER_CONFIG
    reply = RawBody


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateBrokerConfig(Request[Done]):
    """Body: properties text. The broker writes it into its configuration file."""

    code = RequestCode.UPDATE_BROKER_CONFIG
    reply = Done


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanExpiredConsumequeue(Request[Done]):
    """Forget the entries of queues whose messages are deleted."""

    code = RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE
    reply = Done


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanUnusedTopic(Request[Done]):
    """Drop the queues of topics that do not exist any more."""

    code = RequestCode.CLEAN_UNUSED_TOPIC
    reply = Done


@dataclass(frozen=True, slots=True, kw_only=True)
class GetAllConsumerOffset(Request[ConsumerOffsetWrapper]):
    code = RequestCode.GET_ALL_CONSUMER_OFFSET
    reply = ConsumerOffsetWrapper


@dataclass(frozen=True, slots=True, kw_only=True)
class GetAllDelayOffset(Request[DelayOffsetWrapper]):
    code = RequestCode.GET_ALL_DELAY_OFFSET
    reply = DelayOffsetWrapper


@dataclass(frozen=True, slots=True, kw_only=True)
class GetTimerCheckPoint(Request[TimerCheckpoint]):
    code = RequestCode.GET_TIMER_CHECK_POINT
    reply = TimerCheckpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class NotifyMinBrokerIdChange(Request[Done]):
    code = RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE
    reply = Done

    min_broker_id: Long | None = None
    broker_name: str | None = None
    min_broker_addr: str | None = None
    offline_broker_addr: str | None = None
    ha_broker_addr: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeBrokerHaInfoReply(Header):
    master_ha_address: str | None = None
    master_flush_offset: Long | None = None
    master_address: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeBrokerHaInfo(Request[ExchangeBrokerHaInfoReply]):
    code = RequestCode.EXCHANGE_BROKER_HA_INFO
    reply = ExchangeBrokerHaInfoReply

    master_ha_address: str | None = None
    master_flush_offset: Long | None = None
    master_address: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetBrokerHaStatus(Request[HaRuntimeInfo]):
    code = RequestCode.GET_BROKER_HA_STATUS
    reply = HaRuntimeInfo
