"""The servers of an embedded cluster, on whatever event loop runs them.

A server that was stopped or killed can be started again: on the same port, with the same data. All
that it takes to start one is in its ServerPlan, which is plain enough to travel to another process.
"""

import asyncio
import logging
import math
import threading
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from rocketpipe.broker.broker import Broker
from rocketpipe.broker.faults import WHOLE, Fault, FaultKind, Faults
from rocketpipe.broker.settings import BrokerSettings
from rocketpipe.clock import SystemClock
from rocketpipe.errors import MQError
from rocketpipe.lazy_dataclass import dataclass
from rocketpipe.nameserver.server import NameServer
from rocketpipe.nameserver.settings import NameServerSettings
from rocketpipe.remoting.address import Address
from rocketpipe.remoting.network import AsyncioNetwork
from rocketpipe.remoting.tls_properties import read_tls
from rocketpipe.testing.kept_faults import KeptFaults

NAMESRV = "namesrv"
TOLD_TIMEOUT = 10.0
ANSWERED_BY_THEN = 0.05  # whoever asked us to go down is to have our answer before
COME_BACK_INTERVAL = 1.0  # after a failure: somebody may have taken the port

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerPlan:
    """One server: who it is, where it listens, its settings by RocketMQ's names, and its folder."""

    name: str  # NAMESRV, or a broker's
    id: int = 0  # of a broker: 0 is the master
    host: str
    port: int  # 0: any that is free
    ha_port: int | None = None  # where slaves connect; None: one above, or any
    properties: dict[str, str]
    tls: dict[str, str]
    folder: str
    faults_file: str | None = None  # where its faults outlive the process

    @property
    def address(self) -> str:
        return str(Address(self.host, self.port))

    def broker_settings(self) -> BrokerSettings:
        own = {
            "brokerName": self.name,
            "brokerId": str(self.id),
            "brokerIP1": self.host,
            "listenPort": str(self.port),
        }
        if self.ha_port is not None:
            own["haListenPort"] = str(self.ha_port)
        return BrokerSettings.from_properties({**self.properties, **own})


class _Server(Protocol):
    async def close(self) -> None: ...
    async def kill(self) -> None: ...


class ServerCore(ABC):
    """A NameServer or a broker that is started, ended, and started again."""

    _server: _Server | None = None

    def __init__(self, plan: ServerPlan) -> None:
        self.plan = plan  # with the real ports, from the first start on

    @property
    def is_running(self) -> bool:
        return self._server is not None

    @abstractmethod
    async def start(self) -> None:
        """Come up; one that runs goes on."""

    async def stop(self) -> None:
        """End in order."""
        if self._server is not None:
            try:
                await self._server.close()
            finally:
                self._server = None  # not before: to end in order takes its time

    async def kill(self) -> None:
        """End as a crash would."""
        if self._server is not None:
            try:
                await self._server.kill()
            finally:
                self._server = None


class NameServerCore(ServerCore):
    """The NameServer of a cluster; its KV configuration is kept in the folder."""

    async def start(self) -> None:
        if self._server is not None:
            return
        plan = self.plan
        settings = NameServerSettings.from_properties(plan.properties)
        settings = replace(settings, kv_config_path=Path(plan.folder) / "kvConfig.json")
        server = NameServer(AsyncioNetwork(), settings, tls=read_tls(plan.tls))
        address = await server.start(Address(plan.host, plan.port))
        self.plan = replace(plan, port=address.port)
        self._server = server


class BrokerCore(ServerCore):
    """A broker of a cluster. Its faults outlive a restart, as its folder does."""

    _server: Broker | None = None

    def __init__(self, plan: ServerPlan) -> None:
        super().__init__(plan)
        now = SystemClock().monotonic
        file = plan.faults_file
        self.faults = Faults(now) if file is None else KeptFaults(now, Path(file))
        self._changing = asyncio.Lock()
        self._obeying: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Returns when the NameServer knows it, or does not answer."""
        if self._obeying is None:
            self._changing = asyncio.Lock()  # of this loop: the next start may be on another
            self._obeying = asyncio.create_task(self._obey_faults())
        async with self._changing:
            await self._come_up()

    async def stop(self) -> None:
        async with self._changing:
            self._obey_no_more()
            await super().stop()

    async def kill(self) -> None:
        async with self._changing:
            self._obey_no_more()
            await super().kill()

    async def register(self) -> None:
        """Make ourselves known to a NameServer that was just started."""
        if self._server is not None:
            self._server.registration.register_soon()
            await self._server.registration.wait_told(timeout=TOLD_TIMEOUT)

    async def cut_connections(self) -> None:
        """Cut all that are open, at once."""
        if self._server is not None:
            self._server.cut_connections()

    async def _come_up(self) -> None:
        if self._server is not None:
            return
        plan = self.plan
        broker = Broker(
            plan.broker_settings(), Path(plan.folder), faults=self.faults, tls=read_tls(plan.tls)
        )
        await broker.start()
        self.plan = replace(plan, port=broker.address.port, ha_port=broker.ha_address.port)
        self._server = broker

    async def _obey_faults(self) -> None:
        """Go down or stand still when a fault says so, and come back when it is over."""
        loop, changed = asyncio.get_running_loop(), asyncio.Event()

        def on_changed() -> None:
            loop.call_soon_threadsafe(changed.set)

        self.faults.on_changed.add(on_changed)
        try:
            while True:
                if (fault := self.faults.take(WHOLE)) is not None:
                    await asyncio.sleep(ANSWERED_BY_THEN)
                    if fault.kind is FaultKind.STAND_STILL:
                        self._stand_still(fault)
                        continue
                    async with self._changing:
                        await self._go_down(fault.kind)
                    await self._wait_over(fault, changed)
                    await self._come_back()
                else:
                    await changed.wait()
                    changed.clear()
        finally:
            self.faults.on_changed.discard(on_changed)

    def _stand_still(self, fault: Fault) -> None:
        """Block this thread, and with it the event loop and all that runs on it."""
        changed = threading.Event()
        self.faults.on_changed.add(changed.set)
        try:
            while (left := self.faults.seconds_left(fault)) > 0:
                changed.wait(left)
                changed.clear()
        finally:
            self.faults.on_changed.discard(changed.set)

    async def _go_down(self, kind: FaultKind) -> None:
        await (super().stop() if kind is FaultKind.STOP else super().kill())

    async def _wait_over(self, fault: Fault, changed: asyncio.Event) -> None:
        while (left := self.faults.seconds_left(fault)) > 0:
            changed.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), None if left == math.inf else left)

    async def _come_back(self) -> None:
        while True:
            try:
                async with self._changing:
                    return await self._come_up()
            except (MQError, OSError) as error:
                log.error("%s does not come back: %s", self.plan.name, error)
            await asyncio.sleep(COME_BACK_INTERVAL)

    def _obey_no_more(self) -> None:
        if self._obeying is not None:
            self._obeying.cancel()
            self._obeying = None


def core_of(plan: ServerPlan) -> NameServerCore | BrokerCore:
    """The server that a plan is about, not yet started."""
    return NameServerCore(plan) if plan.name == NAMESRV else BrokerCore(plan)
