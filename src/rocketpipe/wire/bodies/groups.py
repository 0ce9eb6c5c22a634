"""Consumer and producer groups: their settings, members and queues, and what a member is doing."""

from dataclasses import field
from enum import StrEnum
from typing import Annotated

from rocketpipe.lazy_dataclass import dataclass
from rocketpipe.message import MessageQueue
from rocketpipe.wire.bodies.codec import Body
from rocketpipe.wire.bodies.heartbeat import (
    ConsumeFromWhere,
    ConsumeType,
    MessageModel,
    SubscriptionData,
)
from rocketpipe.wire.bodies.topics import DataVersion


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionGroupConfig(Body):
    """A consumer group's settings on one broker: the body of 200, the answer to 352."""

    group_name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_queue_nums: int = 1
    retry_max_times: int = 16
    group_retry_policy: dict[str, object] = field(default_factory=lambda: {"type": "CUSTOMIZED"})
    broker_id: int = 0
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True
    group_sys_flag: int = 0
    consume_timeout_minute: int = 15
    subscription_data_set: tuple[object, ...] | None = None
    attributes: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionGroupList(Body):
    """The body of 225."""

    group_config_list: tuple[SubscriptionGroupConfig, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionGroupWrapper(Body):
    """All the consumer groups of a broker: the answer to 201, and config/subscriptionGroup.json."""

    subscription_group_table: dict[str, SubscriptionGroupConfig] = field(default_factory=dict)
    forbidden_table: dict[str, dict[str, int]] = field(default_factory=dict)  # group, topic: bits
    data_version: DataVersion = field(default_factory=DataVersion)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerIdList(Body):
    """The answer to 38: the client ids of a group's consumers."""

    consumer_id_list: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupList(Body):
    """The answer to 300: the groups that read a topic."""

    group_list: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class LockBatchRequest(Body):
    """The body of 41 and 42: queues an orderly consumer wants for itself, or gives back."""

    client_id: str
    consumer_group: str
    mq_set: frozenset[MessageQueue] = frozenset()
    only_this_broker: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LockBatchAnswer(Body):
    """The answer to 41: those of the queues that are now locked by this client."""

    lock_ok_mq_set: Annotated[frozenset[MessageQueue], "lockOKMQSet"] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckClientConfig(Body):
    """The body of 46, sent before a subscription with SQL92."""

    client_id: str
    group: str
    subscription_data: SubscriptionData
    namespace: str | None = None


class MessageRequestMode(StrEnum):
    PULL = "PULL"
    POP = "POP"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryAssignmentRequest(Body):
    """The body of 400: which queues the broker would give to this client."""

    topic: str
    consumer_group: str
    client_id: str
    strategy_name: str | None = None
    message_model: MessageModel = MessageModel.CLUSTERING


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageQueueAssignment(Body):
    message_queue: MessageQueue
    mode: MessageRequestMode = MessageRequestMode.PULL
    attachments: dict[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryAssignmentAnswer(Body):
    """The answer to 400; with None a client keeps what it has."""

    message_queue_assignments: tuple[MessageQueueAssignment, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRequestMode(Body):
    """The body of 401: how a group reads a topic when it asks brokers for its share."""

    topic: str
    consumer_group: str
    mode: MessageRequestMode = MessageRequestMode.PULL
    pop_share_queue_num: int = 0  # with POP: of how many more members one shares the queues


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestModeTable(Body):
    """All of these, by topic and group: config/messageRequestMode.json."""

    message_request_mode_map: dict[str, dict[str, GroupRequestMode]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection(Body):
    """A client of a broker."""

    client_id: str
    client_addr: str
    language: str | None = None
    version: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConnection(Body):
    """The answer to 203."""

    connection_set: tuple[Connection, ...] = ()
    subscription_table: dict[str, SubscriptionData] = field(default_factory=dict)  # by topic
    consume_type: ConsumeType | None = None
    message_model: MessageModel | None = None
    consume_from_where: ConsumeFromWhere | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConnection(Body):
    """The answer to 204."""

    connection_set: tuple[Connection, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerInfo(Body):
    client_id: str
    remote_ip: Annotated[str, "remoteIP"]  # "/127.0.0.1:50978", as Java prints a socket's address
    language: str | None = None
    version: int = 0
    last_update_timestamp: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerTable(Body):
    """The answer to 328: the producers of a broker, by group."""

    data: dict[str, tuple[ProducerInfo, ...]] = field(default_factory=dict)
