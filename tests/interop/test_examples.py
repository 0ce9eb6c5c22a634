"""Apache's own example programs against our cluster: its 5.5.0 client sends to ours and reads."""

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.apache.programs import JavaProgram, ProgramTimeout, java_program
from tests.cluster_process import ClusterProcess

EXAMPLE = "org.apache.rocketmq.example"
PULL_ALL = Path(__file__).parents[1] / "apache" / "java" / "PullAll.java"
SENT = 1000  # by the quickstart producer, to TopicTest, all with TagA
PATIENCE = 240.0

pytestmark = pytest.mark.parametrize("apache_version", ["5.5.0"], indirect=True)


@pytest.fixture(scope="module")
def namesrv(apache_version: str) -> Iterator[str]:
    """A cluster that the quickstart producer has filled."""
    with ClusterProcess(brokers="2") as cluster:
        finished = java_program(
            apache_version,
            f"{EXAMPLE}.quickstart.Producer",
            namesrv=cluster.address,
            timeout=PATIENCE,
        )
        assert finished.output.count("sendStatus=SEND_OK") == SENT, finished.output[-3000:]
        yield cluster.address


def produced(version: str, namesrv: str, program: str) -> str:
    """What a producer of Apache's prints. It gives up after three seconds without an answer, which
    a busy machine may need to start it: if it sent nothing, it may try again."""
    for tries_left in (2, 1, 0):
        with JavaProgram(version, f"{EXAMPLE}.{program}", namesrv=namesrv) as producer:
            try:
                return producer.wait(60).output
            except ProgramTimeout as error:
                if "SEND_OK" in error.output or not tries_left:
                    raise
    raise AssertionError("never here")


class Received(NamedTuple):
    broker: str
    queue_id: int
    queue_offset: int
    tags: str


_MESSAGE = re.compile(
    r"MessageExt \[brokerName=([\w-]+), queueId=(\d+), .*?queueOffset=(\d+),.*?[{ ]TAGS=(\w+)"
)


def received(output: str) -> list[Received]:
    """The messages in what a consumer printed."""
    return [
        Received(broker, int(queue_id), int(offset), tags)
        for broker, queue_id, offset, tags in _MESSAGE.findall(output)
    ]


def consumed(version: str, namesrv: str, program: str, count: int) -> list[Received]:
    """What a consumer of Apache's prints until it has printed so many different messages."""
    with JavaProgram(version, f"{EXAMPLE}.{program}", namesrv=namesrv) as consumer:
        consumer.wait_until(
            lambda output: len(set(received(output))) >= count, f"{count} messages", PATIENCE
        )
        return received(consumer.output)


def by_queue(messages: list[Received]) -> dict[tuple[str, int], list[int]]:
    queues: dict[tuple[str, int], list[int]] = {}
    for message in messages:
        queues.setdefault((message.broker, message.queue_id), []).append(message.queue_offset)
    return queues


def test_the_quickstart_consumer_gets_every_message_once(apache_version: str, namesrv: str) -> None:
    messages = consumed(apache_version, namesrv, "quickstart.Consumer", SENT)
    assert len(messages) == SENT
    assert {broker for broker, *_ in messages} == {"broker-a", "broker-b"}


def test_an_orderly_consumer_gets_each_queue_in_order(apache_version: str, namesrv: str) -> None:
    messages = consumed(apache_version, namesrv, "ordermessage.Consumer", SENT)
    queues = by_queue(messages)
    assert len(queues) == 8
    for offsets in queues.values():
        # It takes a message twice when it suspends its queue, which this one does by design.
        assert all(after - before in (0, 1) for before, after in pairwise(offsets))


def test_every_broadcast_consumer_gets_every_message(apache_version: str, namesrv: str) -> None:
    for _ in range(2):
        messages = consumed(apache_version, namesrv, "broadcast.PushConsumer", SENT)
        assert len(messages) == SENT


def test_a_lite_pull_consumer_that_subscribes_gets_every_message(
    apache_version: str, namesrv: str
) -> None:
    messages = consumed(apache_version, namesrv, "simple.LitePullConsumerSubscribe", SENT)
    assert len(messages) == SENT


def test_a_lite_pull_consumer_reads_what_it_assigned_itself_from_where_it_seeks(
    apache_version: str, namesrv: str
) -> None:
    messages = consumed(apache_version, namesrv, "simple.LitePullConsumerAssign", SENT // 2 - 10)
    queues = by_queue(messages)
    assert len(queues) == 4
    assert sorted(min(offsets) for offsets in queues.values()) == [0, 0, 0, 10]


def test_a_pull_consumer_reads_all_queues_to_their_ends(apache_version: str, namesrv: str) -> None:
    finished = java_program(apache_version, PULL_ALL, ["TopicTest"], namesrv=namesrv, timeout=120)
    assert len(received(finished.output)) == SENT
    assert finished.output.count(" ends at ") == 8
    none = java_program(
        apache_version, PULL_ALL, ["TopicTest", "TagB"], namesrv=namesrv, timeout=120
    )
    assert received(none.output) == []
    assert none.output.count(" ends at ") == 8


def test_a_consumer_that_names_tags_gets_those_and_no_others(
    apache_version: str, namesrv: str
) -> None:
    output = produced(apache_version, namesrv, "filter.TagFilterProducer")
    assert output.count("sendStatus=SEND_OK") == 60
    messages = consumed(apache_version, namesrv, "filter.TagFilterConsumer", 40)
    assert sorted(message.tags for message in messages) == ["TagA"] * 20 + ["TagC"] * 20


def test_the_producer_of_ordered_messages_chooses_its_queues(
    apache_version: str, namesrv: str
) -> None:
    output = produced(apache_version, namesrv, "ordermessage.Producer")
    assert output.count("sendStatus=SEND_OK") == 100
