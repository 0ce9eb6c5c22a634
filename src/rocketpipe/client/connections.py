"""A client's connections: one to each address, made when first needed and shared by all."""

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import TypeVar

from rocketpipe.client.environment import Environment
from rocketpipe.client.settings import ClientSettings
from rocketpipe.client.shared_work import SharedWork
from rocketpipe.errors import ConnectFailed, RequestTimeout
from rocketpipe.remoting.address import Address
from rocketpipe.remoting.connection import Connection, connect
from rocketpipe.remoting.dispatch import Handler
from rocketpipe.wire.headers import Reply, Request

log = logging.getLogger(__name__)

R = TypeVar("R", bound=Reply)


class Connections:
    def __init__(
        self,
        environment: Environment,
        settings: ClientSettings,
        handler: Handler,
        on_made: Callable[[Address], None],
    ) -> None:
        self._environment = environment
        self._settings = settings
        self._handler = handler
        self._on_made = on_made
        self._open: dict[Address, Connection] = {}  # or lost, until the next dial
        self._living: dict[Connection, None] = {}  # also the retired ones, until they are gone
        self._dials = SharedWork[Address, Connection]()

    def find(self, address: Address) -> Connection | None:
        """The open connection to this address, if there is one."""
        connection = self._open.get(address)
        return connection if connection is not None and connection.lost is None else None

    async def get(self, address: Address, *, timeout: float) -> Connection:
        """A connection to this address; all who ask at the same time wait for the same one."""
        connection = self.find(address)
        if connection is not None:
            return connection
        try:
            return await self._dials.get(address, lambda: self._dial(address), timeout)
        except TimeoutError:
            raise ConnectFailed(str(address), f"no answer within {timeout:.3g} s") from None

    async def request(
        self, address: Address, request: Request[R], body: bytes = b"", *, timeout: float
    ) -> R:
        """The reply to a request, or BrokerError when the peer says no."""
        connection = self.find(address)
        if connection is None:
            deadline = asyncio.get_running_loop().time() + timeout
            connection = await self.get(address, timeout=timeout)
            timeout = deadline - asyncio.get_running_loop().time()
        try:
            return await connection.request(request, body, timeout=timeout)
        except RequestTimeout:
            self.suspect(connection)
            raise

    async def send_oneway(
        self,
        address: Address,
        request: Request[Reply],
        *,
        remark: str | None = None,
        timeout: float,
    ) -> None:
        """Hand over a request that gets no answer, with a remark for the peer's log."""
        deadline = asyncio.get_running_loop().time() + timeout
        connection = await self.get(address, timeout=timeout)
        command = request.to_command()
        command.remark = remark
        command.serialize_type = self._settings.remoting.serialize_type
        timeout = deadline - asyncio.get_running_loop().time()
        await connection.send_oneway(command, timeout=timeout)

    def suspect(self, connection: Connection) -> None:
        """An answer is overdue. Cut the connection if it seems dead: a new one may do better."""
        if connection.unheard_since is None:
            return  # it answers others
        silence = asyncio.get_running_loop().time() - connection.unheard_since
        if silence >= self._settings.silent_connection_timeout:
            log.info("%s: silent for %.1f s, cut the connection", connection.address, silence)
            connection.abort()

    def retire(self, connection: Connection) -> None:
        """Use it no more, as its peer is going away; who waits on it may still be answered."""
        self._open = {at: each for at, each in self._open.items() if each is not connection}
        loop = asyncio.get_running_loop()
        loop.call_later(self._settings.request_timeout, connection.abort)

    def keep_only(self, addresses: Collection[Address]) -> None:
        """Retire the connections to all others."""
        for connection in [each for at, each in self._open.items() if at not in addresses]:
            self.retire(connection)

    async def close(self) -> None:
        await self._dials.close()
        await asyncio.gather(*(connection.close() for connection in list(self._living)))

    async def _dial(self, address: Address) -> Connection:
        connection = await connect(
            self._environment.network,
            address,
            timeout=self._settings.request_timeout,
            handler=self._handler,
            on_lost=lambda lost: self._living.pop(lost, None),
            settings=self._settings.remoting,
            tls=self._settings.tls,
            credentials=self._settings.credentials,
        )
        if connection.lost is None:
            self._open[address] = connection
            self._living[connection] = None
            self._on_made(address)
        return connection
