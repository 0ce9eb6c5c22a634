"""Batch reads of real topics: every column, every way to say where to begin and end."""

import json
import os
from hashlib import sha256
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.functions import col, count

from rocketpipe import Admin, Message, MessageQueue, Producer, PullConsumer
from rocketpipe.testing import EmbeddedCluster
from rocketpipe.wire.record import decode_records
from tests.interop.clusters import Cluster
from tests.spark.topics import bodies, make_topic, numbered, read, send, send_to
from tests.unit.spark.test_columns import as_row

MIB = 1 << 20


def test_every_column_comes_as_it_was_stored(spark: SparkSession, cluster: Cluster) -> None:
    topic = make_topic(cluster, "columns")
    send(
        cluster,
        [
            Message(topic, b"plain"),
            Message(topic, b"\0\1\2 with NULs \0"),
            Message(topic, b"tagged", tags="TagA", keys=["k-1", "k-2"], flag=-5),
            Message(topic, "äöü".encode(), tags="täg", properties={"größe": "x\1y", "z": "日本"}),
            Message(topic, b"compressed" * 1000, keys=["big"]),
            Message(topic, os.urandom(3 * MIB)),
        ],
    )
    rows = []
    with (
        Admin(namesrv=cluster.namesrv) as admin,
        PullConsumer("raw", namesrv=cluster.namesrv) as consumer,
    ):
        for queue in admin.subscribe_queues(topic):
            for answer in consumer.pull_range(queue, 0, admin.max_offset(queue)):
                rows += [
                    as_row(message) | {"brokerName": queue.broker_name}
                    for message in decode_records(answer)
                ]
    frame = read(spark, cluster, topic=topic)
    found = [row.asDict() for row in frame.collect()]
    for row in rows:  # Spark gives naive times of the session's zone
        for name in ("bornTimestamp", "storeTimestamp"):
            row[name] = row[name].astimezone().replace(tzinfo=None)

    def place(row: dict[str, object]) -> tuple[Any, ...]:
        return row["brokerName"], row["queueId"], row["queueOffset"]

    assert sorted(found, key=place) == sorted(rows, key=place)
    assert len(rows) == 6


def test_large_bodies(spark: SparkSession, cluster: Cluster) -> None:
    topic = make_topic(cluster, "large")
    large = [os.urandom(4 * MIB) for _ in range(6)]
    send(cluster, [Message(topic, body) for body in large], compress_body_bytes_min=1 << 30)
    found = bodies(read(spark, cluster, "body binary", topic=topic))
    # Their digests, as pytest would print all of two bodies that differ.
    assert [sha256(body).hexdigest() for body in found] == [
        sha256(body).hexdigest() for body in sorted(large)
    ]


def test_an_empty_topic_has_no_rows_but_all_columns(spark: SparkSession, cluster: Cluster) -> None:
    frame = read(spark, cluster, topic=make_topic(cluster, "empty"))
    assert frame.count() == 0
    assert frame.collect() == []


def test_a_hundred_queues_on_two_brokers(spark: SparkSession, cluster: Cluster) -> None:
    topic = make_topic(cluster, "wide", queues=50)
    send(cluster, numbered(topic, 3000))
    frame = read(spark, cluster, "body binary, brokerName string, queueId int", topic=topic)
    assert frame.select("body").distinct().count() == 3000
    assert frame.select("brokerName", "queueId").distinct().count() <= 100
    assert frame.rdd.getNumPartitions() <= 100


def test_offsets_of_each_queue(spark: SparkSession, cluster: Cluster) -> None:
    topic = make_topic(cluster, "offsets")
    a0, b1 = MessageQueue(topic, "broker-a", 0), MessageQueue(topic, "broker-b", 1)
    send_to(cluster, a0, [b"a%d" % number for number in range(10)])
    send_to(cluster, b1, [b"b%d" % number for number in range(10)])

    def found(**options: Any) -> list[str]:
        return [body.decode() for body in bodies(read(spark, cluster, topic=topic, **options))]

    starting = json.dumps({topic: {"broker-a": {"0": 7}, "broker-b": {"1": -1}}})
    assert found(startingOffsets=starting) == ["a7", "a8", "a9"]
    ending = json.dumps({topic: {"broker-b": {"1": 2, "0": -2}, "broker-a": {"0": 1}}})
    assert found(startingOffsets="earliest", endingOffsets=ending) == ["a0", "b0", "b1"]
    queues = json.dumps({topic: {"broker-b": [1]}})
    only_b = read(spark, cluster, assign=queues)
    assert len(bodies(only_b)) == 10
    parts = read(spark, cluster, topic=topic, minPartitions=7)
    assert parts.rdd.getNumPartitions() >= 7
    assert len(bodies(parts)) == 20
    assert read(spark, cluster, topic=topic, maxRecordsPerPartition=3).rdd.getNumPartitions() == 8
    # Where a group is.
    with Admin(namesrv=cluster.namesrv) as admin:
        admin.create_group("readers")
    with PullConsumer("readers", namesrv=cluster.namesrv) as consumer:
        consumer.commit({a0: 4, b1: 9})
    assert found(startingOffsets="group", group="readers") == [
        *("a4", "a5", "a6", "a7", "a8", "a9"),
        "b9",
    ]
    assert found(endingOffsets="group", group="readers")[:5] == ["a0", "a1", "a2", "a3", "b0"]


def test_times(spark: SparkSession, cluster: Cluster) -> None:
    topic = make_topic(cluster, "times", queues=1)
    queue = MessageQueue(topic, "broker-a", 0)
    # Many of one millisecond, and gaps in between: where an old broker's search is not exact.
    with Producer("times", namesrv=cluster.namesrv) as producer:
        for number in range(4):
            producer.send_batch([Message(topic, b"%d" % number)] * 5, queue=queue)
    frame = read(spark, cluster, topic=topic).where(col("brokerName") == "broker-a")
    stored = sorted(
        (row.queueOffset, round(row.storeTimestamp.timestamp() * 1000)) for row in frame.collect()
    )
    assert len(stored) == 20
    both = "startingOffsetsByTimestampStrategy"
    for time_ms in {at for _, at in stored} | {stored[0][1] - 5, stored[7][1] + 1}:
        begun = read(spark, cluster, topic=topic, startingTimestamp=time_ms, **{both: "latest"})
        expected = [offset for offset, at in stored if at >= time_ms]
        assert sorted(row.queueOffset for row in begun.select("queueOffset").collect()) == expected
        ended = read(spark, cluster, topic=topic, endingTimestamp=time_ms)
        expected = [offset for offset, at in stored if at < time_ms]
        assert sorted(row.queueOffset for row in ended.select("queueOffset").collect()) == expected
    with pytest.raises(PySparkException, match="has no message that was stored at"):
        read(spark, cluster, topic=topic, startingTimestamp=stored[-1][1] + 1).collect()
    one = json.dumps({topic: {"broker-a": {"0": stored[-1][1] + 1}}})
    options = {"startingOffsetsByTimestamp": one, both: "latest"}
    assert read(spark, cluster, topic=topic, **options).count() == 0


def test_filters_on_the_broker(spark: SparkSession, cluster: Cluster) -> None:
    topic = make_topic(cluster, "filters")
    send(
        cluster,
        [
            Message(topic, b"%d" % number, tags=tag, properties={"n": str(number)})
            for number, tag in enumerate(["Aa", "BB", "C", None] * 50)
        ],
    )
    # Aa and BB have the same hash.
    assert read(spark, cluster, "queueOffset bigint", topic=topic, tags="Aa || C").count() == 100
    found = read(spark, cluster, "body binary", topic=topic, sql="n BETWEEN 10 AND 19")
    assert bodies(found) == [b"%d" % number for number in range(10, 20)]


def test_topics_by_pattern(spark: SparkSession, cluster: Cluster) -> None:
    first, second = make_topic(cluster, "pattern-x"), make_topic(cluster, "pattern-x")
    other = make_topic(cluster, "pattern-y")
    for topic in (first, second, other):
        send(cluster, [Message(topic, topic.encode())])
    frame = read(spark, cluster, topicPattern="spark-pattern-x-.*")
    assert sorted(row.topic for row in frame.collect()) == sorted([first, second])
    several = read(spark, cluster, topic=f"{first}, {other}").groupBy("topic").agg(count("*"))
    assert several.count() == 2
    assert read(spark, cluster, topicPattern="no-such-.*").count() == 0


def test_a_namespace(spark: SparkSession, cluster: Cluster) -> None:
    topic = make_topic(cluster, "bare")
    with Producer("p", namesrv=cluster.namesrv, namespace="shop") as producer:
        producer.send(Message(topic, b"in the shop"))
    for options in ({"topic": topic}, {"topicPattern": "spark-bare.*"}):
        (row,) = read(spark, cluster, namespace="shop", **options).collect()
        assert (row.topic, bytes(row.body)) == (topic, b"in the shop")


def test_only_the_columns_of_the_schema_are_read(
    spark: SparkSession, embedded_cluster: EmbeddedCluster
) -> None:
    topic = make_topic(embedded_cluster, "chosen")
    send(embedded_cluster, [Message(topic, b"x", tags="t")])
    frame = read(spark, embedded_cluster, "QUEUEOFFSET bigint, body binary", topic=topic)
    assert [tuple(row) for row in frame.collect()] == [(0, bytearray(b"x"))]
    assert frame.columns == ["QUEUEOFFSET", "body"]
    without = read(spark, embedded_cluster, topic=topic, includeProperties=False)
    assert "properties" not in without.columns


def test_two_actions_on_one_frame_see_the_same(
    spark: SparkSession, embedded_cluster: EmbeddedCluster
) -> None:
    topic = make_topic(embedded_cluster, "settled")
    send(embedded_cluster, numbered(topic, 10))
    frame = read(spark, embedded_cluster, topic=topic)
    assert frame.count() == 10
    send(embedded_cluster, numbered(topic, 10))
    assert frame.count() == 10
    assert read(spark, embedded_cluster, topic=topic).count() == 20


def test_sql_finds_the_source(spark: SparkSession, embedded_cluster: EmbeddedCluster) -> None:
    topic = make_topic(embedded_cluster, "view")
    send(embedded_cluster, numbered(topic, 3))
    options = f"(namesrv '{embedded_cluster.namesrv}', topic '{topic}')"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW messages USING rocketmq OPTIONS {options}")
    assert spark.sql("SELECT decode(body, 'UTF-8') AS text FROM messages").count() == 3


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"topci": "x"}, "there is no option topci: did you mean topic"),
        ({"topic": "never-made"}, "no route to topic 'never-made'"),
        ({"topic": "x", "maxOffsetsPerTrigger": "5"}, "maxOffsetsPerTrigger is for a streaming"),
        ({"topic": "x", "accessKey": "me", "secretKey": "hush", "tls": "perhaps"}, "option tls is"),
        ({"namesrv": "127.0.0.1:1", "topic": "x", "retries": "0"}, "no NameServer answered"),
    ],
)
def test_what_is_wrong_is_told(
    spark: SparkSession,
    embedded_cluster: EmbeddedCluster,
    options: dict[str, str],
    complaint: str,
) -> None:
    with pytest.raises(PySparkException) as caught:
        read(spark, embedded_cluster, **options).collect()
    assert complaint in str(caught.value)
    assert "hush" not in str(caught.value)


def test_offsets_that_queues_do_not_have_are_refused(
    spark: SparkSession, embedded_cluster: EmbeddedCluster
) -> None:
    topic = make_topic(embedded_cluster, "bounds")
    send_to(embedded_cluster, MessageQueue(topic, "broker-a", 0), [b"x"] * 5)
    beyond = json.dumps({topic: {"broker-a": {"0": 6}}})
    with pytest.raises(PySparkException, match="offset 6 of queue 0"):
        read(spark, embedded_cluster, topic=topic, startingOffsets=beyond).collect()
    three, two = (json.dumps({topic: {"broker-a": {"0": number}}}) for number in (3, 2))
    with pytest.raises(PySparkException, match="from offset 3 up to 2"):
        read(
            spark, embedded_cluster, topic=topic, startingOffsets=three, endingOffsets=two
        ).collect()
    unknown = json.dumps({topic: {"broker-z": {"0": 6}}})
    with pytest.raises(PySparkException, match="which is not read"):
        read(spark, embedded_cluster, topic=topic, startingOffsets=unknown).collect()
