"""Queries in processes of their own: killed at random, on executors apart, and behind Connect."""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyspark.sql import SparkSession

from rocketpipe import Admin, Message, Producer
from rocketpipe.errors import MQError
from rocketpipe.testing import EmbeddedCluster
from tests.cluster_process import ClusterProcess, free_ports
from tests.docs.documents import DOCUMENTS, examples
from tests.spark.topics import make_topic, numbered, send

ROOT = Path(__file__).parents[2]
SENDS_MAX = 5000  # of ten messages, so that a slow machine is not given ever more to read
DEADLINE = 600.0  # seconds, for a session to start and a query to get somewhere
KILLS = int(os.environ.get("ROCKETPIPE_KILLS", "20"))

# A query that is killed after a few seconds gains nothing from Java's second compiler.
QUICK = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}


# A stream, for which Spark starts other processes than for a batch.
FOLLOWED = """
stream = spark.readStream.format("rocketmq").options(namesrv=namesrv, topic=topic)
stream = stream.option("startingOffsets", "earliest").load().writeStream.format("noop")
query = stream.option("checkpointLocation", "{folder}").trigger(availableNow=True).start()
query.awaitTermination()
print("streamed", sum(each["numInputRows"] for each in query.recentProgress))
"""
QUIETLY: Any = {"capture_output": True, "text": True, "check": False}


def start(task: dict[str, Any], **kwargs: Any) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "tests.spark.query", json.dumps(task)]
    # A group of its own, so that Java and its workers are killed with it.
    return subprocess.Popen(command, cwd=ROOT, text=True, start_new_session=True, **kwargs)


def kill(process: "subprocess.Popen[str]") -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # all of it has ended
    process.wait()


def finish(task: dict[str, Any]) -> tuple[dict[str, int], str]:
    """What a query printed that ended by itself, and what its driver told on stderr."""
    with start(task, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            out, err = process.communicate(timeout=DEADLINE)
        except subprocess.TimeoutExpired:
            kill(process)
            raise
    assert process.returncode == 0, err[-3000:]
    return json.loads(out.strip().splitlines()[-1]), err


@pytest.mark.parametrize("where", [{"master": "local-cluster[2,1,1024]"}, {"remote": "local[2]"}])
def test_reading_and_writing_where_driver_and_executors_are_apart(
    where: dict[str, str],
    spark_settings: dict[str, str],
    embedded_cluster: EmbeddedCluster,
    tmp_path: Path,
) -> None:
    topic, copy = make_topic(embedded_cluster, "apart"), make_topic(embedded_cluster, "apart")
    send(embedded_cluster, numbered(topic, 2000))
    task: dict[str, Any] = {**where, "settings": spark_settings, "topic": topic, "copy": copy}
    task |= {"options": {"namesrv": embedded_cluster.namesrv}}
    task |= {"folder": str(tmp_path), "limit": 1000}
    for broker in embedded_cluster.brokers:
        broker.faults.busy(topic=copy, times=1)
    found, told = finish(task)
    assert found == {"rows": 2000, "streamed": 2000, "copied": 4000}
    sums = re.findall(
        r"^.* INFO rocketpipe.spark.writer: (.*) written: (\d+) rows, (\d+) bytes,"
        r" (\d+) requests \((.*)\), (\d+) retries$",
        *(told, re.MULTILINE),
    )
    assert [(what, int(rows)) for what, rows, *_ in sums] == [
        *(("job", 2000), ("batch 0", 1000), ("batch 1", 1000))
    ], told[-3000:]
    for _, _, body_bytes, requests, brokers, _ in sums:
        assert int(body_bytes) > 1000 * len("batch ")
        each = dict(part.split() for part in brokers.split(", "))
        assert set(each) <= {"broker-a", "broker-b"}
        assert sum(map(int, each.values())) == int(requests)
    assert [retries for *_, retries in sums] == ["2", "0", "0"]  # each broker was busy once


def test_a_zip_that_is_sent_along_is_all_that_a_cluster_needs_of_us(
    spark_settings: dict[str, str], embedded_cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    """As docs/spark-cluster.md has it, with a Python that has PySpark and pyarrow, but not us."""
    python = tmp_path / "python"
    packages = Path(pyarrow.__file__).parents[1]
    # Without `site` nobody looks into the .pth files there, and through one of them we are found.
    lines = f'export PYTHONPATH="$PYTHONPATH:{packages}"', f'exec {sys.executable} -S "$@"'
    python.write_text("\n".join(("#!/bin/sh", *lines, "")))
    python.chmod(0o755)
    bare = subprocess.run([python, "-c", "import pyspark, rocketpipe"], **QUIETLY)
    assert "No module named 'rocketpipe'" in bare.stderr
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    topic = make_topic(embedded_cluster, "zipped")
    send(embedded_cluster, numbered(topic, 300))
    (document,) = [each for each in DOCUMENTS if each.name == "spark-cluster.md"]
    texts = [each.text for each in examples(document)]
    zipping, program, submitting = (
        next(text for text in texts if word in text)
        for word in ("zipfile", "spark = ", "--py-files")
    )
    (tmp_path / "count.py").write_text(program + FOLLOWED.format(folder=tmp_path / "checkpoint"))
    for told, here in (
        ("/opt/python/bin/python3", str(python)),
        ("spark://master:7077", "'local-cluster[1,1,1024]'"),
        ("10.0.0.1:9876 orders", f"{embedded_cluster.namesrv} {topic}"),
    ):
        assert told in submitting
        submitting = submitting.replace(told, here)
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    del environment["PYSPARK_DRIVER_PYTHON"]
    commands = ["bash", "-ec", zipping + submitting]
    done = subprocess.run(commands, **QUIETLY, cwd=tmp_path, env=environment, timeout=DEADLINE)
    assert f"{topic} has 300 messages\nstreamed 300" in done.stdout, done.stderr[-5000:]


@contextmanager
def sending(namesrv: str, topic: str) -> Iterator[None]:
    """Messages keep coming, whatever happens to brokers."""
    is_over = threading.Event()

    def run() -> None:
        with Producer("spark-kills", namesrv=namesrv, send_timeout=5.0) as producer:
            for _ in range(SENDS_MAX):
                if is_over.wait(0.1):
                    return
                try:
                    producer.send_many([Message(topic, os.urandom(50)) for _ in range(10)])
                except MQError:
                    pass  # the brokers are away

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


@pytest.mark.final
def test_queries_that_are_killed_at_random_read_and_write_each_message_once(
    spark: SparkSession, spark_settings: dict[str, str], tmp_path: Path
) -> None:
    """One to Parquet, one to a topic. NameServer and brokers are a process that is killed too."""
    seed = random.randrange(1 << 32)
    print("seed", seed)  # noqa: T201
    dice = random.Random(seed)
    # So that it comes back where it was.
    port, namesrv_port = free_ports()
    ports: dict[str, Any] = {"port": str(port), "namesrv-port": str(namesrv_port)}
    with ClusterProcess(brokers="2", **ports) as cluster:
        with Admin(namesrv=cluster.address) as admin:
            for name in ("source", "copy"):
                admin.create_topic(name, queues=3)
        options = {"namesrv": cluster.address}
        task: dict[str, Any] = {"master": "local[2]", "settings": {**spark_settings, **QUICK}}
        task |= {"options": options, "topic": "source", "copy": "copy", "follow": True}
        task |= {"folder": str(tmp_path), "limit": 300}
        start_seconds = 0.0
        with sending(cluster.address, "source"):
            for number in range(KILLS):
                process = run(task, tmp_path)
                try:
                    if number % 3 == 2:
                        # While it starts, or goes on with what was half done. Nothing of ours runs
                        # before Java does, so that part is left out.
                        time.sleep(dice.uniform(0.4, 1.0) * start_seconds)
                        continue
                    start_seconds = wait_for_batches(process, tmp_path)
                    if number % 3 == 1:
                        cluster.kill()
                        time.sleep(dice.random())
                        cluster.start()
                    time.sleep(dice.uniform(0.0, 0.6))
                finally:
                    kill(process)
        with Admin(namesrv=cluster.address) as admin:
            queues = admin.subscribe_queues("source")
            expected = sorted(
                (queue.broker_name, queue.queue_id, offset)
                for queue in queues
                for offset in range(admin.max_offset(queue))
            )
        if len(expected) <= 10 * KILLS:
            pytest.fail("too little was sent to mean anything")
        process = run({**task, "limit": 1_000_000}, tmp_path)
        wanted = {f"{name} {queue_id} {offset}" for name, queue_id, offset in expected}
        found: list[Any] = []
        copied: list[str] = []
        repeated = 0
        try:
            deadline = time.monotonic() + DEADLINE
            while len(found) < len(expected) or len(copied) < len(expected):
                if time.monotonic() > deadline:
                    break  # so long that what is not there is lost
                if process.poll() is not None:
                    check_end(tmp_path)
                    process = run({**task, "limit": 1_000_000}, tmp_path)
                time.sleep(0.5)
                frame = spark.read.parquet(str(tmp_path / "output"))
                found = [tuple(row) for row in frame.drop("body").collect()]
                reading = spark.read.format("rocketmq").options(**options).option("topic", "copy")
                once = reading.option("dropRepeats", True).load()
                copied = [row.body.decode() for row in once.select("body").collect()]
                repeated = reading.option("dropRepeats", False).load().count() - len(copied)
        finally:
            kill(process)
    assert sorted(found) == expected
    assert len(copied) == len(set(copied))
    assert set(copied) == wanted
    print("repeats that were dropped:", repeated)  # noqa: T201


def run(task: dict[str, Any], folder: Path) -> "subprocess.Popen[str]":
    """Start it; what it says is kept until it is started again."""
    with (folder / "said.txt").open("w") as said:
        return start(task, stdout=said, stderr=subprocess.STDOUT)


def check_end(folder: Path) -> None:
    """A query that ended by itself was killed as well: on a busy machine Spark may lose patience
    with its own processes. But it must not be for anything of ours."""
    said = (folder / "said.txt").read_text()
    if "rocketpipe.errors" in said or "Python worker" not in said:
        pytest.fail(said[-5000:])


def wait_for_batches(process: "subprocess.Popen[str]", folder: Path) -> float:
    """Until each of the queries has done something; how many seconds that took."""

    def done() -> list[int]:
        logs = [folder / name / "commits" for name in ("checkpoint", "copying")]
        return [len(list(log.glob("[0-9]*"))) if log.exists() else 0 for log in logs]

    before, began = done(), time.monotonic()
    while any(now <= then for now, then in zip(done(), before, strict=True)):
        if process.poll() is not None:
            check_end(folder)
            break
        if time.monotonic() > began + DEADLINE:
            raise TimeoutError("no batch for too long")
        time.sleep(0.02)
    return time.monotonic() - began
