"""Delayed messages: when they come, in which order, and what of them outlives a broker."""

import asyncio

import pytest

from rocketpipe.broker.broker import Broker
from rocketpipe.broker.store.settings import StoreSettings
from rocketpipe.broker.waiting import real_place
from rocketpipe.errors import BrokerError, MalformedData
from rocketpipe.remoting.connection import Connection
from rocketpipe.wire.requests.sending import SendMessageReply
from tests.unit.broker.bench import Bench, messages, send, simulated


async def send_delayed(client: Connection, body: bytes, level: int) -> SendMessageReply:
    properties = {"UNIQ_KEY": body.decode(), "DELAY": str(level)}
    return await send(client, body=body, queue_id=2, properties=properties)


def bodies(broker: Broker) -> list[bytes]:
    return [each.body for each in messages(broker, queue_id=2)]


@simulated
async def test_a_message_comes_when_its_level_says_and_not_before(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        reply = await send_delayed(client, b"later", 3)
        assert (reply.queue_id, reply.queue_offset) == (2, 0)
        await asyncio.sleep(9.9)
        assert bodies(broker) == []
        await asyncio.sleep(0.2)
        (waited,) = messages(broker, "SCHEDULE_TOPIC_XXXX", 2)
        (came,) = messages(broker, queue_id=2)
    extra = {"DELAY": "3", "REAL_TOPIC": "orders", "REAL_QID": "2"}
    assert extra.items() <= waited.properties.items()
    assert came.properties == waited.properties
    assert (came.body, came.born_timestamp_ms) == (b"later", waited.born_timestamp_ms)


@simulated
async def test_messages_of_a_level_come_in_order_and_levels_do_not_wait_for_each_other(
    bench: Bench,
) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        for number in range(100):
            await send_delayed(client, b"slow %d" % number, 2)
        await send_delayed(client, b"quick", 1)
        await asyncio.sleep(20)
        assert bodies(broker) == [b"quick", *(b"slow %d" % number for number in range(100))]


@simulated
async def test_a_level_beyond_the_last_is_the_last(bench: Bench) -> None:
    store = StoreSettings(delay_levels=(1.0, 2.0))
    async with bench.broker(store=store) as broker, bench.client(broker.address) as client:
        await send_delayed(client, b"much later", 99)
        assert [m.properties["DELAY"] for m in messages(broker, "SCHEDULE_TOPIC_XXXX", 1)] == ["2"]
        await asyncio.sleep(3)
        assert bodies(broker) == [b"much later"]


@simulated
async def test_level_0_is_at_once_and_what_is_no_level_is_refused(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        await send_delayed(client, b"now", 0)
        assert bodies(broker) == [b"now"]
        with pytest.raises(BrokerError) as refused:
            await send(client, properties={"UNIQ_KEY": "U", "DELAY": "soon"})
        assert refused.value.code == 13


@simulated
async def test_what_waits_outlives_a_broker_and_what_came_does_not_come_again(
    bench: Bench,
) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        await send_delayed(client, b"first", 1)
        await asyncio.sleep(5)
        await send_delayed(client, b"second", 3)
        assert bodies(broker) == [b"first"]
    async with bench.broker() as broker:
        await asyncio.sleep(5)
        assert bodies(broker) == [b"first"]
        await asyncio.sleep(6)
        assert bodies(broker) == [b"first", b"second"]


@simulated
async def test_how_far_a_level_is_was_saved_before_a_crash(bench: Bench) -> None:
    broker = bench.make_broker(flush_delay_offset_interval=2.0)
    await broker.start()
    async with bench.client(broker.address) as client:
        await send_delayed(client, b"first", 1)
        await asyncio.sleep(6)
    await broker.kill()
    async with bench.broker() as broker:
        await asyncio.sleep(6)
        assert bodies(broker) == [b"first"]


@simulated
async def test_a_stuck_disk_delays_but_loses_and_reorders_nothing(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        for number in range(50):
            await send_delayed(client, b"%d" % number, 1)
        bench.disk.is_stuck = True
        await asyncio.sleep(10)
        assert bodies(broker) == []
        bench.disk.is_stuck = False
        await asyncio.sleep(10)
        assert bodies(broker) == [b"%d" % number for number in range(50)]


@simulated
async def test_a_clock_that_is_set_back_makes_nobody_wait_longer(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        await send_delayed(client, b"later", 3)
        bench.clock.wall_shift_ms = -1_000_000
        await asyncio.sleep(11)
        assert bodies(broker) == [b"later"]


@simulated
async def test_what_a_busy_store_refuses_comes_when_it_is_not(bench: Bench) -> None:
    settings = {"wait_time_in_send_queue": 60.0}
    async with bench.broker(**settings) as broker, bench.client(broker.address) as client:
        for number in range(40):
            await send_delayed(client, b"%d" % number, 2)
        await asyncio.sleep(3)
        bench.disk.is_stuck = True
        stuck = asyncio.create_task(send(client, "other"))
        await asyncio.sleep(4)
        bench.disk.is_stuck = False
        await asyncio.wait([stuck])
        stuck.exception()
        await asyncio.sleep(2)
        assert bodies(broker) == [b"%d" % number for number in range(40)]


@simulated
async def test_a_message_that_can_no_longer_be_stored_holds_up_no_other(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        await send_delayed(client, b"x" * 500, 1)
        await send_delayed(client, b"small", 1)
    store = StoreSettings(message_bytes_max=100)
    async with bench.broker(store=store) as broker:
        await asyncio.sleep(3)
        assert bodies(broker) == [b"small"]


@simulated
async def test_a_level_wins_over_a_time(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        timed = {"TIMER_DELAY_SEC": "5", "TIMER_DELAY_MS": "5", "TIMER_DELIVER_MS": "5"}
        await send(client, properties={"UNIQ_KEY": "U", "DELAY": "1", **timed})
        (waiting,) = messages(broker, "SCHEDULE_TOPIC_XXXX", 0)
        assert not waiting.properties.keys() & timed.keys()


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {"REAL_TOPIC": "t"},
        {"REAL_TOPIC": "t", "REAL_QID": "x"},
        {"REAL_TOPIC": "t", "REAL_QID": "-1"},
        {"REAL_TOPIC": "RMQ_SYS_TRANS_HALF_TOPIC", "REAL_QID": "0"},
    ],
)
def test_a_message_must_wait_for_a_place_that_can_be(properties: dict[str, str]) -> None:
    with pytest.raises(MalformedData):
        real_place(properties)
