"""The settings of a broker, with RocketMQ's defaults, also by RocketMQ's own names."""

from collections.abc import Callable, Mapping, Set
from dataclasses import field, fields
from enum import StrEnum
from typing import Any, NamedTuple, Self

from rocketpipe.broker.store.settings import StoreSettings
from rocketpipe.errors import InvalidSetting
from rocketpipe.lazy_dataclass import dataclass
from rocketpipe.remoting.address import PORT_MAX, Address
from rocketpipe.wire.bodies.groups import MessageRequestMode
from rocketpipe.wire.bodies.route import Perm
from rocketpipe.wire.java_text import read_integer, write_bool


class BrokerRole(StrEnum):
    ASYNC_MASTER = "ASYNC_MASTER"  # answers without waiting for slaves
    SYNC_MASTER = "SYNC_MASTER"  # answers when slaves have the message too
    SLAVE = "SLAVE"  # copies a master, and serves reads


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    """Who a broker is and what it allows. Where a default is not RocketMQ's, a comment says so."""

    broker_name: str = "broker-a"
    broker_cluster_name: str = "DefaultCluster"
    broker_id: int = 0  # 0 is the master
    broker_role: BrokerRole = BrokerRole.ASYNC_MASTER
    region_id: str = "DefaultRegion"
    store: StoreSettings = field(default_factory=StoreSettings)

    # Where it listens, and is registered. RocketMQ: every address of the machine.
    host: str = "127.0.0.1"
    listen_port: int = 10911  # 0: any that is free, as is the one two below it
    ha_listen_port: int | None = None  # where slaves connect; None: listen_port + 1, or any
    namesrv: tuple[Address, ...] = ()
    register_nameserver_period: float = 30.0
    register_broker_timeout: float = 24.0

    # Not in RocketMQ: whether other processes may make this broker misbehave.
    faults_enable: bool = False

    # Who may ask what: ACL 1, or ACL 2, by the users and rules of a file, which is not in RocketMQ.
    acl_enable: bool = False
    authentication_enabled: bool = False
    authorization_enabled: bool = False
    authentication_whitelist: frozenset[int] = frozenset()  # request codes that are not checked
    authorization_whitelist: frozenset[int] = frozenset()
    acl_file: str | None = None

    # Replication. With SYNC_MASTER: how many must have a message, the master among them, before it
    # is answered. RocketMQ 5 has 1, and then does not wait at all; 4.9 always waits for one slave.
    in_sync_replicas: int = 2
    slave_timeout: float = 3.0  # how long to wait for them
    ha_max_gap_not_in_sync: int = 256 * 1024 * 1024  # who is further behind is not waited for
    ha_transfer_batch_size: int = 32 * 1024
    ha_send_heartbeat_interval: float = 5.0
    ha_housekeeping_interval: float = 20.0  # who is silent for so long is given up
    slave_sync_interval: float = 10.0  # how often a slave copies the rest; RocketMQ: fixed

    broker_permission: Perm = Perm.READ | Perm.WRITE
    auto_create_topic_enable: bool = True
    auto_create_subscription_group: bool = True
    default_topic_queue_nums: int = 8  # of TBW102
    cluster_topic_enable: bool = True
    broker_topic_enable: bool = True
    trace_topic_enable: bool = False
    msg_trace_topic_name: str = "RMQ_SYS_TRACE_TOPIC"
    trace_on: bool = True
    store_reply_message_enable: bool = True  # replies of request-reply, which are pushed anyway
    reject_transaction_message: bool = False

    # Reading.
    max_transfer_count_on_message_in_memory: int = 32  # messages that answer one pull
    max_transfer_bytes_on_message_in_memory: int = 256 * 1024  # but for a first that is larger
    long_polling_enable: bool = True  # hold a pull that finds nothing for as long as it asks
    short_polling_time: float = 1.0  # without long polling: for so long
    pull_thread_pool_queue_capacity: int = 100_000  # pulls that are held
    lite_pull_message_enable: bool = True
    enable_property_filter: bool = False  # choose messages by SQL92
    slave_read_enable: bool = False  # send who is far behind to a slave
    access_message_in_memory_max_ratio: float = 0.4  # far: further than so much of the memory
    default_query_max_num: int = 32  # messages that answer a query by unique id
    max_msgs_num_batch: int = 64  # messages that answer any query, at most
    notify_consumer_ids_changed_enable: bool = True

    # POP.
    pop_polling_size: int = 1024  # pops of a group that wait for one queue, or for any
    max_pop_polling_size: int = 100_000  # all that wait
    pop_from_retry_probability: int = 20  # percent of pops that look for retries first
    enable_retry_topic_v2: bool = False  # `%RETRY%group+topic` instead of `%RETRY%group_topic`
    retrieve_message_from_pop_retry_topic_v1: bool = True  # with V2: from the others too
    init_pop_offset_by_check_msg_in_mem: bool = True  # a new group reads all of a young queue
    pop_response_return_actual_retry_topic: bool = False  # retries keep the name of their topic
    enable_pop_message_threshold: bool = False  # pop no more of a queue while too much is in flight
    pop_inflight_message_threshold: int = 10_000  # too much: more than so many messages
    # How groups read that ask brokers which queues are theirs, where nobody set it.
    default_message_request_mode: MessageRequestMode = MessageRequestMode.PULL
    default_pop_share_queue_num: int = -1  # with POP: -1 shares all queues among all members
    server_load_balancer_enable: bool = True  # False: every member gets all queues
    load_balance_poll_name_server_interval: float = 30.0  # for how long a route is believed

    transaction_timeout: float = 6.0  # a producer has so long to end what it began
    transaction_check_interval: float = 30.0
    transaction_check_max: int = 15  # a transaction that was asked about so often is given up
    start_accept_send_request_timestamp_ms: int = 0
    channel_expired_timeout: float = 120.0  # a client without a heartbeat for so long is forgotten
    flush_consumer_offset_interval: float = 5.0  # how much progress a crash may cost
    flush_delay_offset_interval: float = 10.0
    timer_wheel_enable: bool = True  # take messages that name a time
    timer_max_delay: float = 3 * 24 * 3600.0  # seconds; one that would wait longer is refused
    timer_flush_interval: float = 1.0  # how often the progress of timers is saved
    recall_message_enable: bool = False  # whether a producer may take a timed message back
    allow_recall_when_broker_not_writeable: bool = True
    send_thread_pool_queue_capacity: int = 10_000  # sends that wait, or that the store works on
    wait_time_in_send_queue: float = 0.2  # one that waits longer is refused
    broker_fast_failure_enable: bool = True  # False: none that waits is refused
    # Not in RocketMQ, which keeps as much as it is asked to.
    send_queue_bytes_max: int = 256 * 1024 * 1024
    topics_max: int = 100_000
    groups_max: int = 100_000
    clients_max: int = 100_000  # producers and consumers of all groups together

    def __post_init__(self) -> None:
        for name in ("broker_name", "broker_cluster_name", "host", "region_id"):
            if not getattr(self, name):
                raise InvalidSetting(f"{name} may not be empty")
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name == "default_pop_share_queue_num":
                continue
            if isinstance(value, int | float) and not isinstance(value, bool) and value < 0:
                raise InvalidSetting(f"{each.name} is {value!r}: it may not be negative")
        if self.listen_port > PORT_MAX or (self.ha_listen_port or 0) > PORT_MAX:
            raise InvalidSetting(f"a port may not be greater than {PORT_MAX}")
        if self.listen_port in (1, 2):
            raise InvalidSetting("listen_port must leave room for the port two below it")
        if self.in_sync_replicas < 1 or self.ha_transfer_batch_size < 1:
            raise InvalidSetting("in_sync_replicas and ha_transfer_batch_size are at least 1")
        if (self.broker_role is BrokerRole.SLAVE) != (self.broker_id != 0):
            raise InvalidSetting("broker_id is 0 for a master, and above 0 for a slave")
        self._check_access()

    def _check_access(self) -> None:
        if self.acl_enable and self.authentication_enabled:
            raise InvalidSetting("aclEnable is ACL 1, and authenticationEnabled ACL 2: choose one")
        if self.authorization_enabled and not self.authentication_enabled:
            raise InvalidSetting("authorizationEnabled needs authenticationEnabled: who is it?")
        if (self.acl_enable or self.authentication_enabled) and not self.acl_file:
            raise InvalidSetting("aclFile is missing: where are the users and rules?")

    @property
    def is_slave(self) -> bool:
        return self.broker_role is BrokerRole.SLAVE

    @staticmethod
    def names() -> Set[str]:
        """RocketMQ's names of all that can be set."""
        return _PROPERTIES.keys()

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Self:
        """Settings by RocketMQ's own names, as in a broker.conf: `{"flushDiskType": "SYNC_FLUSH"}`.

        InvalidSetting for a name that is not known here: to ignore it would be to pretend.
        """
        own: dict[str, object] = {}
        store: dict[str, object] = {}
        for java_name, text in properties.items():
            entry = _PROPERTIES.get(java_name)
            if entry is None:
                raise InvalidSetting(f"{java_name} is not a setting of this broker")
            try:
                value = entry.kind.read(text)
            except (ValueError, InvalidSetting) as error:
                raise InvalidSetting(f"{java_name} is {text!r}: {error}") from error
            (store if entry.is_of_store else own)[entry.name] = value
        if own.get("broker_role") is BrokerRole.SLAVE:
            own.setdefault("broker_id", 1)  # as few write brokerId as forget it
        return cls(**own, store=StoreSettings(**store))  # type: ignore[arg-type]  # read by kind

    def to_properties(self) -> dict[str, str]:
        """All settings by RocketMQ's names: what GET_BROKER_CONFIG shows."""
        texts = {}
        for java_name, entry in _PROPERTIES.items():
            value = getattr(self.store if entry.is_of_store else self, entry.name)
            if value is not None:
                texts[java_name] = entry.kind.write(value)
        return texts

    def change(self, properties: Mapping[str, str]) -> list[str]:
        """Change those settings that can be while a broker runs: the names of those that did.

        The one place where a setting changes. All parts of a broker share its settings, and read
        these whenever they need them. As in RocketMQ, names that nobody knows are passed over. When
        one can't be changed, InvalidSetting, and none is.
        """
        wanted = {name: text for name, text in properties.items() if name in _PROPERTIES}
        for name, text in wanted.items():
            if name not in CHANGEABLE and text != self.to_properties().get(name):
                raise InvalidSetting(f"{name} can't be changed while the broker runs")
        changed = type(self).from_properties({**self.to_properties(), **wanted})
        names = [_PROPERTIES[name].name for name in wanted if name in CHANGEABLE]
        for name in names:
            object.__setattr__(self, name, getattr(changed, name))
        return [name for name in wanted if name in CHANGEABLE]


class _Kind(NamedTuple):
    read: Callable[[str], Any]
    write: Callable[[Any], str]


class _Property(NamedTuple):
    name: str  # ours
    kind: _Kind
    is_of_store: bool = False


def _read_bool(text: str) -> bool:
    # Not as Java, to which whatever is not `true` is false: a typing error is worth a word.
    if text.lower() not in ("true", "false"):
        raise ValueError("it must be true or false")
    return text.lower() == "true"


def _read_role(text: str) -> BrokerRole:
    if text not in list(BrokerRole):
        raise ValueError(f"it must be one of {', '.join(BrokerRole)}")
    return BrokerRole(text)


def _read_mode(text: str) -> MessageRequestMode:
    if text not in list(MessageRequestMode):
        raise ValueError(f"it must be one of {', '.join(MessageRequestMode)}")
    return MessageRequestMode(text)


def _read_flush(text: str) -> str:
    kinds = {"ASYNC_FLUSH": "async", "SYNC_FLUSH": "sync"}
    if text not in kinds:
        raise ValueError("it must be ASYNC_FLUSH or SYNC_FLUSH")
    return kinds[text]


def _read_codes(text: str) -> frozenset[int]:
    return frozenset(read_integer(each.strip(), 32) for each in text.split(",") if each.strip())


def _write_codes(codes: frozenset[int]) -> str:
    return ",".join(map(str, sorted(codes)))


def _read_addresses(text: str) -> tuple[Address, ...]:
    return tuple(Address.parse(each.strip()) for each in text.replace(",", ";").split(";") if each)


_UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def _read_levels(text: str) -> tuple[float, ...]:
    levels = []
    for level in text.split():
        if level[-1] not in _UNIT_SECONDS:
            raise ValueError("write it as in `1s 5s 1m 2h`")
        levels.append(float(read_integer(level[:-1], 32) * _UNIT_SECONDS[level[-1]]))
    return tuple(levels)


def _write_levels(levels: tuple[float, ...]) -> str:
    return " ".join(f"{level:.0f}s" for level in levels)


def _integer(scale: int = 1) -> _Kind:
    """A whole number that counts in units of `scale` of ours."""
    return _Kind(lambda text: read_integer(text, 64) * scale, lambda value: str(value // scale))


def _number(per_unit: float) -> _Kind:
    """A whole number of theirs, of which `per_unit` make one of ours."""
    return _Kind(
        lambda text: read_integer(text, 64) / per_unit, lambda value: f"{value * per_unit:.0f}"
    )


_TEXT = _Kind(str, str)
_INT = _integer()
_MS = _number(1000)
_BOOL = _Kind(_read_bool, write_bool)
_CODES = _Kind(_read_codes, _write_codes)

_PROPERTIES: Mapping[str, _Property] = {
    "brokerName": _Property("broker_name", _TEXT),
    "brokerClusterName": _Property("broker_cluster_name", _TEXT),
    "brokerId": _Property("broker_id", _INT),
    "brokerRole": _Property("broker_role", _Kind(_read_role, str)),
    "regionId": _Property("region_id", _TEXT),
    "brokerIP1": _Property("host", _TEXT),
    "listenPort": _Property("listen_port", _INT),
    "haListenPort": _Property("ha_listen_port", _INT),
    "namesrvAddr": _Property("namesrv", _Kind(_read_addresses, lambda v: ";".join(map(str, v)))),
    "registerNameServerPeriod": _Property("register_nameserver_period", _MS),
    "registerBrokerTimeoutMills": _Property("register_broker_timeout", _MS),
    "faultsEnable": _Property("faults_enable", _BOOL),
    "aclEnable": _Property("acl_enable", _BOOL),
    "authenticationEnabled": _Property("authentication_enabled", _BOOL),
    "authorizationEnabled": _Property("authorization_enabled", _BOOL),
    "authenticationWhitelist": _Property("authentication_whitelist", _CODES),
    "authorizationWhitelist": _Property("authorization_whitelist", _CODES),
    "aclFile": _Property("acl_file", _TEXT),
    "inSyncReplicas": _Property("in_sync_replicas", _INT),
    "slaveTimeout": _Property("slave_timeout", _MS),
    "haMaxGapNotInSync": _Property("ha_max_gap_not_in_sync", _INT),
    "haTransferBatchSize": _Property("ha_transfer_batch_size", _INT),
    "haSendHeartbeatInterval": _Property("ha_send_heartbeat_interval", _MS),
    "haHousekeepingInterval": _Property("ha_housekeeping_interval", _MS),
    "slaveSyncInterval": _Property("slave_sync_interval", _MS),
    "brokerPermission": _Property(
        "broker_permission", _Kind(lambda text: Perm(read_integer(text, 32)), lambda v: f"{v:d}")
    ),
    "autoCreateTopicEnable": _Property("auto_create_topic_enable", _BOOL),
    "autoCreateSubscriptionGroup": _Property("auto_create_subscription_group", _BOOL),
    "defaultTopicQueueNums": _Property("default_topic_queue_nums", _INT),
    "clusterTopicEnable": _Property("cluster_topic_enable", _BOOL),
    "brokerTopicEnable": _Property("broker_topic_enable", _BOOL),
    "traceTopicEnable": _Property("trace_topic_enable", _BOOL),
    "msgTraceTopicName": _Property("msg_trace_topic_name", _TEXT),
    "traceOn": _Property("trace_on", _BOOL),
    "storeReplyMessageEnable": _Property("store_reply_message_enable", _BOOL),
    "sendThreadPoolQueueCapacity": _Property("send_thread_pool_queue_capacity", _INT),
    "waitTimeMillsInSendQueue": _Property("wait_time_in_send_queue", _MS),
    "brokerFastFailureEnable": _Property("broker_fast_failure_enable", _BOOL),
    "rejectTransactionMessage": _Property("reject_transaction_message", _BOOL),
    "transactionTimeOut": _Property("transaction_timeout", _MS),
    "transactionCheckInterval": _Property("transaction_check_interval", _MS),
    "transactionCheckMax": _Property("transaction_check_max", _INT),
    "maxTransferCountOnMessageInMemory": _Property("max_transfer_count_on_message_in_memory", _INT),
    "maxTransferBytesOnMessageInMemory": _Property("max_transfer_bytes_on_message_in_memory", _INT),
    "longPollingEnable": _Property("long_polling_enable", _BOOL),
    "shortPollingTimeMills": _Property("short_polling_time", _MS),
    "pullThreadPoolQueueCapacity": _Property("pull_thread_pool_queue_capacity", _INT),
    "litePullMessageEnable": _Property("lite_pull_message_enable", _BOOL),
    "enablePropertyFilter": _Property("enable_property_filter", _BOOL),
    "slaveReadEnable": _Property("slave_read_enable", _BOOL),
    "accessMessageInMemoryMaxRatio": _Property("access_message_in_memory_max_ratio", _number(100)),
    "defaultQueryMaxNum": _Property("default_query_max_num", _INT),
    "maxMsgsNumBatch": _Property("max_msgs_num_batch", _INT),
    "notifyConsumerIdsChangedEnable": _Property("notify_consumer_ids_changed_enable", _BOOL),
    "popPollingSize": _Property("pop_polling_size", _INT),
    "maxPopPollingSize": _Property("max_pop_polling_size", _INT),
    "popFromRetryProbability": _Property("pop_from_retry_probability", _INT),
    "enableRetryTopicV2": _Property("enable_retry_topic_v2", _BOOL),
    "retrieveMessageFromPopRetryTopicV1": _Property(
        "retrieve_message_from_pop_retry_topic_v1", _BOOL
    ),
    "initPopOffsetByCheckMsgInMem": _Property("init_pop_offset_by_check_msg_in_mem", _BOOL),
    "popResponseReturnActualRetryTopic": _Property("pop_response_return_actual_retry_topic", _BOOL),
    "enablePopMessageThreshold": _Property("enable_pop_message_threshold", _BOOL),
    "popInflightMessageThreshold": _Property("pop_inflight_message_threshold", _INT),
    "defaultMessageRequestMode": _Property("default_message_request_mode", _Kind(_read_mode, str)),
    "defaultPopShareQueueNum": _Property("default_pop_share_queue_num", _INT),
    "serverLoadBalancerEnable": _Property("server_load_balancer_enable", _BOOL),
    "loadBalancePollNameServerInterval": _Property("load_balance_poll_name_server_interval", _MS),
    "startAcceptSendRequestTimeStamp": _Property("start_accept_send_request_timestamp_ms", _INT),
    "channelExpiredTimeout": _Property("channel_expired_timeout", _MS),
    "flushConsumerOffsetInterval": _Property("flush_consumer_offset_interval", _MS),
    "flushDelayOffsetInterval": _Property("flush_delay_offset_interval", _MS),
    "timerWheelEnable": _Property("timer_wheel_enable", _BOOL),
    "timerMaxDelaySec": _Property("timer_max_delay", _number(1)),
    "timerFlushIntervalMs": _Property("timer_flush_interval", _MS),
    "recallMessageEnable": _Property("recall_message_enable", _BOOL),
    "allowRecallWhenBrokerNotWriteable": _Property("allow_recall_when_broker_not_writeable", _BOOL),
    "sendQueueBytesMax": _Property("send_queue_bytes_max", _INT),
    "topicsMax": _Property("topics_max", _INT),
    "groupsMax": _Property("groups_max", _INT),
    "clientsMax": _Property("clients_max", _INT),
    # The store's.
    "timerPrecisionMs": _Property("timer_precision", _MS, True),
    "timerRollWindowSlot": _Property("timer_roll_window_slots", _INT, True),
    "flushDiskType": _Property(
        "flush_disk_type", _Kind(_read_flush, lambda value: f"{value.upper()}_FLUSH"), True
    ),
    "syncFlushTimeout": _Property("sync_flush_timeout", _MS, True),
    "flushIntervalCommitLog": _Property("flush_interval", _MS, True),
    "maxMessageSize": _Property("message_bytes_max", _INT, True),
    "messageDelayLevel": _Property("delay_levels", _Kind(_read_levels, _write_levels), True),
    "osPageCacheBusyTimeOutMills": _Property("os_page_cache_busy_timeout", _MS, True),
    "mappedFileSizeCommitLog": _Property("commit_log_segment_bytes", _INT, True),
    "mappedFileSizeConsumeQueue": _Property(
        "consume_queue_segment_entries",
        # They count bytes, and round to whole entries.
        _Kind(lambda text: -(-read_integer(text, 64) // 20), lambda value: str(value * 20)),
        True,
    ),
    "maxHashSlotNum": _Property("index_slots", _INT, True),
    "maxIndexNum": _Property("index_entries_max", _INT, True),
    "fileReservedTime": _Property("file_reserved_time", _number(1 / 3600), True),  # in hours
    "cleanResourceInterval": _Property("clean_interval", _MS, True),
    "diskSpaceCleanForciblyRatio": _Property("disk_space_clean_forcibly_ratio", _number(100), True),
    "diskSpaceWarningLevelRatio": _Property("disk_space_warning_ratio", _number(100), True),
    "diskFreeBytesEnough": _Property("disk_free_bytes_enough", _INT, True),
    "checkpointBytes": _Property("checkpoint_bytes", _INT, True),
    "checkpointInterval": _Property("checkpoint_interval", _MS, True),
}

# What each part reads anew whenever it needs it.
CHANGEABLE = frozenset(
    {
        "brokerPermission",
        "autoCreateTopicEnable",
        "autoCreateSubscriptionGroup",
        "storeReplyMessageEnable",
        "sendThreadPoolQueueCapacity",
        "waitTimeMillsInSendQueue",
        "brokerFastFailureEnable",
        "rejectTransactionMessage",
        "transactionTimeOut",
        "transactionCheckInterval",
        "transactionCheckMax",
        "timerMaxDelaySec",
        "recallMessageEnable",
        "allowRecallWhenBrokerNotWriteable",
        "startAcceptSendRequestTimeStamp",
        "channelExpiredTimeout",
        "slaveTimeout",
        "maxTransferCountOnMessageInMemory",
        "maxTransferBytesOnMessageInMemory",
        "longPollingEnable",
        "shortPollingTimeMills",
        "pullThreadPoolQueueCapacity",
        "litePullMessageEnable",
        "enablePropertyFilter",
        "slaveReadEnable",
        "accessMessageInMemoryMaxRatio",
        "defaultQueryMaxNum",
        "maxMsgsNumBatch",
        "popPollingSize",
        "maxPopPollingSize",
        "popFromRetryProbability",
        "enableRetryTopicV2",
        "retrieveMessageFromPopRetryTopicV1",
        "initPopOffsetByCheckMsgInMem",
        "popResponseReturnActualRetryTopic",
        "enablePopMessageThreshold",
        "popInflightMessageThreshold",
        "defaultMessageRequestMode",
        "defaultPopShareQueueNum",
        "serverLoadBalancerEnable",
        "loadBalancePollNameServerInterval",
        "notifyConsumerIdsChangedEnable",
    }
)
