"""The fixtures that users of the package get, in a pytest of their own."""

from pathlib import Path

import pytest

import rocketpipe

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.slow

TEST = """
from rocketpipe import Message, Producer

topics = []

def send(cluster, topic):
    with Producer("g", namesrv=cluster.namesrv, send_timeout=20.0) as producer:
        return producer.send(Message(topic, b"x"))

def test_one(rocketmq, rocketmq_topic):
    assert send(rocketmq, rocketmq_topic).queue.topic == rocketmq_topic
    topics.append(rocketmq_topic)
    rocketmq.broker("broker-a").kill()

def test_two(rocketmq, rocketmq_topic):  # healed, and with a topic of its own
    assert len(send(rocketmq, rocketmq_topic).attempts) == 1
    assert rocketmq_topic.startswith("test_two-")
    assert rocketmq_topic not in topics
"""

CONFTEST = """
import pytest
from rocketpipe.testing import EmbeddedCluster

@pytest.fixture(scope="session")
def rocketmq_cluster():
    with EmbeddedCluster(2) as cluster:
        yield cluster
"""


def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, *options: str) -> None:
    # By name: whether it is found by itself depends on how the package is installed.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    monkeypatch.setenv("PYTHONPATH", str(Path(rocketpipe.__file__).parents[1]))
    plugin = ("-p", "rocketpipe.testing.pytest_plugin")
    result = pytester.runpytest_subprocess(*plugin, "-W", "error", *options)
    result.assert_outcomes(passed=2)


def test_it_gives_a_cluster_and_topics(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makepyfile(TEST)
    run(pytester, monkeypatch)


def test_the_cluster_can_be_another(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makeconftest(CONFTEST)
    more = "\ndef test_three(rocketmq):\n    assert len(rocketmq.brokers) == 2\n"
    pytester.makepyfile(TEST + more)
    run(pytester, monkeypatch, "-k", "two or three")
