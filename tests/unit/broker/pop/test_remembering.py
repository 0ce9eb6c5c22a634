"""What is in flight outlives its broker, whatever ends it; and costs no more than it must."""

import asyncio
import json

import pytest

from rocketpipe.broker.pop import revive_log
from rocketpipe.broker.pop.offsets import COMMITTED_GROUP, REVIVE_GROUP
from rocketpipe.message import StoredMessage
from rocketpipe.remoting.connection import Connection
from rocketpipe.wire.requests.admin import InvokeBrokerToResetOffset
from tests.unit.broker.bench import Bench, messages, send, simulated
from tests.unit.broker.pop.pops import RETRY, ack, hide, pop, texts
from tests.unit.broker.reading import ask, create_topic

REVIVE_LOG = "rmq_sys_REVIVE_LOG_DefaultCluster"


async def send_some(client: Connection, *numbers: int) -> None:
    for number in numbers:
        await send(client, body=b"%d" % number)


async def pop_and_acknowledge_one(client: Connection) -> list[StoredMessage]:
    await create_topic(client)
    await send_some(client, 1, 2, 3)
    found = await pop(client, invisible_time=30_000)
    await ack(client, found[0])
    return found


@simulated
async def test_a_restart_changes_nothing(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        _, two, three = await pop_and_acknowledge_one(client)
        await hide(client, three, 50_000)
    async with bench.broker() as broker, bench.client(broker.address) as client:
        assert await pop(client) == []
        await ack(client, two)
        await asyncio.sleep(40)
        assert await pop(client) == []
    async with bench.broker() as broker, bench.client(broker.address) as client:
        await asyncio.sleep(11)
        assert texts(await pop(client)) == [b"3"]


@simulated
async def test_a_killed_broker_remembers_what_it_was_told(bench: Bench) -> None:
    broker = bench.make_broker()
    await broker.start()
    async with bench.client(broker.address) as client:
        await pop_and_acknowledge_one(client)
        assert broker.offsets.query("readers", "orders", 0) <= 3
        await broker.kill()
    async with bench.broker() as broker, bench.client(broker.address) as client:
        assert await pop(client) == []  # though no offset was saved
        await asyncio.sleep(31)
        assert texts(await pop(client)) == [b"2", b"3"]


@simulated
async def test_no_offset_is_committed_before_the_disk_has_what_was_popped(bench: Bench) -> None:
    broker = bench.make_broker()
    await broker.start()
    async with bench.client(broker.address) as client:
        await create_topic(client)
        await send_some(client, 1, 2)
        await asyncio.sleep(10)  # all of that is safe
        assert len(await pop(client)) == 2
        assert broker.offsets.query("readers", "orders", 0) == 0
        broker.offsets.save_if_changed()
        await broker.offsets.saved.wait_saved()
        bench.disk.lose_power()
        await broker.kill()
    async with bench.broker() as broker, bench.client(broker.address) as client:
        found = await pop(client)
        await asyncio.sleep(61)
        found += await pop(client)
        assert {message.body for message in found} == {b"1", b"2"}
        await asyncio.sleep(1)
        assert broker.offsets.query("readers", "orders", 0) == 2


@simulated
async def test_a_checkpoint_is_not_forgotten_before_its_messages_are_safe_again(
    bench: Bench,
) -> None:
    broker = bench.make_broker()
    await broker.start()
    async with bench.client(broker.address) as client:
        await create_topic(client)
        await send_some(client, 1)
        await pop(client, invisible_time=8_000)
        await asyncio.sleep(8.2)
        assert len(messages(broker, RETRY)) == 1
        for _ in range(2):
            broker.pop.save_if_changed()
        broker.offsets.save_if_changed()
        await broker.offsets.saved.wait_saved()
        bench.disk.lose_power()
        await broker.kill()
    async with bench.broker() as broker, bench.client(broker.address) as client:
        await asyncio.sleep(10)
        assert b"1" in texts(await pop(client))


@simulated
async def test_a_checkpoint_is_not_forgotten_before_the_one_that_follows_it_is_safe(
    bench: Bench,
) -> None:
    broker = bench.make_broker()
    await broker.start()
    async with bench.client(broker.address) as client:
        await create_topic(client)
        await send_some(client, 1)
        (one,) = await pop(client, invisible_time=20_000)
        await asyncio.sleep(6)  # all of that is safe, and saved
        await hide(client, one, 10_000)
        for _ in range(2):
            broker.pop.save_if_changed()
        broker.offsets.save_if_changed()
        await broker.offsets.saved.wait_saved()
        bench.disk.lose_power()
        await broker.kill()
    async with bench.broker() as broker, bench.client(broker.address) as client:
        await asyncio.sleep(20)
        assert b"1" in texts(await pop(client))


@simulated
async def test_what_lies_behind_a_gap_does_not_make_a_group_skip_it(bench: Bench) -> None:
    broker = bench.make_broker()
    await broker.start()
    async with bench.client(broker.address) as client:
        await create_topic(client)
        await send_some(client, *range(5))
        broker.offsets.commit("known", "orders", 0, 1)
        await asyncio.sleep(6)
        for group in ("known", "new"):
            # The power took the record of what was popped before.
            body = {"c": group, "t": "orders", "q": 0, "so": 3, "pt": 1, "it": 1, "d": [0], "nb": 4}
            properties = {"UNIQ_KEY": "u", "TAGS": "ck"}
            await send(client, REVIVE_LOG, json.dumps(body).encode(), properties=properties)
        await broker.kill()
    async with bench.broker() as broker, bench.client(broker.address) as client:
        found = await pop(client, consumer_group="known", queue_id=0)
        assert {message.queue_offset for message in found if message.reconsume_times == 0} == {
            *range(1, 5)
        }
        found = await pop(client, consumer_group="new", queue_id=0)
        assert {message.queue_offset for message in found if message.reconsume_times == 0} == {
            *range(5)
        }


@simulated
async def test_a_reset_is_not_undone_by_what_was_popped_before_it(bench: Bench) -> None:
    broker = bench.make_broker()
    await broker.start()
    async with bench.client(broker.address) as client:
        await create_topic(client)
        await send_some(client, 1, 2, 3)
        for message in (await pop(client, max_msg_nums=2))[:1]:
            await ack(client, message)
        await asyncio.sleep(1)
        reset = InvokeBrokerToResetOffset(
            topic="orders", group="readers", timestamp=0, is_force=True, queue_id=0, offset=0
        )
        assert (await ask(client, reset)).code == 0
        await asyncio.sleep(6)
        await broker.kill()
    async with bench.broker() as broker, bench.client(broker.address) as client:
        assert texts(await pop(client)) == [b"1", b"2", b"3"]


@simulated
async def test_nothing_is_read_again_that_is_done(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        await create_topic(client)
        for number in range(20):
            await send_some(client, number)
            (message,) = await pop(client)
            await ack(client, message)
    async with bench.broker() as broker, bench.client(broker.address) as client:
        end = broker.store.max_offset(REVIVE_LOG, 0)
        assert end == 40
        assert broker.offsets.query(REVIVE_GROUP, REVIVE_LOG, 0) == end
        assert broker.offsets.query(COMMITTED_GROUP, REVIVE_LOG, 0) == end - 1
        assert len(broker.pop.log.checkpoints) == 0


def test_what_waits_long_is_stored_anew_and_does_not_hold_up_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(revive_log, "RECORDS_KEPT", 10)

    @simulated
    async def test(bench: Bench) -> None:
        async with bench.broker() as broker, bench.client(broker.address) as client:
            await create_topic(client)
            await send_some(client, -1, -2)
            patient, other = await pop(client, invisible_time=3_600_000)
            await ack(client, other)
            for number in range(50):
                await send_some(client, number)
                (message,) = await pop(client, invisible_time=20_000)
                await ack(client, message)
            await asyncio.sleep(60)
            oldest = broker.pop.log.checkpoints.oldest()
            assert oldest is not None
            assert broker.store.max_offset(REVIVE_LOG, 0) - oldest.place <= 15
            moved = oldest.place
        broker = bench.make_broker()
        await broker.start()
        assert broker.offsets.query(REVIVE_GROUP, REVIVE_LOG, 0) == moved
        async with bench.client(broker.address) as client:
            assert await pop(client) == []
            await ack(client, patient)
            assert len(broker.pop.log.checkpoints) == 0
        await broker.kill()
        async with bench.broker() as broker, bench.client(broker.address) as client:
            await asyncio.sleep(100)
            assert await pop(client) == []

    test()


@simulated
async def test_records_that_make_no_sense_are_passed_over(bench: Bench) -> None:
    broker = bench.make_broker()
    await broker.start()
    async with bench.client(broker.address) as client:
        await create_topic(client)
        for tag in ("ck", "bAck", "forget", "what"):
            for body in (
                b"{",
                b"[]",
                b"\xff",
                b'{"c":1}',
                b'{"c":"g","t":"t","q":0,"so":0,"pt":0}',
            ):
                properties = {"UNIQ_KEY": "u", "TAGS": tag}
                await send(client, REVIVE_LOG, body=body, properties=properties)
        await send_some(client, 1)
        await pop(client, invisible_time=5_000)
        await broker.kill()
    async with bench.broker() as broker, bench.client(broker.address) as client:
        await asyncio.sleep(6)
        assert texts(await pop(client)) == [b"1"]
