"""What a protocol may rely on, on the real network and on the simulated one alike."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import pytest

from rocketpipe.errors import ConnectFailed, InvalidSetting
from rocketpipe.remoting.address import Address
from rocketpipe.remoting.network import AsyncioNetwork, Listener, Network
from rocketpipe.remoting.tls import TlsMode
from rocketpipe.testing.simulated_loop import run
from rocketpipe.testing.simulated_network import SimulatedNetwork
from tests.remoting.recorder import Recorder


class Place(NamedTuple):
    """A server's network and host, and its client's network."""

    server: Network
    host: str
    client: Network

    async def listen(self, make: Callable[[], asyncio.Protocol]) -> Listener:
        return await self.server.listen(Address(self.host, 0), make)

    async def join(self, server: Recorder, client: Recorder | None = None) -> Recorder:
        """The client's end of a connection whose other end is `server`."""
        listener = await self.listen(lambda: server)
        made = await self.client.connect(
            listener.address, lambda: client or Recorder(), timeout=5.0
        )
        await server.until_event("made")
        await listener.close()
        return made


Scenario = Callable[[Place], Awaitable[None]]
Run = Callable[[Scenario], None]


def on_the_real_network(scenario: Scenario) -> None:
    async def main() -> None:
        async with asyncio.timeout(60):
            network = AsyncioNetwork()
            await scenario(Place(network, "127.0.0.1", network))

    asyncio.run(main())


def on_the_simulated_network(scenario: Scenario) -> None:
    async def main(seed: int) -> None:
        async with asyncio.timeout(60):
            network = SimulatedNetwork(seed)
            await scenario(Place(network.host("server"), "server", network.host("client")))

    for seed in range(10):
        run(main(seed))


@pytest.fixture(params=[on_the_real_network, on_the_simulated_network])
def on_both(request: pytest.FixtureRequest) -> Run:
    return request.param  # type: ignore[no-any-return]


def test_bytes_come_back_whole_and_in_order(on_both: Run) -> None:
    sent = bytes(range(256)) * 4000

    async def scenario(place: Place) -> None:
        client = await place.join(Recorder(is_echo=True))
        for start in range(0, len(sent), 10_000):
            client.transport.write(sent[start : start + 10_000])
        assert await client.until_bytes(len(sent)) == sent
        client.transport.close()
        await client.until_event("lost")
        assert client.error is None

    on_both(scenario)


def test_both_ends_know_each_other(on_both: Run) -> None:
    async def scenario(place: Place) -> None:
        server = Recorder()
        client = await place.join(server)
        ours, theirs = client.transport, server.transport
        assert ours.get_extra_info("peername") == theirs.get_extra_info("sockname")
        assert theirs.get_extra_info("peername") == ours.get_extra_info("sockname")
        assert ours.get_extra_info("no such thing", "default") == "default"
        client.transport.close()
        await server.until_event("lost")

    on_both(scenario)


def test_close_delivers_what_was_written_and_then_ends_both(on_both: Run) -> None:
    async def scenario(place: Place) -> None:
        server = Recorder()
        client = await place.join(server)
        client.transport.writelines([b"last ", bytearray(b"words"), memoryview(b"!")])
        client.transport.close()
        assert client.transport.is_closing()
        client.transport.close()
        client.transport.write(b"never sent")
        await client.until_event("lost")
        await server.until_event("lost")
        assert client.events == ["made", "lost"]
        assert server.events == ["made", "data", "eof", "lost"]
        assert server.data == b"last words!"
        assert client.error is None
        assert server.error is None

    on_both(scenario)


def test_abort_ends_at_once_without_an_error_of_our_own(on_both: Run) -> None:
    async def scenario(place: Place) -> None:
        server = Recorder()
        client = await place.join(server)
        client.transport.abort()
        assert client.transport.is_closing()
        await client.until_event("lost")
        await server.until_event("lost")
        assert client.error is None

    on_both(scenario)


def test_after_write_eof_the_other_way_stays_open(on_both: Run) -> None:
    async def scenario(place: Place) -> None:
        server = Recorder(keeps_open_at_eof=True)
        client = await place.join(server)
        assert client.transport.can_write_eof()
        client.transport.write(b"question")
        client.transport.write_eof()
        with pytest.raises(RuntimeError, match="write_eof"):
            client.transport.write(b"more")
        await server.until_event("eof")
        assert server.data == b"question"
        server.transport.write(b"answer")
        server.transport.close()
        await client.until_event("lost")
        assert client.data == b"answer"
        assert client.events == ["made", "data", "eof", "lost"]
        assert client.error is None

    on_both(scenario)


def test_nothing_is_read_while_reading_is_paused(on_both: Run) -> None:
    async def scenario(place: Place) -> None:
        server = Recorder()
        client = await place.join(server)
        assert server.transport.is_reading()
        server.transport.pause_reading()
        assert not server.transport.is_reading()
        client.transport.write(b"patience")
        await asyncio.sleep(0.02)
        assert server.data == b""
        server.transport.resume_reading()
        assert await server.until_bytes(8) == b"patience"
        client.transport.close()
        await server.until_event("lost")

    on_both(scenario)


def test_a_writer_is_paused_while_its_peer_does_not_read(on_both: Run) -> None:
    chunk, count = bytes(100_000), 120  # more than the kernel would buffer

    async def scenario(place: Place) -> None:
        server = Recorder()
        client = await place.join(server)
        assert client.transport.get_write_buffer_limits() == (16 * 1024, 64 * 1024)
        server.transport.pause_reading()
        for _ in range(count):
            client.transport.write(chunk)
        assert client.events == ["made", "pause"]
        assert client.transport.get_write_buffer_size() > 64 * 1024
        server.transport.resume_reading()
        await client.until_event("resume")
        assert client.transport.get_write_buffer_size() <= 16 * 1024
        await server.until_bytes(count * len(chunk))
        assert client.events == ["made", "pause", "resume"]
        client.transport.close()
        await server.until_event("lost")
        await client.until_event("lost")

    on_both(scenario)


def test_the_limits_of_the_write_buffer_can_be_set(on_both: Run) -> None:
    async def scenario(place: Place) -> None:
        client = await place.join(Recorder())
        client.transport.set_write_buffer_limits(high=1000)
        assert client.transport.get_write_buffer_limits() == (250, 1000)
        client.transport.set_write_buffer_limits(low=100)
        assert client.transport.get_write_buffer_limits() == (100, 400)
        client.transport.set_write_buffer_limits()
        assert client.transport.get_write_buffer_limits() == (16 * 1024, 64 * 1024)
        with pytest.raises(ValueError, match="must be >="):
            client.transport.set_write_buffer_limits(high=1, low=2)
        client.transport.abort()
        await client.until_event("lost")

    on_both(scenario)


def test_writing_what_is_not_bytes_is_a_type_error(on_both: Run) -> None:
    async def scenario(place: Place) -> None:
        client = await place.join(Recorder())
        with pytest.raises(TypeError):
            client.transport.write("text")  # type: ignore[arg-type]
        client.transport.abort()
        await client.until_event("lost")

    on_both(scenario)


def test_what_was_written_may_be_changed_afterwards(on_both: Run) -> None:
    async def scenario(place: Place) -> None:
        server = Recorder()
        client = await place.join(server)
        data = bytearray(b"kept")
        client.transport.write(memoryview(data))
        data[:] = b"lost"
        assert await server.until_bytes(4) == b"kept"
        client.transport.close()
        await server.until_event("lost")

    on_both(scenario)


def test_writing_to_one_who_has_closed_ends_in_an_error(on_both: Run) -> None:
    async def scenario(place: Place) -> None:
        server = Recorder(keeps_open_at_eof=True)
        client = await place.join(server)
        client.transport.close()
        await server.until_event("eof")
        while "lost" not in server.events:
            server.transport.write(b"anybody there?")
            await asyncio.sleep(0.001)
        assert isinstance(server.error, ConnectionError)

    on_both(scenario)


def test_a_server_may_speak_first_and_the_order_holds(on_both: Run) -> None:
    class Greeter(Recorder):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            self.transport.write(b"hello")
            self.transport.close()

    async def scenario(place: Place) -> None:
        client = await place.join(Greeter())
        await client.until_event("lost")
        assert client.events == ["made", "data", "eof", "lost"]
        assert client.data == b"hello"

    on_both(scenario)


@pytest.mark.parametrize("end", ["close", "abort"])
def test_a_protocol_is_never_called_from_within_its_own_call(on_both: Run, end: str) -> None:
    class Careful(Recorder):
        depth = 0

        def data_received(self, data: bytes) -> None:
            self.depth += 1
            assert self.depth == 1
            super().data_received(data)
            self.transport.write(data[:1])
            if len(self.data) > 50:
                getattr(self.transport, end)()
            assert "lost" not in self.events
            self.depth -= 1

    async def scenario(place: Place) -> None:
        server = Careful()
        client = await place.join(server, Careful())
        client.transport.write(b"x")
        await server.until_event("lost")
        await client.until_event("lost")

    on_both(scenario)


def test_a_cancelled_connect_leaves_nothing_behind(on_both: Run) -> None:
    async def scenario(place: Place) -> None:
        servers: list[Recorder] = []

        def accept() -> Recorder:
            servers.append(Recorder())
            return servers[-1]

        listener = await place.listen(accept)
        for turns in range(12):
            connecting = asyncio.create_task(
                place.client.connect(listener.address, Recorder, timeout=5.0)
            )
            for _ in range(turns):
                await asyncio.sleep(0)
            connecting.cancel()
            try:
                (await connecting).transport.close()
            except asyncio.CancelledError:
                continue
        # Whoever was accepted is told of the end.
        await asyncio.sleep(0.01)
        for server in servers:
            await server.until_event("lost")
        await listener.close()

    on_both(scenario)


def test_both_may_close_at_once_even_if_neither_reads(on_both: Run) -> None:
    async def scenario(place: Place) -> None:
        server = Recorder()
        client = await place.join(server)
        for end in (client, server):
            end.transport.pause_reading()
        for end in (client, server):
            end.transport.write(b"last words")
        await asyncio.sleep(0.01)
        for end in (client, server):
            end.transport.close()
        await client.until_event("lost")
        await server.until_event("lost")

    on_both(scenario)


def test_a_protocol_that_fails_when_it_is_made_is_told_of_nonetheless(on_both: Run) -> None:
    class Broken(Recorder):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            raise LookupError("not today")

    async def scenario(place: Place) -> None:
        seen: list[object] = []
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: seen.append(context.get("exception"))
        )
        client = await place.join(Recorder(is_echo=True), Broken())
        client.transport.write(b"hello")
        await client.until_bytes(5)
        client.transport.close()
        await client.until_event("lost")
        assert [type(error) for error in seen] == [LookupError]

    on_both(scenario)


def test_a_port_where_nobody_listens_refuses(on_both: Run) -> None:
    async def scenario(place: Place) -> None:
        listener = await place.listen(Recorder)
        await listener.close()
        with pytest.raises(ConnectFailed, match="connection refused: nobody listens") as caught:
            await place.client.connect(listener.address, Recorder, timeout=5.0)
        assert isinstance(caught.value.__cause__, ConnectionRefusedError)
        assert caught.value.address == str(listener.address)

    on_both(scenario)


def test_a_host_nobody_knows_cannot_be_connected_to(on_both: Run) -> None:
    async def scenario(place: Place) -> None:
        with pytest.raises(ConnectFailed, match="host name cannot be resolved"):
            await place.client.connect(Address("nobody.invalid", 1), Recorder, timeout=5.0)

    on_both(scenario)


def test_no_time_is_a_timeout_at_once(on_both: Run) -> None:
    async def scenario(place: Place) -> None:
        listener = await place.listen(Recorder)
        with pytest.raises(ConnectFailed, match="no answer within 0 s"):
            await place.client.connect(listener.address, Recorder, timeout=0)
        await listener.close()

    on_both(scenario)


def test_a_port_is_free_again_once_its_listener_is_closed(on_both: Run) -> None:
    async def scenario(place: Place) -> None:
        server = Recorder()
        first = await place.listen(lambda: server)
        client = await place.client.connect(first.address, Recorder, timeout=5.0)
        await server.until_event("made")
        server.transport.close()  # by the end that listens: the kernel remembers it for a while
        await client.until_event("lost")
        assert first.address.host == place.host
        assert first.address.port > 0
        with pytest.raises(InvalidSetting, match=r"cannot listen on .*Address already in use"):
            await place.server.listen(first.address, Recorder)
        await first.close()
        await first.close()
        second = await place.server.listen(first.address, Recorder)
        assert second.address == first.address
        await second.close()

    on_both(scenario)


def test_an_address_of_another_host_cannot_be_listened_on(on_both: Run) -> None:
    async def scenario(place: Place) -> None:
        with pytest.raises(InvalidSetting, match="cannot listen on"):
            await place.server.listen(Address("192.0.2.77", 0), Recorder)

    on_both(scenario)


def test_closing_a_listener_leaves_its_connections_alone(on_both: Run) -> None:
    async def scenario(place: Place) -> None:
        client = await place.join(Recorder(is_echo=True))  # which closes the listener
        client.transport.write(b"still here?")
        assert await client.until_bytes(11) == b"still here?"
        client.transport.close()
        await client.until_event("lost")

    on_both(scenario)


def test_tls_without_a_certificate_is_refused(on_both: Run) -> None:
    async def scenario(place: Place) -> None:
        for mode in (TlsMode.PERMISSIVE, TlsMode.ENFORCING):
            with pytest.raises(InvalidSetting, match="TLS"):
                await place.server.listen(Address(place.host, 0), Recorder, tls_mode=mode)

    on_both(scenario)
