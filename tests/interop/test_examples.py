"""Apache's own example programs against our cluster: its 5.5.0 client sends to ours and reads."""

import asyncio
import re
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from rocketpipe import Message, Producer
from tests.apache.jars import jars
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

# Those of Apache's programs that need more than the address of a NameServer.
NOT_RUN = {
    "lmq.LMQProducer": "LMQ: queues of their own in other topics, off by default in Apache, too",
    "lmq.LMQPullConsumer": "LMQ",
    "lmq.LMQPushConsumer": "LMQ",
    "lmq.LMQPushPopConsumer": "LMQ",
}

pytestmark = pytest.mark.parametrize("apache_version", ["5.5.0"], indirect=True)


@pytest.fixture(scope="module")
def namesrv(apache_version: str) -> Iterator[str]:
    """A cluster that the quickstart producer has filled."""
    with ClusterProcess(brokers="2") as cluster:
        with example(apache_version, cluster.address, "quickstart.Producer") as producer:
            finished = producer.wait(PATIENCE)
        assert finished.output.count("sendStatus=SEND_OK") == SENT, finished.output[-3000:]
        yield cluster.address


@pytest.fixture(scope="module")
def other_namesrv(apache_version: str) -> Iterator[str]:
    """A cluster for programs that send, to topics that others read as well."""
    settings = {
        "transactionCheckInterval": "2000",
        "waitTimeMillsInSendQueue": "60000",  # no one-way message is lost on a busy machine
        "enablePropertyFilter": "true",
    }
    with ClusterProcess(settings, brokers="2") as cluster:
        yield cluster.address


def example(
    version: str, namesrv: str, program: str, args: str = "", *, is_addressed: bool = False
) -> JavaProgram:
    """A program of Apache's; `is_addressed`: one that has the address of a NameServer in it."""
    name = f"{EXAMPLE}.{program}"
    if is_addressed:
        return JavaProgram(version, READDRESSED, [name, *args.split()], namesrv=namesrv)
    return JavaProgram(version, name, args.split(), namesrv=namesrv)


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
    args: str = "",
    *,
    is_addressed: bool = False,
    before_end: Callable[[], object] = lambda: None,
) -> list[str]:
    """What fits a pattern in the output of a program, once so much does; then it is killed.

    Its client gives up after three seconds without an answer, which a busy machine may need to
    start it: it may try again.
    """
    line = re.compile(pattern, re.MULTILINE)

    def is_enough(output: str) -> bool:
        return len(line.findall(output)) >= count

    for tries_left in (4, 3, 2, 1, 0):
        with example(version, namesrv, program, args, is_addressed=is_addressed) as running:
            try:
                found = line.findall(running.wait_until(is_enough, pattern, 60))
                before_end()
                return found
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


def test_none_of_apaches_programs_is_forgotten(apache_version: str) -> None:
    with zipfile.ZipFile(jars(apache_version) / f"rocketmq-example-{apache_version}.jar") as jar:
        programs = {
            name.removesuffix(".class").replace("/", ".").removeprefix(f"{EXAMPLE}.")
            for name in jar.namelist()
            if name.endswith(".class") and "$" not in name and b"\1\0\4main" in jar.read(name)
        }
    tests = Path(__file__).read_text()
    named = {program for program in programs if f'"{program}"' in tests}
    assert named == programs
    assert NOT_RUN.keys() < programs


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
    ("producing", "consuming", "topic", "count"),
    [
        (
            "schedule.ScheduledMessageProducer",
            "schedule.ScheduledMessageConsumer",
            *("TestTopic", 100),
        ),
        ("schedule.TimerMessageProducer", "schedule.TimerMessageConsumer", "TimerTopic", 10),
    ],
)
def test_scheduled_messages_arrive_once_after_their_delay(
    apache_version: str,
    other_namesrv: str,
    producing: str,
    consuming: str,
    topic: str,
    count: int,
) -> None:
    def arrived(output: str) -> list[str]:
        return re.findall(r"Receive message\[msgId=(\w+) ", output)

    make_topic(apache_version, other_namesrv, topic)
    with example(apache_version, other_namesrv, consuming) as consumer:
        began = time.monotonic()
        sent = set(printed(apache_version, other_namesrv, producing, SENT_ID, count))
        consumer.wait_for("Receive message", PATIENCE)
        assert time.monotonic() - began > 10
        consumer.wait_until(lambda out: set(arrived(out)) >= sent, "what was sent", PATIENCE)
        times = Counter(arrived(consumer.output))
    assert {times[message_id] for message_id in sent} == {1}


@pytest.mark.parametrize("program", ["rpc.RequestProducer", "rpc.AsyncRequestProducer"])
def test_a_request_is_replied_to(apache_version: str, other_namesrv: str, program: str) -> None:
    make_topic(apache_version, other_namesrv, "RequestTopic")
    with example(
        apache_version, other_namesrv, "rpc.ResponseConsumer", is_addressed=True
    ) as consumer:
        consumer.wait_for("Consumer Started.", PATIENCE)
        (reply,) = printed(
            apache_version,
            other_namesrv,
            program,
            # The other one also calls back, without a reply, when the request is sent.
            r"^request to <RequestTopic> cost: \d+ replyMessage: (.*body=.*) $",
            1,
            is_addressed=program == "rpc.RequestProducer",
        )
    assert f"body={list(b'reply message contents.')}" in reply


def test_a_consumer_that_filters_by_sql_gets_what_fits(
    apache_version: str, other_namesrv: str
) -> None:
    # Of ten messages, which are numbered and take the tags A, B and C in turn.
    wanted = {0, 1, 3}
    sent = printed(apache_version, other_namesrv, "filter.SqlFilterProducer", SENT_ID, 10)
    with example(apache_version, other_namesrv, "filter.SqlFilterConsumer") as consumer:
        fitting = {sent[number] for number in wanted}
        consumer.wait_until(
            lambda out: set(re.findall(r"[{ ]UNIQ_KEY=(\w+)", out)) >= fitting,
            *("what fits", PATIENCE),
        )
        numbers = re.findall(r"[{ ]a=(\d+)", consumer.output)
    assert set(map(int, numbers)) == wanted


def test_programs_whose_options_name_topic_and_group(
    apache_version: str, other_namesrv: str
) -> None:
    program, options = "operation.Producer", "-g makers -t Operated -a TagA -k key -c 3"
    sent = set(printed(apache_version, other_namesrv, program, SENT_ID, 3, options))
    program, options = "operation.Consumer", "-g takers -t Operated -s * -f false"
    printed_ids = printed(apache_version, other_namesrv, program, r"[{ ]UNIQ_KEY=(\w+)", 3, options)
    assert set(printed_ids) >= sent


def test_programs_that_have_a_namespace(apache_version: str, other_namesrv: str) -> None:
    def ids(program: str, pattern: str, count: int) -> set[str]:
        return set(
            printed(apache_version, other_namesrv, program, pattern, count, is_addressed=True)
        )

    topic = "NAMESPACE_TOPIC"
    sent = ids(
        "namespace.ProducerWithNamespace", rf"^Topic:{topic} send success, misId is:(\w+)$", 100
    )
    pushed = rf"^Msg topic is:{topic}, MsgId is:(\w+), reconsumeTimes is:0$"
    assert ids("namespace.PushConsumerWithNamespace", pushed, 100) >= sent
    # It reads one queue after the other, and waits long at the end of each.
    pulled = rf"^Topic is:{topic}, msgId is:(\w+)$"
    assert ids("namespace.PullConsumerWithNamespace", pulled, 10)


def test_programs_that_are_traced(apache_version: str, other_namesrv: str) -> None:
    # Until its end, when it has told of all its messages.
    sent = set(
        re.findall(SENT_ID, produced(apache_version, other_namesrv, "tracemessage.TraceProducer"))
    )
    assert len(sent) == 128
    program = "tracemessage.OpenTracingProducer"
    sent |= set(printed(apache_version, other_namesrv, program, SENT_ID, 1))
    assert stored_count(other_namesrv, "RMQ_SYS_TRACE_TOPIC", 1)
    program = "tracemessage.OpenTracingTransactionProducer"
    before = stored_count(other_namesrv, "TopicTest", len(sent))
    sent |= set(
        printed(
            *(apache_version, other_namesrv, program, SENT_ID, 1),
            # It tells of its message first, and commits it then.
            before_end=lambda: stored_count(other_namesrv, "TopicTest", before + 1),
        )
    )

    def is_all_there(output: str) -> bool:
        return set(re.findall(r"[{ ]UNIQ_KEY=(\w+)", output)) >= sent

    with (
        example(apache_version, other_namesrv, "tracemessage.TracePushConsumer") as traced,
        example(apache_version, other_namesrv, "tracemessage.OpenTracingPushConsumer") as open_,
    ):
        for consumer in (traced, open_):
            consumer.wait_until(is_all_there, "what was sent", PATIENCE)


def test_a_program_that_signs_sends_and_reads(apache_version: str, other_namesrv: str) -> None:
    program = "simple.AclClient"
    with example(apache_version, other_namesrv, program, is_addressed=True) as client:
        output = client.wait_until(
            lambda out: (
                len(re.findall(SENT_ID, out)) == 128
                and set(re.findall(SENT_ID, out)) <= set(re.findall(r"^msgId : (\w+) ", out, re.M))
            ),
            *("all that it sent", PATIENCE),
        )
    assert "Consumer Started." in output


def test_programs_of_open_messaging(apache_version: str, other_namesrv: str) -> None:
    program = "openmessaging.SimpleProducer"
    sent = set(
        printed(
            *(apache_version, other_namesrv, program, r"^Send async message OK, msgId: (\w+)$", 2),
            is_addressed=True,
        )
    )
    program = "openmessaging.SimplePushConsumer"
    pattern = r"^Received one message: (\w+)$"
    got = printed(apache_version, other_namesrv, program, pattern, 3, is_addressed=True)
    assert set(got) >= sent
    program = "openmessaging.SimplePullConsumer"
    with example(apache_version, other_namesrv, program, is_addressed=True) as consumer:
        output = consumer.wait(PATIENCE).output  # it ends when it has read what it sent
    (own,) = re.findall(r"^Send Message OK. MsgId: (\w+)$", output, re.M)
    assert own in re.findall(pattern, output, re.M)


def test_the_benchmarks_report_what_they_did(apache_version: str, other_namesrv: str) -> None:
    rate = r"TPS: +[1-9]\d* .*Failed: 0\b"
    program, options = "benchmark.Producer", "-t Measured -w 2 -q 200"
    (failed,) = printed(
        *(apache_version, other_namesrv, program),
        *(r"^\[Complete\] Send Total: 200 (.*Send Failed: 0 .*Response Failed: 0)", 1, options),
    )
    assert failed
    options = f"-n {other_namesrv} -t Measured -w 1 -b 4 -ri 1000"
    with (
        example(
            *(apache_version, other_namesrv, "benchmark.Consumer"), "-t Measured -ri 1000"
        ) as consumer,
        example(
            *(apache_version, other_namesrv, "benchmark.TransactionProducer"),
            "-t Measured2 -w 1 -i 50 -su 0.5 -ri 1000",
        ) as dealer,
    ):
        # That one sends as fast as it can.
        assert printed(apache_version, other_namesrv, "benchmark.BatchProducer", rate, 1, options)
        consumer.wait_until(
            lambda out: bool(re.search(r"Consume TPS: [1-9].*Fail: 0$", out, re.M)),
            *("a rate", PATIENCE),
        )
        checked = r"Send Failed: 0 \| Check: +[1-9]\d* \| UnexpectedCheck: 0 "
        dealer.wait_until(lambda out: bool(re.search(checked, out)), "a check", PATIENCE)
        assert re.search(rate, dealer.output)


def test_the_benchmarks_of_timers_report_what_they_did(
    apache_version: str, other_namesrv: str
) -> None:
    waiting = stored_count(other_namesrv, "rmq_sys_wheel_timer", 0)
    make_topic(apache_version, other_namesrv, "MeasuredTimers")

    def running(program: str, options: str) -> JavaProgram:
        return example(apache_version, other_namesrv, program, options, is_addressed=True)

    with (
        running("benchmark.timer.TimerConsumer", "-t MeasuredTimers") as consumer,
        # Its messages are for the time in two minutes: the consumer gets some of ours.
        running("benchmark.timer.TimerProducer", "-t Measured2 -tc 2 -st 2 -mt 5") as producer,
        Producer("group", namesrv=other_namesrv, send_timeout=30) as ours,
    ):
        deliver_ms = time.time_ns() // 1_000_000 + 2000
        properties = {"MY_RECORD_TIMER_DELIVER_MS": str(deliver_ms)}
        message = Message(
            "MeasuredTimers", b"timed", properties=properties, deliver_at_ms=deliver_ms
        )
        for _ in range(5):
            ours.send(message)
        producer.wait_for("Send Failed: 0, Response Failed: 0", PATIENCE)
        output = consumer.wait_until(
            lambda out: bool(re.search(r"Max delayedDuration: [1-9]", out)), "a delay", PATIENCE
        )
    assert "Avg delayedDuration: -" not in output  # none was early
    assert stored_count(other_namesrv, "rmq_sys_wheel_timer", waiting + 25) >= waiting + 25
