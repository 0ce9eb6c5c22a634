"""Options that no test of a command needs otherwise, by their effect; and that none is left out."""

import ast
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rocketpipe import Admin, Credentials, Message, MessageQueue, Producer
from rocketpipe.cli.connecting import cluster_options, credentials
from rocketpipe.cli.program import parser
from rocketpipe.testing.embedded_cluster import EmbeddedCluster
from tests.certificates import Certificates
from tests.cli.command_tree import commands, options
from tests.cli.conftest import Program
from tests.cli.test_every_command import ON_SPARK, is_part
from tests.interop.acl_clusters import ADMIN, write_acl_file

TESTS = Path(__file__).parents[1]
ELSEWHERE = {"serve", "completion", *ON_SPARK}  # what has tests of its own in other places


@dataclass(frozen=True)
class Case:
    """What is typed, and what then another command tells, or the same one where none is named."""

    typed: str
    look: str
    sees: list[dict[str, Any]]  # parts of all that is told, an object each
    is_more_told: bool = False


HALF = "DefaultCluster"  # broker-a; broker-b is in another
CASES = (
    Case("topic list --cluster Second", "", [{"topic": "halved"}]),
    Case("broker list --cluster Second", "", [{"broker": "broker-b"}]),
    Case("group list --all", "", [{"group": "TOOLS_CONSUMER"}], is_more_told=True),
    Case(f"topic create made --cluster {HALF}", "route made", [{"broker": "broker-a"}]),
    Case(f"topic delete halved --yes --cluster {HALF}", "route halved", [{"broker": "broker-b"}]),
    Case(
        "topic create new --order",
        "topic show new",
        [{"brokers": [{"order": True}, {"order": True}]}],
    ),
    Case("topic alter here --order", "topic show here", [{"brokers": [{"order": True}]}]),
    Case("topic alter ordered --no-order", "topic show ordered", [{"brokers": [{"order": False}]}]),
    Case(
        "topic create timed --attribute message.type=DELAY --broker broker-a",
        "topic show timed",
        [{"brokers": [{"attributes": {"message.type": "DELAY"}}]}],
    ),
    Case(
        "topic alter here --attribute message.type=FIFO",
        "topic show here",
        [{"brokers": [{"attributes": {"message.type": "FIFO"}}]}],
    ),
    Case(
        "topic alter ordered --remove-attribute message.type",
        "topic show ordered",
        [{"brokers": [{"attributes": {"message.type": None}}]}],
    ),
    Case(
        "topic alter ordered --write-queues 1",
        "route ordered",
        [{"read_queues": 2, "write_queues": 1}],
    ),
    Case(
        "group delete readers --yes --keep-offsets",
        "offsets here --group readers",
        [{"consumer_offset": 1}],
    ),
    Case("message find here --key k --since {second_ms}", "", [{"body": "1"}, {"body": "2"}]),
    Case("message find here --key k --until {second_ms}", "", [{"body": "0"}, {"body": "1"}]),
)


@pytest.fixture(scope="module")
def two_clusters() -> Iterator[tuple[Program, dict[str, str]]]:
    """With what the cases change and find; and the time of a message."""
    with (
        EmbeddedCluster(["broker-a"]) as first,
        EmbeddedCluster(["broker-b"], cluster_name="Second", join=first.namesrv),
        Admin(namesrv=first.namesrv, request_timeout=30.0) as admin,
        Producer("g", namesrv=first.namesrv, send_timeout=30.0) as producer,
    ):
        admin.create_topic("halved")
        admin.create_topic("here", queues=1, cluster=HALF)
        admin.create_topic("ordered", queues=2, order=True, message_type="FIFO", cluster=HALF)
        for body in (b"0", b"1", b"2"):
            producer.send(Message("here", body, keys=["k"]))
            time.sleep(0.01)  # so that each has a time of its own
        queue = MessageQueue("here", "broker-a", 0)
        admin.create_group("readers", cluster=HALF)
        admin.reset_offset("readers", queue, 1)
        second_ms = admin.message_at(queue, 1).store_timestamp_ms
        yield Program(first.namesrv), {"second_ms": str(second_ms)}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.typed)
def test_each_option_does_what_it_says(
    two_clusters: tuple[Program, dict[str, str]], case: Case
) -> None:
    program, facts = two_clusters
    told = program.done(*case.typed.format_map(facts).split(), "--json")
    if case.look:
        told = program.done(*case.look.split(), "--json")
    if case.is_more_told:
        assert all(any(is_part(part, each) for each in told.objects) for part in case.sees)
    else:
        assert is_part(case.sees, told.objects), told.output


@pytest.mark.slow
def test_tls_is_spoken_when_asked_for(certificates: Certificates) -> None:
    cert, key = certificates.server
    settings = {
        "tls.server.mode": "enforcing",
        "tls.test.mode.enable": "false",
        "tls.server.certPath": cert,
        "tls.server.keyPath": key,
        "tls.enable": "true",
        "tls.client.authServer": "true",
        "tls.client.trustCertPath": certificates.ca,
    }
    with EmbeddedCluster(1, settings=settings) as cluster:
        program, ask = Program(cluster.namesrv), ("broker", "list", "--json")
        (broker,) = program.done(*ask, "--tls-ca", certificates.ca).objects
        assert broker["version"] == "5.5.0"
        # Else it believes whom this machine does.
        of_machine = {"SSL_CERT_FILE": certificates.ca}
        assert program(*ask, "--tls", environment=of_machine).code == 0
        assert program(*ask, "--tls").code == program(*ask, environment=of_machine).code == 1


@pytest.mark.slow
def test_the_environment_names_a_file_of_credentials(tmp_path: Path) -> None:
    write_acl_file(tmp_path / "acl.toml", generation=1)
    file = tmp_path / "tools.yml"
    file.write_text(f"accessKey: {ADMIN.access_key}\nsecretKey: {ADMIN.secret_key}\n")
    settings = {"aclEnable": True, "aclFile": tmp_path / "acl.toml"}
    with EmbeddedCluster(settings=settings) as cluster:
        program, ask = Program(cluster.namesrv), ("broker", "config", "broker-a")
        # A file goes before keys that are around as well.
        environment = {"ROCKETMQ_ACCESS_KEY": "me", "ROCKETMQ_SECRET_KEY": "nonsense"}
        assert program(*ask, environment=environment).code == 1
        environment["ROCKETMQ_CREDENTIALS"] = str(file)
        assert program(*ask, environment=environment).code == 0


def test_a_security_token_is_taken_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROCKETMQ_CREDENTIALS", raising=False)
    for name, value in (("ACCESS_KEY", "me"), ("SECRET_KEY", "secret"), ("SECURITY_TOKEN", "t-1")):
        monkeypatch.setenv(f"ROCKETMQ_{name}", value)
    assert credentials(None) == Credentials("me", "secret", "t-1")


def test_each_option_is_run_by_some_test() -> None:
    """As far as can be seen: a test, or a line of a table, names the command and the option."""
    named = [words for file in TESTS.glob("*/test_*.py") for words in _named_together(file)]
    common = options(cluster_options())
    wanted = {("", option) for option in common} | {
        (name, option)
        for name, command in commands(parser())
        if name not in ELSEWHERE
        for option in options(command) - common
    }
    missing = {
        f"{name} {option}"
        for name, option in wanted
        if not any({*name.split(), option} <= words for words in named)
    }
    assert not missing, f"run {sorted(missing)} in {__file__}"


def _named_together(file: Path) -> Iterator[set[str]]:
    text = file.read_text()
    if "tests.cli.conftest" not in text:
        return  # it does not run the program
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.Call | ast.Tuple | ast.List):
            texts = [each.value for each in ast.walk(node) if isinstance(each, ast.Constant)]
            words = {word for text in texts if isinstance(text, str) for word in text.split()}
            if any(word.startswith("--") for word in words):
                yield words
