"""Ordered pops: one of a queue at a time."""

import asyncio
from typing import Any

from rocketpipe.codes import ResponseCode
from rocketpipe.message import StoredMessage
from rocketpipe.remoting.connection import Connection
from rocketpipe.testing.simulated_loop import SimulatedClock
from rocketpipe.wire.pop_receipt import ORDERED, Receipt
from rocketpipe.wire.properties import POP_CK
from rocketpipe.wire.requests.admin import InvokeBrokerToResetOffset
from tests.unit.broker.bench import Bench, send, simulated
from tests.unit.broker.pop.pops import ack, ask_to_pop, hide, pop
from tests.unit.broker.reading import ask, create_topic


async def pop_ordered(client: Connection, **changes: Any) -> list[bytes]:
    return [message.body for message in await pop_in_order(client, **changes)]


async def pop_in_order(client: Connection, **changes: Any) -> list[StoredMessage]:
    fields = {"order": True, "queue_id": 0, "max_msg_nums": 2, "invisible_time": 10_000}
    return await pop(client, **(fields | changes))


async def send_some(client: Connection, count: int, queue_id: int = 0) -> None:
    for number in range(count):
        await send(client, body=b"%d" % number, queue_id=queue_id)


@simulated
async def test_the_next_batch_comes_when_the_last_is_acknowledged(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        await create_topic(client)
        await send_some(client, 5)
        one, two = await pop_in_order(client)
        assert Receipt.parse(one.properties[POP_CK]).revive_queue_id == ORDERED
        assert await pop_ordered(client) == []
        assert broker.offsets.query("readers", "orders", 0) == 0
        await ack(client, one)
        assert broker.offsets.query("readers", "orders", 0) == 1
        assert await pop_ordered(client) == []
        await ack(client, two)
        assert broker.offsets.query("readers", "orders", 0) == 2
        assert await pop_ordered(client) == [b"2", b"3"]
        # Another queue, and another group, are not concerned.
        await send_some(client, 1, queue_id=1)
        assert await pop_ordered(client, queue_id=-1) == [b"0"]
        assert await pop_ordered(client, consumer_group="others") == [b"0", b"1"]


@simulated
async def test_what_is_not_acknowledged_comes_again_in_its_place(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        await create_topic(client)
        await send_some(client, 5)
        one, two = await pop_in_order(client)
        await ack(client, two)
        await asyncio.sleep(11)
        answer = await ask_to_pop(
            client, order=True, queue_id=0, max_msg_nums=3, invisible_time=10_000
        )
        assert answer.ext_fields["msgOffsetInfo"] == "0 0 0,1,2"
        assert answer.ext_fields["orderCountInfo"] == "0 qo0%0 1;0 qo0%1 1;0 0 0"
        assert answer.ext_fields["reviveQid"] == "999"
        # The first pop has nothing to say any more.
        assert (await ack(client, one)).code == 0
        assert broker.offsets.query("readers", "orders", 0) == 0
        await asyncio.sleep(11)
        answer = await ask_to_pop(client, order=True, queue_id=0, max_msg_nums=1)
        assert answer.ext_fields["orderCountInfo"] == "0 qo0%0 2;0 0 2"


@simulated
async def test_the_same_attempt_gets_the_same_again(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        await create_topic(client)
        await send_some(client, 5)
        assert await pop_ordered(client, attempt_id="a") == [b"0", b"1"]
        assert await pop_ordered(client, attempt_id="b") == []
        assert await pop_ordered(client) == []
        assert await pop_ordered(client, attempt_id="a") == [b"0", b"1"]


@simulated
async def test_who_waits_is_woken_when_it_is_his_turn(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        await create_topic(client)
        await send_some(client, 3)

        def wait() -> asyncio.Task[list[bytes]]:
            now = SimulatedClock(asyncio.get_running_loop()).wall_ms()
            changes = {"queue_id": -1, "poll_time": 30_000, "born_time": now}
            return asyncio.create_task(pop_ordered(client, **changes))

        one, two = await pop_in_order(client)
        waiting = wait()
        await asyncio.sleep(1)
        await ack(client, one)
        await asyncio.sleep(1)
        assert not waiting.done()
        await ack(client, two)
        await asyncio.sleep(0.1)
        assert await waiting == [b"2"]
        waiting = wait()
        await asyncio.sleep(9)
        assert not waiting.done()
        await asyncio.sleep(1.1)  # its time is up, and nobody else says so
        assert waiting.done()
        assert await waiting == [b"2"]


@simulated
async def test_an_invisible_time_can_be_changed(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        await create_topic(client)
        await send_some(client, 3)
        one, two = await pop_in_order(client)
        await ack(client, one)
        reply = await hide(client, two, 1_000)
        popped_at = Receipt.parse(two.properties[POP_CK]).pop_time
        assert reply.pop_time == popped_at
        assert 1_000 <= reply.invisible_time <= 1_050
        assert (await hide(client, one, 1_000)).invisible_time == 0
        await asyncio.sleep(1.1)
        assert await pop_ordered(client) == [b"1", b"2"]


@simulated
async def test_a_receipt_of_another_message_is_refused(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        await create_topic(client)
        await send_some(client, 5)
        one, _ = await pop_in_order(client)
        answer = await ack(client, one, offset=4)
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert (answer.remark or "").startswith("offset is illegal, key:orders@readers@0, old:0")


@simulated
async def test_a_reset_waits_for_nobody(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        await create_topic(client)
        await send_some(client, 5)
        await pop_in_order(client)
        reset = InvokeBrokerToResetOffset(
            topic="orders", group="readers", timestamp=0, is_force=True, queue_id=0, offset=3
        )
        assert (await ask(client, reset)).code == 0
        assert await pop_ordered(client) == [b"3", b"4"]


@simulated
async def test_the_queue_stays_with_its_consumer_over_a_restart(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        await create_topic(client)
        await send_some(client, 5)
        one, two, three = await pop_in_order(client, max_msg_nums=3, invisible_time=20_000)
        await ack(client, one)
        await ack(client, three)
    async with bench.broker() as broker, bench.client(broker.address) as client:
        assert await pop_ordered(client) == []
        await ack(client, two)
        assert await pop_ordered(client) == [b"3", b"4"]
    async with bench.broker() as broker, bench.client(broker.address) as client:
        now = bench.clock.wall_ms()
        assert await pop_ordered(client, poll_time=30_000, born_time=now) == [b"3", b"4"]
        assert bench.clock.wall_ms() - now > 5_000


@simulated
async def test_what_a_crash_forgot_is_not_skipped(bench: Bench) -> None:
    broker = bench.make_broker()
    await broker.start()
    async with bench.client(broker.address) as client:
        await create_topic(client)
        await send_some(client, 3)
        await asyncio.sleep(6)
        one, two = await pop_in_order(client)
        await broker.kill()
    async with bench.broker() as broker, bench.client(broker.address) as client:
        # Who popped it is forgotten: an acknowledgement out of turn may leave out nobody.
        assert (await ack(client, two)).code == 0
        assert await pop_ordered(client) == [b"0", b"1"]
        assert one.body == b"0"
