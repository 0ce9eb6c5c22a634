"""DataFrames become messages, on every kind of cluster: each row as it is, or an error names it."""

import asyncio
import os
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from rocketpipe.codes import ResponseCode
from rocketpipe.message import MessageQueue, StoredMessage
from rocketpipe.spark.row_ids import row_of
from rocketpipe.testing.embedded_cluster import EmbeddedCluster
from tests.interop.clusters import Cluster, Reader, mqadmin, needs_timers, new_topic

COLUMNS = (
    "topic string, body binary, tags string, keys array<string>, properties map<string,string>, "
    "delayLevel int, deliverAt timestamp, shardingKey string, queueId int, brokerName string"
)


def write(frame: DataFrame, cluster: Cluster, **options: str) -> None:
    named = {name.replace("__", "."): value for name, value in options.items()}
    writer = frame.write.format("rocketmq").option("namesrv", cluster.namesrv)
    writer.options(**named).mode("append").save()


def stored(cluster: Cluster, topic: str, count: int) -> list[StoredMessage]:
    """All messages of a topic, once there are so many."""

    async def ask() -> list[StoredMessage]:
        async with Reader(cluster.namesrv) as reader:
            return await reader.messages(topic, count)

    return asyncio.run(ask())


def create(cluster: Cluster, topic: str, queues: int = 4) -> list[MessageQueue]:
    async def ask() -> list[MessageQueue]:
        async with Reader(cluster.namesrv) as reader:
            return await reader.create_topic(topic, cluster.brokers, queues=queues)

    return asyncio.run(ask())


def rows(spark: SparkSession, *rows: Mapping[str, Any]) -> DataFrame:
    """In one partition, with the columns that any of them has."""
    names = [each.split()[0] for each in COLUMNS.split(", ")]
    used = [name for name in names if any(name in row for row in rows)]
    values = [tuple(row.get(name) for name in names) for row in rows]
    return spark.createDataFrame(values, COLUMNS).select(*used).coalesce(1)


def numbers(spark: SparkSession, count: int, partitions: int = 2) -> DataFrame:
    return spark.range(0, count, 1, partitions).selectExpr("cast(id as string) as body")


def error_of(action: Callable[[], object]) -> str:
    with pytest.raises(PySparkException) as caught:
        action()
    return str(caught.value)


def test_rows_of_every_kind_come_back_as_they_were(spark: SparkSession, cluster: Cluster) -> None:
    topic, other = new_topic("spark-rows"), new_topic("spark-rows")
    large = b"compressible " * (4 * 1024 * 1024 // 13)
    some: list[dict[str, Any]] = [
        {"topic": topic, "body": b"\x00\x01\x02\x00", "tags": "étiquette-标签"},
        {"topic": topic, "body": bytes(range(256)), "keys": ["k-1", "ключ"]},
        {"topic": topic, "body": b"3", "properties": {"名字": "值 é", "spaces": " in "}},
        {"topic": topic, "body": b"4", "shardingKey": "o-1 é"},
        {"topic": topic, "body": large, "tags": "large"},
        {"topic": other, "body": b"6", "tags": "", "keys": [], "properties": {}},
    ]
    for name in (topic, other):
        create(cluster, name)
    write(rows(spark, *some), cluster)
    found = stored(cluster, topic, 5) + stored(cluster, other, 1)
    assert len(found) == 6
    found.sort(key=lambda each: row_of(each.message_id))
    for n, (message, row) in enumerate(zip(found, some, strict=True)):
        assert row_of(message.message_id) == n
        assert (message.topic, message.body) == (row["topic"], row["body"])
        assert message.tags == (row.get("tags") or None)
        assert list(message.keys) == row.get("keys", [])
        assert message.properties.get("__SHARDINGKEY") == row.get("shardingKey")
        for name, value in row.get("properties", {}).items():
            assert message.properties[name] == value


def test_what_spark_wrote_spark_reads(spark: SparkSession, cluster: Cluster) -> None:
    topic = new_topic("spark-round-trip")
    create(cluster, topic)
    frame = spark.range(0, 5000, 1, 3).selectExpr(
        "cast(id as string) as body",
        "concat('t', id % 5) as tags",
        "array(concat('k', id), 'all') as keys",
        "map('n', cast(id as string)) as properties",
    )
    write(frame, cluster, topic=topic)
    stored(cluster, topic, 5000)
    read = spark.read.format("rocketmq").option("namesrv", cluster.namesrv)
    back = read.option("topic", topic).load()
    same = back.selectExpr(
        "cast(body as string) as body",
        "tags",
        "keys",
        "map('n', properties['n']) as properties",
    )
    assert sorted(same.collect()) == sorted(frame.collect())
    ids = [row.messageId for row in back.select("messageId").collect()]
    assert len(set(ids)) == 5000


def test_every_column_goes_there_and_back(spark: SparkSession, cluster: Cluster) -> None:
    """Each that can be written, and all that can be read; Spark itself compares them."""
    topic, other = new_topic("spark-all"), new_topic("spark-all")
    create(cluster, topic)
    place = create(cluster, other)[-1]
    at = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=2)
    some: list[dict[str, Any]] = [
        {"body": bytes(range(256)), "tags": "标签", "keys": ["k-1", "ключ"]},
        {"body": b"\x00", "properties": {"名字": "值 é", "spaces": " in "}, "shardingKey": "o-1 é"},
        {
            "body": b"here",
            "topic": other,
            "queueId": place.queue_id,
            "brokerName": place.broker_name,
        },
        {"body": b"soon", "delayLevel": 1},
        {"body": b"then", "deliverAt": at},
        {"body": b"compressible " * 1000},
        {"body": os.urandom(4 * 1024 * 1024)},  # as much as a broker takes
    ]
    written = rows(spark, *({"topic": topic, **row} for row in some)).cache()
    assert written.columns == [each.split()[0] for each in COLUMNS.split(", ")]
    write(written, cluster)
    stored(cluster, topic, len(some) - 1)
    read = spark.read.format("rocketmq").option("namesrv", cluster.namesrv)
    found = read.option("topic", f"{topic},{other}").load()
    both = found.alias("r").join(written.alias("w"), found.body == written.body)
    same = [
        "r.topic = w.topic",
        "r.tags <=> w.tags",
        "r.keys = coalesce(w.keys, array())",
        "r.properties['__SHARDINGKEY'] <=> w.shardingKey",
        "r.properties['DELAY'] <=> string(w.delayLevel)",
        "r.queueId = coalesce(w.queueId, r.queueId)",
        "r.brokerName = coalesce(w.brokerName, r.brokerName)",
        "forall(map_entries(coalesce(w.properties, map())), x -> r.properties[x.key] = x.value)",
        # What only a broker or a producer says.
        "r.queueOffset >= 0",
        "r.messageId = r.properties['UNIQ_KEY'] AND length(r.messageId) = 32",
        "length(r.offsetMessageId) = 32",
        f"r.bornTimestamp > timestamp_millis({int(at.timestamp() * 1000)}) - interval 1 minute",
        "r.storeTimestamp >= r.bornTimestamp",
        "r.bornHost LIKE '127.0.0.1:%' AND r.storeHost LIKE '127.0.0.1:%'",
        "r.flag = 0 AND r.reconsumeTimes = 0 AND r.deliveryAttempt IS NULL",
        "r.sysFlag & 1 = 0",  # told as it is without compression
    ]
    if cluster.version != "4.9.4":  # which delivers at once
        same.append("w.deliverAt IS NULL OR r.storeTimestamp >= w.deliverAt - interval 1 second")
    counts, ids, *answers = both.selectExpr(
        *("count(*)", "count(DISTINCT r.messageId)", *(f"every({each})" for each in same))
    ).collect()[0]
    assert (counts, ids, found.count()) == (len(some), len(some), len(some))
    assert dict(zip(same, answers, strict=True)) == dict.fromkeys(same, True)


def test_a_topic_that_is_not_there_yet_is_made(spark: SparkSession, cluster: Cluster) -> None:
    topic = new_topic("spark-new")
    write(numbers(spark, 100), cluster, topic=topic, producer__defaultTopicQueueNums="3")
    found = stored(cluster, topic, 100)
    assert sorted(int(each.body) for each in found) == list(range(100))


def test_the_same_key_has_the_same_queue_in_order(spark: SparkSession, cluster: Cluster) -> None:
    topic = new_topic("spark-keys")
    queues = create(cluster, topic)
    frame = spark.range(0, 3000, 1, 1).selectExpr(
        "cast(id as string) as body", "concat('key', id % 17) as shardingKey"
    )
    write(frame, cluster, topic=topic, producer__batchMessagesMax="16")
    where: dict[str, set[MessageQueue]] = {}

    async def read() -> None:
        async with Reader(cluster.namesrv) as reader:
            await reader.messages(topic, 3000)
            for queue in queues:
                seen = [
                    int(each.body) for each in await reader.read(queue, await reader.end(queue))
                ]
                for n in seen:
                    where.setdefault(f"key{n % 17}", set()).add(queue)
                for key in range(17):
                    of_key = [n for n in seen if n % 17 == key]
                    assert of_key == sorted(of_key)

    asyncio.run(read())
    assert sorted(map(len, where.values())) == [1] * 17


def test_rows_go_to_the_queue_they_name(spark: SparkSession, cluster: Cluster) -> None:
    topic = new_topic("spark-queues")
    queues = create(cluster, topic)
    some = [
        {"body": b"%d" % n, "queueId": queue.queue_id, "brokerName": queue.broker_name}
        for n, queue in enumerate(queues)
    ]
    write(rows(spark, *some, *some), cluster, topic=topic)

    async def read() -> list[list[bytes]]:
        async with Reader(cluster.namesrv) as reader:
            await reader.messages(topic, 2 * len(queues))
            return [[each.body for each in await reader.read(queue, 2)] for queue in queues]

    assert asyncio.run(read()) == [[b"%d" % n] * 2 for n in range(len(queues))]


def test_a_delayed_row_arrives_later(spark: SparkSession, cluster: Cluster) -> None:
    topic = new_topic("spark-delay")
    create(cluster, topic)
    write(rows(spark, {"body": b"soon", "delayLevel": 1}, {"body": b"now"}), cluster, topic=topic)
    by_body = {each.body: each for each in stored(cluster, topic, 2)}
    assert by_body[b"soon"].properties["DELAY"] == "1"
    late = by_body[b"soon"].store_timestamp_ms - by_body[b"soon"].born_timestamp_ms
    assert late >= 900
    assert "DELAY" not in by_body[b"now"].properties


def test_a_row_has_its_hour(spark: SparkSession, cluster: Cluster) -> None:
    needs_timers(cluster)
    topic = new_topic("spark-hour")
    create(cluster, topic)
    at = datetime.now(UTC) + timedelta(seconds=3)
    write(rows(spark, {"body": b"then", "deliverAt": at}), cluster, topic=topic)
    (message,) = stored(cluster, topic, 1)
    assert message.store_timestamp_ms >= int(at.timestamp()) * 1000 - 1000


def test_apaches_tool_finds_a_row_by_its_id(spark: SparkSession, cluster: Cluster) -> None:
    topic = new_topic("spark-find")
    create(cluster, topic)
    write(numbers(spark, 20), cluster, topic=topic, jobId="find me")
    message = stored(cluster, topic, 20)[7]
    found = mqadmin(cluster, "queryMsgByUniqueKey", "-i", message.message_id, "-t", topic)
    assert message.message_id in found
    assert f"{message.queue_offset}" in found


def test_a_job_with_an_id_repeats_its_message_ids(spark: SparkSession, cluster: Cluster) -> None:
    topic = new_topic("spark-job")
    create(cluster, topic)
    for job in ("monday", "monday", "tuesday"):
        write(numbers(spark, 10), cluster, topic=topic, jobId=job)
    counts = Counter(each.message_id for each in stored(cluster, topic, 30))
    assert sorted(counts.values()) == [1] * 10 + [2] * 10
    bodies: dict[str, set[bytes]] = {}
    for each in stored(cluster, topic, 30):
        bodies.setdefault(each.message_id, set()).add(each.body)
    assert all(len(same) == 1 for same in bodies.values())


def test_a_dead_broker_costs_no_row(spark: SparkSession, cluster: Cluster) -> None:
    topic = new_topic("spark-dead-broker")
    create(cluster, topic)
    killing = threading.Timer(0.5, cluster.broker("broker-b").kill)
    killing.start()
    frame = spark.range(0, 200_000, 1, 4).selectExpr(
        "cast(rpad(cast(id as string), 50, ' ') as binary) as body"
    )
    write(frame, cluster, topic=topic, producer__batchMessagesMax="64")
    killing.join()
    cluster.heal()
    # What was acknowledged is there, and perhaps more than once: an answer may have been lost.
    read = spark.read.format("rocketmq").option("namesrv", cluster.namesrv).option("topic", topic)

    def distinct() -> tuple[int, int]:
        row = read.load().selectExpr("count(distinct messageId)", "count(distinct body)").collect()
        return row[0][0], row[0][1]

    stored(cluster, topic, 200_000)
    assert distinct() == (200_000, 200_000)


# What is refused.


@pytest.fixture
def embedded(embedded_cluster: EmbeddedCluster) -> EmbeddedCluster:
    embedded_cluster.heal()
    return embedded_cluster


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"body": None}, "the body is null"),
        ({"body": b""}, "the body is empty"),
        ({"body": b"x" * (4 * 1024 * 1024 + 1)}, "4194304 are allowed"),
        ({"topic": None}, "the topic is null"),
        ({"topic": "a b"}, "letters, digits"),
        ({"keys": ["a b"]}, "key 'a b'"),
        ({"keys": [None]}, "a key is null"),
        ({"properties": {"KEYS": "x"}}, "RocketMQ's own"),
        ({"delayLevel": -1}, "delayLevel -1"),
        ({"shardingKey": "k", "queueId": 0, "brokerName": "broker-a"}, "give one of them"),
        ({"queueId": 77, "brokerName": "broker-a"}, "no queue 77"),
    ],
)
def test_a_bad_row_fails_the_write_by_its_name(
    spark: SparkSession, embedded: EmbeddedCluster, row: dict[str, Any], reason: str
) -> None:
    topic = new_topic("spark-bad-row")
    create(embedded, topic)
    good = {"topic": topic, "body": b"good"}
    text = error_of(lambda: write(rows(spark, good, good, {**good, **row}), embedded))
    assert "rocketpipe.errors.InvalidMessage: partition 0, row 2: " in text
    assert reason in text


def test_a_bad_column_or_option_fails_before_anything_is_sent(
    spark: SparkSession, embedded: EmbeddedCluster
) -> None:
    topic = new_topic("spark-bad-plan")
    frame = numbers(spark, 10)
    for bad, options, reason in (
        (frame.withColumnRenamed("body", "value"), {}, "column 'value' can't be written"),
        (frame.selectExpr("1 as body"), {}, "column 'body' is int"),
        (frame, {"speed": "high"}, "there is no option speed"),
        (frame, {"producer.policy": "best"}, "producer.policy is 'best'"),
    ):
        text = error_of(lambda: write(bad, embedded, topic=topic, **options))  # noqa: B023
        assert reason in text
    assert "no topic: give the option topic" in error_of(lambda: write(frame, embedded))
    writer = frame.write.format("rocketmq").option("namesrv", embedded.namesrv)
    text = error_of(lambda: writer.option("topic", topic).mode("overwrite").save())
    assert "a topic can't be overwritten" in text
    text = error_of(lambda: write(frame, embedded, topic=topic, secretKey="hidden-thing"))
    assert "accessKey is missing" in text
    assert "hidden-thing" not in text


def test_a_send_that_fails_tells_its_rows_and_attempts(
    spark: SparkSession, embedded: EmbeddedCluster
) -> None:
    topic = new_topic("spark-failing")
    create(embedded, topic)
    embedded.broker("broker-b").faults.refuse(
        ResponseCode.SERVICE_NOT_AVAILABLE, "no more today", topic=topic
    )
    queue = {"queueId": 0, "brokerName": "broker-b"}
    some: list[dict[str, Any]] = [{"body": b"1"}, {"body": b"2", **queue}, {"body": b"3", **queue}]
    text = error_of(lambda: write(rows(spark, *some), embedded, topic=topic))
    assert "partition 0, 2 rows from 1 on: 2 messages from" in text
    assert f"send to topic {topic!r} failed after 3 attempts" in text
    assert text.count("no more today") == 3


def test_only_the_statuses_asked_for_are_good_enough(spark: SparkSession) -> None:
    topic = new_topic("spark-status")
    with EmbeddedCluster(1, settings={"brokerRole": "SYNC_MASTER"}) as cluster:
        text = error_of(lambda: write(numbers(spark, 3, 1), cluster, topic=topic))
        assert "broker-a answered SLAVE_NOT_AVAILABLE, which is not among acceptedStatuses" in text
        assert "partition 0, 3 rows from 0 on" in text
        accepted = "SEND_OK,SLAVE_NOT_AVAILABLE"
        write(numbers(spark, 3, 1), cluster, topic=topic, acceptedStatuses=accepted)
        assert len(stored(cluster, topic, 6)) == 6


# Streams.


def stream(spark: SparkSession, cluster: Cluster, topic: str, to: str, folder: Path) -> None:
    """Copy what is there, a few at a time."""
    read = spark.readStream.format("rocketmq").option("namesrv", cluster.namesrv)
    read = read.option("topic", topic).option("startingOffsets", "earliest")
    frame = read.option("maxOffsetsPerTrigger", 40).load().select("body", "tags", "keys")
    writing = frame.writeStream.format("rocketmq").option("namesrv", cluster.namesrv)
    writing = writing.option("topic", to).option("checkpointLocation", str(folder))
    query = writing.trigger(availableNow=True).start()
    assert query.awaitTermination(180)


def test_a_micro_batch_that_comes_again_has_the_same_ids(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    source, copy = new_topic("spark-source"), new_topic("spark-copy")
    create(cluster, source)
    create(cluster, copy)
    write(numbers(spark, 100), cluster, topic=source)
    stored(cluster, source, 100)
    stream(spark, cluster, source, copy, tmp_path)
    assert sorted(int(each.body) for each in stored(cluster, copy, 100)) == list(range(100))
    # As if it had been killed when all was sent and nobody knew it yet.
    last = max(int(each.name) for each in (tmp_path / "commits").glob("[0-9]*"))
    for path in (tmp_path / "commits").glob(f"*{last}*"):
        path.unlink()
    stream(spark, cluster, source, copy, tmp_path)
    counts = Counter(each.message_id for each in stored(cluster, copy, 101))
    assert len(counts) == 100
    assert set(counts.values()) == {1, 2}


def test_a_stream_can_not_overwrite_either(
    spark: SparkSession, embedded: EmbeddedCluster, tmp_path: Path
) -> None:
    counts = spark.readStream.format("rate").load().groupBy().count()
    writing = counts.selectExpr("cast(count as string) as body").writeStream.format("rocketmq")
    writing = writing.option("namesrv", embedded.namesrv).option("topic", new_topic("spark"))
    writing = writing.option("checkpointLocation", str(tmp_path)).outputMode("complete")

    def run() -> None:
        query = writing.start()
        query.processAllAvailable()

    assert "a topic can't be overwritten" in error_of(run)
