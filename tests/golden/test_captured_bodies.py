"""Bodies captured from real Apache RocketMQ 4.9.4 and 5.5.0: read, checked, and written again.

The cluster had a broker `broker-a` and a topic `T1` of two queues. Both got 3 messages, and one two
delayed ones; a client `127.0.0.1@cap`, known by our own heartbeat, had consumed 2 and 1.
"""

import json
import zlib
from pathlib import Path
from typing import Any

import pytest

from rocketpipe.message import MessageQueue
from rocketpipe.wire.bodies.codec import Body
from rocketpipe.wire.bodies.groups import (
    Connection,
    ConsumerConnection,
    ConsumerIdList,
    GroupList,
    LockBatchAnswer,
    MessageQueueAssignment,
    ProducerConnection,
    ProducerTable,
    QueryAssignmentAnswer,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
)
from rocketpipe.wire.bodies.heartbeat import (
    ConsumeFromWhere,
    ConsumeType,
    MessageModel,
    SubscriptionData,
)
from rocketpipe.wire.bodies.offsets import (
    ConsumeQueueAnswer,
    ConsumerOffsetWrapper,
    ConsumeStats,
    ConsumeTimeSpan,
    DelayOffsetWrapper,
    ResetOffsetBody,
    TopicStatsTable,
)
from rocketpipe.wire.bodies.route import (
    BrokerData,
    BrokerMemberGroup,
    BrokerMemberGroupAnswer,
    ClusterInfo,
    KVTable,
    Perm,
    QueueData,
    TopicList,
    TopicRouteData,
)
from rocketpipe.wire.bodies.topics import (
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from rocketpipe.wire.config_text import parse_config
from rocketpipe.wire.fastjson import dumps, loads

FILE = json.loads(Path(__file__).with_name("captured_bodies.json").read_text(encoding="utf-8"))
CAPTURES: dict[tuple[str, str], dict[str, Any]] = {
    (capture["version"], capture["name"]): capture for capture in FILE["captures"]
}
TYPES: dict[str, type[Body]] = {
    "route": TopicRouteData,
    "route_old": TopicRouteData,
    "cluster_info": ClusterInfo,
    "topic_list": TopicList,
    "system_topics": TopicList,
    "member_group": BrokerMemberGroupAnswer,
    "member_group_absent": BrokerMemberGroupAnswer,
    "kv_list": KVTable,
    "runtime_info": KVTable,
    "topic_configs": TopicConfigSerializeWrapper,
    "topic_config": TopicConfig,
    "groups": SubscriptionGroupWrapper,
    "group": SubscriptionGroupConfig,
    "topic_stats": TopicStatsTable,
    "consumer_ids": ConsumerIdList,
    "consumer_connection": ConsumerConnection,
    "producer_connection": ProducerConnection,
    "producers": ProducerTable,
    "consume_stats": ConsumeStats,
    "lock": LockBatchAnswer,
    "consumer_offsets": ConsumerOffsetWrapper,
    "delay_offsets": DelayOffsetWrapper,
    "topic_groups": GroupList,
    "time_span": ConsumeTimeSpan,
    "consume_queue": ConsumeQueueAnswer,
    "assignment": QueryAssignmentAnswer,
    "reset_offset": ResetOffsetBody,
    "reset_offset_push": ResetOffsetBody,
    "registration": RegisterBrokerBody,
    "file_topics": TopicConfigSerializeWrapper,
    "file_subscriptionGroup": SubscriptionGroupWrapper,
    "file_consumerOffset": ConsumerOffsetWrapper,
    "file_delayOffset": DelayOffsetWrapper,
}
# Members that say nothing new, and that a Java slave does not read either.
IGNORED = {
    *("consumeTimeStampStr", "maxTimeStampStr", "minTimeStampStr"),
    *("groupTopicMap", "pullOffsetTable"),
}
# What only one side has: 4.9.4 lacks members that we write, and topics.json those of static topics.
ADDED = {
    *("attributes", "enableActingMaster", "stateVersion", "dataVersion", "mappingDataVersion"),
    *("topicQueueMappingInfoMap", "topicQueueMappingDetailMap"),
    *("consumeMessageOrderly", "consumeTimeoutMinute", "groupRetryPolicy", "groupSysFlag"),
    *("forbiddenTable", "pullOffset", "topicPutTps"),
}
JSON_CAPTURES = [key for key in CAPTURES if key[1] in TYPES]
VERSIONS = ["4.9.4", "5.5.0"]

BROKER = BrokerData(
    cluster="DefaultCluster", broker_name="broker-a", broker_addrs={0: "127.0.0.1:10911"}
)
QUEUES = (MessageQueue("T1", "broker-a", 0), MessageQueue("T1", "broker-a", 1))
CONNECTION = Connection(
    client_id="127.0.0.1@cap", client_addr="127.0.0.1:50001", language="PYTHON", version=513
)


def captured(version: str, name: str) -> Any:
    return TYPES[name].decode(CAPTURES[version, name]["body"].encode())


def comparable(value: object, ignored: set[str]) -> object:
    """A parsed text without some members, its lists in an order of our own."""
    if isinstance(value, dict):
        return {k: comparable(v, ignored) for k, v in value.items() if k not in ignored}
    if isinstance(value, list):
        return sorted((comparable(item, ignored) for item in value), key=dumps)
    return value


def test_every_capture_is_tested() -> None:
    others = {"registration_compressed", "broker_config", "namesrv_config"}
    assert {name for _, name in CAPTURES} == TYPES.keys() | others


@pytest.mark.parametrize("key", JSON_CAPTURES, ids="-".join)
def test_a_capture_is_written_again_with_every_member(key: tuple[str, str]) -> None:
    version, name = key
    ours = loads(captured(version, name).encode(standard=name == "route"))
    real = loads(CAPTURES[key]["body"].encode())
    differing = IGNORED
    if version == "4.9.4" or name == "file_topics":
        differing = IGNORED | (ADDED - names_in(real))
    assert comparable(ours, differing) == comparable(real, differing)


def names_in(value: object) -> set[object]:
    if isinstance(value, dict):
        return set(value).union(*map(names_in, value.values()))
    if isinstance(value, list):
        return set().union(*map(names_in, value))
    return set()


@pytest.mark.parametrize("version", VERSIONS)
def test_routes(version: str) -> None:
    expected = TopicRouteData(
        broker_datas=(BROKER,),
        queue_datas=(
            QueueData(
                broker_name="broker-a",
                read_queue_nums=2,
                write_queue_nums=2,
                perm=Perm.READ | Perm.WRITE,
            ),
        ),
    )
    assert captured(version, "route") == captured(version, "route_old") == expected
    assert captured(version, "cluster_info") == ClusterInfo(
        broker_addr_table={"broker-a": BROKER},
        cluster_addr_table={"DefaultCluster": frozenset({"broker-a"})},
    )


def test_a_real_route_is_written_byte_for_byte() -> None:
    for name, standard in (("route", True), ("route_old", False)):
        text = CAPTURES["5.5.0", name]["body"]
        assert captured("5.5.0", name).encode(standard=standard).decode() == text


def test_members_of_a_broker() -> None:
    member_group = BrokerMemberGroup(
        cluster="DefaultCluster", broker_name="broker-a", broker_addrs={0: "127.0.0.1:10911"}
    )
    assert captured("5.5.0", "member_group").broker_member_group == member_group
    assert captured("5.5.0", "member_group_absent").broker_member_group.broker_addrs == {}


@pytest.mark.parametrize("version", VERSIONS)
def test_topic_lists_and_tables(version: str) -> None:
    assert {"T1", "TBW102", "%RETRY%CG_CAP"} < captured(version, "topic_list").topic_list
    assert captured(version, "system_topics") == TopicList(
        topic_list=frozenset({"broker-a", "DefaultCluster"}), broker_addr="127.0.0.1:10911"
    )
    assert captured(version, "kv_list").table == {"k": "v"}
    runtime_info = captured(version, "runtime_info").table
    assert runtime_info["brokerVersionDesc"] == "V" + version.replace(".", "_")
    assert runtime_info["putMessageTimesTotal"] == "10"


@pytest.mark.parametrize("name", ["topic_configs", "file_topics"])
@pytest.mark.parametrize("version", VERSIONS)
def test_topic_configs(version: str, name: str) -> None:
    topics = captured(version, name)
    assert topics.topic_config_table["T1"] == TopicConfig(
        topic_name="T1", read_queue_nums=2, write_queue_nums=2
    )
    default = topics.topic_config_table["TBW102"]
    assert (default.read_queue_nums, default.perm) == (8, 7)
    assert topics.data_version.timestamp > 1_700_000_000_000
    assert topics.data_version.counter > 0


@pytest.mark.parametrize("name", ["groups", "file_subscriptionGroup"])
@pytest.mark.parametrize("version", VERSIONS)
def test_groups(version: str, name: str) -> None:
    wrapper = captured(version, name)
    made = SubscriptionGroupConfig(
        group_name="CG_MADE", consume_broadcast_enable=False, retry_queue_nums=2
    )
    assert wrapper.subscription_group_table["CG_MADE"] == made
    assert wrapper.subscription_group_table["CG_CAP"].retry_max_times == 16


def test_one_topic_and_one_group() -> None:
    all_topics, all_groups = captured("5.5.0", "topic_configs"), captured("5.5.0", "groups")
    assert captured("5.5.0", "topic_config") == all_topics.topic_config_table["T1"]
    assert captured("5.5.0", "group") == all_groups.subscription_group_table["CG_MADE"]


@pytest.mark.parametrize("version", VERSIONS)
def test_statistics(version: str) -> None:
    topic = captured(version, "topic_stats").offset_table
    assert {queue: (offset.min_offset, offset.max_offset) for queue, offset in topic.items()} == {
        QUEUES[0]: (0, 5),
        QUEUES[1]: (0, 3),
    }
    group = captured(version, "consume_stats").offset_table
    consumed = {queue: (each.broker_offset, each.consumer_offset) for queue, each in group.items()}
    assert consumed == {QUEUES[0]: (5, 2), QUEUES[1]: (3, 1)}
    spans = captured(version, "time_span").consume_time_span_set
    assert {span.message_queue for span in spans} == set(QUEUES)
    assert all(span.min_time_stamp <= span.max_time_stamp for span in spans)
    entries = captured(version, "consume_queue")
    assert (entries.min_queue_index, entries.max_queue_index) == (0, 5)
    assert [entry.tags_code for entry in entries.queue_data] == [2598919, 2598919]


@pytest.mark.parametrize("version", VERSIONS)
def test_our_heartbeat_as_the_broker_understood_it(version: str) -> None:
    assert captured(version, "consumer_ids").consumer_id_list == ("127.0.0.1@cap",)
    assert captured(version, "topic_groups").group_list == {"CG_CAP"}
    assert captured(version, "consumer_connection") == ConsumerConnection(
        connection_set=(CONNECTION,),
        subscription_table={
            "T1": SubscriptionData.of_tags("T1", "TagA || TagB", sub_version=1700000000000),
            "%RETRY%CG_CAP": SubscriptionData.of_tags(
                "%RETRY%CG_CAP", "*", sub_version=1700000000001
            ),
        },
        consume_type=ConsumeType.CONSUME_PASSIVELY,
        message_model=MessageModel.CLUSTERING,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    )
    assert captured(version, "producer_connection").connection_set == (CONNECTION,)
    (producer,) = captured(version, "producers").data["PG_CAP"]
    assert (producer.client_id, producer.remote_ip) == ("127.0.0.1@cap", "/127.0.0.1:50001")


@pytest.mark.parametrize("version", VERSIONS)
def test_queues_and_offsets_of_a_group(version: str) -> None:
    assert captured(version, "lock").lock_ok_mq_set == set(QUEUES)
    assert captured(version, "reset_offset").offset_table == dict.fromkeys(QUEUES, 0)
    assert captured(version, "consumer_offsets").offset_table == {"T1@CG_CAP": {0: 2, 1: 1}}
    assert captured(version, "delay_offsets").offset_table == {1: 1, 3: 1}
    assert captured(version, "file_delayOffset").offset_table == {1: 1, 3: 1}
    assert captured(version, "file_consumerOffset").offset_table.keys() == {"T1@CG_CAP"}


def test_an_assignment() -> None:
    assignments = captured("5.5.0", "assignment").message_queue_assignments
    assert set(map(repr, assignments)) == {
        repr(MessageQueueAssignment(message_queue=queue)) for queue in QUEUES
    }


def test_a_reset_pushed_to_a_client() -> None:
    assert captured("4.9.4", "reset_offset_push").offset_table == dict.fromkeys(QUEUES, 0)


def test_a_registration_of_5_5_0() -> None:
    capture = CAPTURES["5.5.0", "registration"]
    assert zlib.crc32(capture["body"].encode()) & 0x7FFFFFFF == capture["body_crc32"]
    topics = captured("5.5.0", "registration").topic_config_serialize_wrapper
    assert topics.topic_config_table["SCHEDULE_TOPIC_XXXX"].write_queue_nums == 18


def test_a_compressed_registration_of_4_9_4() -> None:
    capture = CAPTURES["4.9.4", "registration_compressed"]
    body = bytes.fromhex(capture["body_hex"])
    assert zlib.crc32(body) & 0x7FFFFFFF == capture["body_crc32"]
    registration = RegisterBrokerBody.decode_compressed(body)
    topics = registration.topic_config_serialize_wrapper.topic_config_table
    assert topics["BenchmarkTest"].read_queue_nums == 1024
    assert topics["TBW102"].perm == Perm.READ | Perm.WRITE | Perm.INHERIT
    # Ours differs by the stateVersion that 5.x added to a DataVersion, and by nothing else.
    ours = zlib.decompress(registration.encode_compressed(version=capture["request_version"]))
    real = zlib.decompress(body)
    assert ours.replace(b'"stateVersion":0,', b"")[4:] == real[4:]


@pytest.mark.parametrize("version", VERSIONS)
def test_settings(version: str) -> None:
    broker = parse_config(CAPTURES[version, "broker_config"]["body"].encode())
    assert broker["namesrvAddr"] == "127.0.0.1:9876"
    assert broker["messageDelayLevel"].split()[:3] == ["1s", "5s", "10s"]
    assert broker["messageStorePlugIn"] == ""
    namesrv = parse_config(CAPTURES[version, "namesrv_config"]["body"].encode())
    assert namesrv["listenPort"] == "9876"
    assert namesrv["orderMessageEnable"] == "false"
