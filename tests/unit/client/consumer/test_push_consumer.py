"""The push consumer: each message to the listener, none forgotten, those that fail come again."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from rocketpipe.client.allocation import by_config
from rocketpipe.client.consumer.listeners import Retry
from rocketpipe.client.consumer.pulling import Pulled, PullStatus
from rocketpipe.client.consumer.subscriptions import Sql92
from rocketpipe.codes import RequestCode, ResponseCode
from rocketpipe.errors import BrokerError, InvalidSetting, NoNameServer
from rocketpipe.message import MessageQueue, StoredMessage
from rocketpipe.wire.bodies.consumer_info import ConsumeResult
from rocketpipe.wire.bodies.offsets import ConsumerStatus, ResetOffsetBody
from rocketpipe.wire.requests.admin import (
    InvokeBrokerToGetConsumerStatus,
    InvokeBrokerToResetOffset,
)
from rocketpipe.wire.requests.callbacks import (
    ConsumeMessageDirectly,
    GetConsumerRunningInfo,
    ResetConsumerClientOffset,
)
from tests.consumer_bench import ConsumerBench, simulated


class Collector:
    """A listener that keeps what it is given, and does as it is told."""

    def __init__(self, takes: float = 0.0) -> None:
        self.messages: list[StoredMessage] = []
        self.batches: list[int] = []
        self.takes = takes
        self.at_work = self.at_work_most = 0
        self.times: list[float] = []
        self._came = asyncio.Event()
        self.fails: Callable[[StoredMessage], bool] = lambda message: False

    async def __call__(self, messages: list[StoredMessage]) -> None:
        self.at_work += 1
        self.at_work_most = max(self.at_work_most, self.at_work)
        self.batches.append(len(messages))
        self.times.append(asyncio.get_running_loop().time())
        try:
            await asyncio.sleep(self.takes)
        finally:
            self.at_work -= 1
        for message in messages:
            if self.fails(message):
                raise ZeroDivisionError("on purpose")
        self.messages += messages
        self._came.set()

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.messages]

    async def wait_for(self, count: int, timeout: float = 600) -> None:
        async with asyncio.timeout(timeout):
            while len(self.messages) < count:
                self._came.clear()
                await self._came.wait()


# Concurrent.


@simulated(brokers=2)
async def test_every_message_goes_to_the_listener_once(bench: ConsumerBench) -> None:
    queues = await bench.create_topic("orders")
    sent = await bench.send("orders", 300)
    collect = Collector()
    async with bench.push_consumer(collect) as consumer:
        assert set(queues) <= set(await consumer.assigned())
        await collect.wait_for(300)
        more = await bench.send("orders", 10)
        await collect.wait_for(310)
    assert sorted(collect.bodies) == sorted(sent + more)
    ends = [await bench.committed(queue) or 0 for queue in queues]
    assert sum(ends) == 310  # on closing, all of it is stored


@simulated()
async def test_no_offset_is_stored_past_a_message_whose_listener_has_not_returned(
    bench: ConsumerBench,
) -> None:
    (queue,) = await bench.create_topic("orders", queues=1)
    await bench.send("orders", 100, queue=queue)
    stuck = asyncio.Event()
    seen = set()

    async def listen(messages: list[StoredMessage]) -> None:
        (message,) = messages
        if message.queue_offset == 40:
            await stuck.wait()
        seen.add(message.queue_offset)

    async with bench.push_consumer(listen):
        await asyncio.sleep(12)
        assert len(seen) == 99
        assert await bench.committed(queue) == 40
        stuck.set()
        await asyncio.sleep(6)
        assert await bench.committed(queue) == 100


@simulated()
async def test_what_a_killed_consumer_worked_on_goes_to_another(bench: ConsumerBench) -> None:
    (queue,) = await bench.create_topic("orders", queues=1)
    sent = await bench.send("orders", 50, queue=queue)
    never = Collector(takes=1e6)
    consumer = bench.push_consumer(never)
    await consumer.start()
    await asyncio.sleep(1)
    assert never.at_work == 20
    bench.network.crash("10.0.2.2")
    await asyncio.sleep(1)
    collect = Collector()
    async with bench.push_consumer(collect, pid=3):
        await collect.wait_for(50)
    assert sorted(collect.bodies) == sorted(sent)
    bench.network.restart("10.0.2.2")
    await consumer.close()


@simulated()
async def test_at_most_so_many_are_at_work_and_batches_are_of_one_queue(
    bench: ConsumerBench,
) -> None:
    queues = await bench.create_topic("orders", queues=2)
    for queue in queues:
        await bench.send("orders", 64, queue=queue)
    collect = Collector(takes=1.0)
    async with bench.push_consumer(collect, workers=3, consume_batch_size=10):
        await collect.wait_for(128)
    assert collect.at_work_most == 3
    assert max(collect.batches) == 10


@simulated()
async def test_a_message_that_fails_comes_again_and_again_and_then_is_a_dead_letter(
    bench: ConsumerBench,
) -> None:
    (queue,) = await bench.create_topic("orders", queues=1)
    sent = await bench.send("orders", 3, queue=queue)
    tries: list[tuple[float, int, str]] = []

    async def listen(messages: list[StoredMessage]) -> None:
        (message,) = messages
        if message.body == sent[1]:
            now = asyncio.get_running_loop().time()
            tries.append((now, message.reconsume_times, message.topic))
            raise ZeroDivisionError

    async with bench.push_consumer(listen, max_reconsume_times=2):
        await asyncio.sleep(300)
        assert await bench.committed(queue) == 3
    assert [times for _, times, _ in tries] == [0, 1, 2]
    assert {topic for _, _, topic in tries} == {"orders"}
    pauses = [later - sooner for (sooner, _, _), (later, _, _) in pairwise(tries)]
    assert 10 <= pauses[0] < 16  # delay level 3,
    assert 30 <= pauses[1] < 36  # and 4
    async with bench.pull_consumer("undertaker", pid=3) as dead:
        await dead.subscribe("%DLQ%group")
        (letter,) = await dead.poll(timeout=60)
        assert letter.body == sent[1]


@simulated(brokers=2)
async def test_a_broker_that_is_new_to_the_group_brings_messages_again_as_soon_as_the_others(
    bench: ConsumerBench,
) -> None:
    both, bench.brokers = bench.brokers, bench.brokers[:1]
    await bench.create_topic("orders", queues=1)
    tries: list[float] = []

    async def listen(messages: list[StoredMessage]) -> None:
        tries.append(asyncio.get_running_loop().time())
        if not messages[0].reconsume_times:
            raise ZeroDivisionError

    async with bench.push_consumer(listen):
        bench.brokers = both
        (_, queue) = await bench.create_topic("orders", queues=1)
        await bench.send("orders", 1, queue=queue)
        await asyncio.sleep(60)
    assert 10 <= tries[1] - tries[0] < 16


@simulated()
async def test_a_listener_says_which_messages_to_bring_again_and_when(bench: ConsumerBench) -> None:
    (queue,) = await bench.create_topic("orders", queues=1)
    await bench.send("orders", 10, queue=queue)
    given: list[tuple[float, list[int]]] = []

    async def listen(messages: list[StoredMessage]) -> Retry | None:
        now = asyncio.get_running_loop().time()
        given.append((now, [message.reconsume_times for message in messages]))
        return None if messages[0].reconsume_times else Retry(delay_level=1, start=7)

    async with bench.push_consumer(listen, consume_batch_size=10):
        await asyncio.sleep(20)
    assert given[0][1] == [0] * 10
    assert sum(len(times) for _, times in given[1:]) == 3
    assert all(1 <= now - given[0][0] < 8 for now, _ in given[1:])


@simulated()
async def test_one_that_is_sent_to_the_dead_letters_at_once(bench: ConsumerBench) -> None:
    await bench.create_topic("orders")
    sent = await bench.send("orders", 1)

    async def listen(messages: list[StoredMessage]) -> Retry:
        return Retry(delay_level=-1)

    async with bench.push_consumer(listen), bench.pull_consumer("other", pid=3) as dead:
        await asyncio.sleep(5)
        await dead.subscribe("%DLQ%group")
        assert [letter.body for letter in await dead.poll(timeout=60)] == sent


@simulated()
async def test_a_message_that_fails_comes_again_also_where_queues_are_shared_by_config(
    bench: ConsumerBench,
) -> None:
    first, second = await bench.create_topic("orders", queues=2)
    for queue in (first, second):
        await bench.send("orders", 2, queue=queue)
    ours, theirs = Collector(), Collector()
    ours.fails = theirs.fails = lambda message: not message.reconsume_times
    async with (
        bench.push_consumer(ours, allocation=by_config([first])) as one,
        bench.push_consumer(theirs, allocation=by_config([second]), pid=3) as other,
    ):
        await asyncio.sleep(120)
        retries = MessageQueue("%RETRY%group", "broker-a", 0)
        assert sorted(await one.assigned() + await other.assigned()) == [retries, first, second]
    assert len(ours.messages + theirs.messages) == 4


@simulated()
async def test_when_a_message_can_not_be_sent_back_it_is_sent_anew(bench: ConsumerBench) -> None:
    await bench.create_topic("orders")
    sent = await bench.send("orders", 1)
    collect = Collector()
    collect.fails = lambda message: not message.reconsume_times
    bench.brokers[0].faults.refuse(
        ResponseCode.SYSTEM_ERROR, code=RequestCode.CONSUMER_SEND_MSG_BACK
    )
    async with bench.push_consumer(collect):
        await collect.wait_for(1)
    (message,) = collect.messages
    assert (message.body, message.topic, message.reconsume_times) == (sent[0], "orders", 1)


@simulated()
async def test_a_listener_that_takes_too_long_loses_its_message_to_another(
    bench: ConsumerBench,
) -> None:
    (queue,) = await bench.create_topic("orders", queues=1)
    await bench.send("orders", 1, queue=queue)
    given: list[int] = []

    async def listen(messages: list[StoredMessage]) -> None:
        given.append(messages[0].reconsume_times)
        if len(given) == 1:
            await asyncio.sleep(2000)

    async with bench.push_consumer(listen, consume_timeout=60):
        await asyncio.sleep(200)
        assert given == [0, 1]
        assert await bench.committed(queue) == 1


@simulated()
async def test_what_a_listener_says_too_late_brings_no_message_again(bench: ConsumerBench) -> None:
    (queue,) = await bench.create_topic("orders", queues=1)
    await bench.send("orders", 1, queue=queue)
    given: list[int] = []

    async def listen(messages: list[StoredMessage]) -> None:
        given.append(messages[0].reconsume_times)
        if len(given) == 1:
            await asyncio.sleep(200)
            raise ValueError("it failed in the end")

    async with bench.push_consumer(listen, consume_timeout=60):
        await asyncio.sleep(1000)
        assert given == [0, 1]


@simulated()
async def test_pulling_waits_for_the_listener(bench: ConsumerBench) -> None:
    queues = await bench.create_topic("orders", queues=2)
    for queue in queues:
        await bench.send("orders", 400, queue=queue)
    collect = Collector(takes=1000)
    limits: dict[str, Any] = {"queue_messages_max": 100, "messages_max": 150, "close_timeout": 1}
    async with bench.push_consumer(collect, **limits) as consumer:
        await asyncio.sleep(10)
        assert 150 <= consumer._cache.messages < 150 + 64
        assert max(each.process_queue.count for each in consumer._assigned.values()) < 100 + 32


@simulated()
async def test_pulling_waits_for_the_listener_by_bytes_too(bench: ConsumerBench) -> None:
    queues = await bench.create_topic("orders", queues=2)
    for queue in queues:
        await bench.send("orders", 400, queue=queue)
    # Far below the limits by count. A pull brings 32 bodies of 10 bytes at most, and none is asked
    # for once there is enough.
    pull = 32 * 10
    collect = Collector(takes=1000)
    async with bench.push_consumer(collect, queue_bytes_max=500, close_timeout=1) as consumer:
        await asyncio.sleep(10)
        for each in (consumer._assigned[queue].process_queue for queue in queues):
            assert 500 <= each.bytes < 500 + pull
    async with bench.push_consumer(collect, "other", bytes_max=700, close_timeout=1) as consumer:
        await asyncio.sleep(10)
        assert 700 <= consumer._cache.bytes < 700 + 2 * pull


@simulated()
async def test_one_message_that_takes_long_holds_up_what_is_far_behind_it(
    bench: ConsumerBench,
) -> None:
    (queue,) = await bench.create_topic("orders", queues=1)
    await bench.send("orders", 300, queue=queue)
    stuck = asyncio.Event()
    seen: list[int] = []

    async def listen(messages: list[StoredMessage]) -> None:
        if messages[0].queue_offset == 0:
            await stuck.wait()
        seen.append(messages[0].queue_offset)

    async with bench.push_consumer(listen, queue_span_max=100):
        await asyncio.sleep(10)
        assert 100 <= max(seen) < 100 + 64
        stuck.set()
        await asyncio.sleep(10)
        assert sorted(seen) == list(range(300))


@simulated()
async def test_a_suspended_consumer_pulls_nothing(bench: ConsumerBench) -> None:
    await bench.create_topic("orders")
    collect = Collector()
    async with bench.push_consumer(collect) as consumer:
        await consumer.suspend()
        await asyncio.sleep(20)  # pulls that were held
        await bench.send("orders", 5)
        await asyncio.sleep(60)
        assert collect.messages == []
        await consumer.resume()
        await collect.wait_for(5)


@simulated()
async def test_two_members_share_a_group(bench: ConsumerBench) -> None:
    await bench.create_topic("orders")
    one, other = Collector(), Collector()
    async with bench.push_consumer(one), bench.push_consumer(other, pid=3):
        await asyncio.sleep(2)
        sent = await bench.send("orders", 100)
        await asyncio.sleep(10)
    assert sorted(one.bodies + other.bodies) == sorted(sent)
    assert len(one.bodies) == len(other.bodies) == 50


@simulated()
async def test_a_listener_that_is_none_is_refused(bench: ConsumerBench) -> None:
    with pytest.raises(InvalidSetting, match="can't be called"):
        bench.push_consumer("listener")  # type: ignore[arg-type]
    for wrong in ({"delay_level": 19}, {"delay_level": -2}, {"start": -1}):
        with pytest.raises(InvalidSetting):
            Retry(**wrong)


@simulated()
async def test_a_listener_that_returns_nonsense_has_failed(bench: ConsumerBench) -> None:
    await bench.create_topic("orders")
    await bench.send("orders", 1)
    given: list[int] = []

    async def listen(messages: list[StoredMessage]) -> object:
        given.append(messages[0].reconsume_times)
        return None if messages[0].reconsume_times else "CONSUME_SUCCESS"

    async with bench.push_consumer(listen):  # type: ignore[arg-type]
        await asyncio.sleep(30)
    assert given == [0, 1]


# What brokers ask.


@simulated()
async def test_what_brokers_ask_is_answered(bench: ConsumerBench) -> None:
    (queue,) = await bench.create_topic("orders", queues=1)
    await bench.send("orders", 5, queue=queue)
    collect = Collector()
    async with bench.push_consumer(collect) as consumer:
        await collect.wait_for(5)
        broker = bench.brokers[0]
        client_id = consumer.client_id
        info = await bench.ask(
            broker, GetConsumerRunningInfo(consumer_group="group", client_id=client_id)
        )
        assert info.mq_table[queue].commit_offset == 5
        assert {each.topic for each in info.subscription_set} == {"orders", "%RETRY%group"}
        assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
        assert info.properties["PROP_CONSUMEORDERLY"] == "false"
        status: ConsumerStatus = await bench.ask(
            broker, InvokeBrokerToGetConsumerStatus(topic="orders", group="group")
        )
        assert status.consumer_table == {client_id: {queue: 5}}
        direct = ConsumeMessageDirectly(
            consumer_group="group",
            client_id=client_id,
            msg_id=collect.messages[2].offset_message_id,
        )
        result = await bench.ask(broker, direct)
        assert result.consume_result is ConsumeResult.CR_SUCCESS
        assert collect.messages[-1].body == collect.messages[2].body
        collect.fails = lambda message: True
        result = await bench.ask(broker, direct)
        assert result.consume_result is ConsumeResult.CR_THROW_EXCEPTION
        assert "on purpose" in result.remark


# Broadcasting.


@simulated()
async def test_a_broadcast_goes_to_every_member_and_does_not_come_again(
    bench: ConsumerBench,
) -> None:
    await bench.create_topic("orders")
    with TemporaryDirectory() as folder:
        one, other = Collector(), Collector()
        one.fails = lambda message: message.body == b"orders-3"
        how: dict[str, Any] = {"message_model": "broadcasting", "offset_folder": folder}
        async with bench.push_consumer(one, **how), bench.push_consumer(other, pid=3, **how):
            sent = await bench.send("orders", 10)
            await asyncio.sleep(60)
        assert sorted(other.bodies) == sorted(sent)
        assert sorted(one.bodies) == sorted(set(sent) - {b"orders-3"})
        # Each knows by itself how far it is.
        assert (Path(folder) / "10.0.2.2@DEFAULT" / "group" / "offsets.json").exists()
        sent = await bench.send("orders", 5)
        late = Collector()
        async with bench.push_consumer(late, **how):
            await asyncio.sleep(10)
        assert sorted(late.bodies) == sorted(sent)


# Where a group is moved.


@simulated()
async def test_a_reset_is_followed_while_it_runs(bench: ConsumerBench) -> None:
    (queue,) = await bench.create_topic("orders", queues=1)
    await bench.send("orders", 10, queue=queue)
    collect = Collector()
    async with bench.push_consumer(collect) as consumer:
        await collect.wait_for(10)
        await asyncio.sleep(6)
        # As a 4.9 broker tells its clients; a 5.x broker answers it to a pull.
        header = ResetConsumerClientOffset(
            topic="orders", group="group", timestamp=0, is_force=True
        )
        body = ResetOffsetBody(offset_table={queue: 4, replace(queue, queue_id=9): 1}).encode()
        (client,) = bench.brokers[0].clients.consumers["group"].members.values()
        await client.connection.send_oneway(header.to_command(body), timeout=3)
        await collect.wait_for(16)
        assert [each.queue_offset for each in collect.messages[10:]] == list(range(4, 10))
        await asyncio.sleep(30)  # a broker tells it to the first pull, so let the old one end
        await bench.ask(
            bench.brokers[0],
            InvokeBrokerToResetOffset(
                topic="orders", group="group", queue_id=0, offset=8, timestamp=0, is_force=True
            ),
        )
        await collect.wait_for(18)
        assert [each.queue_offset for each in collect.messages[16:]] == [8, 9]
        await asyncio.sleep(6)
        assert await bench.committed(queue) == 10
        assert len(await consumer.assigned()) == 2


@simulated()
async def test_a_gap_is_said_aloud_and_passed_over(
    bench: ConsumerBench,
) -> None:
    (queue,) = await bench.create_topic("orders", queues=1)
    await bench.send("orders", 3, queue=queue)
    async with bench.pull_consumer(auto_commit=False) as other:
        await other.assign([queue])
        await other.commit({queue: 70})
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("rocketpipe.client.consumer.push_consumer")
    logger.addHandler(handler)
    collect = Collector()
    try:
        async with bench.push_consumer(collect):
            await asyncio.sleep(5)
            await bench.send("orders", 2, queue=queue)
            await collect.wait_for(2)
    finally:
        logger.removeHandler(handler)
    assert [each.queue_offset for each in collect.messages] == [3, 4]
    assert any("offset 70 was to be read next, but the queue ends at 3" in each for each in said)


@simulated()
async def test_what_is_before_a_gap_is_consumed_before_it_is_passed_over(
    bench: ConsumerBench,
) -> None:
    (queue,) = await bench.create_topic("orders", queues=1)
    sent = await bench.send("orders", 8, queue=queue)
    for pid, orderly in ((2, False), (3, True)):
        collect = Collector(takes=20.0)
        group = f"group-{pid}"
        async with bench.push_consumer(
            collect, group, pid=pid, workers=2, orderly=orderly
        ) as consumer:
            await asyncio.sleep(5)
            gone = Pulled(PullStatus.OFFSET_ILLEGAL, 6, 6, 8, b"", "OFFSET_TOO_SMALL")
            consumer._moved(consumer._assigned[queue].process_queue, gone)
            await asyncio.sleep(50)
            assert await bench.committed(queue, group) in (2, 4)
            await collect.wait_for(10)
            bodies = collect.bodies[:8]
            offsets = [each.queue_offset for each in collect.messages[8:]]
            if not orderly:  # two listeners at once may end in any order
                bodies.sort()
                offsets.sort()
            assert bodies == sent
            assert offsets == [6, 7]


@simulated()
async def test_a_start_that_fails_leaves_nothing_behind(bench: ConsumerBench) -> None:
    await bench.create_topic("orders")
    refused = bench.push_consumer(Collector(), subscriptions={"orders": Sql92("a > 1")})
    with pytest.raises(BrokerError, match="SQL92"):
        await refused.start()
    assert "group" not in bench.brokers[0].clients.consumers
    bench.network.crash("10.0.0.9")
    alone = bench.push_consumer(Collector(), pid=3)
    with pytest.raises(NoNameServer):
        await alone.start()
    bench.network.restart("10.0.0.9")
