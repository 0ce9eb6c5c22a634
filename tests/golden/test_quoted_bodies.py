"""Bodies without a vector, in the texts that real 5.5.0 captures have (protocol.md, section 3).

Values are changed from the captured ones where a default would hide a member with a wrong name.
"""

from string import Template

import pytest

from rocketpipe.message import MessageQueue
from rocketpipe.wire.bodies.codec import Body
from rocketpipe.wire.bodies.consumer_info import (
    ConsumeMessageDirectlyResult,
    ConsumeResult,
    ConsumerRunningInfo,
    ConsumeStatus,
    PopProcessQueueInfo,
    ProcessQueueInfo,
)
from rocketpipe.wire.bodies.groups import (
    CheckClientConfig,
    Connection,
    ConsumerConnection,
    ConsumerIdList,
    GroupList,
    LockBatchRequest,
    MessageQueueAssignment,
    MessageRequestMode,
    ProducerConnection,
    ProducerInfo,
    ProducerTable,
    QueryAssignmentAnswer,
    QueryAssignmentRequest,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
)
from rocketpipe.wire.bodies.heartbeat import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    SubscriptionData,
)
from rocketpipe.wire.bodies.offsets import (
    ConsumeQueueAnswer,
    ConsumeQueueData,
    ConsumerOffsetWrapper,
    ConsumerStatus,
    ConsumeTimeSpan,
    DelayOffsetWrapper,
    QueueOffset,
    QueueTimeSpan,
    ResetOffsetBodyForC,
)
from rocketpipe.wire.bodies.route import (
    BrokerData,
    BrokerMemberGroup,
    BrokerMemberGroupAnswer,
    KVTable,
    Perm,
    TopicList,
    TopicRouteData,
)
from rocketpipe.wire.bodies.topics import (
    DataVersion,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicFilterType,
)

T1 = MessageQueue("T1", "proto-a", 0)
SUBSCRIPTION = SubscriptionData(topic="T1", sub_string="*", sub_version=1794785750935)
VERSION = DataVersion(state_version=1, timestamp=1794786496536, counter=13)
GROUP = SubscriptionGroupConfig(
    group_name="CGpy",
    consume_enable=True,
    consume_from_min_enable=True,
    consume_broadcast_enable=True,
    consume_message_orderly=False,
    retry_queue_nums=1,
    retry_max_times=16,
    broker_id=0,
    which_broker_when_consume_slowly=1,
    notify_consumer_ids_changed_enable=True,
    group_sys_flag=0,
    consume_timeout_minute=15,
    subscription_data_set=({"topic": "T1"},),
)
CONNECTION = Connection(
    client_id="192.0.2.2@runc", client_addr="127.0.0.1:39248", language="JAVA", version=513
)

# Texts that stand in several others, by the names they have there.
PARTS = {
    "MQ": '{"brokerName":"proto-a","queueId":0,"topic":"T1"}',
    "SUBSCRIPTION": (
        '{"classFilterMode":false,"codeSet":[],"expressionType":"TAG","subString":"*",'
        '"subVersion":1794785750935,"tagsSet":[],"topic":"T1"}'
    ),
    "VERSION": '{"counter":13,"stateVersion":1,"timestamp":1794786496536}',
    "GROUP": (
        '{"attributes":{},"brokerId":0,"consumeBroadcastEnable":true,"consumeEnable":true,'
        '"consumeFromMinEnable":true,"consumeMessageOrderly":false,"consumeTimeoutMinute":15,'
        '"groupName":"CGpy","groupRetryPolicy":{"type":"CUSTOMIZED"},"groupSysFlag":0,'
        '"notifyConsumerIdsChangedEnable":true,"retryMaxTimes":16,"retryQueueNums":1,'
        '"subscriptionDataSet":[{"topic":"T1"}],"whichBrokerWhenConsumeSlowly":1}'
    ),
    "CONNECTION": (
        '{"clientAddr":"127.0.0.1:39248","clientId":"192.0.2.2@runc","language":"JAVA","version":513}'
    ),
}

QUOTED: list[tuple[Body, str]] = [
    (
        BrokerMemberGroupAnswer(
            broker_member_group=BrokerMemberGroup(
                cluster="ProtoCluster",
                broker_name="proto-a",
                broker_addrs={0: "127.0.0.1:20911"},
            )
        ),
        '{"brokerMemberGroup":{"brokerAddrs":{0:"127.0.0.1:20911"},"brokerName":"proto-a",'
        '"cluster":"ProtoCluster"}}',
    ),
    (
        TopicRouteData(
            broker_datas=(
                BrokerData(
                    broker_name="b", broker_addrs={}, enable_acting_master=True, zone_name="z1"
                ),
            ),
            order_topic_conf="proto-a:4",
            filter_server_table={"127.0.0.1:20911": ("f1", "f2")},
            topic_queue_mapping_by_broker={"proto-a": {"bname": "proto-a", "currIdMap": {0: 1}}},
        ),
        '{"brokerDatas":[{"brokerAddrs":{},"brokerName":"b","enableActingMaster":true,'
        '"zoneName":"z1"}],"filterServerTable":{"127.0.0.1:20911":["f1","f2"]},'
        '"orderTopicConf":"proto-a:4","queueDatas":[],"topicQueueMappingByBroker":'
        '{"proto-a":{"bname":"proto-a","currIdMap":{0:1}}}}',
    ),
    (KVTable(table={"k": "v"}), '{"table":{"k":"v"}}'),
    (
        TopicList(broker_addr="127.0.0.1:20911", topic_list=frozenset({"proto-a", "ProtoCluster"})),
        '{"brokerAddr":"127.0.0.1:20911","topicList":["ProtoCluster","proto-a"]}',
    ),
    (VERSION, "$VERSION"),
    (ConsumerIdList(consumer_id_list=("192.0.2.2@cons",)), '{"consumerIdList":["192.0.2.2@cons"]}'),
    (
        LockBatchRequest(
            client_id="192.0.2.2@ord",
            consumer_group="CG_ORD",
            mq_set=frozenset({T1}),
            only_this_broker=True,
        ),
        '{"clientId":"192.0.2.2@ord","consumerGroup":"CG_ORD","mqSet":[$MQ],"onlyThisBroker":true}',
    ),
    (
        CheckClientConfig(client_id="c", group="g", subscription_data=SUBSCRIPTION, namespace="n"),
        '{"clientId":"c","group":"g","namespace":"n","subscriptionData":$SUBSCRIPTION}',
    ),
    (
        QueryAssignmentRequest(
            topic="T1",
            consumer_group="g",
            client_id="c",
            strategy_name="AVG",
            message_model=MessageModel.CLUSTERING,
        ),
        '{"clientId":"c","consumerGroup":"g","messageModel":"CLUSTERING","strategyName":"AVG",'
        '"topic":"T1"}',
    ),
    (
        QueryAssignmentAnswer(
            message_queue_assignments=(
                MessageQueueAssignment(
                    message_queue=T1, mode=MessageRequestMode.POP, attachments={"a": "b"}
                ),
            )
        ),
        '{"messageQueueAssignments":[{"attachments":{"a":"b"},"messageQueue":$MQ,"mode":"POP"}]}',
    ),
    (
        HeartbeatData(
            client_id="192.0.2.2@cons",
            consumer_data_set=(
                ConsumerData(
                    group_name="CG_CAP",
                    consume_type=ConsumeType.CONSUME_POP,
                    message_model=MessageModel.BROADCASTING,
                    consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
                    unit_mode=True,
                ),
            ),
            heartbeat_fingerprint=-5,
            without_sub=True,
        ),
        '{"clientID":"192.0.2.2@cons","consumerDataSet":[{"consumeFromWhere":'
        '"CONSUME_FROM_FIRST_OFFSET","consumeType":"CONSUME_POP","groupName":"CG_CAP",'
        '"messageModel":"BROADCASTING","subscriptionDataSet":[],"unitMode":true}],'
        '"heartbeatFingerprint":-5,"producerDataSet":[],"withoutSub":true}',
    ),
    (
        ConsumerRunningInfo(
            properties={"PROP_CONSUME_TYPE": "CONSUME_PASSIVELY"},
            subscription_set=(SUBSCRIPTION,),
            mq_table={
                T1: ProcessQueueInfo(
                    commit_offset=1,
                    cached_msg_min_offset=2,
                    cached_msg_max_offset=3,
                    cached_msg_count=4,
                    cached_msg_size_in_mib=5,
                    transaction_msg_min_offset=6,
                    transaction_msg_max_offset=7,
                    transaction_msg_count=8,
                    locked=True,
                    try_unlock_times=9,
                    last_lock_timestamp=10,
                    dropped=True,
                    last_pull_timestamp=11,
                    last_consume_timestamp=12,
                )
            },
            mq_pop_table={
                T1: PopProcessQueueInfo(wait_ack_count=1, dropped=True, last_pop_timestamp=2)
            },
            status_table={
                "T1": ConsumeStatus(
                    pull_rt=1.5,
                    pull_tps=2.5,
                    consume_rt=3.5,
                    consume_ok_tps=4.5,
                    consume_failed_tps=5.5,
                    consume_failed_msgs=6,
                )
            },
            user_consumer_info={"u": "v"},
            jstack="main\n\tat x",
        ),
        r'{"jstack":"main\n\tat x",'
        '"mqPopTable":{$MQ:{"droped":true,"lastPopTimestamp":2,"waitAckCount":1}},'
        '"mqTable":{$MQ:{"cachedMsgCount":4,"cachedMsgMaxOffset":3,"cachedMsgMinOffset":2,'
        '"cachedMsgSizeInMiB":5,"commitOffset":1,"droped":true,"lastConsumeTimestamp":12,'
        '"lastLockTimestamp":10,"lastPullTimestamp":11,"locked":true,"transactionMsgCount":8,'
        '"transactionMsgMaxOffset":7,"transactionMsgMinOffset":6,"tryUnlockTimes":9}},'
        '"properties":{"PROP_CONSUME_TYPE":"CONSUME_PASSIVELY"},"statusTable":{"T1":'
        '{"consumeFailedMsgs":6,"consumeFailedTPS":5.5,"consumeOKTPS":4.5,"consumeRT":3.5,'
        '"pullRT":1.5,"pullTPS":2.5}},"subscriptionSet":[$SUBSCRIPTION],"userConsumerInfo":{"u":"v"}}',
    ),
    (
        ConsumeMessageDirectlyResult(
            consume_result=ConsumeResult.CR_SUCCESS, spent_time_mills=3, order=True, remark="r"
        ),
        '{"autoCommit":true,"consumeResult":"CR_SUCCESS","order":true,"remark":"r",'
        '"spentTimeMills":3}',
    ),
    (
        TopicConfigSerializeWrapper(
            topic_config_table={
                "T1": TopicConfig(
                    topic_name="T1",
                    read_queue_nums=4,
                    write_queue_nums=8,
                    perm=Perm.READ,
                    topic_filter_type=TopicFilterType.MULTI_TAG,
                    topic_sys_flag=1,
                    order=True,
                    attributes={"message.type": "FIFO"},
                )
            },
            data_version=VERSION,
            mapping_data_version=VERSION,
            topic_queue_mapping_info_map={"T1": {"currIdMap": {0: 1}}},
            topic_queue_mapping_detail_map={"T1": {"bname": "proto-a"}},
        ),
        '{"dataVersion":$VERSION,"mappingDataVersion":$VERSION,"topicConfigTable":{"T1":{"attributes":'
        '{"message.type":"FIFO"},"order":true,"perm":4,"readQueueNums":4,"topicFilterType":'
        '"MULTI_TAG","topicName":"T1","topicSysFlag":1,"writeQueueNums":8}},'
        '"topicQueueMappingDetailMap":{"T1":{"bname":"proto-a"}},'
        '"topicQueueMappingInfoMap":{"T1":{"currIdMap":{0:1}}}}',
    ),
    (GROUP, "$GROUP"),
    (
        SubscriptionGroupWrapper(
            subscription_group_table={"CGpy": GROUP},
            forbidden_table={"CGpy": {"T1": 4}},
            data_version=VERSION,
        ),
        '{"dataVersion":$VERSION,"forbiddenTable":{"CGpy":{"T1":4}},"subscriptionGroupTable":'
        '{"CGpy":$GROUP}}',
    ),
    (
        ConsumerConnection(
            connection_set=(CONNECTION,),
            subscription_table={"T1": SUBSCRIPTION},
            consume_type=ConsumeType.CONSUME_PASSIVELY,
            message_model=MessageModel.CLUSTERING,
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
        ),
        '{"connectionSet":[$CONNECTION],"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET","consumeType":'
        '"CONSUME_PASSIVELY","messageModel":"CLUSTERING","subscriptionTable":{"T1":$SUBSCRIPTION}}',
    ),
    (ProducerConnection(connection_set=(CONNECTION,)), '{"connectionSet":[$CONNECTION]}'),
    (
        ProducerTable(
            data={
                "PG": (
                    ProducerInfo(
                        client_id="c",
                        language="JAVA",
                        last_update_timestamp=5,
                        remote_ip="/127.0.0.1:50978",
                        version=513,
                    ),
                )
            }
        ),
        '{"data":{"PG":[{"clientId":"c","language":"JAVA","lastUpdateTimestamp":5,'
        '"remoteIP":"/127.0.0.1:50978","version":513}]}}',
    ),
    (GroupList(group_list=frozenset({"CG_BG"})), '{"groupList":["CG_BG"]}'),
    (
        ResetOffsetBodyForC(
            offset_table=(QueueOffset(topic="T1", broker_name="proto-a", queue_id=0, offset=7),)
        ),
        '{"offsetTable":[{"brokerName":"proto-a","offset":7,"queueId":0,"topic":"T1"}]}',
    ),
    (
        ConsumerStatus(consumer_table={"192.0.2.2@runc": {T1: 4}}, message_queue_table={T1: 4}),
        '{"consumerTable":{"192.0.2.2@runc":{$MQ:4}},"messageQueueTable":{$MQ:4}}',
    ),
    (
        ConsumeTimeSpan(
            consume_time_span_set=(
                QueueTimeSpan(
                    message_queue=T1,
                    min_time_stamp=1,
                    max_time_stamp=2,
                    consume_time_stamp=3,
                    delay_time=4,
                ),
            )
        ),
        '{"consumeTimeSpanSet":[{"consumeTimeStamp":3,"delayTime":4,"maxTimeStamp":2,'
        '"messageQueue":$MQ,"minTimeStamp":1}]}',
    ),
    (
        ConsumeQueueAnswer(
            max_queue_index=4,
            min_queue_index=1,
            queue_data=(
                ConsumeQueueData(
                    physic_offset=1157,
                    physic_size=226,
                    tags_code=5,
                    eval=True,
                    extend_data_json="{}",
                    bit_map="01",
                    msg="m",
                ),
            ),
            subscription_data=SUBSCRIPTION,
            filter_data="f",
        ),
        '{"filterData":"f","maxQueueIndex":4,"minQueueIndex":1,"queueData":[{"bitMap":"01",'
        '"eval":true,"extendDataJson":"{}","msg":"m","physicOffset":1157,"physicSize":226,'
        '"tagsCode":5}],"subscriptionData":$SUBSCRIPTION}',
    ),
    (
        ConsumerOffsetWrapper(data_version=VERSION, offset_table={"T1@CG": {0: 3, 1: 4}}),
        '{"dataVersion":$VERSION,"offsetTable":{"T1@CG":{0:3,1:4}}}',
    ),
    (
        DelayOffsetWrapper(data_version=VERSION, offset_table={1: 1, 3: 1}),
        '{"dataVersion":$VERSION,"offsetTable":{1:1,3:1}}',
    ),
]


@pytest.mark.parametrize(("expected", "template"), QUOTED, ids=lambda part: type(part).__name__)
def test_a_quoted_text_is_read_and_written(expected: Body, template: str) -> None:
    text = Template(template).substitute(PARTS).encode()
    assert type(expected).decode(text) == expected
    assert expected.encode() == text
