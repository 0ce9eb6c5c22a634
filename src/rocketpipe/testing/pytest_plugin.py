"""Fixtures for the tests of those who use rocketpipe; pytest finds them by itself.

`rocketmq` is a cluster for the whole session, healed before each test that asks for it;
`rocketmq_topic` a topic that no other test has. To have other settings, or another scope for the
cluster, define `rocketmq_cluster` anew in a conftest.py.
"""

import itertools
import re
from collections.abc import Iterator

import pytest

from rocketpipe.testing.embedded_cluster import EmbeddedCluster

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def rocketmq_cluster() -> Iterator[EmbeddedCluster]:
    """The cluster behind `rocketmq`: one broker, unless defined anew."""
    with EmbeddedCluster() as cluster:
        yield cluster


@pytest.fixture
def rocketmq(rocketmq_cluster: EmbeddedCluster) -> EmbeddedCluster:
    """A running cluster, whole and without faults, whatever the test before did to it."""
    rocketmq_cluster.heal()
    return rocketmq_cluster


@pytest.fixture
def rocketmq_topic(rocketmq: EmbeddedCluster, request: pytest.FixtureRequest) -> str:
    """The name of a topic that no test used before; it comes to be when it is first sent to."""
    about = re.sub(r"[^A-Za-z0-9_-]+", "-", request.node.name)[:60]
    return f"{about}-{next(_numbers)}"
