"""The simulated network breaks in every way asked for, and the same way for the same seed."""

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from rocketpipe.errors import ConnectFailed, InvalidSetting
from rocketpipe.remoting.address import Address
from rocketpipe.remoting.network import Listener
from rocketpipe.remoting.tls import TlsMode, TlsSettings, client_context
from rocketpipe.testing.misbehaviour import FAULTS, cut, misbehave
from rocketpipe.testing.simulated_loop import run
from rocketpipe.testing.simulated_network import NetworkOptions, SimulatedNetwork
from tests.remoting.recorder import Recorder

BROKER = Address("broker", 10911)


class World:
    """A broker that echoes, and a client connected to it."""

    def __init__(self, seed: int = 1, options: NetworkOptions | None = None) -> None:
        self.network = SimulatedNetwork(seed, options)
        self.accepted: list[Recorder] = []

    async def start(self) -> Listener:
        return await self.network.host("broker").listen(BROKER, self._accept)

    async def connect(self, host: str = "client", timeout: float = 3.0) -> Recorder:
        return await self.network.host(host).connect(BROKER, Recorder, timeout=timeout)

    async def join(self) -> tuple[Recorder, Recorder]:
        """Both ends of a connection: the client's and the broker's."""
        await self.start()
        client = await self.connect()
        await asyncio.sleep(1)
        return client, self.accepted[-1]

    def _accept(self) -> Recorder:
        self.accepted.append(Recorder(is_echo=True))
        return self.accepted[-1]


def now() -> float:
    return asyncio.get_running_loop().time()


def by_seed(test: Callable[[World], Coroutine[Any, Any, None]]) -> Callable[[int], None]:
    """Run a test on simulated time, in worlds of ten seeds."""

    @pytest.mark.parametrize("seed", range(10))
    def wrapped(seed: int) -> None:
        async def main() -> None:
            await test(World(seed))

        run(main())

    wrapped.__doc__ = test.__doc__
    return wrapped


@by_seed
async def test_a_cut_holds_bytes_back_and_heal_lets_them_arrive(world: World) -> None:
    client, broker = await world.join()
    world.network.cut("client", "broker")
    client.transport.write(b"to the broker")
    broker.transport.write(b"to the client")
    await asyncio.sleep(1000)
    assert client.data == broker.data == b""
    assert client.transport.get_write_buffer_size() == 13
    world.network.heal("broker", "client")
    assert await broker.until_bytes(13) == b"to the broker"
    await client.until_bytes(26)
    assert now() < 1003
    assert client.transport.get_write_buffer_size() == 0


@by_seed
async def test_a_cut_catches_what_is_on_its_way(world: World) -> None:
    client, broker = await world.join()
    client.transport.write(b"gone?")
    world.network.cut("client", "broker")
    await asyncio.sleep(10)
    assert broker.data == b""
    world.network.heal("client", "broker")
    assert await broker.until_bytes(5) == b"gone?"


@by_seed
async def test_a_cut_one_way_leaves_the_other_open(world: World) -> None:
    client, broker = await world.join()
    world.network.cut_one_way("broker", "client")
    client.transport.write(b"question")
    await broker.until_bytes(8)
    await asyncio.sleep(100)
    assert client.data == b""
    world.network.heal("client", "broker")
    assert await client.until_bytes(8) == b"question"


@by_seed
async def test_a_cut_touches_no_other_hosts(world: World) -> None:
    await world.start()
    other = await world.connect("other")
    world.network.cut("client", "broker")
    other.transport.write(b"hello")
    assert await other.until_bytes(5) == b"hello"


@by_seed
async def test_nobody_learns_of_a_close_through_a_cut(world: World) -> None:
    client, broker = await world.join()
    world.network.cut("client", "broker")
    client.transport.close()
    await client.until_event("lost")  # there was nothing to write
    await asyncio.sleep(100)
    assert broker.events == ["made"]
    world.network.heal("client", "broker")
    await broker.until_event("lost")
    assert broker.events == ["made", "eof", "lost"]


@by_seed
async def test_close_waits_for_what_the_cut_holds_back_but_abort_does_not(world: World) -> None:
    client, broker = await world.join()
    world.network.cut("client", "broker")
    client.transport.write(b"x" * 100_000)
    assert client.events == ["made", "pause"]
    client.transport.close()
    await asyncio.sleep(100)
    assert "lost" not in client.events
    client.transport.abort()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert client.events == ["made", "pause", "lost"]
    assert "lost" not in broker.events
    world.network.heal("client", "broker")
    await broker.until_event("lost")
    assert isinstance(broker.error, ConnectionResetError)


@by_seed
async def test_a_connect_waits_for_the_cut_to_heal(world: World) -> None:
    await world.start()
    world.network.heal("client", "broker")
    world.network.cut("client", "broker")
    connecting = asyncio.create_task(world.connect(timeout=100))
    await asyncio.sleep(50)
    assert not connecting.done()
    world.network.heal("client", "broker")
    client = await connecting
    assert client.events == ["made"]
    assert now() < 53


@pytest.mark.parametrize("way", [("client", "broker"), ("broker", "client")])
def test_a_connect_through_a_cut_either_way_ends_at_its_timeout(way: tuple[str, str]) -> None:
    async def main() -> None:
        world = World()
        await world.start()
        world.network.cut_one_way(*way)
        with pytest.raises(ConnectFailed, match="no answer within 3 s"):
            await world.connect(timeout=3.0)
        assert now() == pytest.approx(3.0)
        world.network.heal_all()
        await asyncio.sleep(10)
        for broker in world.accepted:  # it had heard us, and hears now that we gave up
            assert broker.events[-1] == "lost"

    run(main())


@by_seed
async def test_a_reset_ends_both_ends_of_every_connection_between_two_hosts(world: World) -> None:
    client, broker = await world.join()
    second = await world.connect()
    other = await world.connect("other")
    client.transport.write(b"on its way")
    world.network.reset("client", "broker")
    await asyncio.sleep(1)
    assert isinstance(client.error, ConnectionResetError)
    assert isinstance(broker.error, ConnectionResetError)
    assert isinstance(second.error, ConnectionResetError)
    assert other.events == ["made"]
    assert broker.data == b""
    assert client.transport.get_write_buffer_size() == 0


@by_seed
async def test_who_was_reset_before_being_accepted_never_is(world: World) -> None:
    await world.start()
    world.network.freeze("broker")
    await world.connect()
    world.network.reset("client", "broker")
    world.network.thaw("broker")
    await asyncio.sleep(10)
    assert world.accepted == []


@by_seed
async def test_a_reset_ends_a_connect_that_is_half_done(world: World) -> None:
    await world.start()
    world.network.cut_one_way("broker", "client")
    connecting = asyncio.create_task(world.connect())
    await asyncio.sleep(1)
    world.network.reset("client", "broker")
    world.network.heal("client", "broker")
    with pytest.raises(ConnectFailed, match="reset"):
        await connecting


@by_seed
async def test_writing_through_a_cut_to_one_who_has_closed_ends_in_a_reset(world: World) -> None:
    broker = Recorder(keeps_open_at_eof=True)
    await world.network.host("broker").listen(BROKER, lambda: broker)
    client = await world.connect()
    client.transport.close()
    await broker.until_event("eof")
    world.network.cut("client", "broker")
    broker.transport.write(b"anybody there?")
    await asyncio.sleep(100)
    assert "lost" not in broker.events
    world.network.heal("client", "broker")
    await broker.until_event("lost")
    assert isinstance(broker.error, ConnectionResetError)


@by_seed
async def test_after_an_abort_the_peer_sees_a_reset_and_a_beginning(world: World) -> None:
    client, broker = await world.join()
    written = b"".join(b"%04d" % n for n in range(100))
    for start in range(0, len(written), 4):
        client.transport.write(written[start : start + 4])
    client.transport.abort()
    await broker.until_event("lost")
    assert isinstance(broker.error, ConnectionResetError)
    assert written.startswith(broker.data)
    assert "eof" not in broker.events


def test_an_abort_loses_now_more_and_now_less() -> None:
    async def received(seed: int) -> int:
        client, broker = await World(seed).join()
        for _ in range(10):
            client.transport.write(b"x")
        client.transport.abort()
        await broker.until_event("lost")
        return len(broker.data)

    counts = {run(received(seed)) for seed in range(100)}
    assert {0, 10} < counts


@by_seed
async def test_a_crash_ends_connections_and_listeners_until_the_restart(world: World) -> None:
    client, broker = await world.join()
    crashed_at = now()
    world.network.crash("broker")
    await asyncio.sleep(0)
    assert client.events == ["made"]  # it does not know yet
    await client.until_event("lost")
    assert isinstance(client.error, ConnectionResetError)
    assert now() > crashed_at
    assert isinstance(broker.error, ConnectionAbortedError)
    with pytest.raises(ConnectFailed, match="refused"):
        await world.connect()
    with pytest.raises(InvalidSetting, match="this host crashed"):
        await world.start()
    with pytest.raises(ConnectFailed, match="this host crashed"):
        await world.network.host("broker").connect(BROKER, Recorder, timeout=1)
    world.network.restart("broker")
    with pytest.raises(ConnectFailed, match="refused"):
        await world.connect()
    await world.start()
    await world.connect()


@by_seed
async def test_the_listener_of_before_a_crash_does_not_close_the_one_after(world: World) -> None:
    before = await world.start()
    world.network.crash("broker")
    world.network.restart("broker")
    await world.start()
    await before.close()
    await world.connect()


@by_seed
async def test_what_is_sent_to_a_crashed_host_through_a_cut_ends_in_a_reset(world: World) -> None:
    client, _ = await world.join()
    world.network.cut("client", "broker")
    world.network.crash("broker")
    client.transport.write(b"anybody?")
    await asyncio.sleep(100)
    assert client.events == ["made"]
    world.network.heal("client", "broker")
    await client.until_event("lost")
    assert isinstance(client.error, ConnectionResetError)


@by_seed
async def test_a_frozen_host_can_be_connected_to_but_does_nothing(world: World) -> None:
    first, broker = await world.join()
    world.network.freeze("broker")
    first.transport.write(b"first")
    broker.transport.write(b"written while frozen")
    second = await world.connect()
    second.transport.write(b"second")
    await asyncio.sleep(100)
    assert second.events == ["made"]
    assert len(world.accepted) == 1
    assert broker.data == first.data == b""
    world.network.thaw("broker")
    assert await second.until_bytes(6) == b"second"
    assert await first.until_bytes(25) == b"written while frozenfirst"
    assert now() < 103


@by_seed
async def test_a_frozen_host_connects_to_nobody(world: World) -> None:
    await world.start()
    world.network.host("client")
    world.network.freeze("client")
    with pytest.raises(ConnectFailed, match="no answer within 3 s"):
        await world.connect()
    assert world.accepted == []
    connecting = asyncio.create_task(world.connect(timeout=10))
    await asyncio.sleep(5)
    world.network.thaw("client")
    await connecting
    await asyncio.sleep(1)
    assert len(world.accepted) == 1


@by_seed
async def test_a_host_that_crashes_while_frozen_is_reset(world: World) -> None:
    client, _ = await world.join()
    world.network.freeze("broker")
    world.network.crash("broker")
    await client.until_event("lost")
    assert isinstance(client.error, ConnectionResetError)


@by_seed
async def test_who_waits_for_a_listener_that_closes_is_reset(world: World) -> None:
    listener = await world.start()
    world.network.freeze("broker")
    client = await world.connect()
    await listener.close()
    world.network.thaw("broker")
    await client.until_event("lost")
    assert isinstance(client.error, ConnectionResetError)
    assert world.accepted == []


@by_seed
async def test_a_reset_is_noticed_even_while_reading_is_paused(world: World) -> None:
    client, broker = await world.join()
    client.transport.pause_reading()
    broker.transport.write(b"unread")
    await asyncio.sleep(1)
    broker.transport.abort()
    await client.until_event("lost")
    assert client.data == b""


def test_delays_stay_within_their_bounds_and_spike_now_and_then() -> None:
    async def delays(spike_chance: float) -> list[float]:
        options = NetworkOptions(
            delay_min=0.010, delay_max=0.020, spike_chance=spike_chance, spike_max=5.0
        )
        client, broker = await World(1, options).join()
        found = []
        for count in range(1, 201):
            written_at = now()
            client.transport.write(b"x")
            await broker.until_bytes(count)
            found.append(now() - written_at)
        return found

    calm = run(delays(0.0))
    assert min(calm) >= 0.00999
    assert max(calm) <= 0.02001
    assert len(set(calm)) > 100
    stormy = run(delays(0.1))
    assert 5 < sum(delay > 0.02001 for delay in stormy) < 40
    assert max(stormy) <= 5.02001


def test_streams_are_split_and_merged() -> None:
    async def sizes(options: NetworkOptions) -> list[int]:
        class Sizes(Recorder):
            def data_received(self, data: bytes) -> None:
                found.append(len(data))
                super().data_received(data)

        found: list[int] = []
        network = SimulatedNetwork(3, options)
        server = Sizes()
        await network.host("broker").listen(BROKER, lambda: server)
        client = await network.host("client").connect(BROKER, Recorder, timeout=3)
        for _ in range(200):
            client.transport.write(b"0123456789")
        await server.until_bytes(2000)
        return found

    assert set(run(sizes(NetworkOptions(split_chance=0, merge_chance=0)))) == {10}
    assert any(size % 10 for size in run(sizes(NetworkOptions(split_chance=1, merge_chance=0))))
    assert max(run(sizes(NetworkOptions(split_chance=0, merge_chance=0.9)))) >= 50


@pytest.mark.parametrize("seed", range(30))
def test_bytes_survive_all_that_does_not_end_the_connection(seed: int) -> None:
    patient_faults = [fault for fault in FAULTS if fault.__name__ != "reset"]

    async def main() -> None:
        world = World(seed)
        client, _ = await world.join()
        dice = random.Random(seed)
        sent = bytearray()
        async with asyncio.TaskGroup() as group:
            for _ in range(2):
                group.create_task(
                    misbehave(
                        world.network,
                        ["client", "broker"],
                        random.Random(seed + 1),
                        until=300,
                        faults=patient_faults,
                    )
                )
            while now() < 290:
                await asyncio.sleep(dice.uniform(0, 2))
                if "pause" not in client.events[-1]:
                    data = dice.randbytes(dice.randrange(1, 30_000))
                    sent += data
                    client.transport.write(data)
        assert await client.until_bytes(len(sent)) == sent
        assert "lost" not in client.events

    run(main())


async def _busy_day(seed: int) -> tuple[int, list[tuple[float, str]]]:
    """A few clients that connect and write as well as they can while things break."""
    world = World(seed)
    await world.start()

    async def work(host: str, dice: random.Random) -> None:
        while now() < 100:
            try:
                client = await world.connect(host)
            except ConnectFailed:
                continue
            while "lost" not in client.events and now() < 100:
                client.transport.write(dice.randbytes(dice.randrange(5000)))
                await asyncio.sleep(dice.random())
            client.transport.abort()

    hosts = ["client-1", "client-2", "broker"]
    async with asyncio.TaskGroup() as group:
        for number, host in enumerate(hosts[:2]):
            group.create_task(work(host, random.Random(number)))
        group.create_task(misbehave(world.network, hosts, random.Random(seed), until=100))
    return world.network.fingerprint, list(world.network.trace)


def test_the_same_seed_gives_the_same_run_and_another_seed_another() -> None:
    first, again, other = run(_busy_day(7)), run(_busy_day(7)), run(_busy_day(8))
    assert first == again
    assert first[0] != other[0]
    events = " ".join(event for _, event in first[1])
    for happened in ("cut", "heal", "freeze", "thaw", "reset", "made", "reads", "lost"):
        assert happened in events


def test_misbehaviour_mends_everything_when_it_ends_or_is_cancelled() -> None:
    async def main(seed: int, is_cancelled: bool) -> None:
        world = World(seed)
        client, _ = await world.join()
        trouble = asyncio.create_task(
            misbehave(
                world.network,
                ["client", "broker"],
                random.Random(seed),
                until=60,
                faults=[cut],
                calm=(0.1, 0.2),
                trouble=(20, 30),
            )
        )
        if is_cancelled:
            await asyncio.sleep(10)
            trouble.cancel()
        await asyncio.wait([trouble])
        assert now() <= 60.001
        client.transport.write(b"well again?")
        async with asyncio.timeout(5):
            assert await client.until_bytes(11) == b"well again?"

    for seed in range(5):
        run(main(seed, is_cancelled=False))
        run(main(seed, is_cancelled=True))


def test_a_protocol_that_fails_ends_its_connection_and_the_run() -> None:
    class Broken(Recorder):
        def data_received(self, data: bytes) -> None:
            raise LookupError("what is this?")

    async def main() -> None:
        network = SimulatedNetwork(1)
        server = Broken()
        await network.host("broker").listen(BROKER, lambda: server)
        client = await network.host("client").connect(BROKER, Recorder, timeout=3)
        client.transport.write(b"hello")
        await client.until_event("lost")
        assert isinstance(client.error, ConnectionResetError)
        assert isinstance(server.error, LookupError)

    with pytest.raises(ExceptionGroup, match="nobody saw it"):
        run(main())


def test_tls_is_refused() -> None:
    async def main() -> None:
        host = SimulatedNetwork(1).host("broker")
        context = client_context(TlsSettings(verify=False))
        with pytest.raises(InvalidSetting, match="speaks no TLS"):
            await host.connect(BROKER, Recorder, timeout=1, tls=context)
        with pytest.raises(InvalidSetting, match="speaks no TLS"):
            await host.listen(BROKER, Recorder, tls=context, tls_mode=TlsMode.PERMISSIVE)

    run(main())
