"""A server: listens on one or more ports and hands every request to one handler."""

import asyncio
import logging
from collections.abc import Callable

from rocketpipe.errors import ConnectionLost
from rocketpipe.remoting.address import Address
from rocketpipe.remoting.connection import Connection, HoldsAnswer, TakesPlain
from rocketpipe.remoting.dispatch import Handler
from rocketpipe.remoting.network import Listener, Network
from rocketpipe.remoting.settings import RemotingSettings
from rocketpipe.remoting.tls import ServerTls, server_context

log = logging.getLogger(__name__)


class Server:
    """Serves whoever connects; a peer that misbehaves loses its own connection, nobody else's."""

    def __init__(
        self,
        network: Network,
        handler: Handler,
        *,
        on_lost: Callable[[Connection], None] | None = None,
        holds_answer: HoldsAnswer | None = None,
        takes_plain: TakesPlain | None = None,
        settings: RemotingSettings | None = None,
        tls: ServerTls | None = None,
    ) -> None:
        # A dict for its order: the order of a set would differ from run to run of a simulation.
        self._connections: dict[Connection, None] = {}
        self._network = network
        self._handler = handler
        self._on_lost = on_lost
        self._holds_answer = holds_answer
        self._takes_plain = takes_plain
        self._settings = settings or RemotingSettings()
        tls = tls or ServerTls()
        self._tls = server_context(tls.server) if tls.server is not None else None
        self._tls_mode = tls.mode
        self._listeners: list[Listener] = []

    @property
    def addresses(self) -> list[Address]:
        """Where it listens, with the real ports."""
        return [listener.address for listener in self._listeners]

    @property
    def connections(self) -> list[Connection]:
        """Those that are open, oldest first."""
        return list(self._connections)

    async def listen(self, address: Address) -> Address:
        """Listen there too; the answer has the real port when 0 was asked."""
        listener = await self._network.listen(
            address, self._accept, tls=self._tls, tls_mode=self._tls_mode
        )
        self._listeners.append(listener)
        return listener.address

    async def close(self) -> None:
        """Listen no more, and close every connection."""
        await asyncio.gather(*(listener.close() for listener in self._listeners))
        self._listeners.clear()
        await asyncio.gather(*(connection.close() for connection in self.connections))

    def _accept(self) -> Connection:
        return Connection(
            self._handler,
            self._settings,
            on_made=self._welcome,
            on_lost=self._lose,
            holds_answer=self._holds_answer,
            takes_plain=self._takes_plain,
        )

    def _welcome(self, connection: Connection) -> None:
        # Not earlier: a TLS handshake that fails ends a connection that was never made.
        if len(self._connections) < self._settings.connections_max:
            self._connections[connection] = None
        else:
            log.warning("refused %s: %d are connected", connection.address, len(self._connections))
            connection.abort(ConnectionLost(connection.address, "too many connections"))

    def _lose(self, connection: Connection) -> None:
        if connection in self._connections:
            del self._connections[connection]
            if self._on_lost is not None:
                self._on_lost(connection)
