"""What is sent again can be recognised: after failed tasks, killed queries and killed brokers."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rocketpipe import Message, Producer
from rocketpipe.message import StoredMessage
from rocketpipe.testing.embedded_cluster import EmbeddedCluster
from tests.interop.clusters import new_topic
from tests.spark.test_write import create, stored

PROGRAM = Path(__file__).parent / "copying_query.py"
RUN_SECONDS_MAX = 600.0  # ample: a busy machine takes a minute to start Spark
KILLS = 3


class Copying:
    """Runs of one query, one after another."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._settings = settings

    def start(self) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, str(PROGRAM), json.dumps(self._settings)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,  # so that its JVM and its workers can be killed with it
        )

    def finish(self) -> str:
        """Let it run to its end; what it printed."""
        running = self.start()
        try:
            output, _ = running.communicate(timeout=RUN_SECONDS_MAX)
        finally:
            kill(running)
        return output


def kill(running: "subprocess.Popen[str]") -> None:
    try:
        os.killpg(running.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # all of it has ended
    running.communicate()


@pytest.fixture
def embedded(embedded_cluster: EmbeddedCluster) -> EmbeddedCluster:
    embedded_cluster.heal()
    return embedded_cluster


def copying(
    cluster: EmbeddedCluster,
    spark_settings: dict[str, str],
    folder: Path,
    count: int,
    *,
    body_bytes: int = 10,
    **more: Any,
) -> tuple[Copying, str]:
    """A query, and the topic to which it copies so many messages."""
    source, copy = new_topic("spark-source"), new_topic("spark-copy")
    for topic in (source, copy):
        create(cluster, topic, queues=2)
    with Producer("spark-tests", namesrv=cluster.namesrv, send_timeout=30.0) as producer:
        producer.send_many(Message(source, b"%d" % n + b" " * body_bytes) for n in range(count))
    stored(cluster, source, count)
    settings = {
        "master": "local[2]",
        "spark": spark_settings,
        "namesrv": cluster.namesrv,
        "source": source,
        "copy": copy,
        "perTrigger": 500,
        "checkpoint": str(folder / "checkpoint"),
        "fails": False,
        **more,
    }
    return Copying(settings), copy


def assert_one_of_each(messages: list[StoredMessage], count: int) -> Counter[str]:
    """Repeats dropped by id, each number is there once; how often each id was there before."""
    first = {each.message_id: each for each in messages}
    assert sorted(int(each.body) for each in first.values()) == list(range(count))
    assert all(first[each.message_id].body == each.body for each in messages)
    return Counter(each.message_id for each in messages)


def test_a_task_that_is_tried_again_sends_the_same_ids(
    embedded: EmbeddedCluster, spark_settings: dict[str, str], tmp_path: Path
) -> None:
    # Else Spark would hand over nothing before a task has 10,000 rows, or 64 KiB, or fails.
    settings = {**spark_settings, "spark.sql.execution.arrow.maxRecordsPerBatch": "20"}
    more = {"master": "local[2,3]", "fails": True, "perTrigger": 10_000}
    query, copy = copying(embedded, settings, tmp_path, 1000, body_bytes=2000, **more)
    assert "done" in query.finish()
    counts = assert_one_of_each(stored(embedded, copy, 1000), 1000)
    assert set(counts.values()) == {1, 2}
