"""Topics, groups, messages, offsets and brokers from the command line."""

import re
from importlib import metadata
from pathlib import Path

import pytest

from rocketpipe import Admin
from rocketpipe.cli.program import parser
from rocketpipe.errors import NoRoute
from rocketpipe.testing.embedded_cluster import EmbeddedCluster
from tests.cli.command_tree import commands
from tests.cli.conftest import CTRL_C, CTRL_D, Program, Terminal
from tests.interop.acl_clusters import ADMIN, write_acl_file

pytestmark = pytest.mark.slow


def test_a_topic_from_its_making_to_its_end(program: Program) -> None:
    topic = "cli-topic"
    made = program.done("topic", "create", topic, "--queues", "2", "--type", "FIFO")
    assert [row[0] for row in made.rows] == ["broker-a", "broker-b"]
    assert {tuple(row[-3:]) for row in made.rows} == {("2", "2", "rw")}
    assert [topic] in program.done("topic", "list").rows
    assert {"topic": topic, "kind": "normal"} in program.done("topic", "list", "--json").objects
    listed = program.done("topic", "list", "--all", "--json").objects
    assert {"topic": "TBW102", "kind": "system"} in listed

    again = program("topic", "create", topic)
    assert (again.code, again.output) == (1, "")
    assert again.errors.startswith(f"rocketpipe: topic '{topic}' is on broker-a, broker-b already")
    program.done("topic", "create", topic, "--if-missing")

    program.done("topic", "alter", topic, "--queues", "3", "--perm", "r", "--broker", "broker-b")
    (shown,) = program.done("topic", "show", topic, "--json").objects
    assert [each["read_queues"] for each in shown["brokers"]] == [2, 3]
    assert [each["perm"] for each in shown["brokers"]] == ["rw", "r"]
    assert shown["brokers"][0]["attributes"] == {"message.type": "FIFO"}
    assert len(shown["queues"]) == 5
    for_people = program.done("topic", "show", topic).output
    assert "message type" in for_people.lower()
    routes = program.done("route", topic, "--json").objects
    assert [(each["broker"], each["role"]) for each in routes] == [
        ("broker-a", "master"),
        ("broker-b", "master"),
    ]

    refused = program("topic", "delete", topic)
    assert refused.code == 2
    assert "--yes" in refused.errors
    program.done("topic", "delete", topic, "--yes")
    gone = program("route", topic)
    assert (gone.code, gone.output) == (1, "")
    assert "does not exist" in gone.errors
    assert "'rocketpipe topic list'" in gone.errors


@pytest.mark.parametrize(
    ("keys", "code", "answer"),
    [
        ("no\n", 1, "rocketpipe: nothing was done\n"),
        (CTRL_D, 1, "rocketpipe: nothing was done\n"),
        (CTRL_C, 130, ""),
        ("Yes\n", 0, "topic 'cli-asked' is deleted\n"),
    ],
)
def test_a_person_is_asked_before_anything_is_deleted(
    program: Program, keys: str, code: int, answer: str
) -> None:
    topic = "cli-asked"
    program.done("topic", "create", topic, "--if-missing")
    question = f"deleting topic '{topic}' can't be undone. Type 'yes' to go on:\n"
    with Terminal(program, "topic", "delete", topic) as terminal:
        terminal.read_until(question)
        terminal.type(keys)
        assert terminal.end()[0] == code
    assert terminal.seen.endswith(answer)
    assert "Traceback" not in terminal.seen
    assert (program("route", topic).code == 0) == (code != 0)


def test_a_message_is_found_by_id_key_and_place(program: Program) -> None:
    topic = "cli-message"
    program.done("topic", "create", topic, "--queues", "1")
    (sent,) = program.done("send", topic, "hällo", "--key", "k-1", "--tag", "A", "--json").objects
    place = f"{sent['broker']}:{sent['queue']}"
    for arguments in (
        (sent["message_id"], "--topic", topic),
        (sent["offset_message_id"],),
        ("--topic", topic, "--queue", place, "--offset", str(sent["offset"])),
    ):
        (shown,) = program.done("message", "show", *arguments, "--json").objects
        assert (shown["message_id"], shown["body"]) == (sent["message_id"], "hällo")
        assert (shown["tags"], shown["keys"]) == ("A", ["k-1"])
        assert (shown["broker"], shown["queue"]) == (sent["broker"], sent["queue"])
    for_people = program.done("message", "show", sent["offset_message_id"]).output
    assert for_people.endswith("\nhällo\n")
    assert ["queue", place] in map(str.split, for_people.splitlines())
    (found,) = program.done("message", "find", topic, "--key", "k-1").rows
    assert (found[0], found[-1]) == (sent["message_id"], "hällo")
    assert place in found
    nothing = program.done("message", "find", topic, "--key", "k-2")
    assert (nothing.output, nothing.errors.count("\n")) == ("", 1)
    assert program("message", "show", sent["message_id"]).code == 1
    assert program("message", "show").code == 2


def test_a_group_is_shown_reset_and_deleted(program: Program) -> None:
    topic, group = "cli-group", "cli-readers"
    program.done("topic", "create", topic, "--queues", "1", "--broker", "broker-a")
    program.done("send", topic, "one", "two", "three")
    assert len(program.done("consume", topic, "--group", group, "--bodies").output.split()) == 3
    (listed,) = [row for row in program.done("group", "list").rows if row[0] == group]
    assert (listed[1], listed[-1]) == ("0", "0")
    reset = program.done("group", "reset", group, "--topic", topic, "--to", "first").rows
    assert reset == [["broker-a", "0", "0"]]
    queue = ("--queue", "broker-a:0", "--offset", "1")
    program.done("group", "reset", group, "--topic", topic, *queue)
    (shown,) = program.done("group", "show", group, "--json").objects
    lags = [each["lag"] for each in shown["queues"] if each["topic"] == topic]
    assert (shown["lag"], lags) == (2, [2])
    offsets = program.done("offsets", topic, "--group", group, "--at", "1h", "--json").objects
    assert [(each["max_offset"], each["consumer_offset"]) for each in offsets] == [(3, 1)]
    assert offsets[0]["at_offset"] == 0
    for wrong in (("--to", "nonsense"), (), ("--offset", "1"), ("--to", "first", *queue)):
        assert program("group", "reset", group, "--topic", topic, *wrong).code == 2
    program.done("group", "delete", group, "--yes")
    assert program("group", "show", group).code == 1


def test_brokers_and_clusters_are_shown(program: Program) -> None:
    brokers = program.done("broker", "list", "--json").objects
    assert [each["broker"] for each in brokers] == ["broker-a", "broker-b"]
    assert {each["version"] for each in brokers} == {"5.5.0"}
    assert [row[0] for row in program.done("broker", "list").rows] == ["broker-a", "broker-b"]
    (cluster,) = program.done("cluster", "--json").objects
    assert (cluster["cluster"], cluster["brokers"], cluster["slaves"]) == ("DefaultCluster", 2, 0)
    assert "brokerVersionDesc" in program.done("broker", "show", brokers[0]["address"]).output
    setting = "rejectTransactionMessage"
    changed = program.done("broker", "config", "broker-a", "--set", f"{setting}=true").output
    assert changed.split() == [setting, "true"]
    program.done("broker", "config", "broker-a", "--set", f"{setting}=false")
    (config,) = program.done(
        "broker", "config", "broker-b", "--filter", "flushdisk", "--json"
    ).objects
    assert config["settings"] == {"flushDiskType": "ASYNC_FLUSH"}
    some = ("--set", "nosuch=1", "--set", f"{setting}=FALSE")
    refused = program("broker", "config", "broker-a", *some, "--json")
    assert (refused.code, refused.errors) == (1, "rocketpipe: broker-a has no setting 'nosuch'\n")
    assert refused.objects[0]["settings"] == {setting: "false"}
    refused = program("broker", "config", "broker-a", "--set", "brokerName=x")
    assert refused.code == 1
    assert "INVALID_PARAMETER" in refused.errors


def test_a_broker_that_does_not_answer_is_listed_as_such(
    program: Program, cli_cluster: EmbeddedCluster
) -> None:
    with cli_cluster.broker("broker-b").frozen():
        # Long enough for the other one, however busy this machine is.
        listed = program("broker", "list", "--timeout", "10s")
    assert listed.code == 1
    assert [row[4] for row in listed.rows] == ["5.5.0", "unreachable"]
    assert listed.errors.startswith("rocketpipe: broker-b (master): ")


def test_an_error_is_one_line_and_says_what_to_do(program: Program) -> None:
    for arguments, environment, code, text in (
        (("topic", "list", "--namesrv", "127.0.0.1:1"), {}, 1, "Is it running there?"),
        (("topic", "list"), {"NAMESRV_ADDR": ""}, 2, "give --namesrv HOST:PORT"),
        (("topic", "list", "--namesrv", "nonsense"), {}, 2, "write host:port"),
        (("topic", "show", "cli-nothing"), {}, 1, "'rocketpipe topic list'"),
        (("group", "show", "cli-nobody"), {}, 1, "no group 'cli-nobody'"),
        (("broker", "show", "broker-x"), {}, 1, "knows broker broker-a, broker-b"),
        (("send", "a b", "x"), {}, 2, "letters"),
        (("topic", "list"), {"ROCKETMQ_ACCESS_KEY": "me"}, 2, "ROCKETMQ_SECRET_KEY"),
        (("send", "cli-x", "x", "--rate", "nan"), {}, 2, "--rate: 'nan' is not a rate"),
        (("send",), {}, 2, "'rocketpipe send --help' tells more"),
        (("topic", "nonsense"), {}, 2, "'rocketpipe topic --help' tells more"),
        (("nonsense",), {}, 2, "'rocketpipe --help' tells more"),
        (("topic", "list", "--credentials", "/nowhere"), {}, 1, "/nowhere"),
    ):
        finished = program(*arguments, environment=environment)
        assert (finished.code, finished.output) == (code, ""), arguments
        assert finished.errors.count("\n") == 1, finished.errors
        assert text in finished.errors
    debug = program("topic", "show", "cli-nothing", "--debug")
    assert "Traceback" in debug.errors


def test_it_tells_its_version(program: Program) -> None:
    assert program.done("--version").output == f"rocketpipe {metadata.version('rocketpipe')}\n"


def test_credentials_come_from_a_file_or_the_environment(tmp_path: Path) -> None:
    write_acl_file(tmp_path / "acl.toml", generation=1)
    settings = {"aclEnable": True, "aclFile": tmp_path / "acl.toml"}
    file = tmp_path / "tools.yml"
    file.write_text(f"accessKey: {ADMIN.access_key}\nsecretKey: {ADMIN.secret_key}\n")
    environment = {
        "ROCKETMQ_ACCESS_KEY": ADMIN.access_key,
        "ROCKETMQ_SECRET_KEY": ADMIN.secret_key,
    }
    ask = ("broker", "config", "broker-a", "--filter", "brokerName")
    with EmbeddedCluster(settings=settings) as cluster:
        program = Program(cluster.namesrv)
        refused = program(*ask)
        assert (refused.code, refused.output) == (1, "")
        assert refused.errors.endswith("Check --credentials\n")
        by_file = program.done(*ask, "--credentials", str(file))
        by_environment = program(*ask, environment=environment)
        assert by_file.output.split() == by_environment.output.split() == ["brokerName", "broker-a"]
        # What is told by the caller goes before what is around.
        wrong = {**environment, "ROCKETMQ_SECRET_KEY": "nonsense"}
        assert program(*ask, environment=wrong).code == 1
        told = program(*ask, "--credentials", str(file), environment=wrong)
        assert told.output == by_file.output
        file.write_text(f"accessKey: {ADMIN.access_key}\n")
        refused = program(*ask, "--credentials", str(file))
        assert refused.code == 2
        assert "secretKey" in refused.errors


def test_no_option_takes_a_secret_that_would_show_in_ps() -> None:
    names = {
        text
        for _, command in commands(parser())
        for action in command._actions
        for text in action.option_strings
    }
    assert not [each for each in names if re.search("secret|password|access-?key", each)]


def test_the_blocking_library_sees_what_the_program_made(program: Program) -> None:
    program.done("topic", "create", "cli-seen", "--queues", "1")
    with Admin(namesrv=program.namesrv) as admin:
        assert len(admin.publish_queues("cli-seen")) == 2
        admin.delete_topic("cli-seen")
        with pytest.raises(NoRoute):
            admin.route("cli-seen")
