"""A master and its slaves: what is copied, what it means for sends, and what goes wrong."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from rocketpipe.broker.broker import Broker
from rocketpipe.broker.settings import BrokerRole
from rocketpipe.broker.store.settings import StoreSettings
from rocketpipe.codes import ResponseCode
from rocketpipe.errors import ConnectFailed
from rocketpipe.remoting.address import Address
from rocketpipe.remoting.connection import Connection
from rocketpipe.testing.simulated_disk import SimulatedDisk
from rocketpipe.wire.frame import RemotingCommand
from tests.unit.broker.bench import BROKER_HOST, Bench, messages, send, send_header, simulated

SLAVE_HOST = "10.0.0.3"


def announce_master(bench: Bench, host: str = BROKER_HOST) -> None:
    bench.nameserver.answer_fields = {
        "masterAddr": f"{host}:10911",
        "haServerAddr": f"{host}:10912",
    }


def make_slave(bench: Bench, disk: SimulatedDisk, **settings: Any) -> Broker:
    return bench.make_broker(
        host=SLAVE_HOST, disk=disk, broker_role=BrokerRole.SLAVE, broker_id=1, **settings
    )


@asynccontextmanager
async def slave_of(
    bench: Bench, disk: SimulatedDisk | None = None, **settings: Any
) -> AsyncIterator[Broker]:
    announce_master(bench)
    slave = make_slave(bench, disk or SimulatedDisk(7), **settings)
    await slave.start()
    try:
        yield slave
    finally:
        await slave.close()


async def code_of(client: Connection, body: bytes = b"x", **changes: Any) -> tuple[int, float]:
    """How a send was answered, and how long that took."""
    began = asyncio.get_running_loop().time()
    answer = await client.invoke(send_header(**changes).to_command(body), timeout=30)
    if answer.code != 0:
        assert answer.ext_fields.keys() >= {"msgId", "queueId", "queueOffset"}
    return answer.code, asyncio.get_running_loop().time() - began


SYNC: dict[str, Any] = {"broker_role": BrokerRole.SYNC_MASTER}


@simulated
async def test_a_slave_copies_the_log_and_the_tables_and_serves_reads(bench: Bench) -> None:
    async with bench.broker() as master, bench.client(master.address) as client:
        for number in range(20):
            await send(client, body=b"%d" % number)
        master.offsets.commit("readers", "orders", 0, 7)
        master.groups.find("readers")
        async with slave_of(bench) as slave:
            await asyncio.sleep(10)
            await send(client, body=b"while it is there")
            await asyncio.sleep(1)
            assert messages(slave) == messages(master)
            assert slave.topics.table == master.topics.table
            assert slave.groups.table == master.groups.table
            assert slave.offsets.query("readers", "orders", 0) == 7
            assert slave.store.max_physical_offset == master.store.max_physical_offset


@simulated
async def test_a_slave_knows_a_new_topic_soon(bench: Bench) -> None:
    async with (
        bench.broker() as master,
        bench.client(master.address) as client,
        slave_of(bench, slave_sync_interval=1000.0) as slave,
    ):
        await asyncio.sleep(5)
        await send(client, "brand-new")
        await asyncio.sleep(1)
        assert slave.topics.table["brand-new"] == master.topics.table["brand-new"]


@simulated
async def test_delayed_messages_and_transactions_are_left_to_the_master(bench: Bench) -> None:
    async with (
        bench.broker() as master,
        bench.client(master.address) as client,
        slave_of(bench) as slave,
    ):
        await asyncio.sleep(3)
        await send(client, properties={"UNIQ_KEY": "U", "DELAY": "1"})
        await asyncio.sleep(15)
        assert len(messages(master)) == len(messages(slave)) == 1
        assert slave.delays.offsets == master.delays.offsets == {1: 1}


@simulated
async def test_a_slave_takes_no_messages(bench: Bench) -> None:
    async with bench.broker(), slave_of(bench) as slave, bench.client(slave.address) as client:
        answer = await client.invoke(send_header().to_command(b"x"), timeout=3)
        assert answer.code == ResponseCode.SYSTEM_BUSY
        assert answer.remark == "[REJECTREQUEST]system busy, start flow control for a while"


@simulated
async def test_a_slave_that_was_away_goes_on_where_it_was(bench: Bench) -> None:
    disk = SimulatedDisk(3)
    async with bench.broker() as master, bench.client(master.address) as client:
        for away in range(3):
            async with slave_of(bench, disk) as slave:
                await asyncio.sleep(5)
                await send(client, body=b"here %d" % away)
                await asyncio.sleep(1)
                assert messages(slave) == messages(master)
            await send(client, body=b"away %d" % away)


@simulated
async def test_a_slave_finds_its_master_again_after_cuts_and_restarts(bench: Bench) -> None:
    async with slave_of(bench) as slave:
        async with bench.broker() as master, bench.client(master.address) as client:
            await asyncio.sleep(5)
            bench.network.reset(BROKER_HOST, SLAVE_HOST)
            await send(client, body=b"after a reset")
            await asyncio.sleep(5)
            bench.network.cut(BROKER_HOST, SLAVE_HOST)
            await asyncio.sleep(60)
            await send(client, body=b"after a long cut")
            bench.network.heal(BROKER_HOST, SLAVE_HOST)
            await asyncio.sleep(10)
            assert [m.body for m in messages(slave)] == [b"after a reset", b"after a long cut"]
        await asyncio.sleep(5)
        async with bench.broker() as master, bench.client(master.address) as client:
            await send(client, body=b"after a restart")
            await asyncio.sleep(10)
            assert messages(slave) == messages(master)


@simulated
async def test_a_big_log_is_copied_in_many_frames_through_segments(bench: Bench) -> None:
    store = StoreSettings(commit_log_segment_bytes=20_000, message_bytes_max=10_000)
    batch = {"ha_transfer_batch_size": 777}
    async with (
        bench.broker(store=store, **batch) as master,
        bench.client(master.address) as client,
    ):
        for number in range(30):
            await send(client, body=b"%d" % number * 4000)
        async with slave_of(bench, store=store) as slave:
            await asyncio.sleep(20)
            assert messages(slave) == messages(master)
            assert len(messages(slave)) == 30


# What a sync master answers.


@simulated
async def test_a_sync_master_answers_when_a_slave_has_the_message(bench: Bench) -> None:
    async with (
        bench.broker(**SYNC) as master,
        bench.client(master.address) as client,
        slave_of(bench) as slave,
    ):
        await asyncio.sleep(5)
        code, _ = await code_of(client)
        assert code == ResponseCode.SUCCESS
        assert len(messages(slave)) == 1


@simulated
async def test_a_sync_master_without_a_slave_says_so_at_once(bench: Bench) -> None:
    async with bench.broker(**SYNC) as master, bench.client(master.address) as client:
        code, seconds = await code_of(client)
        assert code == ResponseCode.SLAVE_NOT_AVAILABLE
        assert seconds < 0.5
        assert len(messages(master)) == 1


@simulated
async def test_a_slave_that_is_silent_costs_the_slave_timeout(bench: Bench) -> None:
    settings = {**SYNC, "slave_timeout": 2.0}
    async with (
        bench.broker(**settings) as master,
        bench.client(master.address) as client,
        slave_of(bench),
    ):
        await asyncio.sleep(5)
        bench.network.cut(BROKER_HOST, SLAVE_HOST)
        codes = await asyncio.gather(code_of(client), code_of(client))
        assert [code for code, _ in codes] == [ResponseCode.FLUSH_SLAVE_TIMEOUT] * 2
        assert all(2.0 <= seconds <= 2.2 for _, seconds in codes)
        bench.network.heal(BROKER_HOST, SLAVE_HOST)
        await asyncio.sleep(1)
        assert (await code_of(client))[0] == ResponseCode.SUCCESS


@simulated
async def test_a_slave_too_far_behind_is_not_waited_for(bench: Bench) -> None:
    settings = {**SYNC, "ha_max_gap_not_in_sync": 5000}
    async with (
        bench.broker(**settings) as master,
        bench.client(master.address) as client,
        slave_of(bench),
    ):
        await asyncio.sleep(5)
        bench.network.cut(BROKER_HOST, SLAVE_HOST)
        near, _ = await code_of(client, bytes(3000))
        far, seconds = await code_of(client, bytes(3000))
        assert near == ResponseCode.FLUSH_SLAVE_TIMEOUT
        assert far == ResponseCode.SLAVE_NOT_AVAILABLE
        assert seconds < 0.5
        bench.network.heal(BROKER_HOST, SLAVE_HOST)


@simulated
async def test_a_message_that_need_not_wait_does_not(bench: Bench) -> None:
    async with bench.broker(**SYNC) as master, bench.client(master.address) as client:
        code, _ = await code_of(client, properties={"UNIQ_KEY": "U", "WAIT": "false"})
        assert code == ResponseCode.SUCCESS


@simulated
async def test_one_replica_is_the_master_itself_as_in_rocketmq_5(bench: Bench) -> None:
    settings = {**SYNC, "in_sync_replicas": 1}
    async with bench.broker(**settings) as master, bench.client(master.address) as client:
        assert (await code_of(client))[0] == ResponseCode.SUCCESS


@simulated
async def test_an_async_master_waits_for_no_slave(bench: Bench) -> None:
    async with (
        bench.broker() as master,
        bench.client(master.address) as client,
        slave_of(bench),
    ):
        await asyncio.sleep(5)
        bench.network.cut(BROKER_HOST, SLAVE_HOST)
        code, seconds = await code_of(client)
        assert (code, seconds < 0.5) == (ResponseCode.SUCCESS, True)
        bench.network.heal(BROKER_HOST, SLAVE_HOST)


@simulated
async def test_a_disk_that_does_not_sync_in_time_is_told(bench: Bench) -> None:
    store = StoreSettings(flush_disk_type="sync", sync_flush_timeout=1.5)
    async with bench.broker(store=store) as broker, bench.client(broker.address) as client:
        assert (await code_of(client))[0] == ResponseCode.SUCCESS
        bench.disk.sync_seconds = (4.0, 5.0)
        code, seconds = await code_of(client)
        assert code == ResponseCode.FLUSH_DISK_TIMEOUT
        assert 1.5 <= seconds <= 1.7
        assert len(messages(broker)) == 2
        bench.disk.sync_seconds = (0.001, 0.002)


# Who is not fed.


async def raw_slave(bench: Bench, master: Broker, *said: bytes) -> bytes:
    """What a master says to one who says this, until it closes or a while has passed."""

    class Peer(asyncio.Protocol):
        def __init__(self) -> None:
            self.heard = b""
            self.lost = asyncio.Event()

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport = transport
            assert isinstance(transport, asyncio.Transport)
            for second, each in enumerate(said):
                asyncio.get_running_loop().call_later(second, transport.write, each)

        def data_received(self, data: bytes) -> None:
            self.heard += data

        def connection_lost(self, exc: Exception | None) -> None:
            self.lost.set()

    host = bench.network.host("10.0.0.8")
    try:
        peer = await host.connect(master.ha_address, Peer, timeout=3)
    except ConnectFailed:
        return b"closed"
    try:
        async with asyncio.timeout(10):  # before its silence is noticed
            await peer.lost.wait()
            return b"closed"
    except TimeoutError:
        return peer.heard


@pytest.mark.parametrize("offset", [1 << 40, -5])
def test_a_slave_that_is_not_ours_is_not_fed(offset: int) -> None:
    @simulated
    async def test(bench: Bench) -> None:
        async with bench.broker() as master, bench.client(master.address) as client:
            await send(client)
            said = offset.to_bytes(8, "big", signed=True)
            assert await raw_slave(bench, master, said) == b"closed"
            assert not master.slaves.links

    test()


@simulated
async def test_a_slave_that_claims_more_than_it_got_is_let_go(bench: Bench) -> None:
    async with bench.broker() as master, bench.client(master.address) as client:
        await send(client)
        said = (1 << 30).to_bytes(8, "big")
        assert await raw_slave(bench, master, bytes(8), said) == b"closed"


@simulated
async def test_a_slave_is_told_that_its_master_is_there_and_let_go_when_silent(
    bench: Bench,
) -> None:
    async with bench.broker() as master, bench.client(master.address) as client:
        await send(client)
        size = master.store.max_physical_offset
        heard = await raw_slave(bench, master, bytes(8))
        frame, beat = heard[: 12 + size], heard[12 + size :]
        assert frame[:12] == bytes(8) + size.to_bytes(4, "big")
        assert beat[:12] == size.to_bytes(8, "big") + bytes(4)
        assert len(master.slaves.links) == 1
        await asyncio.sleep(20)
        assert len(master.slaves.links) == 0


@simulated
async def test_who_said_nothing_yet_is_no_slave_to_wait_for(bench: Bench) -> None:
    async with bench.broker(**SYNC) as master, bench.client(master.address) as client:
        silent = asyncio.create_task(raw_slave(bench, master, b""))
        await asyncio.sleep(1)
        assert len(master.slaves.links) == 1
        assert (await code_of(client))[0] == ResponseCode.SLAVE_NOT_AVAILABLE
        await silent


@simulated
async def test_there_is_an_end_to_the_slaves(bench: Bench) -> None:
    async with bench.broker() as master:
        silent = [asyncio.create_task(raw_slave(bench, master, b"")) for _ in range(70)]
        await asyncio.sleep(1)
        assert len(master.slaves.links) == 64
        assert [await each for each in silent].count(b"closed") == 6


@simulated
async def test_a_slave_may_be_faster_than_the_masters_disk(bench: Bench) -> None:
    store = StoreSettings(flush_disk_type="sync")
    settings = {**SYNC, "store": store}
    async with (
        bench.broker(**settings) as master,
        bench.client(master.address) as client,
        slave_of(bench),
    ):
        await asyncio.sleep(5)
        await send(client)  # which makes the topic
        bench.disk.sync_seconds = (0.5, 0.6)
        code, seconds = await code_of(client)
        assert (code, seconds < 1) == (ResponseCode.SUCCESS, True)
        bench.disk.sync_seconds = (0.001, 0.002)


@simulated
async def test_a_master_that_says_nothing_is_left(bench: Bench) -> None:
    made = 0

    class Silent(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            nonlocal made
            made += 1

    host = bench.network.host(BROKER_HOST)
    listener = await host.listen(Address(BROKER_HOST, 10912), Silent)
    async with slave_of(bench):
        await asyncio.sleep(70)
        assert 3 <= made <= 4
    await listener.close()


@simulated
async def test_a_master_that_sends_nonsense_is_left(bench: Bench) -> None:
    frames = [
        (5).to_bytes(8, "big") + (1 << 30).to_bytes(4, "big"),
        (-1).to_bytes(8, "big", signed=True) + (4).to_bytes(4, "big") + b"oops",
    ]
    made = 0

    class FalseMaster(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            nonlocal made
            assert isinstance(transport, asyncio.Transport)
            transport.write(frames[made % len(frames)])
            made += 1

    host = bench.network.host(BROKER_HOST)
    listener = await host.listen(Address(BROKER_HOST, 10912), FalseMaster)
    async with slave_of(bench) as slave:
        await asyncio.sleep(30)
        assert made > 5
        assert slave.store.max_physical_offset == 0
    await listener.close()


def test_garbage_on_the_slaves_port_hurts_nobody() -> None:
    @simulated
    async def test(bench: Bench) -> None:
        async with bench.broker() as master, bench.client(master.address) as client:
            await raw_slave(bench, master, RemotingCommand(10).encode() * 100)
            await send(client)

    test()
