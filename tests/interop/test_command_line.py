"""The command line, on every kind of cluster."""

import pytest

from rocketpipe.testing.embedded_cluster import EmbeddedCluster
from tests.cli.conftest import Program
from tests.interop.clusters import Cluster, new_topic


@pytest.fixture
def program(cluster: Cluster) -> Program:
    return Program(cluster.namesrv)


def test_a_filter_that_says_nothing_prints_nothing(program: Program) -> None:
    topic = new_topic("cli-sql")
    program.done("topic", "create", topic, "--queues", "1")
    program.done("send", topic, "x", "--property", "colour=red")
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
