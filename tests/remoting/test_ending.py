"""How connections end, and peers that end or misuse them."""

import asyncio
import gc
import socket
import struct
import weakref

import pytest

from rocketpipe.errors import (
    ConnectionLost,
    MalformedFrame,
    RequestTimeout,
)
from rocketpipe.remoting.connection import Connection, connect
from rocketpipe.remoting.network import AsyncioNetwork
from rocketpipe.remoting.settings import RemotingSettings
from rocketpipe.wire.frame import RemotingCommand
from tests.remoting.peers import ECHO, SILENT, connected, raw_peer, run, serving


@run
async def test_after_a_handler_cut_the_connection_no_more_requests_are_taken() -> None:
    taken = []

    def cut(connection: Connection, request: RemotingCommand) -> None:
        taken.append(request.body)
        connection.abort()

    async with serving(cut) as server:
        reader, writer = await asyncio.open_connection(*server.addresses[0])
        writer.write(b"".join(RemotingCommand(ECHO, body=body).encode() for body in (b"1", b"2")))
        with pytest.raises(ConnectionResetError):
            await asyncio.wait_for(reader.read(), 5)
            raise ConnectionResetError  # closed in order is as good
        assert taken == [b"1"]
        writer.close()


@run
async def test_a_closed_connection_is_freed_at_once() -> None:
    async with serving() as server:
        connection = await connect(AsyncioNetwork(), server.addresses[0], timeout=5)
        await connection.invoke(RemotingCommand(ECHO), timeout=60)
        await connection.close()
        left = weakref.ref(connection)
        del connection
        await asyncio.sleep(0)
        gc.collect()
        assert left() is None


@run
async def test_closing_fails_every_waiting_request_at_once() -> None:
    async with serving() as server, connected(server.addresses[0]) as connection:
        waiting = [
            asyncio.create_task(connection.invoke(RemotingCommand(SILENT), timeout=60))
            for _ in range(3)
        ]
        await asyncio.sleep(0)
        await connection.close()
        errors = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 1)
        for send in (connection.invoke, connection.send_oneway):
            with pytest.raises(ConnectionLost) as raised:
                await send(RemotingCommand(ECHO), timeout=60)
            errors.append(raised.value)
        assert {str(error).partition(": ")[2] for error in errors} == {"closed on our side"}
        # Each its own: one error raised twice would collect the tracebacks of both.
        assert len({id(error) for error in [*errors, connection.lost]}) == 6


@run
async def test_closing_writes_what_was_still_on_its_way_out() -> None:
    arrived = asyncio.Event()

    def note(connection: Connection, request: RemotingCommand) -> None:
        arrived.set()

    async with serving(note) as server:
        connection = await connect(AsyncioNetwork(), server.addresses[0], timeout=5)
        await connection.send_oneway(RemotingCommand(ECHO, body=bytes(1 << 20)), timeout=5)
        await connection.close()
        await asyncio.wait_for(arrived.wait(), 5)


@run
async def test_a_connection_goes_even_if_nobody_waits_for_it() -> None:
    stop, lost = asyncio.Event(), asyncio.Event()

    async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await stop.wait()
        writer.close()

    settings = RemotingSettings(frame_bytes_max=64 << 20, close_timeout=0.05)
    async with raw_peer(deaf) as address:
        connection = await connect(
            AsyncioNetwork(), address, timeout=5, settings=settings, on_lost=lambda _: lost.set()
        )
        await connection.send_oneway(RemotingCommand(ECHO, body=bytes(32 << 20)), timeout=5)
        closing = asyncio.create_task(connection.close())
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait_for(lost.wait(), 20)
        stop.set()


@run
async def test_a_closing_server_fails_its_clients_requests_at_once() -> None:
    lost: list[Connection] = []
    async with (
        serving() as server,
        connected(server.addresses[0], on_lost=lost.append) as connection,
    ):
        waiting = asyncio.create_task(connection.invoke(RemotingCommand(SILENT), timeout=60))
        await connection.invoke(RemotingCommand(ECHO), timeout=5)
        await server.close()
        with pytest.raises(ConnectionLost, match="the peer closed it"):
            await asyncio.wait_for(waiting, 20)
        assert lost == [connection]
        assert not server.connections


@run
async def test_a_peer_that_closes_one_half_is_taken_as_gone() -> None:
    async def last_word(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write_eof()
        await reader.read()
        writer.close()

    async with raw_peer(last_word) as address, connected(address) as connection:
        with pytest.raises(ConnectionLost, match="the peer closed it"):
            await connection.invoke(RemotingCommand(ECHO), timeout=60)


@run
async def test_a_peer_that_closes_one_half_and_reads_no_more_is_gone_at_once() -> None:
    stop = asyncio.Event()

    async def last_word(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write_eof()
        await stop.wait()
        writer.close()

    settings = RemotingSettings(frame_bytes_max=64 << 20, close_timeout=0.05)
    async with raw_peer(last_word) as address:
        lost = asyncio.Event()
        connection = await connect(
            AsyncioNetwork(), address, timeout=5, settings=settings, on_lost=lambda _: lost.set()
        )
        async with asyncio.timeout(20):
            with pytest.raises(ConnectionLost, match="the peer closed it"):
                await connection.invoke(RemotingCommand(ECHO, body=bytes(32 << 20)), timeout=60)
            await lost.wait()  # and what it would not read is not kept for it
        stop.set()


@run
async def test_a_peer_that_dies_in_the_middle_of_a_frame_is_named_so() -> None:
    async def half(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(RemotingCommand(0).encode()[:20])
        writer.close()

    async with raw_peer(half) as address, connected(address) as connection:
        with pytest.raises(ConnectionLost, match="in the middle of a frame"):
            await connection.invoke(RemotingCommand(ECHO), timeout=60)


@run
async def test_an_http_server_is_recognised_at_once() -> None:
    async def http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
        writer.close()

    async with raw_peer(http) as address, connected(address) as connection:
        with pytest.raises(MalformedFrame, match=f"{address}: .*this is HTTP, not RocketMQ"):
            await connection.invoke(RemotingCommand(ECHO), timeout=60)


@run
async def test_a_silent_server_costs_the_deadline_and_no_more() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with raw_peer(silent) as address, connected(address) as connection:
        with pytest.raises(RequestTimeout):
            await asyncio.wait_for(connection.invoke(RemotingCommand(ECHO), timeout=0.02), 2)


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x00\x00\x00\x00",
        b"\x7f\xff\xff\xff",
        struct.pack(">iI", 8, 1 << 20) + b"{}{}",
        struct.pack(">iI", 8, 7 << 24 | 4) + b"\0\0\0\0",
        struct.pack(">iI", 8, 4) + b"{{{{",
        struct.pack(">iI", 8, 1 << 24 | 4) + b"\0\0\0\0",
    ],
)
def test_garbage_closes_that_connection_and_nobody_elses(garbage: bytes) -> None:
    async def main() -> None:
        async with serving() as server, connected(server.addresses[0]) as other:
            reader, writer = await asyncio.open_connection(*server.addresses[0])
            writer.write(RemotingCommand(ECHO).encode() + garbage)
            with pytest.raises(ConnectionResetError):
                while await asyncio.wait_for(reader.read(1000), 5):
                    pass
                raise ConnectionResetError  # closed in order is as good
            writer.close()
            assert (await other.invoke(RemotingCommand(ECHO), timeout=5)).code == 0
            assert len(server.connections) == 1

    asyncio.run(main())


@run
async def test_a_peer_that_is_gone_before_it_is_welcomed_is_no_error_of_ours() -> None:
    async with serving() as server:
        hasty = socket.create_connection(server.addresses[0])
        hasty.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        hasty.close()  # a reset, before the server had a chance to accept
        async with connected(server.addresses[0]) as connection:
            await connection.invoke(RemotingCommand(ECHO), timeout=5)
            assert len(server.connections) == 1


@run
async def test_a_handler_at_work_is_cancelled_when_its_client_is_gone() -> None:
    began, cancelled = asyncio.Event(), asyncio.Event()

    async def wait_forever(connection: Connection, request: RemotingCommand) -> RemotingCommand:
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise
        raise AssertionError

    async with serving(wait_forever) as server:
        async with connected(server.addresses[0]) as connection:
            await connection.send_oneway(RemotingCommand(ECHO), timeout=5)
            await asyncio.wait_for(began.wait(), 5)
        await asyncio.wait_for(cancelled.wait(), 5)


@run
async def test_a_closed_server_has_no_handler_at_work() -> None:
    began, is_cleaned_up = asyncio.Event(), False

    async def clean_up_slowly(connection: Connection, request: RemotingCommand) -> None:
        nonlocal is_cleaned_up
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.05)
            is_cleaned_up = True

    async with serving(clean_up_slowly) as server, connected(server.addresses[0]) as connection:
        await connection.send_oneway(RemotingCommand(ECHO), timeout=5)
        await asyncio.wait_for(began.wait(), 5)
        await server.close()
        assert is_cleaned_up


@run
async def test_a_handler_may_close_its_own_connection() -> None:
    async def close(connection: Connection, request: RemotingCommand) -> None:
        await connection.close()

    async with serving(close) as server, connected(server.addresses[0]) as connection:
        with pytest.raises(ConnectionLost):
            await connection.invoke(RemotingCommand(ECHO), timeout=5)
