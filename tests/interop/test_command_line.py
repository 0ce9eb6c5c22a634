"""The command line, on every kind of cluster."""

import time
from collections.abc import Callable

import pytest

from rocketpipe.testing.embedded_cluster import EmbeddedCluster
from tests.cli.conftest import Program
from tests.interop.clusters import Cluster, new_topic
from tests.interop.consuming import PATIENCE


@pytest.fixture
def program(cluster: Cluster) -> Program:
    return Program(cluster.namesrv)


def wait_for(ask: Callable[[], bool], what: str) -> None:
    """A broker of Apache's needs a moment for many things."""
    deadline = time.monotonic() + PATIENCE
    while not ask():
        assert time.monotonic() < deadline, f"waited in vain until {what}"
        time.sleep(0.2)


def test_a_day_of_an_administrator(program: Program, cluster: Cluster) -> None:
    topic, group = new_topic("cli-day"), new_topic("cli-day")
    made = program.done("topic", "create", topic, "--queues", "2").rows
    assert [row[0] for row in made] == ["broker-a", "broker-b"]
    assert topic in {each["topic"] for each in program.done("topic", "list", "--json").objects}
    assert len(program.done("route", topic, "--json").objects) == 2

    place = ("--queue", "broker-b:1")
    sent = [
        program.done("send", topic, body, "--key", "k", "--tag", tag, *place, "--json").objects[0]
        for body, tag in (("one", "A"), ("two", "B"), ("three", "A"))
    ]
    assert [(each["broker"], each["queue"], each["offset"]) for each in sent] == [
        ("broker-b", 1, 0),
        ("broker-b", 1, 1),
        ("broker-b", 1, 2),
    ]
    wait_for(
        lambda: len(program.done("consume", topic, "--bodies").output.split()) == 3,
        "all can be read",
    )
    assert program.done("consume", topic, "--tag", "B", "--bodies").output == "two\n"
    read = program.done("consume", topic, "--group", group, "--limit", "2", "--json").objects
    assert [each["message_id"] for each in read] == [each["message_id"] for each in sent[:2]]

    def lag() -> int:
        (shown,) = program.done("group", "show", group, "--topic", topic, "--json").objects
        return int(shown["lag"])

    wait_for(lambda: lag() == 1, "the group is seen where it is")
    assert [group] in [row[:1] for row in program.done("group", "list").rows]
    program.done("group", "reset", group, "--topic", topic, "--to", "first")
    wait_for(lambda: lag() == 3, "the group is where it was reset to")
    offsets = program.done("offsets", topic, "--group", group, "--json").objects
    ends = {(each["broker"], each["queue"]): each["max_offset"] for each in offsets}
    assert ends == {("broker-a", 0): 0, ("broker-a", 1): 0, ("broker-b", 0): 0, ("broker-b", 1): 3}

    find = ("message", "find", topic, "--key", "k", "--json")
    wait_for(lambda: len(program.done(*find).objects) == 3, "all have been indexed")
    assert [each["body"] for each in program.done(*find).objects] == ["one", "two", "three"]
    for arguments in (
        (sent[1]["message_id"], "--topic", topic),
        (sent[1]["offset_message_id"],),
        ("--topic", topic, *place, "--offset", "1"),
    ):
        (shown,) = program.done("message", "show", *arguments, "--json").objects
        assert (shown["body"], shown["broker"], shown["queue"]) == ("two", "broker-b", 1)

    program.done("topic", "alter", topic, "--queues", "3")
    wait_for(lambda: len(program.done("offsets", topic).rows) == 6, "it has more queues")
    brokers = program.done("broker", "list", "--json").objects
    assert [(each["broker"], each["version"]) for each in brokers] == [
        ("broker-a", cluster.version),
        ("broker-b", cluster.version),
    ]
    assert program.done("cluster").rows[0][1:3] == ["2", "2"]
    program.done("group", "delete", group, "--yes")
    program.done("topic", "delete", topic, "--yes")
    wait_for(lambda: program("route", topic).code == 1, "the topic is gone")


def test_a_filter_leaves_out_the_rest_and_one_that_says_nothing_prints_nothing(
    program: Program,
) -> None:
    topic = new_topic("cli-sql")
    program.done("topic", "create", topic, "--queues", "1")
    program.done("send", topic, "x", "--property", "colour=red")
    program.done("send", topic, "y", "--property", "colour=blue")
    red = ("--sql", "colour = 'red'")
    assert program.done("consume", topic, "--bodies", *red).output == "x\n"
    assert program.done("consume", topic, "--bodies", *red, "--group", topic).output == "x\n"
    for group in ((), ("--group", topic)):
        refused = program("consume", topic, "--sql", "colour >", *group)
        assert (refused.code, refused.output) == (1, "")
        assert refused.errors.count("\n") == 1, refused.errors


def test_a_setting_that_is_not_as_asked_is_an_error(program: Program, cluster: Cluster) -> None:
    change = ("broker", "config", "broker-a", "--set")
    unknown = program(*change, "nosuch=1")
    assert (unknown.code, unknown.output) == (1, "")
    assert unknown.errors == "rocketpipe: broker-a has no setting 'nosuch'\n"
    assert program.done(*change, "slaveReadEnable=FALSE").output.split() == [
        "slaveReadEnable",
        "false",
    ]
    refused = program(*change, "flushDiskType=sometimes")
    assert refused.code == 1
    assert "flushDiskType" in refused.errors
    if not isinstance(cluster, EmbeddedCluster):  # which says itself that it refuses
        assert "of broker-a is ASYNC_FLUSH, not sometimes" in refused.errors


def test_no_delay_is_asked_of_a_broker_that_would_not_wait(
    program: Program, cluster: Cluster
) -> None:
    topic = new_topic("cli-delay")
    for create in (False, True):
        if create:
            program.done("topic", "create", topic, "--if-missing")
        sent = program("send", topic, "x", "--delay", "1s")
        if cluster.version == "4.9.4":
            assert (sent.code, sent.output) == (1, "")
            assert "broker-a is a broker of 4.9.4, which delivers at once" in sent.errors
            assert "--delay-level" in sent.errors
        else:
            assert "delivers at once" not in sent.errors  # it is taken, or refused by the broker
    program.done("send", topic, "x", "--delay-level", "1")
