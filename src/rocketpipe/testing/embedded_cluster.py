"""A cluster in this process: a NameServer and brokers, each on a thread of its own.

    with EmbeddedCluster(brokers=2) as cluster, Producer("g", namesrv=cluster.namesrv) as producer:
        producer.send(Message("orders", b"..."))
        with cluster.broker("broker-b").frozen():
            producer.send(Message("orders", b"..."))

Threads of their own are what makes freezing real: a frozen server's thread stands still, and with
it every timer and every connection, while the kernel goes on to accept connections for it. So do
they for a process that was sent SIGSTOP.
"""

import asyncio
import atexit
import logging
import os
import shutil
import tempfile
import threading
import weakref
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Self

from rocketpipe.broker.faults import Faults
from rocketpipe.errors import ClientError, IllegalState
from rocketpipe.sync.loop_thread import LoopThread
from rocketpipe.testing.embedded_servers import (
    BrokerCore,
    ClusterSettings,
    NameServerCore,
    ServerCore,
    cluster_cores,
)

log = logging.getLogger(__name__)


class EmbeddedServer:
    """A NameServer or broker that may be stopped, killed, frozen, and brought back."""

    def __init__(self, core: ServerCore) -> None:
        self._core = core
        self._thread: LoopThread | None = None
        self._thaw: threading.Event | None = None
        _servers.add(self)

    def __repr__(self) -> str:
        state = "frozen" if self.is_frozen else "running" if self.is_running else "down"
        return f"<{type(self).__name__} {self.name} at {self.address}, {state}>"

    @property
    def name(self) -> str:
        """`broker-a`, or `namesrv`."""
        return self._core.name

    @property
    def address(self) -> str:
        """`host:port`; the port is known, and its own, from the first start on."""
        return self._core.address

    @property
    def is_running(self) -> bool:
        return self._thread is not None

    @property
    def is_frozen(self) -> bool:
        return self._thaw is not None

    def start(self) -> None:
        """Come up, as it was before: same port, same data. One that runs goes on."""
        future = self.start_nowait()
        try:
            future.result()
        except BaseException:
            self._end_thread()
            raise

    def start_nowait(self) -> "Future[None]":
        """A future that is done when it is up."""
        if self._thread is None:
            self._thread = LoopThread(f"rocketpipe-{self.name}", lends=False)
        return self._thread.submit(self._core.start())

    def stop(self) -> None:
        """End in order; a frozen one is thawed first."""
        self.thaw()
        if self._thread is not None:
            try:
                self._thread.call(self._core.stop())
            finally:
                self._end_thread()

    def kill(self) -> None:
        """End as a crash would: nobody is told, and what was not written is lost."""
        if self._thread is not None:
            killing = self._thread.submit(self._core.kill())
            self.thaw()
            try:
                killing.result()
            finally:
                self._end_thread()

    def freeze(self) -> None:
        """Stand still: connections stay open, and nobody answers."""
        if self._thread is None:
            raise IllegalState(f"{self.name} is down: it can't be frozen")
        if self._thaw is None:
            stands, thaw = threading.Event(), threading.Event()

            def stand_still() -> None:
                stands.set()
                thaw.wait()

            self._thread.post(stand_still)
            stands.wait()
            self._thaw = thaw

    def thaw(self) -> None:
        """Go on, with what came in meanwhile; no matter if it was not frozen."""
        thaw, self._thaw = self._thaw, None
        if thaw is not None:
            thaw.set()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Frozen until the `with` is left."""
        self.freeze()
        try:
            yield
        finally:
            self.thaw()

    def abandon(self) -> None:
        """We are in a forked child: the server is the parent's."""
        if self._thread is not None:
            self._thread.abandon()
        self._thread = self._thaw = None

    def _end_thread(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.end()


class EmbeddedBroker(EmbeddedServer):
    """A broker; its `faults` make it misbehave, and outlive a restart."""

    _core: BrokerCore

    def __init__(self, core: BrokerCore) -> None:
        super().__init__(core)

    @property
    def id(self) -> int:
        """0 is the master's."""
        return self._core.id

    @property
    def faults(self) -> Faults:
        return self._core.faults

    def cut_connections(self) -> None:
        """Cut all that are open; whoever lost his may come back at once."""
        if self._thread is not None:
            self._thread.call(self._core.cut_connections())

    def register(self) -> None:
        """Returns when the NameServer knows this broker and its topics."""
        if self._thread is not None:
            self._thread.call(self._core.register())


class EmbeddedNameServer(EmbeddedServer):
    """The NameServer of a cluster."""

    def __init__(self, core: NameServerCore, brokers: Sequence[EmbeddedBroker]) -> None:
        super().__init__(core)
        self._brokers = brokers

    def start(self) -> None:
        """Come up on the same port; it knows every broker that runs then."""
        super().start()
        for broker in self._brokers:
            if not broker.is_frozen:
                broker.register()


class EmbeddedCluster:
    """A NameServer and `brokers` brokers, each with so many slaves.

    With a folder its data is kept there, else it is gone at the end. `settings` are the brokers',
    by RocketMQ's own names: `{"flushDiskType": "SYNC_FLUSH"}`; those that begin with `tls.` are of
    all servers. Port 0 is any that is free; the
    brokers after the first have ports ten higher each.
    """

    version = "5.5.0"  # the release that it behaves like

    def __init__(
        self,
        brokers: int = 1,
        *,
        slaves: int = 0,
        folder: Path | str | None = None,
        host: str = "127.0.0.1",
        namesrv_port: int = 0,
        port: int = 0,
        cluster_name: str = "DefaultCluster",
        settings: Mapping[str, object] | None = None,
    ) -> None:
        self._settings = ClusterSettings(
            brokers=brokers,
            slaves=slaves,
            host=host,
            namesrv_port=namesrv_port,
            port=port,
            cluster_name=cluster_name,
            settings={"faultsEnable": True, **(settings or {})},
        )
        self._settings.check()
        self._folder = folder
        self._process_id = os.getpid()
        self._own_folder: Path | None = None
        self._nameserver: EmbeddedNameServer | None = None
        self._brokers: list[EmbeddedBroker] = []

    @property
    def namesrv(self) -> str:
        """The address that clients are given."""
        return self.nameserver.address

    @property
    def nameserver(self) -> EmbeddedNameServer:
        if self._nameserver is None:
            raise IllegalState("the cluster is not started: use it in a `with`")
        return self._nameserver

    @property
    def brokers(self) -> list[EmbeddedBroker]:
        """All of them, masters first."""
        return list(self._brokers)

    def broker(self, name: str, id: int = 0) -> EmbeddedBroker:
        """The master of that name; or, with an id, a slave of it."""
        for broker in self._brokers:
            if (broker.name, broker.id) == (name, id):
                return broker
        known = ", ".join(broker.name for broker in self._brokers if broker.id == 0)
        raise ClientError(f"there is no {name} with id {id} here, but {known or 'none'}")

    def start(self) -> None:
        """Bring all servers up; the NameServer knows all brokers then."""
        if self._nameserver is not None:
            raise IllegalState("this cluster was started before")
        if ignored := self._settings.without_effect():
            log.warning("settings without effect here: %s", ", ".join(ignored))
        folder = Path(self._folder) if self._folder is not None else None
        if folder is None:
            folder = self._own_folder = Path(tempfile.mkdtemp(prefix="rocketpipe-cluster-"))
        atexit.register(self.close)
        nameserver, brokers = cluster_cores(self._settings, folder)
        self._brokers = [EmbeddedBroker(core) for core in brokers]
        self._nameserver = EmbeddedNameServer(nameserver, self._brokers)
        try:
            self._nameserver.start()
            self._start_brokers()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Stop all servers; with no folder given, their data goes too. Twice is no error."""
        atexit.unregister(self.close)
        if os.getpid() != self._process_id:
            return  # a forked child: servers and data are the parent's
        with ExitStack() as stack:  # all of it, whatever fails; the last first
            if self._own_folder is not None:
                stack.callback(shutil.rmtree, self._own_folder, ignore_errors=True)
            for server in (self._nameserver, *self._brokers):
                if server is not None:
                    stack.callback(server.stop)

    def heal(self) -> None:
        """Thaw what is frozen, start what is down, clear all faults; all is well then."""
        for server in (self.nameserver, *self._brokers):
            server.thaw()
        for broker in self._brokers:
            broker.faults.clear()
        self._start_brokers()
        self.nameserver.start()

    def _start_brokers(self) -> None:
        # Masters before slaves, which ask the NameServer for their master.
        for is_slave in (False, True):
            starting = [
                broker.start_nowait() for broker in self._brokers if (broker.id > 0) == is_slave
            ]
            for future in starting:
                future.result()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


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
    def faults(self) -> Faults:
        """Of a broker: a NameServer has none."""
        if not isinstance(self._server, EmbeddedBroker):
            raise ClientError(f"{self.name} is not a broker")
        return self._server.faults

    async def start(self) -> None:
        await asyncio.to_thread(self._server.start)

    async def stop(self) -> None:
        await asyncio.to_thread(self._server.stop)

    async def kill(self) -> None:
        await asyncio.to_thread(self._server.kill)

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


class AsyncEmbeddedCluster:
    """An EmbeddedCluster, for code that may not block. It takes the same arguments."""

    def __init__(
        self,
        brokers: int = 1,
        *,
        slaves: int = 0,
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


_servers: "weakref.WeakSet[EmbeddedServer]" = weakref.WeakSet()


def _after_fork() -> None:
    # A fork copies no threads, but sockets: they would keep the parent's ports taken.
    for server in list(_servers):
        server.abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
