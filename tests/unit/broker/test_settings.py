"""A broker's settings, in our spelling and in RocketMQ's."""

import pytest

from rocketpipe.broker.settings import BrokerRole, BrokerSettings
from rocketpipe.broker.store.settings import DELAY_LEVELS, StoreSettings
from rocketpipe.errors import InvalidSetting
from rocketpipe.remoting.address import Address
from rocketpipe.wire.bodies.groups import MessageRequestMode
from rocketpipe.wire.bodies.route import Perm

# Each of RocketMQ's names with a value that is not the default, and what it becomes.
PROPERTIES = [
    ("brokerName", "b-1", "broker_name", "b-1"),
    ("brokerClusterName", "C", "broker_cluster_name", "C"),
    ("regionId", "R", "region_id", "R"),
    ("brokerIP1", "10.0.0.7", "host", "10.0.0.7"),
    ("listenPort", "0", "listen_port", 0),
    ("haListenPort", "7", "ha_listen_port", 7),
    ("faultsEnable", "true", "faults_enable", True),
    ("namesrvAddr", "a:1;b:2", "namesrv", (Address("a", 1), Address("b", 2))),
    ("registerNameServerPeriod", "10000", "register_nameserver_period", 10.0),
    ("registerBrokerTimeoutMills", "1500", "register_broker_timeout", 1.5),
    ("inSyncReplicas", "1", "in_sync_replicas", 1),
    ("slaveTimeout", "100", "slave_timeout", 0.1),
    ("haMaxGapNotInSync", "100", "ha_max_gap_not_in_sync", 100),
    ("haTransferBatchSize", "100", "ha_transfer_batch_size", 100),
    ("haSendHeartbeatInterval", "100", "ha_send_heartbeat_interval", 0.1),
    ("haHousekeepingInterval", "100", "ha_housekeeping_interval", 0.1),
    ("brokerPermission", "4", "broker_permission", Perm.READ),
    ("autoCreateTopicEnable", "false", "auto_create_topic_enable", False),
    ("autoCreateSubscriptionGroup", "false", "auto_create_subscription_group", False),
    ("defaultTopicQueueNums", "3", "default_topic_queue_nums", 3),
    ("clusterTopicEnable", "false", "cluster_topic_enable", False),
    ("brokerTopicEnable", "false", "broker_topic_enable", False),
    ("traceTopicEnable", "true", "trace_topic_enable", True),
    ("msgTraceTopicName", "T", "msg_trace_topic_name", "T"),
    ("traceOn", "false", "trace_on", False),
    ("storeReplyMessageEnable", "false", "store_reply_message_enable", False),
    ("sendThreadPoolQueueCapacity", "5", "send_thread_pool_queue_capacity", 5),
    ("waitTimeMillsInSendQueue", "50", "wait_time_in_send_queue", 0.05),
    ("brokerFastFailureEnable", "false", "broker_fast_failure_enable", False),
    ("rejectTransactionMessage", "true", "reject_transaction_message", True),
    ("transactionTimeOut", "500", "transaction_timeout", 0.5),
    ("transactionCheckInterval", "500", "transaction_check_interval", 0.5),
    ("transactionCheckMax", "3", "transaction_check_max", 3),
    ("maxTransferCountOnMessageInMemory", "3", "max_transfer_count_on_message_in_memory", 3),
    ("maxTransferBytesOnMessageInMemory", "99", "max_transfer_bytes_on_message_in_memory", 99),
    ("longPollingEnable", "false", "long_polling_enable", False),
    ("shortPollingTimeMills", "500", "short_polling_time", 0.5),
    ("pullThreadPoolQueueCapacity", "2", "pull_thread_pool_queue_capacity", 2),
    ("litePullMessageEnable", "false", "lite_pull_message_enable", False),
    ("enablePropertyFilter", "true", "enable_property_filter", True),
    ("slaveReadEnable", "true", "slave_read_enable", True),
    ("accessMessageInMemoryMaxRatio", "30", "access_message_in_memory_max_ratio", 0.3),
    ("defaultQueryMaxNum", "2", "default_query_max_num", 2),
    ("maxMsgsNumBatch", "9", "max_msgs_num_batch", 9),
    ("popPollingSize", "9", "pop_polling_size", 9),
    ("maxPopPollingSize", "9", "max_pop_polling_size", 9),
    ("popFromRetryProbability", "9", "pop_from_retry_probability", 9),
    ("enableRetryTopicV2", "true", "enable_retry_topic_v2", True),
    (
        "retrieveMessageFromPopRetryTopicV1",
        "false",
        "retrieve_message_from_pop_retry_topic_v1",
        False,
    ),
    ("initPopOffsetByCheckMsgInMem", "false", "init_pop_offset_by_check_msg_in_mem", False),
    ("popResponseReturnActualRetryTopic", "true", "pop_response_return_actual_retry_topic", True),
    ("enablePopMessageThreshold", "true", "enable_pop_message_threshold", True),
    ("popInflightMessageThreshold", "9", "pop_inflight_message_threshold", 9),
    ("defaultMessageRequestMode", "POP", "default_message_request_mode", MessageRequestMode.POP),
    ("defaultPopShareQueueNum", "9", "default_pop_share_queue_num", 9),
    ("serverLoadBalancerEnable", "false", "server_load_balancer_enable", False),
    (
        "loadBalancePollNameServerInterval",
        "2000",
        "load_balance_poll_name_server_interval",
        2.0,
    ),
    ("notifyConsumerIdsChangedEnable", "false", "notify_consumer_ids_changed_enable", False),
    ("startAcceptSendRequestTimeStamp", "9", "start_accept_send_request_timestamp_ms", 9),
    ("channelExpiredTimeout", "5000", "channel_expired_timeout", 5.0),
    ("flushConsumerOffsetInterval", "1000", "flush_consumer_offset_interval", 1.0),
    ("flushDelayOffsetInterval", "2000", "flush_delay_offset_interval", 2.0),
    ("timerWheelEnable", "false", "timer_wheel_enable", False),
    ("timerMaxDelaySec", "60", "timer_max_delay", 60.0),
    ("timerFlushIntervalMs", "5000", "timer_flush_interval", 5.0),
    ("recallMessageEnable", "true", "recall_message_enable", True),
    (
        "allowRecallWhenBrokerNotWriteable",
        "false",
        "allow_recall_when_broker_not_writeable",
        False,
    ),
    ("slaveSyncInterval", "500", "slave_sync_interval", 0.5),
    ("sendQueueBytesMax", "9", "send_queue_bytes_max", 9),
    ("topicsMax", "9", "topics_max", 9),
    ("groupsMax", "9", "groups_max", 9),
    ("clientsMax", "9", "clients_max", 9),
]
STORE_PROPERTIES = [
    ("flushDiskType", "SYNC_FLUSH", "flush_disk_type", "sync"),
    ("syncFlushTimeout", "100", "sync_flush_timeout", 0.1),
    ("flushIntervalCommitLog", "200", "flush_interval", 0.2),
    ("maxMessageSize", "1000", "message_bytes_max", 1000),
    ("messageDelayLevel", "2s 60s 7200s", "delay_levels", (2.0, 60.0, 7200.0)),
    ("timerPrecisionMs", "100", "timer_precision", 0.1),
    ("timerRollWindowSlot", "60", "timer_roll_window_slots", 60),
    ("osPageCacheBusyTimeOutMills", "300", "os_page_cache_busy_timeout", 0.3),
    ("mappedFileSizeCommitLog", "1048576", "commit_log_segment_bytes", 1048576),
    ("mappedFileSizeConsumeQueue", "600", "consume_queue_segment_entries", 30),
    ("maxHashSlotNum", "100", "index_slots", 100),
    ("maxIndexNum", "400", "index_entries_max", 400),
    ("fileReservedTime", "48", "file_reserved_time", 48 * 3600.0),
    ("cleanResourceInterval", "1000", "clean_interval", 1.0),
    ("diskSpaceCleanForciblyRatio", "50", "disk_space_clean_forcibly_ratio", 0.5),
    ("diskSpaceWarningLevelRatio", "60", "disk_space_warning_ratio", 0.6),
    ("diskFreeBytesEnough", "9", "disk_free_bytes_enough", 9),
    ("checkpointBytes", "9", "checkpoint_bytes", 9),
    ("checkpointInterval", "9000", "checkpoint_interval", 9.0),
]


@pytest.mark.parametrize(("java_name", "text", "name", "value"), PROPERTIES)
def test_a_setting_goes_by_rocketmqs_name_too(
    java_name: str, text: str, name: str, value: object
) -> None:
    settings = BrokerSettings.from_properties({java_name: text})
    assert getattr(settings, name) == value
    assert getattr(BrokerSettings(), name) != value
    assert settings.to_properties()[java_name] == text


@pytest.mark.parametrize(("java_name", "text", "name", "value"), STORE_PROPERTIES)
def test_a_setting_of_the_store_goes_by_rocketmqs_name_too(
    java_name: str, text: str, name: str, value: object
) -> None:
    settings = BrokerSettings.from_properties({java_name: text})
    assert getattr(settings.store, name) == value
    assert getattr(StoreSettings(), name) != value
    assert settings.to_properties()[java_name] == text


# These make sense together only: tests/unit/broker/access tries them.
ACCESS = {
    "aclEnable",
    "authenticationEnabled",
    "authorizationEnabled",
    "authenticationWhitelist",
    "authorizationWhitelist",
}


def test_every_name_of_rocketmqs_is_tried_here() -> None:
    tried = {java_name for java_name, *_ in PROPERTIES + STORE_PROPERTIES}
    known = set(BrokerSettings(ha_listen_port=1).to_properties())
    assert known - tried == {"brokerId", "brokerRole", *ACCESS}


def test_a_slave_has_an_id_above_0() -> None:
    slave = BrokerSettings.from_properties({"brokerRole": "SLAVE", "brokerId": "2"})
    assert (slave.broker_role, slave.broker_id) == (BrokerRole.SLAVE, 2)
    assert slave.to_properties()["brokerRole"] == "SLAVE"
    for fields in ({"broker_role": BrokerRole.SLAVE}, {"broker_id": 1}):
        with pytest.raises(InvalidSetting, match="above 0 for a slave"):
            BrokerSettings(**fields)


def test_rocketmqs_delay_levels_are_ours() -> None:
    text = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
    assert BrokerSettings.from_properties({"messageDelayLevel": text}).store.delay_levels == (
        DELAY_LEVELS
    )


@pytest.mark.parametrize(
    ("properties", "complaint"),
    [
        ({"storePathRootDirectory": "/x"}, "storePathRootDirectory is not a setting"),
        ({"traceOn": "yes"}, "traceOn is 'yes': it must be true or false"),
        ({"listenPort": "ten"}, "listenPort is 'ten': 'ten', not an integer"),
        ({"listenPort": "70000"}, "port may not be greater"),
        ({"listenPort": "2"}, "room for the port two below"),
        ({"registerNameServerPeriod": "-1"}, "may not be negative"),
        ({"brokerRole": "MASTER"}, "one of ASYNC_MASTER, SYNC_MASTER, SLAVE"),
        ({"flushDiskType": "sync"}, "ASYNC_FLUSH or SYNC_FLUSH"),
        ({"namesrvAddr": "nowhere"}, "write host:port"),
        ({"messageDelayLevel": "1s 5"}, "write it as in"),
        ({"inSyncReplicas": "0"}, "at least 1"),
        ({"brokerName": ""}, "broker_name may not be empty"),
    ],
)
def test_a_bad_setting_is_refused_by_name(properties: dict[str, str], complaint: str) -> None:
    with pytest.raises(InvalidSetting, match=complaint):
        BrokerSettings.from_properties(properties)
