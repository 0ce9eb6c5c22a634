"""The network as connections and servers see it, and the real one, on asyncio.

The other one is simulated: `rocketpipe.testing.simulated_network`.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from functools import partial
from typing import Protocol, TypeVar

from rocketpipe.errors import ConnectFailed, InvalidSetting
from rocketpipe.remoting.address import Address
from rocketpipe.remoting.tls import TlsMode

log = logging.getLogger(__name__)

P = TypeVar("P", bound=asyncio.Protocol)
ProtocolFactory = Callable[[], asyncio.Protocol]

ACCEPTS_PER_TURN = 100
ACCEPT_PAUSE = 1.0
BACKLOG = 1024  # Java's: NettyServerConfig.serverSocketBacklog
TLS_FIRST_BYTE = b"\x16"  # a handshake record; a plain frame starts with 0, being under 16 MiB


class Listener(Protocol):
    """A port that is listened to."""

    @property
    def address(self) -> Address:
        """The host asked for, and the real port when 0 was asked."""

    async def close(self) -> None:
        """Take no more connections; established ones are not touched, half-made ones end."""


class Network(Protocol):
    """Where connections come from."""

    async def connect(
        self,
        address: Address,
        protocol_factory: Callable[[], P],
        *,
        timeout: float,
        tls: ssl.SSLContext | None = None,
        server_hostname: str | None = None,
    ) -> P:
        """The protocol, connected (and its TLS handshake done), or ConnectFailed.

        With TLS 1.3 a server that refuses our certificate says so only after the handshake, and
        then the connection is lost at once.
        """

    async def listen(
        self,
        address: Address,
        protocol_factory: ProtocolFactory,
        *,
        tls: ssl.SSLContext | None = None,
        tls_mode: TlsMode = TlsMode.DISABLED,
    ) -> Listener:
        """Make a protocol for everyone who connects, or InvalidSetting."""


class AsyncioNetwork:
    """The real network, on the running event loop."""

    def __init__(self, *, greeting_timeout: float = 10.0) -> None:
        """Drop peers of a listener who take longer to say their first byte or to shake hands."""
        self._greeting_timeout = greeting_timeout

    async def connect(
        self,
        address: Address,
        protocol_factory: Callable[[], P],
        *,
        timeout: float,
        tls: ssl.SSLContext | None = None,
        server_hostname: str | None = None,
    ) -> P:
        is_shaking_hands = False

        def make_protocol() -> P:
            nonlocal is_shaking_hands
            is_shaking_hands = tls is not None  # asyncio makes it between TCP's connect and TLS
            return protocol_factory()

        try:
            async with asyncio.timeout(timeout) as limit:
                _, protocol = await asyncio.get_running_loop().create_connection(
                    make_protocol,
                    address.host,
                    address.port,
                    ssl=tls,
                    server_hostname=server_hostname if tls else None,
                )
                return protocol
        except (OSError, UnicodeError) as error:
            if limit.expired():
                what = "the TLS handshake did not end" if is_shaking_hands else "no answer"
                reason = f"{what} within {timeout:.3g} s"
            elif is_shaking_hands:
                reason = f"TLS handshake failed: {_tls_reason(error)}"
            else:
                reason = tcp_reason(error)
            raise ConnectFailed(str(address), reason) from error

    async def listen(
        self,
        address: Address,
        protocol_factory: ProtocolFactory,
        *,
        tls: ssl.SSLContext | None = None,
        tls_mode: TlsMode = TlsMode.DISABLED,
    ) -> Listener:
        if tls is None and tls_mode is not TlsMode.DISABLED:
            raise InvalidSetting(f"TLS mode {tls_mode} needs a certificate")
        try:
            listening = await _listening_socket(address)
        except (OSError, UnicodeError) as error:
            raise InvalidSetting(f"cannot listen on {address}: {tcp_reason(error)}") from error
        return _SocketListener(
            address, listening, protocol_factory, tls, tls_mode, self._greeting_timeout
        )


class _SocketListener:
    """Accepts connections, finds out what they speak, and hands them to protocols.

    asyncio's own server serves one of plain and TLS, not both on a port: to tell them apart we
    have to look at the first byte before a transport takes the socket.
    """

    def __init__(
        self,
        address: Address,
        listening: socket.socket,
        protocol_factory: ProtocolFactory,
        tls: ssl.SSLContext | None,
        tls_mode: TlsMode,
        greeting_timeout: float,
    ) -> None:
        self.address = Address(address.host, listening.getsockname()[1])
        self._loop = asyncio.get_running_loop()
        self._listening = listening
        self._protocol_factory = protocol_factory
        self._tls = tls
        self._tls_mode = tls_mode
        self._greeting_timeout = greeting_timeout
        self._greetings: set[asyncio.Task[None]] = set()
        self._sockets_unowned: set[socket.socket] = set()  # accepted, and in no transport's care
        self._pause: asyncio.TimerHandle | None = None
        self._resume()

    async def close(self) -> None:
        if self._pause is not None:
            self._pause.cancel()
        if self._listening.fileno() >= 0:
            self._loop.remove_reader(self._listening)
            self._listening.close()
        for greeting in self._greetings:
            greeting.cancel()
        if self._greetings:
            await asyncio.wait(self._greetings)

    def _resume(self) -> None:
        self._pause = None
        self._loop.add_reader(self._listening, self._accept)

    def _accept(self) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            try:
                accepted, _ = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                # Out of file descriptors, most likely. The socket stays readable, so to come
                # back at once would keep the loop spinning.
                log.warning("%s accepts nobody for %s s: %s", self.address, ACCEPT_PAUSE, error)
                self._loop.remove_reader(self._listening)
                self._pause = self._loop.call_later(ACCEPT_PAUSE, self._resume)
                return
            self._sockets_unowned.add(accepted)
            greeting = self._loop.create_task(self._greet(accepted))
            self._greetings.add(greeting)
            greeting.add_done_callback(partial(self._greeted, accepted))

    async def _greet(self, accepted: socket.socket) -> None:
        try:
            accepted.setblocking(False)
            async with asyncio.timeout(self._greeting_timeout):
                tls = self._tls if await self._speaks_tls(accepted) else None
                protocol = self._protocol_factory()
                self._sockets_unowned.remove(accepted)
                await self._loop.connect_accepted_socket(lambda: protocol, accepted, ssl=tls)
        except TimeoutError:
            log.info("%s dropped a peer that kept silent", self.address)
        except OSError as error:
            log.info("%s dropped a peer: %s", self.address, _tls_reason(error))

    async def _speaks_tls(self, accepted: socket.socket) -> bool:
        if self._tls_mode is not TlsMode.PERMISSIVE:
            return self._tls_mode is TlsMode.ENFORCING
        readable = asyncio.Event()
        self._loop.add_reader(accepted, readable.set)
        try:
            await readable.wait()
        finally:
            self._loop.remove_reader(accepted)
        return accepted.recv(1, socket.MSG_PEEK) == TLS_FIRST_BYTE

    def _greeted(self, accepted: socket.socket, greeting: asyncio.Task[None]) -> None:
        # Here and not in _greet, which never begins if it is cancelled early.
        self._greetings.remove(greeting)
        if accepted in self._sockets_unowned:
            self._sockets_unowned.remove(accepted)
            accepted.close()


async def _listening_socket(address: Address) -> socket.socket:
    kind, passive = socket.SOCK_STREAM, socket.AI_PASSIVE
    try:
        # A number needs nobody to look it up, and so no thread; nor, as bytes, Python's tables of
        # all letters that a name may have.
        flags = passive | socket.AI_NUMERICHOST
        found = socket.getaddrinfo(address.host.encode(), address.port, type=kind, flags=flags)
    except socket.gaierror:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(address.host, address.port, type=kind, flags=passive)
    # One socket, so that port 0 gives one port. "localhost" has addresses of both kinds, and
    # whoever looks for a broker there tries 127.0.0.1.
    family, _, number, _, place = min(found, key=lambda info: info[0] != socket.AF_INET)
    listening = socket.socket(family, kind, number)  # as the number is TCP's, asyncio sets NODELAY
    try:
        listening.setblocking(False)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(place)
        listening.listen(BACKLOG)
    except OSError:
        listening.close()
        raise
    return listening


def tcp_reason(error: OSError | UnicodeError) -> str:
    """Why nobody could be reached, in words for people."""
    if isinstance(error, ConnectionRefusedError):
        return "connection refused: nobody listens there"
    if isinstance(error, socket.gaierror):
        return f"the host name cannot be resolved ({error.strerror})"
    if isinstance(error, UnicodeError):
        return f"not a host name ({error})"
    return error.strerror or str(error)


def _tls_reason(error: OSError | UnicodeError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is not trusted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        if error.reason in {"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL"}:
            return "the peer does not speak TLS"
        return (error.reason or str(error)).replace("_", " ").lower()
    if isinstance(error, ConnectionError):
        return "the peer closed the connection; does it speak TLS?"
    return str(error)
