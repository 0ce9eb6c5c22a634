"""Queries in processes of their own: killed at random, on executors apart, and behind Connect."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from rocketpipe import Admin, Message, Producer
from rocketpipe.errors import MQError
from rocketpipe.testing import EmbeddedCluster
from tests.interop.clusters import Cluster
from tests.spark.topics import make_topic, numbered, send

ROOT = Path(__file__).parents[2]
SENDS_MAX = 2000  # of twenty messages, so that a slow machine is not given ever more to read
DEADLINE = 600.0  # seconds, for a session to start and a query to get somewhere
KILLS = int(os.environ.get("ROCKETPIPE_KILLS", "5"))  # 20 and more in a long test


def start(task: dict[str, Any], **kwargs: Any) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "tests.spark.query", json.dumps(task)]
    # A group of its own, so that Java and its workers are killed with it.
    return subprocess.Popen(command, cwd=ROOT, text=True, start_new_session=True, **kwargs)


def kill(process: "subprocess.Popen[str]") -> None:
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def finish(task: dict[str, Any]) -> dict[str, int]:
    """What a query printed that ended by itself."""
    with start(task, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            out, err = process.communicate(timeout=DEADLINE)
        except subprocess.TimeoutExpired:
            kill(process)
            raise
    assert process.returncode == 0, err[-3000:]
    answer: dict[str, int] = json.loads(out.strip().splitlines()[-1])
    return answer


@pytest.mark.parametrize("where", [{"master": "local-cluster[2,1,1024]"}, {"remote": "local[2]"}])
def test_reading_where_driver_and_executors_are_apart(
    where: dict[str, str],
    spark_settings: dict[str, str],
    embedded_cluster: EmbeddedCluster,
    tmp_path: Path,
) -> None:
    topic = make_topic(embedded_cluster, "apart")
    send(embedded_cluster, numbered(topic, 2000))
    options = {"namesrv": embedded_cluster.namesrv, "topic": topic}
    task: dict[str, Any] = {**where, "settings": spark_settings, "options": options}
    task |= {"folder": str(tmp_path), "limit": 1000}
    assert finish(task) == {"rows": 2000, "streamed": 2000}


@contextmanager
def sending(cluster: Cluster, topic: str) -> Iterator[None]:
    """Messages keep coming, whatever happens to brokers."""
    is_over = threading.Event()

    def run() -> None:
        with Producer("spark-kills", namesrv=cluster.namesrv) as producer:
            for _ in range(SENDS_MAX):
                if is_over.wait(0.1):
                    return
                try:
                    producer.send_many([Message(topic, os.urandom(50)) for _ in range(20)])
                except MQError:
                    pass  # a broker is away

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def test_a_query_that_is_killed_at_random_writes_each_message_once(
    spark: SparkSession,
    spark_settings: dict[str, str],
    embedded_cluster: EmbeddedCluster,
    tmp_path: Path,
) -> None:
    cluster = embedded_cluster
    seed = random.randrange(1 << 32)
    print("seed", seed)  # noqa: T201
    dice = random.Random(seed)
    topic = make_topic(cluster, "killed", queues=3)
    send(cluster, numbered(topic, 100))
    options = {"namesrv": cluster.namesrv, "topic": topic}
    task: dict[str, Any] = {"master": "local[2]", "settings": spark_settings, "options": options}
    task |= {"folder": str(tmp_path), "follow": True, "limit": 500}
    commits = tmp_path / "checkpoint" / "commits"

    def batches() -> int:
        return len(list(commits.glob("[0-9]*"))) if commits.exists() else 0

    def wait_for_batches(process: "subprocess.Popen[str]", count: int) -> None:
        before, deadline = batches(), time.monotonic() + DEADLINE
        while batches() < before + count:
            assert process.poll() is None, "the query ended by itself"
            assert time.monotonic() < deadline, "no batch for too long"
            time.sleep(0.05)

    with sending(cluster, topic):
        for number in range(KILLS):
            process = start(task, stderr=subprocess.DEVNULL)
            try:
                wait_for_batches(process, 1)
                if number % 2:
                    broker = cluster.broker(dice.choice(["broker-a", "broker-b"]))
                    broker.kill()
                    time.sleep(dice.random())
                    broker.start()
                time.sleep(dice.random())
            finally:
                kill(process)
    # All that is stored is read to the end, and compared with what brokers hold.
    process = start({**task, "limit": 1_000_000}, stderr=subprocess.DEVNULL)
    with Admin(namesrv=cluster.namesrv) as admin:
        ends = {queue: admin.max_offset(queue) for queue in admin.subscribe_queues(topic)}
    expected = {
        (queue.broker_name, queue.queue_id, offset)
        for queue, end in ends.items()
        for offset in range(end)
    }
    found: list[Any] = []
    try:
        deadline = time.monotonic() + DEADLINE
        while len(found) < len(expected) and time.monotonic() < deadline:
            assert process.poll() is None, "the query ended by itself"
            wait_or_pass(commits, deadline)
            found = [
                tuple(row)
                for row in spark.read.parquet(str(tmp_path / "output"))
                .select("brokerName", "queueId", "queueOffset")
                .collect()
            ]
    finally:
        kill(process)
    assert len(found) == len(set(found))
    assert set(found) == expected


def wait_or_pass(commits: Path, deadline: float) -> None:
    """Until another batch is done, or for a second."""
    before = len(list(commits.glob("[0-9]*")))
    until = min(deadline, time.monotonic() + 1.0)
    while time.monotonic() < until and len(list(commits.glob("[0-9]*"))) == before:
        time.sleep(0.1)
