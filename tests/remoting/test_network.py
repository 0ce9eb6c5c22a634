"""The real network, with peers that are silent, hasty or hostile."""

import asyncio
import errno
import logging
import resource
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from rocketpipe.errors import ConnectFailed, InvalidSetting
from rocketpipe.remoting.address import Address
from rocketpipe.remoting.network import AsyncioNetwork
from rocketpipe.remoting.tls import (
    TlsMode,
    TlsSettings,
    client_context,
)
from tests.remoting.echo_server import ANY_PORT, EchoServer, echo, end_of, raw_connect, run
from tests.remoting.recorder import Recorder


async def _serve_once(handle: Callable[[socket.socket], Awaitable[None]]) -> Address:
    """The address of a server that treats the first to connect as told."""
    listening = socket.create_server(("127.0.0.1", 0))
    listening.setblocking(False)

    async def serve() -> None:
        with listening:
            accepted, _ = await asyncio.get_running_loop().sock_accept(listening)
        with accepted:
            await handle(accepted)

    asyncio.get_running_loop().create_task(serve()).add_done_callback(lambda task: task.result())
    return Address("127.0.0.1", listening.getsockname()[1])


def test_a_silent_server_ends_a_tls_connect_at_its_timeout(client_tls: ssl.SSLContext) -> None:
    async def main() -> None:
        hung_up = asyncio.Event()

        async def say_nothing(sock: socket.socket) -> None:
            hello = await end_of(sock)
            assert hello[0] == 0x16
            hung_up.set()

        address = await _serve_once(say_nothing)
        with pytest.raises(ConnectFailed, match=r"TLS handshake did not end within 1 s"):
            await AsyncioNetwork().connect(address, Recorder, timeout=1.0, tls=client_tls)
        await hung_up.wait()
        await asyncio.sleep(0)

    run(main())


@pytest.mark.parametrize("answer", [b"", b"\0\0\0\x10plain words, not TLS"])
def test_a_server_that_speaks_no_tls_is_told_from_others(
    answer: bytes, client_tls: ssl.SSLContext
) -> None:
    async def main() -> None:
        async def say_it(sock: socket.socket) -> None:
            loop = asyncio.get_running_loop()
            await loop.sock_recv(sock, 10_000)
            await loop.sock_sendall(sock, answer)

        address = await _serve_once(say_it)
        with pytest.raises(ConnectFailed, match="speak TLS"):
            await AsyncioNetwork().connect(address, Recorder, timeout=5.0, tls=client_tls)

    run(main())


def test_a_cancelled_tls_handshake_leaves_nothing_behind(client_tls: ssl.SSLContext) -> None:
    async def main() -> None:
        is_shaking, hung_up = asyncio.Event(), asyncio.Event()

        async def say_nothing(sock: socket.socket) -> None:
            await asyncio.get_running_loop().sock_recv(sock, 10_000)
            is_shaking.set()
            await end_of(sock)
            hung_up.set()

        address = await _serve_once(say_nothing)
        connecting = asyncio.create_task(
            AsyncioNetwork().connect(address, Recorder, timeout=5.0, tls=client_tls)
        )
        await is_shaking.wait()
        connecting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await connecting
        await hung_up.wait()
        await asyncio.sleep(0)

    run(main())


def test_a_port_without_a_listener_that_is_full_ends_at_the_timeout() -> None:
    async def main() -> None:
        with socket.socket() as full:
            full.bind(("127.0.0.1", 0))
            full.listen(0)
            address = Address("127.0.0.1", full.getsockname()[1])
            fillers = []
            for _ in range(3):  # the kernel takes one or two, and lets the others wait
                filler = socket.socket()
                filler.setblocking(False)
                filler.connect_ex(tuple(address))
                fillers.append(filler)
            with pytest.raises(ConnectFailed, match=r"no answer within 0\.05 s"):
                await AsyncioNetwork().connect(address, Recorder, timeout=0.05)
            for filler in fillers:
                filler.close()

    run(main())


def test_a_host_name_that_cannot_be_one_is_refused() -> None:
    async def main() -> None:
        with pytest.raises(ConnectFailed, match="not a host name"):
            await AsyncioNetwork().connect(Address("a" * 80, 1), Recorder, timeout=5.0)

    run(main())


@pytest.mark.parametrize("mode", [TlsMode.PERMISSIVE, TlsMode.ENFORCING])
@pytest.mark.parametrize("first_words", [b"", b"\x16", b"\x16\x03\x01"])
def test_a_silent_peer_is_dropped_in_time_and_blocks_nobody(
    mode: TlsMode,
    first_words: bytes,
    server_tls: ssl.SSLContext,
    client_tls: ssl.SSLContext,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        server = EchoServer(greeting_timeout=3.0)  # which the other needs too, to shake hands
        listener = await server.start(server_tls, mode)
        silent = await raw_connect(listener.address)
        with silent:
            await asyncio.get_running_loop().sock_sendall(silent, first_words)
            await echo(listener.address, client_tls)
            assert await end_of(silent) == b""
        assert sum("dropped" in message for message in caplog.messages) == 1
        await listener.close()

    caplog.set_level(logging.INFO, "rocketpipe")
    run(main())


@pytest.mark.parametrize("mode", TlsMode)
def test_a_peer_that_closes_or_resets_right_away_is_harmless(
    mode: TlsMode, server_tls: ssl.SSLContext
) -> None:
    async def main() -> None:
        server = EchoServer()
        listener = await server.start(server_tls, mode)
        for turns in range(5):
            for lingers in (0, 1):
                hasty = await raw_connect(listener.address)
                for _ in range(turns):
                    await asyncio.sleep(0)
                if not lingers:
                    hasty.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                hasty.close()
        tls = client_context(TlsSettings(verify=False)) if mode is TlsMode.ENFORCING else None
        await echo(listener.address, tls)
        await listener.close()
        for accepted in server.accepted:
            if accepted.events:
                await accepted.until_event("lost")

    run(main())


@pytest.mark.parametrize("mode", [TlsMode.PERMISSIVE, TlsMode.ENFORCING])
def test_garbage_instead_of_a_handshake_ends_that_connection_only(
    mode: TlsMode,
    server_tls: ssl.SSLContext,
    client_tls: ssl.SSLContext,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        server = EchoServer()
        listener = await server.start(server_tls, mode)
        with await raw_connect(listener.address) as hostile:
            await asyncio.get_running_loop().sock_sendall(hostile, b"\x16" + b"garbage" * 100)
            await end_of(hostile)
        await echo(listener.address, client_tls)
        await listener.close()
        assert sum("dropped" in message for message in caplog.messages) == 1
        assert all(record.levelno <= logging.INFO for record in caplog.records)

    caplog.set_level(logging.INFO, "rocketpipe")
    run(main())


@pytest.mark.parametrize("first_words", [b"", b"\x16\x03\x01"])
def test_closing_a_listener_ends_half_made_connections(
    first_words: bytes, server_tls: ssl.SSLContext
) -> None:
    async def main() -> None:
        for turns in range(6):
            server = EchoServer()
            listener = await server.start(server_tls, TlsMode.PERMISSIVE)
            with await raw_connect(listener.address) as silent:
                await asyncio.get_running_loop().sock_sendall(silent, first_words)
                for _ in range(turns):
                    await asyncio.sleep(0)
                await listener.close()
                assert await end_of(silent) == b""
            assert all(not accepted.events for accepted in server.accepted)

    run(main())


@pytest.mark.slow
@pytest.mark.parametrize("mode", [TlsMode.DISABLED, TlsMode.PERMISSIVE])
def test_two_thousand_idle_connections_are_no_burden(
    mode: TlsMode, server_tls: ssl.SSLContext
) -> None:
    async def main() -> None:
        server = EchoServer()
        listener = await server.start(server_tls, mode)
        idle = [await raw_connect(listener.address) for _ in range(2000)]
        await echo(listener.address, None)
        await listener.close()
        for sock in idle:
            sock.close()
        for accepted in server.accepted:
            await accepted.until_event("lost")

    run(main())


def test_without_file_descriptors_a_listener_waits_and_does_not_spin(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("rocketpipe.remoting.network.ACCEPT_PAUSE", 0.05)

    async def main() -> None:
        server = EchoServer()
        listener = await server.start(None, TlsMode.DISABLED)
        client = await raw_connect_while_out_of_descriptors(listener.address)
        with client:
            assert server.accepted == []
            pauses = sum("accepts nobody" in message for message in caplog.messages)
            assert 1 <= pauses <= 5
            await asyncio.get_running_loop().sock_sendall(client, b"hello")
            assert await asyncio.get_running_loop().sock_recv(client, 5) == b"hello"
        await server.accepted[0].until_event("lost")
        await listener.close()

    async def raw_connect_while_out_of_descriptors(address: Address) -> socket.socket:
        client = socket.socket()
        client.setblocking(False)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        spare = socket.socket()
        limit = spare.fileno()
        spare.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        try:
            with pytest.raises(OSError, match="Too many open files"):
                socket.socket()
            await asyncio.get_running_loop().sock_connect(client, tuple(address))
            with pytest.raises(ConnectFailed, match="Too many open files") as caught:
                await AsyncioNetwork().connect(address, Recorder, timeout=5.0)
            assert isinstance(caught.value.__cause__, OSError)
            assert caught.value.__cause__.errno == errno.EMFILE
            await asyncio.sleep(0.12)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        return client

    run(main())


def test_a_listener_can_be_closed_while_it_is_out_of_file_descriptors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rocketpipe.remoting.network.ACCEPT_PAUSE", 0.02)

    async def main() -> None:
        listener = await EchoServer().start(None, TlsMode.DISABLED)
        monkeypatch.setattr(socket.socket, "accept", _fail_to_accept)
        with await raw_connect(listener.address):
            await asyncio.sleep(0.01)
            await listener.close()
        await asyncio.sleep(0.03)  # longer than the pause

    run(main())


def _fail_to_accept(_: socket.socket) -> None:
    raise OSError(errno.EMFILE, "Too many open files")


def test_a_factory_that_fails_leaks_no_socket() -> None:
    unseen: list[dict[str, Any]] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, seen: unseen.append(seen))

        def fail() -> Recorder:
            raise LookupError("no protocol")

        listener = await AsyncioNetwork().listen(ANY_PORT, fail)
        with await raw_connect(listener.address) as client:
            assert await end_of(client) == b""
        await listener.close()

    run(main())
    assert isinstance(unseen[0]["exception"], LookupError)


def test_localhost_is_listened_on_where_others_look_for_it() -> None:
    async def main() -> None:
        server = EchoServer()
        listener = await server.network.listen(Address("localhost", 0), Recorder)
        assert listener.address.host == "localhost"
        (await raw_connect(Address("127.0.0.1", listener.address.port))).close()
        await listener.close()

    run(main())


@pytest.mark.parametrize("host", ["a" * 80, "nobody.invalid"])
def test_what_is_no_host_cannot_be_listened_on(host: str) -> None:
    async def main() -> None:
        with pytest.raises(InvalidSetting, match=r"cannot listen on .*host name"):
            await AsyncioNetwork().listen(Address(host, 0), Recorder)

    run(main())
