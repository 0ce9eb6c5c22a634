"""Sends on simulated time: every way to send, every way to fail, and what is told of it."""

import asyncio
import copy
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, cast

import pytest

from rocketpipe.client.policy import Choice, Outcome, Policy
from rocketpipe.client.queue_choice import POLICIES, RoundRobinSettings
from rocketpipe.client.selectors import by_hash
from rocketpipe.codes import ResponseCode
from rocketpipe.errors import (
    BrokerError,
    ConnectFailed,
    InvalidMessage,
    InvalidSetting,
    MalformedHeader,
    NoRoute,
    RequestTimeout,
    SendFailed,
)
from rocketpipe.message import Message, MessageQueue, SendStatus
from rocketpipe.remoting.connection import Connection
from rocketpipe.wire.compression import decompress
from rocketpipe.wire.frame import RemotingCommand
from rocketpipe.wire.requests.sending import SendMessageReply
from tests.simulated_cluster import (
    Behaviour,
    FakeBroker,
    SimulatedCluster,
    after,
    answer_without_fields,
    hang_up,
    ignore,
    lose_answer,
    refuse,
    simulated,
    store_as,
)

MESSAGE = Message(
    "orders", b"body", tags="paid", keys=["o-1"], flag=7, properties={"a": "1"}, sharding_key="s"
)


class Watched(Policy):
    """Round robin, and a diary of what it was told."""

    def __init__(self, dice: Random) -> None:
        self._policy = RoundRobinSettings().build(dice)
        self.in_flight: Counter[str] = Counter()
        self.outcomes: list[tuple[str, Outcome]] = []

    def choose(self, queues: Sequence[MessageQueue], now: float, avoid: Collection[str]) -> Choice:
        return self._policy.choose(queues, now, avoid)

    def started(self, broker: str, now: float) -> None:
        self.in_flight[broker] += 1

    def finished(self, broker: str, now: float, latency: float, outcome: Outcome) -> None:
        self.in_flight[broker] -= 1
        self.outcomes.append((broker, outcome))


@dataclass(frozen=True)
class WatchedSettings:
    def build(self, dice: Random) -> Policy:
        return Watched(dice)


def watched(producer: Any) -> Watched:
    policy = producer._policy
    assert isinstance(policy, Watched)
    return policy


def nth(queues: Sequence[MessageQueue], message: Message, arg: int) -> MessageQueue:
    return queues[arg]


# All is well.


@simulated()
async def test_a_send_tells_where_the_message_was_stored(cluster: SimulatedCluster) -> None:
    before = copy.deepcopy(MESSAGE)
    async with cluster.producer() as producer:
        result = await producer.send(MESSAGE)
    (stored,) = cluster.brokers[0].stored
    assert before == MESSAGE
    assert result.status is SendStatus.SEND_OK
    assert result.message_id == stored.properties["UNIQ_KEY"]
    assert result.queue == MessageQueue("orders", "broker-a", stored.header.queue_id)
    assert result.queue_offset == 0
    assert result.region_id == "DefaultRegion"
    assert result.is_traced
    (attempt,) = result.attempts
    assert (attempt.queue, attempt.address) == (result.queue, "broker-a:10911")
    assert (attempt.status, attempt.error) == (SendStatus.SEND_OK, None)
    assert 0 < attempt.elapsed < 0.1
    assert attempt.started_ms == 1_750_000_000_006
    assert attempt.reason == "in turn"
    assert stored.body == b"body"
    assert (stored.header.producer_group, stored.header.flag) == ("group", 7)
    assert stored.header.broker_name == "broker-a"
    assert (
        stored.properties.items()
        >= {
            "TAGS": "paid",
            "KEYS": "o-1",
            "a": "1",
            "__SHARDINGKEY": "s",
            "WAIT": "true",
        }.items()
    )


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (ResponseCode.SUCCESS, SendStatus.SEND_OK),
        (ResponseCode.FLUSH_DISK_TIMEOUT, SendStatus.FLUSH_DISK_TIMEOUT),
        (ResponseCode.SLAVE_NOT_AVAILABLE, SendStatus.SLAVE_NOT_AVAILABLE),
        (ResponseCode.FLUSH_SLAVE_TIMEOUT, SendStatus.FLUSH_SLAVE_TIMEOUT),
    ],
)
def test_every_status_is_a_result(code: ResponseCode, status: SendStatus) -> None:
    @simulated(brokers=2)
    async def test(cluster: SimulatedCluster) -> None:
        for broker in cluster.brokers:
            broker.behaviour = store_as(code)
        async with cluster.producer() as producer:
            result = await producer.send(MESSAGE)
        assert result.status is status
        assert len(result.attempts) == 1

    test()


@simulated()
async def test_a_result_repeats_what_the_broker_says(cluster: SimulatedCluster) -> None:
    def answer(broker: FakeBroker, request: RemotingCommand, connection: Connection) -> Any:
        reply = SendMessageReply(
            msg_id="AT",
            queue_id=99,
            queue_offset=1 << 40,
            transaction_id="T",
            recall_handle="H",
            region_id="R",
            trace_on="false",
        )
        return request.answer(ResponseCode.SUCCESS, ext_fields=reply.to_ext_fields())

    cluster.brokers[0].behaviour = answer
    async with cluster.producer() as producer:
        result = await producer.send(MESSAGE)
    assert result.queue == MessageQueue("orders", "broker-a", 99)  # it may have picked another
    assert (result.offset_message_id, result.queue_offset) == ("AT", 1 << 40)
    assert (result.transaction_id, result.recall_handle) == ("T", "H")
    assert (result.region_id, result.is_traced) == ("R", False)


@simulated()
async def test_a_large_body_travels_compressed(cluster: SimulatedCluster) -> None:
    body = b"0123456789" * 1000
    async with cluster.producer() as producer:
        await producer.send(replace(MESSAGE, body=body))
    (stored,) = cluster.brokers[0].stored
    assert len(stored.body) < 1000
    assert decompress(stored.body, stored.header.sys_flag) == body


@simulated()
async def test_the_other_port_is_used_where_it_is_asked_for(cluster: SimulatedCluster) -> None:
    (broker,) = cluster.brokers
    async with cluster.producer() as producer:
        await producer.send(MESSAGE)
    async with cluster.producer(vip_channel=True) as producer:
        result = await producer.send(MESSAGE)
        assert result.attempts[0].address == "broker-a:10909"
    assert [each.port for each in broker.received] == [10911, 10909]


@simulated()
async def test_with_a_namespace_users_see_the_names_they_gave(cluster: SimulatedCluster) -> None:
    cluster.add_topic("shop%orders", queues=2)
    seen: list[Sequence[MessageQueue]] = []

    def select(queues: Sequence[MessageQueue], message: Message, arg: object) -> MessageQueue:
        seen.append(queues)
        return queues[1]

    async with cluster.producer(namespace="shop") as producer:
        result = await producer.send(MESSAGE, selector=select)
        assert result.queue == MessageQueue("orders", "broker-a", 1)
        again = await producer.send(MESSAGE, queue=result.queue)
        assert again.queue == result.queue
        await producer.send(MESSAGE)
        await producer.send(MESSAGE, selector=select)
    assert seen[0] == tuple(MessageQueue("orders", "broker-a", n) for n in range(2))
    assert seen[1] is seen[0]  # a policy keeps what it worked out for as long as the tuple stays
    assert {each.header.topic for each in cluster.brokers[0].stored} == {"shop%orders"}
    assert {each.header.producer_group for each in cluster.brokers[0].stored} == {"shop%group"}


# To a queue, or by a selector.


@simulated(brokers=2)
async def test_a_message_goes_to_the_queue_asked_for(cluster: SimulatedCluster) -> None:
    queue = MessageQueue("orders", "broker-b", 3)
    async with cluster.producer() as producer:
        for _ in range(3):
            result = await producer.send(MESSAGE, queue=queue)
            assert result.queue == queue
            assert result.attempts[0].reason == "the caller chose the queue"


@simulated(brokers=2)
async def test_or_to_the_one_selected(cluster: SimulatedCluster) -> None:
    cluster.add_topic("orders", queues=4)
    async with cluster.producer() as producer:
        one = await producer.send(MESSAGE, selector=by_hash, arg="user-1")
        same = await producer.send(MESSAGE, selector=by_hash, arg="user-1")
        assert one.queue == same.queue
        last = await producer.send(MESSAGE, selector=nth, arg=7)
        assert last.queue == MessageQueue("orders", "broker-b", 3)
        assert last.attempts[0].reason == "the selector chose the queue"


@simulated(brokers=2)
async def test_neither_ever_changes_the_queue(cluster: SimulatedCluster) -> None:
    sick, _ = cluster.brokers
    cluster.add_topic("orders")
    sick.behaviour = refuse(ResponseCode.SYSTEM_ERROR)
    queue = MessageQueue("orders", "broker-a", 1)
    ways: list[dict[str, Any]] = [{"queue": queue}, {"selector": lambda queues, *_: queues[1]}]
    async with cluster.producer() as producer:
        for way in ways:
            with pytest.raises(SendFailed) as failed:
                await producer.send(MESSAGE, **way)
            assert [each.queue for each in failed.value.attempts] == [queue] * 3
            sick.script += [hang_up]
            sick.script += [store_as(ResponseCode.SUCCESS)]
            result = await producer.send(MESSAGE, **way)
            assert [each.queue for each in result.attempts] == [queue] * 2


@simulated()
async def test_a_queue_has_all_the_time_there_is(cluster: SimulatedCluster) -> None:
    (broker,) = cluster.brokers
    broker.behaviour = after(2.5)
    async with cluster.producer() as producer:
        result = await producer.send(MESSAGE, queue=MessageQueue("orders", "broker-a", 1))
        assert len(result.attempts) == 1
        result = await producer.send(MESSAGE)  # as has a broker that is the only one
        assert len(result.attempts) == 1
    assert len(broker.stored) == 2


@simulated()
async def test_a_target_that_makes_no_sense_is_refused(cluster: SimulatedCluster) -> None:
    queue = MessageQueue("orders", "broker-a", 0)

    def giving(gives: Any) -> Any:
        return lambda queues, message, arg: gives

    ways: list[tuple[dict[str, Any], str]] = [
        ({"queue": queue, "selector": by_hash}, "not both"),
        ({"queue": MessageQueue("other", "broker-a", 0)}, "can't go to"),
        ({"queue": "broker-a"}, "queue: 'broker-a' is not a MessageQueue"),
        ({"queue": replace(queue, queue_id=-1)}, "whole number"),  # to brokers it means any queue
        ({"queue": MessageQueue("orders", "broker-a", cast(Any, "0"))}, "whole number"),
        ({"selector": giving(None)}, "the selector's queue: None is not a MessageQueue"),
        ({"selector": giving(MessageQueue("other", "broker-a", 0))}, "selector's .* can't go to"),
        ({"selector": giving(replace(queue, queue_id=-1))}, "whole number"),
    ]
    async with cluster.producer() as producer:
        for way, because in ways:
            with pytest.raises(InvalidMessage, match=because):
                await producer.send(MESSAGE, **way)
            with pytest.raises(InvalidMessage, match=because):
                await producer.send_oneway(MESSAGE, **way)
        with pytest.raises(IndexError):
            await producer.send(MESSAGE, selector=nth, arg=99)
    assert cluster.brokers[0].received == []


# Trouble.


@pytest.mark.parametrize("policy", POLICIES)
def test_a_dead_broker_fails_no_send_while_the_other_is_busy_for_a_moment(policy: str) -> None:
    @simulated(brokers=2)
    async def test(cluster: SimulatedCluster) -> None:
        dead, busy = cluster.brokers
        await cluster.crash(dead)
        for _ in range(8):  # whichever of them is asked first
            busy.script.append(refuse(ResponseCode.SYSTEM_BUSY))
            async with cluster.producer(policy=policy) as producer:
                await producer.send(MESSAGE)
        await cluster.restart(dead)

    test()


@simulated(brokers=2)
async def test_a_retry_goes_to_the_queue_it_chose_with_its_own_id_and_broker_name(
    cluster: SimulatedCluster,
) -> None:
    # RocketMQ issue 1497: an async retry sent the old queue id to the new broker.
    one, other = cluster.brokers
    cluster.add_topic("orders", queues=5)
    async with cluster.producer() as producer:
        for sick in (one, other):
            sick.behaviour = refuse(ResponseCode.SYSTEM_ERROR)
            for _ in range(10):
                result = await producer.send(MESSAGE)
                well = other if sick is one else one
                arrived = well.received[-1].header
                assert (result.queue.broker_name, result.queue.queue_id) == (
                    arrived.broker_name,
                    arrived.queue_id,
                )
                assert result.queue == result.attempts[-1].queue
                assert arrived.broker_name == well.name
                for attempt in result.attempts[:-1]:
                    assert attempt.queue.broker_name == sick.name
            del sick.behaviour
            sick.behaviour = store_as(ResponseCode.SUCCESS)
    for broker in cluster.brokers:
        assert {each.header.broker_name for each in broker.received} == {broker.name}


TROUBLE: list[tuple[Behaviour, type[Exception], str, Outcome]] = [
    (refuse(ResponseCode.SYSTEM_ERROR), BrokerError, "SYSTEM_ERROR: no", Outcome.REFUSED),
    (refuse(ResponseCode.SYSTEM_BUSY), BrokerError, "SYSTEM_BUSY: no", Outcome.BUSY),
    (ignore, RequestTimeout, "no answer within", Outcome.LOST),
    (lose_answer, RequestTimeout, "no answer within", Outcome.LOST),
    (hang_up, Exception, "lost the connection", Outcome.LOST),
    (answer_without_fields, MalformedHeader, "msgId is missing", Outcome.LOST),
]


@pytest.mark.parametrize(("behaviour", "kind", "words", "outcome"), TROUBLE)
def test_a_broker_in_trouble_costs_an_attempt_and_not_the_send(
    behaviour: Behaviour, kind: type[Exception], words: str, outcome: Outcome
) -> None:
    @simulated(brokers=2)
    async def test(cluster: SimulatedCluster) -> None:
        sick, _ = cluster.brokers
        sick.behaviour = behaviour
        cluster.add_topic("orders", queues=1)
        async with cluster.producer(policy=WatchedSettings()) as producer:
            results = [await producer.send(MESSAGE) for _ in range(2)]
            retried = next(each for each in results if len(each.attempts) == 2)
            first, second = retried.attempts
            assert isinstance(first.error, kind)
            assert words in str(first)
            assert (first.queue.broker_name, second.queue.broker_name) == ("broker-a", "broker-b")
            assert second.passed_over == (("broker-a", "failed for this send"),)
            assert set(watched(producer).outcomes) == {
                ("broker-a", outcome),
                ("broker-b", Outcome.OK),
            }
            assert set(watched(producer).in_flight.values()) == {0}

    test()


@simulated()
async def test_an_error_about_the_message_is_not_tried_again_nor_held_against_the_broker(
    cluster: SimulatedCluster,
) -> None:
    (broker,) = cluster.brokers
    broker.behaviour = refuse(ResponseCode.MESSAGE_ILLEGAL, "the properties are too long")
    async with cluster.producer(policy=WatchedSettings()) as producer:
        with pytest.raises(
            SendFailed, match="MESSAGE_ILLEGAL: the properties are too long"
        ) as error:
            await producer.send(MESSAGE)
        assert error.value.code == ResponseCode.MESSAGE_ILLEGAL
        assert watched(producer).outcomes == [("broker-a", Outcome.MESSAGE_REFUSED)]
    assert len(broker.received) == 1


@simulated(brokers=2)
async def test_busy_brokers_are_given_a_pause(cluster: SimulatedCluster) -> None:
    for broker in cluster.brokers:
        broker.script += [refuse(ResponseCode.SYSTEM_BUSY, "[TIMEOUT_CLEAN_QUEUE]")]
    async with cluster.producer(busy_pause=0.4) as producer:
        result = await producer.send(MESSAGE)
    assert len(result.attempts) == 3
    waited = [
        (later.started_ms - earlier.started_ms) / 1000
        for earlier, later in zip(result.attempts, result.attempts[1:], strict=False)
    ]
    assert 0.2 <= waited[0] <= 0.7
    assert 0.4 <= waited[1] <= 1.3


@simulated(brokers=2)
async def test_a_frozen_broker_costs_its_share_of_the_time(cluster: SimulatedCluster) -> None:
    async with cluster.producer() as producer:
        await asyncio.gather(*(producer.send(MESSAGE) for _ in range(8)))
        cluster.network.freeze("broker-a")
        for _ in range(16):
            began = cluster.now
            result = await producer.send(MESSAGE)
            assert result.queue.broker_name == "broker-b"
            assert cluster.now - began < 1.1
        # Meanwhile its connection was silent for so long that it was cut, and a new one made.
        assert 2 <= len(cluster.dials(cluster.brokers[0].address)) <= 6


@simulated(brokers=2)
async def test_a_broker_that_can_not_be_reached_costs_its_share_of_the_time(
    cluster: SimulatedCluster,
) -> None:
    cluster.network.cut("client", "broker-a")
    async with cluster.producer(policy=WatchedSettings()) as producer:
        for _ in range(8):
            began = cluster.now
            result = await producer.send(MESSAGE)
            assert result.queue.broker_name == "broker-b"
            assert cluster.now - began < 1.1
        errors = [each for each in watched(producer).outcomes if each[0] == "broker-a"]
        assert set(errors) == {("broker-a", Outcome.UNREACHABLE)}


@simulated(brokers=2)
async def test_when_every_broker_is_dead_the_failure_tells_it_all_in_time(
    cluster: SimulatedCluster,
) -> None:
    async with cluster.producer() as producer:
        await producer.send(MESSAGE)
        for broker in cluster.brokers:
            cluster.network.cut("client", broker.name)
        began = cluster.now
        with pytest.raises(SendFailed) as failed:
            await producer.send(MESSAGE, timeout=2.0)
        assert cluster.now - began == pytest.approx(2.0, abs=0.01)
        assert len(failed.value.attempts) == 3
        text = str(failed.value)
        assert "\n" not in text
        assert "broker-a:10911" in text
        assert "broker-b:10911" in text


@simulated()
async def test_the_search_for_a_route_is_part_of_the_time(cluster: SimulatedCluster) -> None:
    cluster.network.cut("client", "namesrv-0")
    (broker,) = cluster.brokers
    broker.behaviour = ignore
    async with cluster.producer() as producer:
        send = asyncio.create_task(producer.send(MESSAGE))
        await asyncio.sleep(2.0)
        cluster.network.heal("client", "namesrv-0")
        with pytest.raises(SendFailed):
            await send
        assert cluster.now == pytest.approx(3.0, abs=0.01)


@simulated(brokers=2)
async def test_the_caller_may_give_a_send_its_own_time(cluster: SimulatedCluster) -> None:
    for broker in cluster.brokers:
        broker.behaviour = ignore
    async with cluster.producer(send_timeout=9.0, attempt_timeout=2.0, retry_times=1) as producer:
        for timeout, took in ((None, 9.0), (3.0, 3.0), (0.5, 0.5)):
            began = cluster.now
            with pytest.raises(SendFailed):
                await producer.send(MESSAGE, timeout=timeout)
            assert cluster.now - began == pytest.approx(took, abs=0.02)
        bad: tuple[Any, ...] = (0, -1, float("nan"), float("inf"), "3", True)
        for timeout in bad:
            with pytest.raises(InvalidSetting, match="timeout"):
                await producer.send(MESSAGE, timeout=timeout)
            with pytest.raises(InvalidSetting, match="timeout"):
                await producer.send_many([MESSAGE], timeout=timeout)


@simulated(brokers=2)
async def test_with_all_the_time_for_one_attempt_a_dead_broker_takes_it_as_in_java(
    cluster: SimulatedCluster,
) -> None:
    cluster.add_topic("orders", queues=1)
    cluster.brokers[0].behaviour = ignore
    async with cluster.producer(attempt_timeout=None) as producer:
        outcomes = await asyncio.gather(
            *(producer.send(MESSAGE) for _ in range(2)), return_exceptions=True
        )
        assert {type(each).__name__ for each in outcomes} == {"SendResult", "SendFailed"}


@simulated(brokers=2)
async def test_a_status_that_is_not_good_enough_is_tried_elsewhere(
    cluster: SimulatedCluster,
) -> None:
    cluster.brokers[0].behaviour = store_as(ResponseCode.SLAVE_NOT_AVAILABLE)
    async with cluster.producer(retry_another_broker_when_not_store_ok=True) as producer:
        results = [await producer.send(MESSAGE) for _ in range(8)]
        assert {each.status for each in results} == {SendStatus.SEND_OK}
        cluster.brokers[1].behaviour = refuse(ResponseCode.SYSTEM_ERROR)
        result = await producer.send(MESSAGE)
        assert result.status is SendStatus.SLAVE_NOT_AVAILABLE
        assert result.queue.broker_name == "broker-a"


@simulated(brokers=2)
async def test_a_broker_that_left_the_route_between_attempts_is_not_missed(
    cluster: SimulatedCluster,
) -> None:
    sick, well = cluster.brokers
    cluster.add_topic("orders", brokers=["broker-a"])

    async def move(*_: Any) -> Any:
        cluster.add_topic("orders", brokers=["broker-b"])
        await producer._instance.routes.refresh("orders", None, timeout=1)
        raise ConnectionError("and now it fails")

    sick.behaviour = move
    async with cluster.producer() as producer:
        result = await producer.send(MESSAGE)
    assert [each.queue.broker_name for each in result.attempts] == ["broker-a", "broker-b"]
    assert len(well.stored) == 1


@simulated(brokers=2)
async def test_when_all_that_were_known_are_dead_others_are_looked_for_before_it_fails(
    cluster: SimulatedCluster,
) -> None:
    cluster.add_topic("orders", brokers=["broker-a"])  # as while broker-b was down
    async with cluster.producer() as producer:
        await producer.send(MESSAGE)
        cluster.add_topic("orders", brokers=["broker-a", "broker-b"])
        cluster.network.crash("broker-a")
        result = await producer.send(MESSAGE)
    assert [each.queue.broker_name for each in result.attempts] == ["broker-a", "broker-b"]


@simulated()
async def test_a_connection_that_broke_while_idle_is_made_anew(cluster: SimulatedCluster) -> None:
    (broker,) = cluster.brokers
    async with cluster.producer() as producer:
        await producer.send(MESSAGE)
        await cluster.crash(broker)
        with pytest.raises(SendFailed) as failed:
            await producer.send(MESSAGE)
        assert isinstance(failed.value.attempts[-1].error, ConnectFailed)
        await cluster.restart(broker)
        assert len((await producer.send(MESSAGE)).attempts) == 1


# Giving up.


@simulated(brokers=2)
async def test_a_cancelled_send_leaves_no_trace_in_the_policy(cluster: SimulatedCluster) -> None:
    async def cancel(send: "asyncio.Task[Any]", after: float) -> None:
        await asyncio.sleep(after)
        send.cancel()
        with pytest.raises(asyncio.CancelledError):
            await send

    async with cluster.producer(policy=WatchedSettings()) as producer:
        cluster.network.cut("client", "namesrv-0")  # while the route is asked for
        await cancel(asyncio.create_task(producer.send(MESSAGE)), 0.5)
        cluster.network.heal("client", "namesrv-0")
        for broker in cluster.brokers:  # while connecting
            cluster.network.cut("client", broker.name)
        await asyncio.sleep(0.1)
        await cancel(asyncio.create_task(producer.send(MESSAGE)), 0.5)
        for broker in cluster.brokers:
            cluster.network.heal("client", broker.name)
            broker.behaviour = ignore  # while waiting for the answer
        await cancel(asyncio.create_task(producer.send(MESSAGE)), 0.5)
        for broker in cluster.brokers:  # and in a pause
            broker.behaviour = refuse(ResponseCode.SYSTEM_BUSY)
        await cancel(asyncio.create_task(producer.send(MESSAGE)), 0.03)
        policy = watched(producer)
        assert set(policy.in_flight.values()) == {0}
        assert {outcome for _, outcome in policy.outcomes} <= {Outcome.ABANDONED, Outcome.BUSY}
        assert Outcome.ABANDONED in {outcome for _, outcome in policy.outcomes}


@simulated(brokers=2)
async def test_the_attempts_of_a_result_keep_no_message_alive(cluster: SimulatedCluster) -> None:
    cluster.brokers[0].behaviour = refuse(ResponseCode.SYSTEM_ERROR)
    async with cluster.producer() as producer:
        results = [await producer.send(MESSAGE) for _ in range(8)]
        errors = [each.error for result in results for each in result.attempts if each.error]
        assert errors
        # A traceback would keep every frame, and with them the body.
        assert {each.__traceback__ for each in errors} == {None}


# One way.


@simulated()
async def test_a_oneway_send_is_handed_over_and_no_more(cluster: SimulatedCluster) -> None:
    (broker,) = cluster.brokers
    async with cluster.producer(policy=WatchedSettings()) as producer:
        assert await producer.send_oneway(MESSAGE) is None  # type: ignore[func-returns-value]
        await asyncio.sleep(0.1)
        assert broker.received[0].is_oneway
        # That it was handed over says nothing about the broker.
        assert watched(producer).outcomes == [("broker-a", Outcome.ABANDONED)]
        queue = MessageQueue("orders", "broker-a", 3)
        await producer.send_oneway(MESSAGE, queue=queue)
        await producer.send_oneway(MESSAGE, selector=nth, arg=2)
        await asyncio.sleep(0.1)
        assert [each.header.queue_id for each in broker.received[1:]] == [3, 2]


@simulated(brokers=2)
async def test_a_oneway_send_is_never_tried_again(cluster: SimulatedCluster) -> None:
    async with cluster.producer() as producer:
        await producer.send(MESSAGE)
        for broker in cluster.brokers:
            await cluster.crash(broker)
        await asyncio.sleep(0.1)
        with pytest.raises(SendFailed, match="after 1 attempt, and a one-way send has only one"):
            await producer.send_oneway(MESSAGE)
        for broker in cluster.brokers:
            await cluster.restart(broker)
            broker.behaviour = refuse(ResponseCode.SYSTEM_ERROR)
        await producer.send_oneway(MESSAGE)
        await asyncio.sleep(1)
        assert sum(len(broker.received) for broker in cluster.brokers) == 2


@simulated(brokers=2)
async def test_nor_does_it_take_longer_than_it_may(cluster: SimulatedCluster) -> None:
    async with cluster.producer() as producer:
        cluster.add_topic("orders")
        for broker in cluster.brokers:
            cluster.network.cut("client", broker.name)
        with pytest.raises(SendFailed, match="no answer within"):
            await producer.send_oneway(MESSAGE, timeout=0.7)
        assert cluster.now == pytest.approx(0.7, abs=0.01)


# Batches.


@simulated(brokers=2)
async def test_a_batch_is_one_request(cluster: SimulatedCluster) -> None:
    queue = MessageQueue("orders", "broker-b", 2)
    batch = [replace(MESSAGE, body=b"%d" % n) for n in range(3)]
    async with cluster.producer() as producer:
        result = await producer.send_batch(iter(batch), queue=queue)
    (stored,) = cluster.brokers[1].stored
    assert stored.bodies == [b"0", b"1", b"2"]
    assert result.message_ids == tuple(stored.message_ids)
    assert result.queue == queue
    assert len(set(result.message_ids)) == 3


@simulated(brokers=2)
async def test_a_batch_is_tried_again_as_a_whole(cluster: SimulatedCluster) -> None:
    cluster.brokers[0].behaviour = refuse(ResponseCode.SYSTEM_ERROR)
    async with cluster.producer() as producer:
        for _ in range(4):
            result = await producer.send_batch([MESSAGE, MESSAGE])
            assert result.queue.broker_name == "broker-b"
    assert len(cluster.brokers[1].stored) == 4


@simulated()
async def test_a_bad_message_or_batch_is_refused_before_anything_is_sent(
    cluster: SimulatedCluster,
) -> None:
    bad = replace(MESSAGE, body=b"")
    async with cluster.producer() as producer:
        for send in (
            producer.send(bad),
            producer.send_oneway(bad),
            producer.send_batch([MESSAGE, bad]),
            producer.send_batch([]),
            producer.send_batch([MESSAGE, replace(MESSAGE, topic="other")]),
        ):
            with pytest.raises(InvalidMessage):
                await send
        with pytest.raises(InvalidMessage, match="can't go to"):
            await producer.send_batch([MESSAGE], queue=MessageQueue("other", "broker-a", 0))
    assert cluster.name_servers[0].asked == []


@simulated()
async def test_no_route_is_told_as_such_whatever_the_way_to_send(
    cluster: SimulatedCluster,
) -> None:
    cluster.routes.clear()
    async with cluster.producer() as producer:
        for send in (
            producer.send(MESSAGE),
            producer.send(MESSAGE, selector=by_hash, arg=1),
            producer.send_oneway(MESSAGE),
            producer.send_batch([MESSAGE]),
        ):
            with pytest.raises(NoRoute):
                await send
