"""Fixtures for all suites."""

import os
from collections.abc import Callable, Iterator

import pytest
from hypothesis import settings

from tests.apache.cluster import ApacheCluster
from tests.apache.jars import VERSIONS, Unavailable, find_java, jars
from tests.certificates import Certificates

_APACHE_SETTINGS = {
    "autoCreateTopicEnable": "true",
    "enablePropertyFilter": "true",
    "recallMessageEnable": "true",  # 4.9.4 ignores what it does not know
    "transactionCheckInterval": "2000",  # ms; a minute or half of one by default
}


# How long an example takes says nothing on a busy machine.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.hookimpl(tryfirst=True)  # before -m selects by marker
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "apache_version" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.apache)
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session", params=VERSIONS)
def apache_version(request: pytest.FixtureRequest) -> str:
    """Each release that can run here, for tests that start clusters or programs of their own.

    `@pytest.mark.parametrize("apache_version", ["5.5.0"], indirect=True)` asks for one alone.
    """
    version: str = request.param
    try:
        find_java()
        jars(version)
    except Unavailable as error:
        reason = f"no Apache RocketMQ {version} here: {error}"
        if os.environ.get("CI") == "true":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    return version


@pytest.fixture(scope="session")
def apache_clusters() -> Iterator[Callable[[str], ApacheCluster]]:
    """Gives the shared cluster of a version, started when first asked for."""
    clusters: dict[str, ApacheCluster] = {}

    def cluster(version: str) -> ApacheCluster:
        if version not in clusters:
            clusters[version] = ApacheCluster(version, settings=_APACHE_SETTINGS)
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
