"""Fixtures for all suites."""

import os
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import settings

from rocketpipe.testing.embedded_cluster import EmbeddedCluster
from tests.apache.cluster import ApacheCluster
from tests.apache.jars import VERSIONS
from tests.apache.require import require
from tests.certificates import Certificates
from tests.interop.clusters import EMBEDDED, Cluster

# What messages that fail wait for, level 3 and those after it: 10s 30s 1m by default.
_DELAYS = f"1s 5s 1s 2s 3s {' '.join(f'{minutes}m' for minutes in range(2, 11))} 20m 30m 1h 2h"

_APACHE_SETTINGS = {
    "autoCreateTopicEnable": "true",
    "enablePropertyFilter": "true",
    "recallMessageEnable": "true",  # 4.9.4 ignores what it does not know
    "transactionCheckInterval": "2000",  # ms; a minute or half of one by default
    "messageDelayLevel": _DELAYS,
}


# A shell starts what runs in the background with Ctrl-C ignored, and programs pass that on to those
# they start: but some tests press it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

os.environ.setdefault("SPARK_CONF_DIR", str(Path(__file__).parent / "spark_conf"))

# How long an example takes says nothing on a busy machine.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")


LOST = 9  # what pytest exits with then; its own codes end at 5
_lost: list[str] = []


def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """Remember what is final: scripts/test runs again what exits with 1, and nothing else."""
    is_final = item.get_closest_marker("final") is not None
    if is_final and call.excinfo is not None and _is_assertion(call.excinfo.value):
        _lost.append(item.nodeid)


def _is_assertion(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return any(_is_assertion(each) for each in error.exceptions)
    return isinstance(error, AssertionError)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if _lost:
        session.exitstatus = LOST


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for name in _lost:
        terminalreporter.write_line(f"LOST, and not run again: {name}", red=True)


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
    require(version)
    return version


class ApacheClusters:
    """The shared cluster of each version: started when first asked for, ended after the last test
    that may ask, since even idle brokers take a tenth of a core each."""

    def __init__(self) -> None:
        self._running: dict[str, ApacheCluster] = {}
        self.last_tests: dict[str, str] = {}  # of each version

    def __call__(self, version: str) -> ApacheCluster:
        if version not in self._running:
            require(version)
            self._running[version] = ApacheCluster(version, settings=_APACHE_SETTINGS)
        return self._running[version]

    def running(self, version: str) -> Sequence[ApacheCluster]:
        """That of this version, if there is one yet."""
        return [cluster for name, cluster in self._running.items() if name == version]

    def close(self, versions: Iterable[str] = VERSIONS) -> None:
        for version in versions:
            if cluster := self._running.pop(version, None):
                cluster.close()


_clusters = ApacheClusters()


def pytest_collection_finish(session: pytest.Session) -> None:
    for item in session.items:
        call = getattr(item, "callspec", None)
        for name in ("apache_version", "cluster_name"):
            if call is not None and (version := call.params.get(name)) in VERSIONS:
                _clusters.last_tests[version] = item.nodeid


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    _clusters.close(name for name, last in _clusters.last_tests.items() if last == item.nodeid)


@pytest.fixture(scope="session")
def apache_clusters() -> Iterator[ApacheClusters]:
    yield _clusters
    _clusters.close()


@pytest.fixture(scope="module")
def spinning_brokers_end(apache_clusters: ApacheClusters) -> Iterator[None]:
    """For modules that end transactions: after the first, a 5.5.0 broker keeps a processor busy
    (TransactionalOpBatchService) until it is restarted, as it is before the next test."""
    yield
    for cluster in apache_clusters.running("5.5.0"):
        for broker in cluster.brokers:
            broker.kill()


@pytest.fixture
def apache(apache_version: str, apache_clusters: ApacheClusters) -> ApacheCluster:
    """A healthy two-broker cluster of real Apache RocketMQ, shared by the whole run.

    A test may stop, kill and freeze its servers: they are brought back before the next one.
    """
    cluster = apache_clusters(apache_version)
    cluster.heal()
    return cluster


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
        "messageDelayLevel": _DELAYS,
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
