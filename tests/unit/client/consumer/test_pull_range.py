"""Reading a range of offsets: whole answers in order, several at a time, and what a gap is."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from logging.handlers import BufferingHandler
from typing import Any

import pytest

from rocketpipe.client.consumer import ranges
from rocketpipe.client.consumer.settings import PullConsumerSettings
from rocketpipe.client.consumer.subscriptions import Expression, Sql92
from rocketpipe.codes import RequestCode, ResponseCode
from rocketpipe.errors import BrokerError, InvalidSetting, MalformedRecord, NoRoute, OffsetGap
from rocketpipe.message import MessageQueue
from rocketpipe.remoting.connection import Connection
from rocketpipe.remoting.dispatch import Outcome, Refusal
from rocketpipe.remoting.settings import RemotingSettings
from rocketpipe.wire.bodies.route import BrokerData, Perm, QueueData, TopicRouteData
from rocketpipe.wire.frame import RemotingCommand, SerializeType
from rocketpipe.wire.record import decode_records, encode_record
from rocketpipe.wire.requests.reading import PullMessage, PullMessageReply
from tests.consumer_bench import ConsumerBench
from tests.consumer_bench import simulated as on_real_brokers
from tests.simulated_cluster import BROKER_PORT, FakeBroker, SimulatedCluster, simulated
from tests.stored_message import stored_message

QUEUE = MessageQueue("orders", "broker-a", 0)
RECORD_BYTES = len(encode_record(stored_message()))


class FakeQueue:
    """A queue that a fake broker serves, so many messages at most for a pull."""

    def __init__(
        self, broker: FakeBroker, offsets: Sequence[int], *, most: int = 32, delay: float = 0.0
    ) -> None:
        self.offsets = list(offsets)
        self.most = most
        self.delay = delay
        self.failures: list[Exception] = []  # for the next pulls
        self.resets = 0  # pulls to be told that somebody has reset the group
        self.suggests = 0  # this broker for the next pull
        self.unanswered: set[int] = set()  # offsets whose next pull nobody answers
        self.hang_ups: set[int] = set()  # or at which the connection ends
        self.asked: list[int] = []
        self.in_flight_most = 0
        self._in_flight = 0
        broker.handlers[RequestCode.PULL_MESSAGE] = self._pull

    async def _pull(self, connection: Connection, request: RemotingCommand) -> Outcome:
        header = PullMessage.from_ext_fields(request.ext_fields)
        self.asked.append(header.queue_offset)
        self._in_flight += 1
        self.in_flight_most = max(self.in_flight_most, self._in_flight)
        await asyncio.sleep(self.delay)
        self._in_flight -= 1
        if self.failures:
            raise self.failures.pop(0)
        start = header.queue_offset
        if start in self.unanswered | self.hang_ups:
            if start in self.hang_ups:
                connection.abort()
            self.unanswered.discard(start)
            self.hang_ups.discard(start)
            return None
        least, most = (self.offsets[0], self.offsets[-1] + 1) if self.offsets else (0, 0)
        count = min(self.most, header.max_msg_nums)
        found = [each for each in self.offsets if start <= each < start + count]
        code, following, remark = ResponseCode.SUCCESS, start + count, "FOUND"
        if start < least:
            code, following, remark = ResponseCode.PULL_OFFSET_MOVED, least, "OFFSET_TOO_SMALL"
        elif start > most:
            code, following, remark = ResponseCode.PULL_OFFSET_MOVED, most, "OFFSET_OVERFLOW_BADLY"
        elif start == most:
            code, following, remark = ResponseCode.PULL_NOT_FOUND, most, "OFFSET_OVERFLOW_ONE"
        elif not found:
            code, remark = ResponseCode.PULL_RETRY_IMMEDIATELY, "MESSAGE_WAS_REMOVING"
        if self.resets:
            self.resets -= 1
            found = []
            code, following, remark = ResponseCode.PULL_OFFSET_MOVED, 7, "OFFSET_RESET"
        reply = PullMessageReply(
            suggest_which_broker_id=self.suggests,
            next_begin_offset=min(following, most) if found else following,
            min_offset=least,
            max_offset=most,
        )
        body = b"".join(encode_record(stored_message(queue_offset=each)) for each in found)
        fields: Mapping[str, str] = reply.to_ext_fields()
        return request.answer(code, remark, dict(fields), body if found else b"")


async def read(
    cluster: SimulatedCluster,
    start: int,
    end: int,
    *,
    skip_gaps: bool = False,
    expression: Expression = "*",
    **settings: Any,
) -> list[list[int]]:
    """The offsets in each answer."""
    cluster.add_topic("orders")
    async with cluster.pull_consumer(**settings) as consumer:
        answers = consumer.pull_range(QUEUE, start, end, expression=expression, skip_gaps=skip_gaps)
        return [[each.queue_offset for each in decode_records(body)] async for body in answers]


def flat(answers: list[list[int]]) -> list[int]:
    return [offset for answer in answers for offset in answer]


@simulated()
async def test_all_of_a_range_comes_in_order_and_nothing_else(cluster: SimulatedCluster) -> None:
    FakeQueue(cluster.brokers[0], range(1000))
    answers = await read(cluster, 5, 900)
    assert flat(answers) == list(range(5, 900))
    assert [len(answer) for answer in answers[:-1]] == [32] * 27
    assert await read(cluster, 7, 7) == []


@simulated()
async def test_several_pulls_are_on_their_way_at_once(cluster: SimulatedCluster) -> None:
    queue = FakeQueue(cluster.brokers[0], range(3200), delay=1.0)
    before = cluster.now
    assert flat(await read(cluster, 0, 3200, pulls_in_flight_max=10)) == list(range(3200))
    assert queue.in_flight_most == 10
    assert cluster.now - before < 12  # a hundred pulls one after another take a hundred seconds


@simulated()
async def test_short_answers_are_asked_for_again_and_keep_their_order(
    cluster: SimulatedCluster,
) -> None:
    FakeQueue(cluster.brokers[0], range(500), most=5)
    assert flat(await read(cluster, 0, 500)) == list(range(500))


@simulated()
async def test_an_offset_before_the_first_is_a_gap(cluster: SimulatedCluster) -> None:
    FakeQueue(cluster.brokers[0], range(100, 200))
    with pytest.raises(OffsetGap, match=r"offset 50 was to be .* goes on at 100") as caught:
        await read(cluster, 50, 150)
    assert (caught.value.wanted, caught.value.found) == (50, 100)
    assert flat(await read(cluster, 50, 150, skip_gaps=True)) == list(range(100, 150))


@simulated()
async def test_messages_missing_in_between_are_a_gap(cluster: SimulatedCluster) -> None:
    FakeQueue(cluster.brokers[0], [*range(40), *range(45, 100)])
    with pytest.raises(OffsetGap, match=r"offset 40 was to be .* goes on at 45"):
        await read(cluster, 0, 100)
    offsets = [*range(40), *range(45, 100)]
    assert flat(await read(cluster, 0, 100, skip_gaps=True)) == offsets


@simulated()
async def test_a_queue_that_ends_before_the_range_does_is_a_gap(cluster: SimulatedCluster) -> None:
    FakeQueue(cluster.brokers[0], range(50))
    with pytest.raises(OffsetGap, match=r"offset 50 was to be .* ends at 50"):
        await read(cluster, 0, 60)
    assert flat(await read(cluster, 0, 60, skip_gaps=True)) == list(range(50))
    with pytest.raises(OffsetGap, match=r"offset 70 was to be .* ends at 50"):
        await read(cluster, 70, 80)


@simulated()
async def test_a_large_gap_is_not_walked_through_and_told_once(cluster: SimulatedCluster) -> None:
    queue = FakeQueue(cluster.brokers[0], range(1_000_000, 1_000_064))
    told = BufferingHandler(100)
    ranges.log.addHandler(told)
    try:
        found = flat(await read(cluster, 0, 1_000_064, skip_gaps=True))
    finally:
        ranges.log.removeHandler(told)
    assert found == list(range(1_000_000, 1_000_064))
    # All that may be on their way, the first once more, and what is there.
    assert len(queue.asked) <= PullConsumerSettings.pulls_in_flight_max + 3
    gaps = [text for record in told.buffer if "are gone" in (text := record.getMessage())]
    assert len(gaps) == 1
    assert gaps[0].endswith("offsets from 0 up to 1000000 are gone")


@simulated()
async def test_a_broker_that_is_busy_for_a_moment_is_asked_again(cluster: SimulatedCluster) -> None:
    queue = FakeQueue(cluster.brokers[0], range(100))
    queue.failures = [Refusal(ResponseCode.SYSTEM_BUSY, "later")] * 3
    assert flat(await read(cluster, 0, 100)) == list(range(100))
    queue.failures = [Refusal(ResponseCode.NO_PERMISSION, "never")]
    with pytest.raises(BrokerError, match="never"):
        await read(cluster, 0, 100)


@simulated()
async def test_a_broker_that_is_away_is_waited_for_as_long_as_a_pull_may_take(
    cluster: SimulatedCluster,
) -> None:
    """A NameServer forgets a broker at once when its connection ends, and a topic with its last."""
    FakeQueue(cluster.brokers[0], range(100))
    async with cluster.pull_consumer(pull_timeout=30.0) as consumer:
        before = cluster.now
        with pytest.raises(NoRoute, match="orders"):
            _ = [body async for body in consumer.pull_range(QUEUE, 0, 100)]
        assert 30 <= cluster.now - before < 32
        asyncio.get_running_loop().call_later(25.0, cluster.add_topic, "orders")
        answers = [decode_records(body) async for body in consumer.pull_range(QUEUE, 0, 100)]
    assert [each.queue_offset for answer in answers for each in answer] == list(range(100))


@simulated()
async def test_a_range_that_is_none_is_refused(cluster: SimulatedCluster) -> None:
    for start, end in ((-1, 5), (5, 4)):
        with pytest.raises(InvalidSetting, match="no range of offsets"):
            await read(cluster, start, end)


@on_real_brokers()
async def test_a_filter_leaves_out_the_rest(bench: ConsumerBench) -> None:
    (queue,) = await bench.create_topic("orders", queues=1)
    for tags in ("red", "blue", "red"):
        await bench.send("orders", 300, queue=queue, tags=tags)
    async with bench.pull_consumer() as consumer:
        answers = consumer.pull_range(queue, 100, 800, expression="red")
        found = [each async for body in answers for each in decode_records(body)]
    assert {each.tags for each in found} == {"red"}
    assert [each.queue_offset for each in found] == [*range(100, 300), *range(600, 800)]


@simulated()
async def test_a_filter_that_the_broker_does_not_understand_is_an_error(
    cluster: SimulatedCluster,
) -> None:
    """Apache's brokers answer such a pull with every message, as if there were no filter."""
    broker = cluster.brokers[0]
    queue = FakeQueue(broker, range(100))
    asked = 0
    failures: list[Exception] = [Refusal(ResponseCode.SYSTEM_BUSY, "later")]

    def check(connection: Connection, request: RemotingCommand) -> Outcome:
        nonlocal asked
        asked += 1
        if failures:
            raise failures.pop()
        return request.answer(ResponseCode.SUCCESS)

    broker.handlers[RequestCode.CHECK_CLIENT_CONFIG] = check
    assert flat(await read(cluster, 0, 100, expression=Sql92("a > 1"))) == list(range(100))
    assert asked == 2  # patient, but not once for each pull
    await read(cluster, 0, 100, expression="TagA")
    assert asked == 2
    queue.asked.clear()
    for code in (ResponseCode.SUBSCRIPTION_PARSE_FAILED, ResponseCode.SYSTEM_ERROR):
        failures.append(Refusal(code, "no such filter"))
        with pytest.raises(BrokerError, match="no such filter"):
            await read(cluster, 0, 100, expression=Sql92("a >"))
    assert not queue.asked


@simulated()
async def test_no_more_waits_to_be_given_out_than_may(cluster: SimulatedCluster) -> None:
    """However many messages a pull asks for: they may be large."""
    queue = FakeQueue(cluster.brokers[0], range(200), most=1)
    settings: dict[str, Any] = {"pull_batch_size": 50, "pulls_in_flight_max": 4}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranges, "HELD_BYTES_MAX", 1000)  # four or five of these answers
        cluster.add_topic("orders")
        async with cluster.pull_consumer(**settings) as consumer:
            answers = consumer.pull_range(QUEUE, 0, 200)
            bodies = [await anext(answers)]
            await asyncio.sleep(60)
            assert len(queue.asked) < 20
            bodies += [body async for body in answers]
    offsets = [each.queue_offset for body in bodies for each in decode_records(body)]
    assert offsets == list(range(200))
    assert len(queue.asked) == 200


@simulated()
async def test_large_answers_are_asked_for_in_fewer_pulls(cluster: SimulatedCluster) -> None:
    queue = FakeQueue(cluster.brokers[0], range(400), most=1, delay=0.1)
    settings: dict[str, Any] = {"pull_batch_size": 1, "pulls_in_flight_max": 20}
    cluster.add_topic("orders")
    for asked_bytes_max, expected in ((1 << 20, 20), (1200, 1200 // RECORD_BYTES), (1, 8)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ranges, "ASKED_BYTES_MAX", asked_bytes_max)
            async with cluster.pull_consumer(**settings) as consumer:
                answers = consumer.pull_range(QUEUE, 0, 400)
                await anext(answers)
                await asyncio.sleep(1)
                queue.in_flight_most = 0  # before the first answer nobody knows how large they are
                assert len([body async for body in answers]) == 399
        assert queue.in_flight_most == expected


@simulated()
async def test_somebody_who_resets_the_group_does_not_disturb(cluster: SimulatedCluster) -> None:
    queue = FakeQueue(cluster.brokers[0], range(40))
    queue.resets = 2
    assert flat(await read(cluster, 0, 40)) == list(range(40))


@simulated()
async def test_no_more_is_ready_to_be_given_out_than_may_be(cluster: SimulatedCluster) -> None:
    """Who is slow to take what came has as many pulls on their way as ever, and then no more."""
    queue = FakeQueue(cluster.brokers[0], range(2000), most=10)
    cluster.add_topic("orders")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranges, "READY_BYTES_MAX", 1000)  # one answer has that
        settings: dict[str, Any] = {"pull_batch_size": 10, "pulls_in_flight_max": 4}
        async with cluster.pull_consumer(**settings) as consumer:
            answers = consumer.pull_range(QUEUE, 0, 2000)
            bodies = [await anext(answers)]
            await asyncio.sleep(60)
            assert 5 <= len(queue.asked) <= 10
            bodies += [body async for body in answers]
    offsets = [each.queue_offset for body in bodies for each in decode_records(body)]
    assert offsets == list(range(2000))


@simulated()
async def test_pulls_that_nobody_answers_are_sent_again(cluster: SimulatedCluster) -> None:
    queue = FakeQueue(cluster.brokers[0], range(1000))
    queue.unanswered = {96, 160, 960}
    assert flat(await read(cluster, 0, 1000)) == list(range(1000))
    assert not queue.unanswered
    queue.hang_ups = {96, 160, 960}
    assert flat(await read(cluster, 0, 1000)) == list(range(1000))


@simulated()
async def test_who_stops_reading_disturbs_nobody_else(cluster: SimulatedCluster) -> None:
    """What is on its way to him still comes, and is dropped."""
    FakeQueue(cluster.brokers[0], range(1000), delay=0.5)
    cluster.add_topic("orders")
    async with cluster.pull_consumer() as consumer:
        stopped = consumer.pull_range(QUEUE, 0, 1000)
        assert decode_records(await anext(stopped))[0].queue_offset == 0
        assert isinstance(stopped, AsyncGenerator)
        await stopped.aclose()
        answers = consumer.pull_range(QUEUE, 100, 900)
        found = [each.queue_offset async for body in answers for each in decode_records(body)]
    assert found == list(range(100, 900))


@simulated(brokers=2)
async def test_a_broker_that_is_suggested_is_asked_next(cluster: SimulatedCluster) -> None:
    master, slave = (FakeQueue(each, range(1000)) for each in cluster.brokers)
    cluster.routes["orders"] = TopicRouteData(
        broker_datas=(
            BrokerData(
                cluster="c",
                broker_name="broker-a",
                broker_addrs={0: f"broker-a:{BROKER_PORT}", 1: f"broker-b:{BROKER_PORT}"},
            ),
        ),
        queue_datas=(
            QueueData(
                broker_name="broker-a",
                read_queue_nums=1,
                write_queue_nums=1,
                perm=Perm.READ | Perm.WRITE,
            ),
        ),
    )
    async with cluster.pull_consumer(pulls_in_flight_max=1) as consumer:
        for master.suggests, slave.suggests in ((1, 1), (0, 0)):
            answers = consumer.pull_range(QUEUE, 0, 1000)
            found = [each.queue_offset async for body in answers for each in decode_records(body)]
            assert found == list(range(1000))
    assert (len(master.asked), len(slave.asked)) == (32, 32)


@simulated()
async def test_a_peer_that_speaks_the_binary_form_is_understood(cluster: SimulatedCluster) -> None:
    FakeQueue(cluster.brokers[0], range(1000))
    binary = RemotingSettings(serialize_type=SerializeType.ROCKETMQ)
    assert flat(await read(cluster, 0, 1000, remoting=binary)) == list(range(1000))


@simulated()
async def test_an_answer_that_leads_nowhere_is_an_error(cluster: SimulatedCluster) -> None:
    """And what came before it is given out first."""
    queue = FakeQueue(cluster.brokers[0], range(1000))
    cluster.add_topic("orders")

    def pull(connection: Connection, request: RemotingCommand) -> Outcome:
        offset = PullMessage.from_ext_fields(request.ext_fields).queue_offset
        reply = PullMessageReply(
            suggest_which_broker_id=0,
            next_begin_offset=offset + (32 if offset < 64 else 0),
            min_offset=0,
            max_offset=1000,
        )
        found = [stored_message(queue_offset=offset + each) for each in range(32)]
        body = b"".join(map(encode_record, found))
        return request.answer(0, "FOUND", reply.to_ext_fields(), body)

    cluster.brokers[0].handlers[RequestCode.PULL_MESSAGE] = pull
    taken: list[bytes] = []
    async with cluster.pull_consumer() as consumer:
        with pytest.raises(MalformedRecord, match="from offset 64 on that leads nowhere"):
            async for body in consumer.pull_range(QUEUE, 0, 1000):
                taken.append(body)  # noqa: PERF401
    assert len(taken) == 2
    assert not queue.asked
