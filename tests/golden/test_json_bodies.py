"""Bodies as Apache's 5.5.0 classes write them: read into every field, written to the same text."""

import json
import zlib
from pathlib import Path
from typing import Any

import pytest

from rocketpipe.errors import MalformedBody
from rocketpipe.message import MessageQueue
from rocketpipe.wire.bodies.codec import Body
from rocketpipe.wire.bodies.groups import (
    LockBatchAnswer,
    LockBatchRequest,
)
from rocketpipe.wire.bodies.heartbeat import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    ProducerData,
    SubscriptionData,
)
from rocketpipe.wire.bodies.offsets import (
    ConsumeStats,
    OffsetWrapper,
    ResetOffsetBody,
    TopicOffset,
    TopicStatsTable,
)
from rocketpipe.wire.bodies.route import (
    BrokerData,
    ClusterInfo,
    Perm,
    QueueData,
    TopicRouteData,
)
from rocketpipe.wire.bodies.topics import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicFilterType,
)

GOLDEN = json.loads(Path(__file__).with_name("json_bodies.json").read_text(encoding="utf-8"))
CASES: dict[str, dict[str, Any]] = {case["name"]: case for case in GOLDEN["cases"]["bodies"]}
HASHES = json.loads(Path(__file__).with_name("hashes.json").read_text(encoding="utf-8"))

QUEUE = MessageQueue("TopicVector", "broker-a", 0)
BROKER = BrokerData(
    cluster="DefaultCluster",
    broker_name="broker-a",
    broker_addrs={0: "127.0.0.1:10911", 1: "127.0.0.1:11911"},
    enable_acting_master=False,
)
ROUTE = TopicRouteData(
    broker_datas=(BROKER,),
    queue_datas=(
        QueueData(
            broker_name="broker-a",
            read_queue_nums=4,
            write_queue_nums=4,
            perm=Perm.READ | Perm.WRITE,
            topic_sys_flag=0,
        ),
    ),
    filter_server_table={},
)
TOPIC_VECTOR = TopicConfig(
    topic_name="TopicVector",
    read_queue_nums=4,
    write_queue_nums=4,
    perm=Perm.READ | Perm.WRITE,
    topic_filter_type=TopicFilterType.SINGLE_TAG,
)
TBW102 = TopicConfig(
    topic_name="TBW102",
    read_queue_nums=8,
    write_queue_nums=8,
    perm=Perm.READ | Perm.WRITE | Perm.INHERIT,
    topic_filter_type=TopicFilterType.SINGLE_TAG,
)
VECTORS: dict[str, Body] = {
    "heartbeat": HeartbeatData(
        client_id="10.11.12.13@1234#5678",
        producer_data_set=(ProducerData(group_name="PG_VECTOR"),),
        consumer_data_set=(
            ConsumerData(
                group_name="CG_VECTOR",
                consume_type=ConsumeType.CONSUME_PASSIVELY,
                message_model=MessageModel.CLUSTERING,
                consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
                subscription_data_set=(
                    SubscriptionData(
                        topic="TopicVector",
                        sub_string="TagA || TagB",
                        tags_set=frozenset({"TagA", "TagB"}),
                        code_set=frozenset({2598919, 2598920}),
                        sub_version=1700000000000,
                        expression_type="TAG",
                    ),
                ),
            ),
        ),
    ),
    "route_plain": ROUTE,
    "route_standard": ROUTE,
    "cluster_info": ClusterInfo(
        broker_addr_table={"broker-a": BROKER},
        cluster_addr_table={"DefaultCluster": frozenset({"broker-a"})},
    ),
    "lock_request": LockBatchRequest(
        client_id="10.11.12.13@1234", consumer_group="CG_VECTOR", mq_set=frozenset({QUEUE})
    ),
    "lock_response": LockBatchAnswer(lock_ok_mq_set=frozenset({QUEUE})),
    "topic_stats": TopicStatsTable(
        offset_table={
            QUEUE: TopicOffset(min_offset=0, max_offset=9, last_update_timestamp=1700000000000)
        },
        topic_put_tps=0.0,
    ),
    "consume_stats": ConsumeStats(
        offset_table={
            QUEUE: OffsetWrapper(
                broker_offset=9, consumer_offset=5, pull_offset=0, last_timestamp=1700000000000
            )
        },
        consume_tps=0.0,
    ),
    "reset_offset": ResetOffsetBody(offset_table={QUEUE: 7}),
    "register_broker_plain": RegisterBrokerBody(
        topic_config_serialize_wrapper=TopicConfigSerializeWrapper(
            topic_config_table={"TopicVector": TOPIC_VECTOR, "TBW102": TBW102},
            data_version=DataVersion(counter=3, timestamp=1700000000000),
            mapping_data_version=DataVersion(timestamp=1700000000001),
        ),
    ),
    "register_broker_compressed": RegisterBrokerBody(
        topic_config_serialize_wrapper=TopicConfigSerializeWrapper(
            topic_config_table={"TBW102": TBW102, "TopicVector": TOPIC_VECTOR},
            data_version=DataVersion(counter=3, timestamp=1700000000000),
        ),
    ),
}


def test_every_vector_is_expected_here() -> None:
    assert VECTORS.keys() == CASES.keys()


@pytest.mark.parametrize("name", [name for name in VECTORS if "json" in CASES[name]])
def test_a_vector_is_read_and_written(name: str) -> None:
    text = CASES[name]["json"].encode()
    expected = VECTORS[name]
    assert type(expected).decode(text) == expected
    assert expected.encode(standard=name == "route_standard") == text


def test_a_standard_route_sorts_its_maps() -> None:
    backwards = BrokerData(broker_name="b", broker_addrs={1: "slave", 0: "master"})
    text = b'{"brokerAddrs":{"0":"master","1":"slave"},"brokerName":"b","enableActingMaster":false}'
    assert backwards.encode(standard=True) == text


def test_the_fingerprint_of_a_heartbeat_is_javas() -> None:
    case = CASES["heartbeat"]
    heartbeat = HeartbeatData.decode(case["json"].encode())
    assert heartbeat.compute_fingerprint() == case["heartbeat_v2_fingerprint"]


def test_a_compressed_registration_is_read_and_written() -> None:
    case, expected = CASES["register_broker_compressed"], VECTORS["register_broker_compressed"]
    assert isinstance(expected, RegisterBrokerBody)
    assert RegisterBrokerBody.decode_compressed(bytes.fromhex(case["hex"])) == expected
    inflated = bytes.fromhex(case["inflated_hex"])
    assert zlib.decompress(expected.encode_compressed()) == inflated
    assert TOPIC_VECTOR.encode_line() == case["topic_config_line"]


def test_a_compressed_registration_from_before_5_0_has_no_mappings() -> None:
    case, expected = CASES["register_broker_compressed"], VECTORS["register_broker_compressed"]
    assert isinstance(expected, RegisterBrokerBody)
    inflated = bytes.fromhex(case["inflated_hex"])[:-4]
    assert RegisterBrokerBody.decode_compressed(zlib.compress(inflated)) == expected
    assert zlib.decompress(expected.encode_compressed(with_mappings=False)) == inflated


@pytest.mark.parametrize("case", HASHES["cases"]["subscriptions"], ids=lambda c: c["expression"])
def test_a_tag_expression_is_parsed_as_java_does(case: dict[str, Any]) -> None:
    subscription = SubscriptionData.of_tags("T", case["expression"], sub_version=5)
    assert subscription == SubscriptionData(
        topic="T",
        sub_string=case["subString"],
        tags_set=frozenset(case["tagsSet"]),
        code_set=frozenset(case["codeSet"]),
        expression_type=case["expressionType"],
        sub_version=5,
    )


# What Java's decoder accepts and what it refuses; the vectors give the results, not the texts.
TOLERANCE: dict[str, tuple[type[Body], str]] = {
    "TopicRouteData with quoted integer keys": (
        TopicRouteData,
        '{"brokerDatas":[{"brokerName":"b","brokerAddrs":{"0":"a:1"}}]}',
    ),
    "TopicRouteData with unquoted integer keys": (
        TopicRouteData,
        '{"brokerDatas":[{"brokerName":"b","brokerAddrs":{0:"a:1"}}]}',
    ),
    "ClusterInfo with quoted integer keys": (
        ClusterInfo,
        '{"brokerAddrTable":{"b":{"brokerName":"b","brokerAddrs":{"0":"a:1"}}}}',
    ),
    "TopicStatsTable with object keys": (
        TopicStatsTable,
        '{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"t"}:{"maxOffset":1,"minOffset":0}}}',
    ),
    "TopicStatsTable with the key as an escaped JSON string": (
        TopicStatsTable,
        r'{"offsetTable":{"{\"brokerName\":\"b\",\"queueId\":0,\"topic\":\"t\"}":'
        '{"maxOffset":1,"minOffset":0,"lastUpdateTimestamp":0}}}',
    ),
    "HeartbeatData without optional fields": (HeartbeatData, '{"clientID":"c"}'),
}
ADDRESSES = BrokerData(broker_name="b", broker_addrs={0: "a:1"})
TOLERATED: dict[str, Body] = {
    "TopicRouteData with quoted integer keys": TopicRouteData(broker_datas=(ADDRESSES,)),
    "TopicRouteData with unquoted integer keys": TopicRouteData(broker_datas=(ADDRESSES,)),
    "ClusterInfo with quoted integer keys": ClusterInfo(broker_addr_table={"b": ADDRESSES}),
    "TopicStatsTable with object keys": TopicStatsTable(
        offset_table={MessageQueue("t", "b", 0): TopicOffset(min_offset=0, max_offset=1)}
    ),
    "HeartbeatData without optional fields": HeartbeatData(client_id="c"),
}
BODY_RESULTS = [
    result
    for result in GOLDEN["cases"]["java_decode_tolerance"]
    if not result["what"].startswith("header")  # headers are tested with frames
]


@pytest.mark.parametrize("result", BODY_RESULTS, ids=lambda result: result["what"])
def test_what_java_accepts_is_accepted_and_what_it_refuses_is_not(result: dict[str, str]) -> None:
    body, text = TOLERANCE[result["what"]]
    if result["result"].startswith("OK"):
        assert body.decode(text.encode()) == TOLERATED[result["what"]]
    else:
        with pytest.raises(MalformedBody, match="offsetTable"):
            body.decode(text.encode())
