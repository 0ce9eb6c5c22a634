"""A server that echoes, for tests of the real network, and sockets to treat it badly with."""

import asyncio
import socket
import ssl
from collections.abc import Coroutine
from typing import Any

from rocketpipe.remoting.address import Address
from rocketpipe.remoting.network import AsyncioNetwork, Listener
from rocketpipe.remoting.tls import (
    TlsMode,
)
from tests.remoting.recorder import Recorder

ANY_PORT = Address("127.0.0.1", 0)


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run to the end, where no task and no socket is left."""

    async def bounded() -> None:
        async with asyncio.timeout(60):
            await main
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(bounded())


class EchoServer:
    """A listener whose protocols echo."""

    def __init__(self, **network_options: float) -> None:
        self.network = AsyncioNetwork(**network_options)
        self.accepted: list[Recorder] = []

    async def start(self, tls: ssl.SSLContext | None, mode: TlsMode) -> Listener:
        return await self.network.listen(ANY_PORT, self._accept, tls=tls, tls_mode=mode)

    def _accept(self) -> Recorder:
        self.accepted.append(Recorder(is_echo=True))
        return self.accepted[-1]


async def echo(address: Address, tls: ssl.SSLContext | None, name: str | None = None) -> None:
    """Show that the server at this address echoes."""
    client = await AsyncioNetwork().connect(
        address, Recorder, timeout=5.0, tls=tls, server_hostname=name
    )
    client.transport.write(b"hello" * 10_000)
    assert await client.until_bytes(50_000) == b"hello" * 10_000
    assert (client.transport.get_extra_info("ssl_object") is not None) == (tls is not None)
    client.transport.close()
    await client.until_event("lost")


async def end_of(sock: socket.socket) -> bytes:
    """What a peer says until it closes or resets the connection."""
    loop, said = asyncio.get_running_loop(), b""
    while True:
        try:
            data = await loop.sock_recv(sock, 1000)
        except ConnectionResetError:
            return said
        if not data:
            return said
        said += data


async def raw_connect(address: Address) -> socket.socket:
    sock = socket.socket()
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, tuple(address))
    return sock
