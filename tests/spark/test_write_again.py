"""What a task sends again can be recognised. Queries and brokers that are killed are in
`test_stream_processes.py`."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rocketpipe import Message
from rocketpipe.testing.embedded_cluster import EmbeddedCluster
from tests.interop.clusters import new_topic
from tests.spark.test_write import create, stored
from tests.spark.topics import send

PROGRAM = Path(__file__).parent / "copying_query.py"
COUNT = 1000
RUN_SECONDS_MAX = 600.0  # ample: a busy machine takes a minute to start Spark


def run(settings: dict[str, Any]) -> str:
    """Let the query run to its end; what it printed."""
    running = subprocess.Popen(
        [sys.executable, str(PROGRAM), json.dumps(settings)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,  # so that its JVM and its workers can be killed with it
    )
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


def test_a_task_that_is_tried_again_sends_the_same_ids(
    embedded: EmbeddedCluster, spark_settings: dict[str, str], tmp_path: Path
) -> None:
    source, copy = new_topic("spark-source"), new_topic("spark-copy")
    for topic in (source, copy):
        create(embedded, topic, queues=2)
    send(embedded, [Message(source, b"%d" % n + b" " * 2000) for n in range(COUNT)])
    stored(embedded, source, COUNT)
    settings = {
        "master": "local[2,3]",  # three attempts
        # Else Spark would hand over nothing before a task has 10,000 rows, or 64 KiB, or fails.
        "spark": {**spark_settings, "spark.sql.execution.arrow.maxRecordsPerBatch": "20"},
        "namesrv": embedded.namesrv,
        "source": source,
        "copy": copy,
        "checkpoint": str(tmp_path / "checkpoint"),
    }
    assert "done" in run(settings)
    found = stored(embedded, copy, COUNT)
    # Repeats dropped by id, each number is there once.
    first = {each.message_id: each for each in found}
    assert sorted(int(each.body) for each in first.values()) == list(range(COUNT))
    assert all(first[each.message_id].body == each.body for each in found)
    assert set(Counter(each.message_id for each in found).values()) == {1, 2}
