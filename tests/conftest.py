"""Fixtures for all suites."""

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.apache.cluster import ApacheCluster
from tests.apache.jars import VERSIONS, Unavailable

_APACHE_SETTINGS = {
    "autoCreateTopicEnable": "true",
    "enablePropertyFilter": "true",
    "recallMessageEnable": "true",  # unknown to 4.9.4, which ignores it
    "transactionCheckInterval": "2000",  # ms; a minute or half of one by default
}


@pytest.hookimpl(tryfirst=True)  # before -m selects by marker
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "start_apache" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.apache)
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session", params=VERSIONS)
def apache_version(request: pytest.FixtureRequest) -> str:
    """Every release; `parametrize("apache_version", ["5.5.0"], indirect=True)` picks."""
    version: str = request.param
    return version


StartApache = Callable[..., ApacheCluster]


@pytest.fixture(scope="session")
def start_apache() -> StartApache:
    """ApacheCluster(...), for tests that need settings of their own.

    Where Apache RocketMQ can't run the test is skipped aloud; in CI that is a failure.
    """

    def start(version: str, *args: Any, **options: Any) -> ApacheCluster:
        try:
            return ApacheCluster(version, *args, **options)
        except Unavailable as error:
            reason = f"no Apache RocketMQ {version}: {error}"
            if os.environ.get("CI") == "true":
                pytest.fail(reason)
            pytest.skip(reason)

    return start


@pytest.fixture(scope="session")
def apache_clusters(start_apache: StartApache) -> Iterator[Callable[[str], ApacheCluster]]:
    """The shared cluster of a version, started when first asked for."""
    clusters: dict[str, ApacheCluster] = {}

    def cluster(version: str) -> ApacheCluster:
        if version not in clusters:
            clusters[version] = start_apache(version, settings=_APACHE_SETTINGS)
        return clusters[version]

    yield cluster
    for running in clusters.values():
        running.close()


@pytest.fixture
def apache(apache_version: str, apache_clusters: Callable[[str], ApacheCluster]) -> ApacheCluster:
    """A healthy two-broker cluster of real Apache RocketMQ, shared by the whole run.

    A test may stop, kill and freeze its servers: they are brought back before the next one.
    """
    cluster = apache_clusters(apache_version)
    cluster.heal()
    return cluster
