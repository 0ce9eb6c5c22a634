"""What a broker deletes before a query has read it: `failOnDataLoss`."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from rocketpipe import Admin, MessageQueue
from rocketpipe.testing import EmbeddedCluster
from tests.spark.test_stream import SCHEMA, output, run
from tests.spark.topics import TIMEOUT, make_topic, read, read_stream, send_to


@pytest.fixture(scope="module")
def forgetful() -> Iterator[EmbeddedCluster]:
    """A broker that takes its disk for too full, and keeps no segment of its log but the last. A
    segment has room for one message of ours."""
    settings = {
        "mappedFileSizeCommitLog": 20_000,
        "diskSpaceCleanForciblyRatio": 1,  # percent
        "diskSpaceWarningLevelRatio": 100,
        "diskFreeBytesEnough": 1 << 62,
        "cleanResourceInterval": 100,
    }
    with EmbeddedCluster(1, settings=settings) as cluster:
        yield cluster


def send_large(cluster: EmbeddedCluster, queue: MessageQueue, count: int) -> None:
    send_to(cluster, queue, [os.urandom(15_000)] * count)


def wait_until_gone(cluster: EmbeddedCluster, queue: MessageQueue, first: int) -> None:
    """Until this is the first offset that is left."""
    deadline = time.monotonic() + TIMEOUT
    with Admin(namesrv=cluster.namesrv) as admin:
        while admin.min_offset(queue) < first:
            assert time.monotonic() < deadline, f"offset {admin.min_offset(queue)} is still there"
            time.sleep(0.1)
        assert admin.min_offset(queue) == first


def offsets(frame: DataFrame) -> list[int]:
    return [row.queueOffset for row in frame.collect()]


def test_a_batch_of_messages_that_are_gone_follows_fail_on_data_loss(
    spark: SparkSession, forgetful: EmbeddedCluster
) -> None:
    topic = make_topic(forgetful, "batch-loss", queues=1)
    queue = MessageQueue(topic, "broker-a", 0)
    start = json.dumps({topic: {"broker-a": {"0": 0}}})

    def frame(fails: bool) -> DataFrame:
        options = {"topic": topic, "startingOffsets": start, "failOnDataLoss": fails}
        return read(spark, forgetful, SCHEMA, **options)

    send_large(forgetful, queue, 1)
    planned = {fails: frame(fails) for fails in (True, False)}
    for each in planned.values():
        assert offsets(each) == [0]  # what they read is settled now
    send_large(forgetful, queue, 3)
    wait_until_gone(forgetful, queue, 3)
    for strict in (planned[True], frame(True)):
        with pytest.raises(PySparkException, match="offset 0 was to be read next"):
            strict.collect()
    assert offsets(planned[False]) == []
    assert offsets(frame(False)) == [3]


def test_a_stream_behind_messages_that_are_gone_follows_fail_on_data_loss(
    spark: SparkSession, forgetful: EmbeddedCluster, tmp_path: Path
) -> None:
    topic = make_topic(forgetful, "stream-loss", queues=1)
    queue = MessageQueue(topic, "broker-a", 0)
    options = {"topic": topic, "startingOffsets": "earliest"}
    send_large(forgetful, queue, 1)
    run(read_stream(spark, forgetful, SCHEMA, **options), tmp_path)
    send_large(forgetful, queue, 3)
    wait_until_gone(forgetful, queue, 3)
    with pytest.raises(StreamingQueryException, match="offset 1 was to be read next"):
        run(read_stream(spark, forgetful, SCHEMA, **options), tmp_path)
    # The same micro-batch comes again.
    run(read_stream(spark, forgetful, SCHEMA, failOnDataLoss=False, **options), tmp_path)
    assert [row[2] for row in output(spark, tmp_path)] == [0, 3]
