"""Jobs as commands: killed, interrupted, and given what can't be done."""

import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet
import pytest

from rocketpipe import Admin, Message
from rocketpipe.cli import main
from rocketpipe.testing import EmbeddedCluster
from tests.cli.conftest import CTRL_C, Program, Terminal
from tests.spark.conftest import require_java
from tests.spark.test_stream_processes import sending
from tests.spark.topics import make_topic, numbered, send

DEADLINE = 600.0  # seconds, for a session to start and a job to get somewhere
KILLS = int(os.environ.get("ROCKETPIPE_KILLS", "3"))
QUICK = ("--conf", "spark.driver.memory=1g", "--master", "local[2]")


@pytest.fixture(autouse=True)
def java() -> Iterator[None]:
    require_java()
    return iter(())


def wait_for(process: "subprocess.Popen[str]", is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE
    while not is_so():
        if process.poll() is not None:
            pytest.fail(f"it ended by itself: {process.communicate()}")
        if time.monotonic() > deadline:
            raise TimeoutError("nothing happens for too long")
        time.sleep(0.05)


def report_of(program: Program, *arguments: str) -> dict[str, Any]:
    """What a job that must end well reports; Spark takes long to start on a busy machine."""
    process = program.start(*arguments, "--json")
    try:
        output, errors = process.communicate(timeout=DEADLINE)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, errors
    report: dict[str, Any] = json.loads(output)
    return report


def places(table: Path) -> list[tuple[str, int, int]]:
    """Where the messages of a table were stored, as any reader of Parquet sees it."""
    columns = ["brokerName", "queueId", "queueOffset"]
    files = [str(each) for each in table.glob("topic=*/date=*/*.parquet")]
    if not files:
        return []
    rows = pyarrow.dataset.dataset(files).to_table(columns=columns)
    return list(zip(*(column.to_pylist() for column in rows.columns), strict=True))


def stored(cluster: EmbeddedCluster, topic: str) -> set[tuple[str, int, int]]:
    with Admin(namesrv=cluster.namesrv) as admin:
        return {
            (queue.broker_name, queue.queue_id, offset)
            for queue in admin.subscribe_queues(topic)
            for offset in range(admin.max_offset(queue))
        }


@pytest.mark.final
def test_an_archive_that_is_killed_at_random_has_each_message_once(
    program: Program, embedded_cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)  # noqa: T201
    dice = random.Random(seed)
    topic = make_topic(embedded_cluster, "killed", queues=2)
    send(embedded_cluster, numbered(topic, 100))
    table = tmp_path / "table"
    command = ("archive", str(table), "--topic", topic, *QUICK)
    often = ("--batch-rows", "300", "--interval", "50ms", "--file-size", "20KB", "--file-age", "1s")

    def state() -> str:
        return max((each.name for each in table.glob("_rocketpipe/state-*.json")), default="")

    def has_moved(before: str) -> bool:
        return state() > before

    with sending(embedded_cluster.namesrv, topic):
        for _ in range(KILLS):
            before = state()
            process = program.start(*command, *often, start_new_session=True)
            try:
                wait_for(process, partial(has_moved, before))
                time.sleep(dice.random() * 2)
            finally:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
            seen = places(table)
            assert len(seen) == len(set(seen)), "a reader sees a row twice"
    report = report_of(program, *command, "--once")
    found = places(table)
    assert len(found) == len(set(found)) == report["archived_in_all"]
    assert set(found) == stored(embedded_cluster, topic)


def test_ctrl_c_ends_an_archive_and_publishes_what_it_has(
    program: Program, embedded_cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    topic = make_topic(embedded_cluster, "ctrl-c")
    send(embedded_cluster, numbered(topic, 500))
    table = tmp_path / "table"
    with Terminal(program, "archive", str(table), "--topic", topic, *QUICK) as terminal:
        terminal.read_until("500 rows")
        terminal.type(CTRL_C)
        code, seen = terminal.end()
    assert code == 130, seen
    assert "archived" in seen
    assert "Traceback" not in seen
    assert "Exception" not in seen
    assert set(places(table)) == stored(embedded_cluster, topic)


@pytest.mark.final
def test_a_publishing_job_that_is_killed_goes_on(
    program: Program, embedded_cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    topic = make_topic(embedded_cluster, "publish-killed")
    pyarrow.parquet.write_table(pa.table({"id": list(range(3000))}), tmp_path / "in.parquet")
    source = str(tmp_path / "in.parquet")
    command = ("publish", topic, source, "--job-id", "j", "--state", str(tmp_path), *QUICK)
    process = program.start(*command, "--rate", "300", start_new_session=True)
    try:
        wait_for(process, lambda: len(stored(embedded_cluster, topic)) >= 300)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    before = len(stored(embedded_cluster, topic))
    if before == 3000:
        pytest.fail("it was done before it was killed")
    report = report_of(program, *command)
    assert (report["skipped"], report["rows"]) == (before, 3000 - before)
    bodies = program.done("consume", topic, "--bodies").output.splitlines()
    assert sorted(json.loads(each)["id"] for each in bodies) == list(range(3000))


def test_a_full_disk_is_told_in_a_line_and_loses_nothing(
    program: Program, embedded_cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    topic = make_topic(embedded_cluster, "full")
    send(embedded_cluster, [Message(topic, random.randbytes(100_000)) for _ in range(30)])
    table = tmp_path / "table"
    command = ("archive", str(table), "--topic", topic, "--once", *QUICK)
    # No file may be longer than 512 KB: what a process feels like whose disk is full.
    process = program.start(*command, runner=("bash", "-c", 'ulimit -f 512; exec "$@"', "bash"))
    output, errors = process.communicate(timeout=DEADLINE)
    assert (process.returncode, output) == (1, ""), errors
    assert errors.strip().count("\n") == 0
    assert "File too large" in errors
    assert not list(table.glob("**/*.parquet"))
    assert report_of(program, *command)["archived"] == 30
    assert sorted(places(table)) == sorted(stored(embedded_cluster, topic))


@pytest.mark.parametrize(
    ("arguments", "environment", "code", "line"),
    [
        (
            ["archive", "t", "--topic", "orders"],
            {"PATH": "/nowhere", "JAVA_HOME": ""},
            1,
            "Spark needs Java 17 or newer, and there is no java on the PATH",
        ),
        (
            ["replay", "orders", "--to", "x"],
            {"JAVA_HOME": "/nowhere"},
            1,
            "Spark needs Java 17 or newer, and JAVA_HOME is /nowhere",
        ),
        (["audit", "--attempts", "a"], {"JAVA_HOME": "/nowhere"}, 1, "JAVA_HOME is /nowhere"),
        (["audit"], {}, 2, "give attempts, trace, or both"),
        (["archive", "t", "--topic", "x", "--schema", "@/nowhere"], {}, 2, "/nowhere can't be"),
        (["archive", "t", "--topic", "x", "--schema", "a INT"], {}, 2, "a schema is for"),
        (["archive", "t", "--topic", "x", "--as", "avro"], {}, 2, "schema is missing"),
        (["archive", "t", "--topic", "x", "--tag", "a", "--sql", "b"], {}, 2, "tags and sql"),
        (["archive", "t", "--topic", "x", "--master", "mars"], {}, 2, "master is 'mars'"),
        (
            ["archive", "t", "--topic", "x", "--master", "spark://127.0.0.1:1"],
            {},
            1,
            "no Spark master answers at 127.0.0.1:1",
        ),
        (["publish", "x", "f.csv", "--delay-level", "a", "--deliver-at", "b"], {}, 2, "contradict"),
        (["replay", "orders"], {}, 2, "to is missing"),
        (["replay", "orders", "--to", "x", "--from", "1m", "--until", "2m"], {}, 2, "--until"),
    ],
)  # fmt: skip
def test_what_can_not_be_done_is_told_in_a_line(
    embedded_cluster: EmbeddedCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    environment: dict[str, str],
    code: int,
    line: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NAMESRV_ADDR", embedded_cluster.namesrv)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert main(arguments) == code
    output, errors = capsys.readouterr()
    assert line in errors
    assert errors.count("\n") == 1
    assert output == ""
    assert not list(tmp_path.iterdir())


def test_an_old_java_is_told_in_a_line(program: Program, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    java = tmp_path / "bin" / "java"
    java.write_text(
        "#!/bin/sh\n"
        '[ "$1" = -version ] && echo \'openjdk version "11.0.1"\' >&2 && exit\n'
        "echo 'Error: java.lang.UnsupportedClassVersionError: org/x' >&2\nexit 1\n"
    )
    java.chmod(0o755)
    finished = program("replay", "a", "--to", "b", environment={"JAVA_HOME": str(tmp_path)})
    assert finished.code == 1
    assert "it needs Java 17 or newer. openjdk version" in finished.errors
    assert finished.errors.count("\n") == 1
