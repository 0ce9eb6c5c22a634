"""The command line, on every kind of cluster."""

import pytest

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
