"""What was written twice is read once: in batches, in streams, over queues, topics and restarts."""

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from rocketpipe.testing import EmbeddedCluster
from tests.interop.clusters import Cluster
from tests.spark.test_stream import numbers, run
from tests.spark.test_write import stored, write
from tests.spark.topics import bodies, make_topic, read, read_stream

SCHEMA = "brokerName string, queueId int, queueOffset bigint, body binary"


def rows(spark: SparkSession, count: int, topics: tuple[str, ...] = ()) -> DataFrame:
    """Numbers, in two partitions; the topics take turns."""
    frame = spark.range(0, count, 1, 2).selectExpr("cast(id as string) as body", "id")
    if not topics:
        return frame.select("body")
    names = ", ".join(f"'{each}'" for each in topics)
    place = f"int(id % {len(topics)})"
    return frame.selectExpr("body", f"array({names})[{place}] as topic")


def in_order(numbers: range) -> list[bytes]:
    return sorted(b"%d" % number for number in numbers)


def test_what_was_written_twice_is_read_once(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    topic = make_topic(cluster, "repeats")
    # Requests are cut differently, so that copies lie in other queues than the originals.
    for batch in ("40", "7"):
        options = {"producer__batchMessagesMax": batch, "jobId": f"{topic} monday"}
        write(rows(spark, 400), cluster, topic=topic, **options)
    write(
        rows(spark, 100).selectExpr("int(body) + 400 as n").selectExpr("string(n) as body"),
        cluster,
        topic=topic,
    )
    stored(cluster, topic, 900)
    assert read(spark, cluster, topic=topic).count() == 900
    kept = read(spark, cluster, "body binary", topic=topic, dropRepeats=True)
    assert bodies(kept) == in_order(range(500))
    split = read(spark, cluster, "body binary", topic=topic, dropRepeats=True, minPartitions=9)
    assert bodies(split) == in_order(range(500))
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "130", "dropRepeats": "true"}
    stream = read_stream(spark, cluster, SCHEMA, topic=topic, **options)
    progress = run(stream, tmp_path)
    assert len([each for each in progress if each["numInputRows"]]) > 3
    assert numbers(spark, tmp_path) == list(range(500))
    # A third time, while the stream knows the first two only by its offsets.
    write(rows(spark, 400), cluster, topic=topic, jobId=f"{topic} monday")
    stored(cluster, topic, 1300)
    run(read_stream(spark, cluster, SCHEMA, topic=topic, **options), tmp_path)
    assert numbers(spark, tmp_path) == list(range(500))


def test_rows_of_several_topics_and_delayed_ones(
    spark: SparkSession, embedded_cluster: EmbeddedCluster
) -> None:
    cluster = embedded_cluster
    topics = tuple(make_topic(cluster, "repeats") for _ in range(3))
    frame = rows(spark, 60, topics)
    delayed = frame.selectExpr("*", "if(int(body) % 6 = 0, 1, 0) as delayLevel")
    for _ in range(2):
        write(delayed, cluster, jobId=f"{topics[0]} job")
    for number, topic in enumerate(topics):
        stored(cluster, topic, 40)
        kept = read(spark, cluster, "body binary", topic=topic, dropRepeats=True)
        assert bodies(kept) == in_order(range(number, 60, 3))


def test_a_lost_answer_leaves_a_repeat_that_is_dropped(
    spark: SparkSession, embedded_cluster: EmbeddedCluster
) -> None:
    """Within one attempt of a task: the producer sends again what a broker may have stored."""
    cluster = embedded_cluster
    cluster.heal()
    topic = make_topic(cluster, "repeats")
    faults = cluster.broker("broker-a").faults
    faults.drop_answers(topic=topic, times=3)
    options = {"producer__batchMessagesMax": "10", "producer__attemptTimeout": "1s"}
    write(rows(spark, 200), cluster, topic=topic, **options)
    faults.clear()
    found = stored(cluster, topic, 201)
    assert len({each.message_id for each in found}) == 200
    kept = read(spark, cluster, "body binary", topic=topic, dropRepeats=True)
    assert bodies(kept) == in_order(range(200))
