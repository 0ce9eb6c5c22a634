"""Apache's own example programs against our cluster: its 5.5.0 client sends to ours and reads."""

import asyncio
import re
import time
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.apache.programs import JavaProgram, ProgramTimeout, java_program, mqadmin
from tests.cluster_process import ClusterProcess
from tests.interop.clusters import Reader

EXAMPLE = "org.apache.rocketmq.example"
JAVA = Path(__file__).parents[1] / "apache" / "java"
PULL_ALL = JAVA / "PullAll.java"
READDRESSED = JAVA / "Readdressed.java"  # runs a program that names a NameServer itself
SENT_ID = r"sendStatus=SEND_OK, msgId=([\w,]+), "  # as a producer prints it
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


@pytest.fixture(scope="module")
def other_namesrv(apache_version: str) -> Iterator[str]:
    """A cluster for programs that send, to topics that others read as well."""
    settings = {
        "transactionCheckInterval": "2000",
        "waitTimeMillsInSendQueue": "60000",  # no one-way message is lost on a busy machine
    }
    with ClusterProcess(settings, brokers="2") as cluster:
        yield cluster.address


def example(version: str, namesrv: str, program: str, *, is_addressed: bool = False) -> JavaProgram:
    """A program of Apache's; `is_addressed`: one that has the address of a NameServer in it."""
    name = f"{EXAMPLE}.{program}"
    if is_addressed:
        return JavaProgram(version, READDRESSED, [name], namesrv=namesrv)
    return JavaProgram(version, name, namesrv=namesrv)


def make_topic(version: str, namesrv: str, topic: str) -> None:
    """For programs that need a topic to be there."""
    made = mqadmin(version, namesrv, "updateTopic", "-c", "DefaultCluster", "-t", topic)
    assert made.output.count("create topic to") == 2, made.output


def stored_count(namesrv: str, topic: str, count: int) -> int:
    """How many messages a topic has, once it has at least so many; but not for ever."""

    async def ask() -> int:
        async with Reader(namesrv) as reader:
            deadline = time.monotonic() + PATIENCE
            while True:
                ends = [await reader.end(queue) for queue in await reader.queues(topic)]
                if sum(ends) >= count or time.monotonic() > deadline:
                    return sum(ends)
                await asyncio.sleep(0.1)

    return asyncio.run(ask())


def printed(
    version: str,
    namesrv: str,
    program: str,
    pattern: str,
    count: int,
    *,
    is_addressed: bool = False,
) -> list[str]:
    """What fits a pattern in the output of a program, once so much does. Its client gives up after
    three seconds without an answer, which a busy machine may need to start it: it may try again."""
    line = re.compile(pattern, re.MULTILINE)

    def is_enough(output: str) -> bool:
        return len(line.findall(output)) >= count

    for tries_left in (4, 3, 2, 1, 0):
        with example(version, namesrv, program, is_addressed=is_addressed) as running:
            try:
                return line.findall(running.wait_until(is_enough, pattern, 60))
            except ProgramTimeout:
                if not tries_left:
                    raise
    raise AssertionError("never here")


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


def starts_of(queues: dict[tuple[str, int], list[int]]) -> list[int]:
    """Where reading began. The lite pull consumers seek to 10 in one queue, but Apache's client has
    already begun to pull it: what that brings is sometimes handed out as well."""
    return sorted(min(offsets) for offsets in queues.values())


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
    assert starts_of(queues) in ([0, 0, 0, 10], [0, 0, 0, 0])


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


def test_a_push_consumer_gets_every_message_once(apache_version: str, namesrv: str) -> None:
    messages = consumed(apache_version, namesrv, "simple.PushConsumer", SENT)
    assert len(messages) == SENT


def test_a_scheduled_pull_reads_every_queue_to_its_end(apache_version: str, namesrv: str) -> None:
    found = re.compile(r"queueId=(\d)\]\tPullResult .*?nextBeginOffset=(\d+).*?msgFoundList=(\d+)")

    def read(output: str) -> int:
        return sum(int(count) for _, _, count in found.findall(output))

    with example(apache_version, namesrv, "simple.PullScheduleService") as consumer:
        output = consumer.wait_until(lambda out: read(out) >= SENT, f"{SENT} messages", PATIENCE)
    assert read(output) == SENT


def test_a_pull_consumer_with_a_thread_per_topic_tells_how_far_it_is(
    apache_version: str, namesrv: str
) -> None:
    group = "please_rename_unique_group_name_5"
    deadline = time.monotonic() + PATIENCE
    consumer_offsets: list[str] = []
    with example(apache_version, namesrv, "simple.PullConsumer", is_addressed=True):
        while sum(map(int, consumer_offsets)) < SENT:
            progress = mqadmin(apache_version, namesrv, "consumerProgress", "-g", group).output
            assert time.monotonic() < deadline, progress
            # A line for each queue: topic, broker, queue, and how far each of the two is.
            line = re.compile(r"^TopicTest +broker-[ab] +\d +\d+ +(\d+) ", re.MULTILINE)
            consumer_offsets = line.findall(progress)
    assert len(consumer_offsets) == 8
    assert sum(map(int, consumer_offsets)) == SENT


def test_a_lite_pull_consumer_assigns_itself_two_topics_and_names_a_tag(
    apache_version: str, namesrv: str
) -> None:
    make_topic(apache_version, namesrv, "TopicTest1")
    program = "simple.LitePullConsumerAssignWithSubExpression"
    messages = consumed(apache_version, namesrv, program, SENT - 10)
    queues = by_queue(messages)
    assert starts_of(queues) in ([0] * 7 + [10], [0] * 8)


def test_producers_that_wait_and_producers_that_do_not_have_all_stored(
    apache_version: str, other_namesrv: str
) -> None:
    printed(apache_version, other_namesrv, "simple.Producer", SENT_ID, 128)
    before = stored_count(other_namesrv, "TopicTest", 128)
    with example(
        apache_version, other_namesrv, "simple.OnewayProducer", is_addressed=True
    ) as producer:
        producer.wait(PATIENCE)
    assert stored_count(other_namesrv, "TopicTest", before + 100) == before + 100


def test_a_consumer_that_pops_gets_every_message_once(
    apache_version: str, other_namesrv: str
) -> None:
    sent = set(printed(apache_version, other_namesrv, "simple.Producer", SENT_ID, 128))

    def popped(output: str) -> list[str]:
        return re.findall(r"[{ ]UNIQ_KEY=(\w+)", output)  # it prints another id as msgId

    with example(apache_version, other_namesrv, "simple.PopConsumer") as consumer:
        consumer.wait_until(lambda out: set(popped(out)) >= sent, "what was sent", PATIENCE)
        output = consumer.output
    assert "POP_CK=" in output
    times = Counter(popped(output))
    assert {times[message_id] for message_id in sent} == {1}


def test_an_async_producer_hears_of_each_message(apache_version: str, other_namesrv: str) -> None:
    program = "simple.AsyncProducer"
    ids = printed(apache_version, other_namesrv, program, r"^\d+ +OK (\w+) $", 100)
    assert len(set(ids)) == 100
    assert stored_count(other_namesrv, "Jodie_topic_1023", 100) >= 100


def test_batches_small_and_large_are_stored_message_by_message(
    apache_version: str, other_namesrv: str
) -> None:
    program = "batch.SimpleBatchProducer"
    (ids,) = printed(apache_version, other_namesrv, program, SENT_ID, 1)
    assert len(set(ids.split(","))) == 3
    before = stored_count(other_namesrv, "BatchTest", 3)
    assert before % 3 == 0
    with example(apache_version, other_namesrv, "batch.SplitBatchProducer") as producer:
        assert stored_count(other_namesrv, "BatchTest", before + 100_000) == before + 100_000
        statuses = re.findall(r"sendStatus=(\w+)", producer.output)
    assert set(statuses) == {"SEND_OK"}


def test_messages_of_a_transaction_are_seen_when_the_producer_says_so_on_being_asked(
    apache_version: str, other_namesrv: str
) -> None:
    topic = "TopicTest1234"
    with example(apache_version, other_namesrv, "transaction.TransactionProducer") as producer:
        producer.wait_until(lambda out: out.count("SEND_OK") == 10, "10 messages", PATIENCE)
        # It commits every third when asked, rolls back the next, and does not know of the rest.
        assert stored_count(other_namesrv, topic, 3) == 3
    pulled = java_program(apache_version, PULL_ALL, [topic], namesrv=other_namesrv, timeout=120)
    assert sorted(message.tags for message in received(pulled.output)) == ["TagB", "TagC", "TagE"]


@pytest.mark.parametrize(
    ("kind", "topic", "count"), [("Scheduled", "TestTopic", 100), ("Timer", "TimerTopic", 10)]
)
def test_scheduled_messages_arrive_once_after_their_delay(
    apache_version: str, other_namesrv: str, kind: str, topic: str, count: int
) -> None:
    def arrived(output: str) -> list[str]:
        return re.findall(r"Receive message\[msgId=(\w+) ", output)

    make_topic(apache_version, other_namesrv, topic)
    consuming = f"schedule.{kind}MessageConsumer"
    with example(apache_version, other_namesrv, consuming) as consumer:
        began = time.monotonic()
        program = f"schedule.{kind}MessageProducer"
        sent = set(printed(apache_version, other_namesrv, program, SENT_ID, count))
        consumer.wait_for("Receive message", PATIENCE)
        assert time.monotonic() - began > 10
        consumer.wait_until(lambda out: set(arrived(out)) >= sent, "what was sent", PATIENCE)
        times = Counter(arrived(consumer.output))
    assert {times[message_id] for message_id in sent} == {1}


@pytest.mark.parametrize("program", ["RequestProducer", "AsyncRequestProducer"])
def test_a_request_is_replied_to(apache_version: str, other_namesrv: str, program: str) -> None:
    make_topic(apache_version, other_namesrv, "RequestTopic")
    with example(
        apache_version, other_namesrv, "rpc.ResponseConsumer", is_addressed=True
    ) as consumer:
        consumer.wait_for("Consumer Started.", PATIENCE)
        (reply,) = printed(
            apache_version,
            other_namesrv,
            f"rpc.{program}",
            # The other one also calls back, without a reply, when the request is sent.
            r"^request to <RequestTopic> cost: \d+ replyMessage: (.*body=.*) $",
            1,
            is_addressed=program == "RequestProducer",
        )
    assert f"body={list(b'reply message contents.')}" in reply
