"""Fixtures of the blocking clients' tests."""

import threading
from collections.abc import Iterator

import pytest

from tests.sync.tiny_cluster import TinyCluster


@pytest.fixture(scope="session")
def _cluster() -> Iterator[TinyCluster]:
    with TinyCluster() as cluster:
        yield cluster


@pytest.fixture
def cluster(_cluster: TinyCluster) -> TinyCluster:
    _cluster.bodies.clear()
    _cluster.goodbyes = _cluster.transaction_ends = 0
    return _cluster


@pytest.fixture(autouse=True)
def no_thread_is_left_behind() -> Iterator[None]:
    yield
    for thread in threading.enumerate():
        assert thread.name != "rocketpipe-loop"
        if thread.name == "rocketpipe-listening":  # one may just have come from a listener
            thread.join(30)
            assert not thread.is_alive()
