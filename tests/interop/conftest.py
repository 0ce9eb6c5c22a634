"""The clusters on which the tests of behaviour run."""

from collections.abc import Callable, Iterator

import pytest

from rocketpipe.testing.embedded_cluster import EmbeddedCluster
from tests.apache.cluster import ApacheCluster
from tests.apache.jars import VERSIONS
from tests.interop.clusters import Cluster

EMBEDDED = "embedded"

_APACHE = [
    pytest.param(version, marks=[pytest.mark.apache, pytest.mark.slow]) for version in VERSIONS
]


@pytest.fixture(scope="session", params=[*_APACHE, pytest.param(EMBEDDED, marks=pytest.mark.slow)])
def cluster_name(request: pytest.FixtureRequest) -> str:
    """Every kind of cluster that must behave alike: each gets the whole suite."""
    name: str = request.param
    return name


@pytest.fixture(scope="session")
def embedded_cluster() -> Iterator[EmbeddedCluster]:
    """Our own, in this process."""
    settings = {
        "transactionCheckInterval": 2000,
        "recallMessageEnable": True,
        "enablePropertyFilter": True,
    }
    with EmbeddedCluster(2, settings=settings) as cluster:
        yield cluster


@pytest.fixture
def cluster(
    request: pytest.FixtureRequest,
    cluster_name: str,
    apache_clusters: Callable[[str], ApacheCluster],
) -> Cluster:
    """A healthy cluster of two brokers, shared by the whole run: tests choose topics of their own.

    A test may stop, kill and freeze its servers: they are brought back before the next one.
    """
    running: ApacheCluster | EmbeddedCluster
    if cluster_name == EMBEDDED:
        running = request.getfixturevalue("embedded_cluster")
    else:
        running = apache_clusters(cluster_name)
    running.heal()
    return running
