"""The embedded cluster for code that may not block: what takes time is awaited."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Self

from rocketpipe.broker.faults import FaultControl
from rocketpipe.errors import ClientError
from rocketpipe.testing.embedded_cluster import EmbeddedBroker, EmbeddedCluster, EmbeddedServer


class AsyncEmbeddedServer:
    """An EmbeddedServer, for code that may not block: what takes time is awaited."""

    def __init__(self, server: EmbeddedServer) -> None:
        self._server = server

    @property
    def name(self) -> str:
        return self._server.name

    @property
    def address(self) -> str:
        return self._server.address

    @property
    def is_running(self) -> bool:
        return self._server.is_running

    @property
    def is_frozen(self) -> bool:
        return self._server.is_frozen

    @property
    def process_id(self) -> int | None:
        return self._server.process_id

    @property
    def faults(self) -> FaultControl:
        """Of a broker: a NameServer has none. To give orders to another process may block."""
        return self._broker.faults

    async def start(self) -> None:
        await asyncio.to_thread(self._server.start)

    async def stop(self) -> None:
        await asyncio.to_thread(self._server.stop)

    async def kill(self) -> None:
        await asyncio.to_thread(self._server.kill)

    async def cut_connections(self) -> None:
        await asyncio.to_thread(self._broker.cut_connections)

    async def freeze(self) -> None:
        await asyncio.to_thread(self._server.freeze)

    async def thaw(self) -> None:
        self._server.thaw()

    @asynccontextmanager
    async def frozen(self) -> AsyncIterator[None]:
        await self.freeze()
        try:
            yield
        finally:
            await self.thaw()

    @property
    def _broker(self) -> EmbeddedBroker:
        if not isinstance(self._server, EmbeddedBroker):
            raise ClientError(f"{self.name} is not a broker")
        return self._server


class AsyncEmbeddedCluster:
    """An EmbeddedCluster, for code that may not block. It takes the same arguments."""

    def __init__(
        self,
        brokers: int | Sequence[str] = 1,
        *,
        slaves: int | Mapping[str, int] = 0,
        processes: bool = False,
        join: str | None = None,
        folder: Path | str | None = None,
        host: str = "127.0.0.1",
        namesrv_port: int = 0,
        port: int = 0,
        cluster_name: str = "DefaultCluster",
        settings: Mapping[str, object] | None = None,
    ) -> None:
        self._cluster = EmbeddedCluster(
            brokers,
            slaves=slaves,
            processes=processes,
            join=join,
            folder=folder,
            host=host,
            namesrv_port=namesrv_port,
            port=port,
            cluster_name=cluster_name,
            settings=settings,
        )

    @property
    def namesrv(self) -> str:
        return self._cluster.namesrv

    @property
    def nameserver(self) -> AsyncEmbeddedServer:
        return AsyncEmbeddedServer(self._cluster.nameserver)

    @property
    def brokers(self) -> list[AsyncEmbeddedServer]:
        return [AsyncEmbeddedServer(broker) for broker in self._cluster.brokers]

    def broker(self, name: str, id: int = 0) -> AsyncEmbeddedServer:
        return AsyncEmbeddedServer(self._cluster.broker(name, id))

    async def start(self) -> None:
        await asyncio.to_thread(self._cluster.start)

    async def close(self) -> None:
        await asyncio.to_thread(self._cluster.close)

    async def heal(self) -> None:
        await asyncio.to_thread(self._cluster.heal)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()
