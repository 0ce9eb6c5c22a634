"""Every command as a person runs it, in a terminal of 80 columns, as a script does, in a pipe, and
with --json: what it says is read, not only its exit code.

A new command needs a line in the table below: a test compares it with the parser.
"""

import json
import re
import signal
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from rocketpipe import Admin, Message, MessageQueue, Producer
from rocketpipe.cli.program import parser
from rocketpipe.testing.embedded_cluster import EmbeddedCluster
from tests.cli.command_tree import commands
from tests.cli.conftest import CTRL_C, END_SECONDS_MAX, Program, Terminal

COLUMNS = 80
WAYS = ("terminal", "pipe", "json")


@dataclass(frozen=True)
class Run:
    """What is typed, and what must be told then. Words in braces stand for facts of the cluster.

    Text is compared without regard to how much blank is between words. Of JSON, each of `objects`
    must be a part of one object.
    """

    typed: str
    tells: tuple[str, ...] = ()
    objects: tuple[dict[str, Any], ...] = ()
    in_terminal: tuple[str, ...] = ()  # if a table is too wide for one
    on_stderr: tuple[str, ...] = ()
    interrupt_after: str = ""  # Ctrl-C, once this was seen
    interrupt_after_json: str = ""
    code: int = 0
    ways: tuple[str, ...] = field(default=WAYS)


RUNS: Mapping[str, Run] = {
    "serve": Run(
        "serve --namesrv-port 0 --port 0 --brokers 2",
        ("127.0.0.1:",),
        ({"brokers": [{"name": "broker-a", "id": 0}, {"name": "broker-b", "id": 0}]},),
        interrupt_after="127.0.0.1:",
        interrupt_after_json="}]}",
    ),
    "send": Run(
        "send sent-{way} one two --key k --tag T",
        ("SEND_OK", "broker-a:0 at 0", "broker-a:0 at 1"),
        (
            {"topic": "sent-{way}", "status": "SEND_OK", "broker": "broker-a", "offset": 0},
            {"queue": 0, "offset": 1, "attempts": 1},
        ),
    ),
    "consume": Run(
        "consume shown --follow --from first",
        ("broker-a:0 0 [paid k-1] first body", "broker-a:0 1 second body"),
        ({"offset": 0, "keys": ["k-1"], "tags": "paid", "body": "first body"}, {"offset": 1}),
        interrupt_after="second body\n",
        interrupt_after_json='second body"}\n',
        code=130,
    ),
    "topic list": Run("topic list", ("TOPIC", "shown"), ({"topic": "shown", "kind": "normal"},)),
    "topic show": Run(
        "topic show shown",
        (
            "topic shown messages 2 groups readers",
            "broker-a 1 1 rw no -",
            "broker-a 0 0 2 2 20",
        ),
        ({"topic": "shown", "messages": 2, "groups": ["readers"]},),
    ),
    "topic create": Run(
        "topic create created-{way} --queues 3 --broker broker-a",
        ("broker-a DefaultCluster master {broker_a} 3 3 rw",),
        ({"topic": "created-{way}", "read_queues": 3, "write_queues": 3, "perm": "rw"},),
    ),
    "topic alter": Run(
        "topic alter altered-{way} --read-queues 4 --perm r",
        ("broker-a DefaultCluster master {broker_a} 4 1 r",),
        ({"topic": "altered-{way}", "read_queues": 4, "write_queues": 1, "perm": "r"},),
    ),
    "topic delete": Run(
        "topic delete deleted-{way} --yes", on_stderr=("topic 'deleted-{way}' is deleted",)
    ),
    "route": Run(
        "route shown",
        ("broker-a DefaultCluster master {broker_a} 1 1 rw",),
        ({"broker": "broker-a", "role": "master", "address": "{broker_a}"},),
    ),
    "group list": Run(
        "group list",
        ("GROUP MEMBERS TYPE MODEL LAG", "readers 0 - - 1"),
        ({"group": "readers", "members": 0, "lag": 1},),
    ),
    "group show": Run(
        "group show readers",
        ("group readers lag 1 members 0", "shown broker-a 0 2 1 1 20"),
        ({"group": "readers", "lag": 1, "members": []},),
    ),
    "group reset": Run(
        "group reset resets-{way} --topic reset --to first",
        ("BROKER QUEUE GOES ON AT broker-a 0 0",),
        ({"broker": "broker-a", "queue": 0, "offset": 0},),
    ),
    "group delete": Run(
        "group delete deletes-{way} --yes", on_stderr=("group 'deletes-{way}' is deleted",)
    ),
    "message show": Run(
        "message show {message_id} --topic shown",
        ("message id {message_id}", "queue broker-a:0 offset 0", "keys k-1", "first body"),
        ({"message_id": "{message_id}", "keys": ["k-1"], "body": "first body"},),
    ),
    "message find": Run(
        "message find shown --key k-1",
        (
            "MESSAGE ID STORED QUEUE OFFSET TAGS BODY {message_id} 20",
            "broker-a:0 0 paid first body",
        ),
        ({"message_id": "{message_id}", "tags": "paid"},),
        in_terminal=("message id {message_id} stored 20", "tags paid body first body"),
    ),
    "offsets": Run(
        "offsets shown --group readers",
        ("broker-a 0 0 2 2 20",),
        ({"broker": "broker-a", "min_offset": 0, "max_offset": 2, "consumer_offset": 1},),
    ),
    "broker list": Run(
        "broker list",
        ("broker-a DefaultCluster master {broker_a} 5.5.0", "broker-b DefaultCluster master"),
        ({"broker": "broker-a", "id": 0, "address": "{broker_a}"}, {"broker": "broker-b"}),
    ),
    "broker show": Run(
        "broker show broker-a",
        ("broker broker-a version 5.5.0 started 20", "brokerVersionDesc V5_5_0"),
        ({"broker": "broker-a", "brokerVersionDesc": "V5_5_0"},),
    ),
    "broker config": Run(
        "broker config broker-a --filter flushDisk",
        ("flushDiskType ASYNC_FLUSH",),
        ({"broker": "broker-a", "settings": {"flushDiskType": "ASYNC_FLUSH"}},),
    ),
    "cluster": Run(
        "cluster",
        ("CLUSTER BROKERS MASTERS SLAVES TOPICS IN/S OUT/S DefaultCluster 2 2 0",),
        ({"cluster": "DefaultCluster", "brokers": 2, "masters": 2, "slaves": 0},),
    ),
    "completion": Run("completion bash", ("rocketpipe", "consume"), ways=("terminal", "pipe")),
}


# Those that start Spark have tests of their own, as processes too: tests/jobs and tests/demo.
ON_SPARK = {"archive", "publish", "replay", "audit", "demo"}


def test_no_command_is_left_out() -> None:
    names = {name for name, _ in commands(parser())}
    assert set(RUNS) | ON_SPARK == names, "tests/cli/test_every_command.py"


def test_each_command_is_run_by_its_own_words() -> None:
    assert all(run.typed.startswith(name) for name, run in RUNS.items())


@pytest.fixture(scope="module")
def facts(cli_cluster: EmbeddedCluster) -> Iterator[dict[str, str]]:
    """A cluster with something to look at, and for each way to run commands something to change."""
    namesrv = cli_cluster.namesrv
    with (
        Admin(namesrv=namesrv, request_timeout=30.0) as admin,
        Producer("g", namesrv=namesrv, send_timeout=30.0) as producer,
    ):
        changing = [f"{name}-{way}" for name in ("sent", "altered", "deleted") for way in WAYS]
        for topic in ("shown", "reset", *changing):
            admin.create_topic(topic, queues=1, brokers=["broker-a"])
        for group in (
            "readers",
            *(f"{name}-{way}" for name in ("resets", "deletes") for way in WAYS),
        ):
            admin.create_group(group)
        sent = producer.send(Message("shown", b"first body", keys=["k-1"], tags="paid"))
        producer.send(Message("shown", b"second body"))
        admin.reset_offset("readers", MessageQueue("shown", "broker-a", 0), 1)
        yield {
            "broker_a": cli_cluster.broker("broker-a").address,
            "message_id": sent.message_id,
        }
        for topic in ("shown", "reset", *(f"created-{way}" for way in WAYS)):
            admin.delete_topic(topic)


@pytest.mark.slow
@pytest.mark.parametrize("command", RUNS)
def test_a_person_reads_it_in_a_terminal(
    program: Program, facts: dict[str, str], command: str
) -> None:
    run, facts = RUNS[command], {**facts, "way": "terminal"}
    with Terminal(program, *words(run, facts), columns=COLUMNS) as terminal:
        if run.interrupt_after:
            terminal.read_until(run.interrupt_after)
            terminal.type(CTRL_C)
        code, seen = terminal.end()
    seen = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", seen)
    assert (code, "Traceback" in seen) == (run.code, False), seen
    for text in (*(run.in_terminal or run.tells), *run.on_stderr):
        assert flat(text.format_map(facts)) in flat(seen), seen
    if command != "completion":  # which no person reads
        assert max(map(len, seen.splitlines())) <= COLUMNS, seen


@pytest.mark.slow
@pytest.mark.parametrize("command", RUNS)
def test_a_script_reads_it_from_a_pipe(
    program: Program, facts: dict[str, str], command: str
) -> None:
    run, facts = RUNS[command], {**facts, "way": "pipe"}
    code, output, errors = in_pipe(program, run, facts, run.interrupt_after)
    assert (code, "\x1b" in output) == (run.code, False), errors
    for text in run.tells:
        assert flat(text.format_map(facts)) in flat(output)
    assert errors.splitlines() == [text.format_map(facts) for text in run.on_stderr]


@pytest.mark.slow
@pytest.mark.parametrize("command", [name for name, run in RUNS.items() if "json" in run.ways])
def test_a_program_reads_it_as_json(program: Program, facts: dict[str, str], command: str) -> None:
    run, facts = RUNS[command], {**facts, "way": "json"}
    code, output, errors = in_pipe(program, run, facts, run.interrupt_after_json, "--json")
    assert (code, errors) == (run.code, "")
    objects = [json.loads(line) for line in output.splitlines()]
    for wanted in run.objects:
        wanted = json.loads(re.sub(r"{(\w+)}", lambda m: facts[m[1]], json.dumps(wanted)))
        assert any(is_part(wanted, each) for each in objects), objects


def words(run: Run, facts: Mapping[str, str]) -> list[str]:
    return run.typed.format_map(facts).split()


def flat(text: str) -> str:
    return " ".join(text.split())


def is_part(wanted: Any, found: Any) -> bool:
    """Whether one object says all that another does."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        return all(is_part(value, found.get(name)) for name, value in wanted.items())
    if isinstance(wanted, list) and isinstance(found, list):
        return len(wanted) == len(found) and all(map(is_part, wanted, found))
    return bool(wanted == found)


def in_pipe(
    program: Program, run: Run, facts: Mapping[str, str], interrupt_after: str, *more: str
) -> tuple[int, str, str]:
    """Its exit code, and what it wrote to stdout and stderr."""
    process = program.start(*words(run, facts), *more)
    try:
        seen = ""
        while interrupt_after and interrupt_after not in seen:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, f"it ended after {seen!r}"
            seen += line
        if interrupt_after:
            process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=END_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    finally:
        process.kill()
    return process.returncode, seen + output, errors
