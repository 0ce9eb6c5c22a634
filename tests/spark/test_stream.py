"""Streams: limits, restarts, new queues, groups, and what a checkpoint remembers."""

import json
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from rocketpipe import Admin, Message, MessageQueue
from rocketpipe.testing import EmbeddedCluster
from tests.interop.clusters import Cluster, new_topic
from tests.spark.topics import TIMEOUT, make_topic, numbered, read, read_stream, send, send_to

STARTS_MAX = 3
SCHEMA = "brokerName string, queueId int, queueOffset bigint, body binary"


def run(frame: DataFrame, folder: Path, **trigger: Any) -> list[dict[str, Any]]:
    """Let a query run to its end over what is there; the progress of each micro-batch.

    Spark gives its own processes ten seconds to start, whatever else the machine does: a query that
    has not begun for that is started again.
    """
    for _ in range(STARTS_MAX - 1):
        try:
            return _run(frame, folder, **trigger)
        except StreamingQueryException as error:
            if "failed to connect back" not in str(error):
                raise
    return _run(frame, folder, **trigger)


def _run(frame: DataFrame, folder: Path, **trigger: Any) -> list[dict[str, Any]]:
    query = (
        frame.writeStream.format("parquet")
        .option("path", str(folder / "output"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(**(trigger or {"availableNow": True}))
        .start()
    )
    try:
        assert query.awaitTermination(TIMEOUT)
        return [json.loads(each.json) for each in query.recentProgress]
    finally:
        query.stop()


def output(spark: SparkSession, folder: Path) -> list[tuple[str, int, int, bytes]]:
    """What was written, sorted."""
    rows = spark.read.schema(SCHEMA).parquet(str(folder / "output")).collect()
    return sorted((row[0], row[1], row[2], bytes(row[3])) for row in rows)


def total(offsets: str | dict[str, Any]) -> int:
    """The sum of all offsets, which Spark shows as JSON or as its text."""
    parsed = json.loads(offsets) if isinstance(offsets, str) else offsets
    return sum(
        offset
        for brokers in parsed["topics"].values()
        for queues in brokers.values()
        for offset in queues.values()
    )


def numbers(spark: SparkSession, folder: Path) -> list[int]:
    return sorted(int(row[3]) for row in output(spark, folder))


def test_a_restart_reads_each_offset_once(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    topic = make_topic(cluster, "restart")
    options = {"topic": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": 40}
    send(cluster, numbered(topic, 100))
    progress = run(read_stream(spark, cluster, SCHEMA, **options), tmp_path)
    rows = [each["numInputRows"] for each in progress if each["numInputRows"]]
    assert sum(rows) == 100
    assert max(rows) <= 40
    # How far behind it was after each batch.
    sources = [each["sources"][0] for each in progress if each["numInputRows"]]
    behind = [total(each["latestOffset"]) - total(each["endOffset"]) for each in sources]
    assert behind == [100 - sum(rows[: number + 1]) for number in range(len(rows))]
    assert numbers(spark, tmp_path) == list(range(100))
    send(cluster, numbered(topic, 50, start=100))
    run(read_stream(spark, cluster, SCHEMA, **options), tmp_path)
    assert numbers(spark, tmp_path) == list(range(150))
    run(read_stream(spark, cluster, SCHEMA, **options), tmp_path)  # nothing new
    assert numbers(spark, tmp_path) == list(range(150))
    places = [row[:3] for row in output(spark, tmp_path)]
    assert len(set(places)) == 150


def test_a_query_that_runs_gets_what_comes(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    """Also topics, brokers and queues that were not there when it began."""
    first = new_topic("spark-running-x")
    with Admin(namesrv=cluster.namesrv) as admin:
        admin.create_topic(first, queues=1, brokers=["broker-a"])
    frame = read_stream(
        spark,
        cluster,
        SCHEMA,
        topicPattern="spark-running-x.*",
        startingOffsets="earliest",
        discoveryInterval="100ms",
    )
    query = (
        (
            frame.writeStream.format("memory")
            .queryName("running")
            .option("checkpointLocation", str(tmp_path))
        )
        .trigger(processingTime="100 milliseconds")
        .start()
    )
    try:
        send(cluster, numbered(first, 10))
        query.processAllAvailable()
        assert spark.table("running").count() == 10
        second = make_topic(cluster, "running-x", queues=1)
        send(cluster, numbered(second, 10, start=10))
        with Admin(namesrv=cluster.namesrv) as admin:
            admin.alter_topic(first, read_queues=3, write_queues=3)
            admin.create_topic(first, queues=2, brokers=["broker-b"], exist_ok=True)
        for number, place in enumerate([("broker-a", 0), ("broker-a", 2), ("broker-b", 1)]):
            send_to(cluster, MessageQueue(first, *place), [b"%d" % (20 + number)])
        found: list[int] = []
        for _ in range(TIMEOUT):
            query.processAllAvailable()
            rows = spark.table("running").collect()
            found = sorted(int(row.body) for row in rows)
            if len(found) >= 23:
                break
            query.awaitTermination(1)
        assert found == list(range(23))
        assert query.lastProgress is not None
        source = json.loads(query.lastProgress.json)["sources"][0]
        end = source["endOffset"]
        assert end == source["latestOffset"] or json.loads(end) == json.loads(
            source["latestOffset"]
        )
    finally:
        query.stop()


def stored(cluster: Cluster, group: str, topic: str) -> int:
    """The sum of the offsets that brokers have of a group."""
    with Admin(namesrv=cluster.namesrv) as admin:
        queues = admin.subscribe_queues(topic)
        return sum(max(0, admin.consumer_offset(group, queue) or 0) for queue in queues)


def test_a_group_shows_how_far_a_query_is(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    topic, group = make_topic(cluster, "group"), new_topic("spark-group")
    send(cluster, numbered(topic, 100))
    options = {
        "topic": topic,
        "startingOffsets": "earliest",
        "group": group,
        "maxOffsetsPerTrigger": 50,
    }
    run(read_stream(spark, cluster, SCHEMA, **options), tmp_path)
    assert stored(cluster, group, topic) == 100  # its last batch too
    # A new query goes on where the group is.
    send(cluster, numbered(topic, 30, start=100))
    options["startingOffsets"] = "group"
    frame = read_stream(spark, cluster, SCHEMA, **options)
    run(frame, tmp_path / "second")
    assert numbers(spark, tmp_path / "second") == list(range(100, 130))


def test_a_group_of_an_idle_stream_does_not_lag(
    spark: SparkSession, embedded_cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    topic, group = make_topic(embedded_cluster, "idle"), new_topic("spark-idle")
    send(embedded_cluster, numbered(topic, 20))
    query = (
        read_stream(
            spark, embedded_cluster, SCHEMA, topic=topic, startingOffsets="earliest", group=group
        )
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path))
        .trigger(processingTime="100 milliseconds")
        .start()
    )
    try:
        for _ in range(TIMEOUT):
            if stored(embedded_cluster, group, topic) == 20 or query.awaitTermination(1):
                break
        assert stored(embedded_cluster, group, topic) == 20
        batches = [json.loads(each.json) for each in query.recentProgress]
        assert [each["numInputRows"] for each in batches if each["numInputRows"]] == [20]
    finally:
        query.stop()


def test_a_namespace_is_that_of_topics_and_groups_in_sink_and_source(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    topic, group = make_topic(cluster, "bare"), new_topic("spark-shop")
    options = {"topic": topic, "namespace": "shop"}
    rows = spark.range(0, 30, 1, 1).selectExpr("string(id) AS body")
    sink = rows.write.format("rocketmq").option("namesrv", cluster.namesrv)
    sink.options(**options).mode("append").save()
    options |= {"startingOffsets": "earliest", "group": group}
    run(read_stream(spark, cluster, SCHEMA, **options), tmp_path)
    assert numbers(spark, tmp_path) == list(range(30))
    assert stored(cluster, f"shop%{group}", f"shop%{topic}") == 30
    assert stored(cluster, group, topic) == 0
    assert read(spark, cluster, topic=topic).count() == 0  # the one without a namespace


def test_a_micro_batch_waits_until_enough_is_there_but_not_for_ever(
    spark: SparkSession, embedded_cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    topic = make_topic(embedded_cluster, "few")

    def start(delay: str) -> StreamingQuery:
        options = {"topic": topic, "startingOffsets": "earliest"}
        limits = {"minOffsetsPerTrigger": 50, "maxTriggerDelay": delay}
        frame = read_stream(spark, embedded_cluster, SCHEMA, **options, **limits)
        writing = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path))
        return writing.trigger(processingTime="100 milliseconds").start()

    def wait_for(query: StreamingQuery, rows: int) -> list[dict[str, Any]]:
        """The progress of each batch that read something, once so many rows are read."""
        deadline = time.monotonic() + TIMEOUT
        while True:
            progress = [json.loads(each.json) for each in query.recentProgress]
            batches = [each for each in progress if each["numInputRows"]]
            if sum(each["numInputRows"] for each in batches) >= rows:
                return batches
            assert query.isActive, query.status
            assert time.monotonic() < deadline, query.status
            time.sleep(0.1)

    send(embedded_cluster, numbered(topic, 30))
    query = start("1h")
    try:
        # For data or for the next trigger: it has had a look.
        while not query.status["message"].startswith("Waiting for"):
            assert query.isActive
            time.sleep(0.1)
        send(embedded_cluster, numbered(topic, 30))
        assert [each["numInputRows"] for each in wait_for(query, 60)] == [60]
    finally:
        query.stop()
    send(embedded_cluster, numbered(topic, 50))
    query = start("2s")
    try:
        wait_for(query, 50)
        send(embedded_cluster, numbered(topic, 10))
        first, second = wait_for(query, 60)
        began = [datetime.fromisoformat(each["timestamp"]) for each in (first, second)]
        # From when it was asked to when it was asked, which is a little after a trigger begins.
        assert began[1] - began[0] > timedelta(seconds=1.5)
    finally:
        query.stop()


def test_deleted_messages_follow_fail_on_data_loss(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    topic = make_topic(cluster, "loss")
    queue = MessageQueue(topic, "broker-a", 0)
    send_to(cluster, queue, [b"%d" % number for number in range(20)])
    options = {"topic": topic, "startingOffsets": "earliest", "pullTimeout": "100ms"}
    run(read_stream(spark, cluster, SCHEMA, **options), tmp_path)
    with Admin(namesrv=cluster.namesrv) as admin:
        admin.delete_topic(topic)
        admin.create_topic(topic, queues=2)
    send_to(cluster, queue, [b"%d" % number for number in range(100, 105)])
    frame = read_stream(spark, cluster, SCHEMA, **options)
    query = (
        frame.writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(processingTime="100 milliseconds")
        .start()
    )
    with pytest.raises(StreamingQueryException, match="failOnDataLoss"):
        query.awaitTermination(TIMEOUT)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"topic": "x", "endingOffsets": "latest"}, "endingOffsets is for a batch query"),
        ({"topic": "never-made"}, "no route to topic 'never-made'"),
    ],
)
def test_what_is_wrong_is_told(
    spark: SparkSession,
    embedded_cluster: EmbeddedCluster,
    tmp_path: Path,
    options: dict[str, str],
    complaint: str,
) -> None:
    with pytest.raises(PySparkException) as caught:
        run(read_stream(spark, embedded_cluster, **options), tmp_path)
    assert complaint in str(caught.value)


def test_a_failed_batch_comes_again_with_the_same_offsets(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    topic, group = make_topic(cluster, "failed"), new_topic("spark-failed")
    with Admin(namesrv=cluster.namesrv) as admin:
        admin.create_group(group)  # brokers refuse offsets of one that they have never seen
    send(cluster, [Message(topic, b"%d" % number) for number in range(30)])
    options = {"topic": topic, "startingOffsets": "earliest", "group": group}
    broken = read_stream(spark, cluster, SCHEMA, **options).selectExpr(
        *("brokerName", "queueId", "queueOffset"),
        "IF(queueOffset >= 0, raise_error('broken on purpose'), body) AS body",
    )
    with pytest.raises(StreamingQueryException):
        run(broken, tmp_path)
    assert stored(cluster, group, topic) == 0
    send(cluster, numbered(topic, 10, start=30))
    run(read_stream(spark, cluster, SCHEMA, **options), tmp_path)
    assert numbers(spark, tmp_path) == list(range(40))
    assert stored(cluster, group, topic) == 40
