"""The servers of an embedded cluster, on whatever event loop runs them, and the plan of them all.

A server that was stopped or killed can be started again: on the same port, with the same data.
"""

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from string import ascii_lowercase
from typing import Protocol

from rocketpipe.broker.apache_settings import split_settings
from rocketpipe.broker.broker import Broker
from rocketpipe.broker.faults import Faults
from rocketpipe.broker.settings import BrokerSettings
from rocketpipe.clock import SystemClock
from rocketpipe.errors import InvalidSetting
from rocketpipe.lazy_dataclass import dataclass
from rocketpipe.nameserver.server import NameServer
from rocketpipe.nameserver.settings import NameServerSettings
from rocketpipe.remoting.address import PORT_MAX, Address
from rocketpipe.remoting.network import AsyncioNetwork
from rocketpipe.remoting.tls import ServerTls
from rocketpipe.remoting.tls_properties import PREFIX, read_tls

PORT_STEP = 10  # a broker also takes the port two below its own, and the one above
TOLD_TIMEOUT = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """What a cluster consists of.

    `settings` are those of its brokers, by RocketMQ's own names; but `tls.*` are those of all its
    servers.
    """

    brokers: int = 1  # broker-a, broker-b, ...
    slaves: int = 0  # of each of them
    host: str = "127.0.0.1"
    namesrv_port: int = 0  # 0: any that is free
    port: int = 0  # of the first broker; those of the others are ten more each
    cluster_name: str = "DefaultCluster"
    settings: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if type(self.brokers) is not int or not 1 <= self.brokers <= len(ascii_lowercase):
            raise InvalidSetting(f"brokers is {self.brokers!r}: not from 1 to 26")
        if not 0 <= self.slaves <= 8:
            raise InvalidSetting(f"slaves is {self.slaves!r}: not from 0 to 8")
        last_port = self.port + (self.brokers * (1 + self.slaves) - 1) * PORT_STEP + 1
        if self.port < 0 or not 0 <= self.namesrv_port <= PORT_MAX or last_port > PORT_MAX:
            raise InvalidSetting(f"ports of brokers up to {last_port}: not from 0 to {PORT_MAX}")

    def check(self) -> None:
        """InvalidSetting if any can't be used."""
        self.broker_settings()
        self.tls()

    def without_effect(self) -> list[str]:
        """The settings that Apache's brokers know, and that mean nothing here."""
        return split_settings(self._of_brokers())[1]

    def tls(self) -> ServerTls:
        """How all servers speak TLS: by those settings that RocketMQ has as system properties."""
        texts, _ = split_settings(self.settings)
        return read_tls(texts)

    def broker_settings(self) -> list[BrokerSettings]:
        """Those of each broker, all masters first."""
        common, _ = split_settings(self._of_brokers())
        found: list[BrokerSettings] = []
        for broker_id in range(1 + self.slaves):
            for letter in ascii_lowercase[: self.brokers]:
                own: dict[str, object] = {
                    **common,
                    "brokerName": f"broker-{letter}",
                    "brokerId": broker_id,
                    "brokerClusterName": self.cluster_name,
                    "brokerIP1": self.host,
                    "listenPort": self.port + len(found) * PORT_STEP if self.port else 0,
                }
                if broker_id:
                    own["brokerRole"] = "SLAVE"
                found.append(BrokerSettings.from_properties(split_settings(own)[0]))
        return found

    def _of_brokers(self) -> dict[str, object]:
        return {name: value for name, value in self.settings.items() if not name.startswith(PREFIX)}


class ServerCore(Protocol):
    """A NameServer or a broker that is started, ended, and started again."""

    @property
    def name(self) -> str: ...
    @property
    def address(self) -> str: ...
    async def start(self) -> None: ...
    async def stop(self) -> None: ...
    async def kill(self) -> None: ...


class NameServerCore:
    """The NameServer of a cluster; its KV configuration is kept in the folder."""

    name = "namesrv"

    def __init__(self, settings: ClusterSettings, folder: Path) -> None:
        self._address = Address(settings.host, settings.namesrv_port)
        self._settings = NameServerSettings(kv_config_path=folder / "namesrv" / "kvConfig.json")
        self._tls = settings.tls()
        self._server: NameServer | None = None

    @property
    def address(self) -> str:
        return str(self._address)

    async def start(self) -> None:
        """Listen; one that runs goes on."""
        if self._server is None:
            server = NameServer(AsyncioNetwork(), self._settings, tls=self._tls)
            self._address = await server.start(self._address)
            self._server = server

    async def stop(self) -> None:
        """End in order."""
        server, self._server = self._server, None
        if server is not None:
            await server.close()

    async def kill(self) -> None:
        """End as a crash would."""
        server, self._server = self._server, None
        if server is not None:
            await server.kill()


class BrokerCore:
    """A broker of a cluster. Its faults outlive a restart, as its folder does."""

    def __init__(
        self,
        settings: BrokerSettings,
        folder: Path,
        nameserver: NameServerCore,
        tls: ServerTls,
    ) -> None:
        self.id = settings.broker_id
        self.name = settings.broker_name
        self.faults = Faults(SystemClock().monotonic)
        self._properties = settings.to_properties()
        self._folder = folder / (f"{self.name}-{self.id}" if self.id else self.name)
        self._nameserver = nameserver
        self._tls = tls
        self._broker: Broker | None = None

    @property
    def address(self) -> str:
        return f"{self._properties['brokerIP1']}:{self._properties['listenPort']}"

    async def start(self) -> None:
        """Returns when the NameServer knows it, or does not answer."""
        if self._broker is not None:
            return
        properties = {**self._properties, "namesrvAddr": self._nameserver.address}
        broker = Broker(
            BrokerSettings.from_properties(properties),
            self._folder,
            faults=self.faults,
            tls=self._tls,
        )
        await broker.start()
        self._properties["listenPort"] = str(broker.address.port)
        self._properties["haListenPort"] = str(broker.ha_address.port)
        self._broker = broker

    async def stop(self) -> None:
        """End in order: what was stored is safe, and the NameServer is told."""
        broker, self._broker = self._broker, None
        if broker is not None:
            await broker.close()

    async def kill(self) -> None:
        """End as a crash would."""
        broker, self._broker = self._broker, None
        if broker is not None:
            await broker.kill()

    async def register(self) -> None:
        """Make ourselves known to a NameServer that was just started."""
        if self._broker is not None:
            self._broker.registration.register_soon()
            await self._broker.registration.wait_told(timeout=TOLD_TIMEOUT)

    async def cut_connections(self) -> None:
        """Cut all that are open, at once."""
        if self._broker is not None:
            self._broker.cut_connections()


def cluster_cores(
    settings: ClusterSettings, folder: Path
) -> tuple[NameServerCore, list[BrokerCore]]:
    """The servers of a cluster, none of them started."""
    nameserver = NameServerCore(settings, folder)
    tls = settings.tls()
    return nameserver, [
        BrokerCore(each, folder, nameserver, tls) for each in settings.broker_settings()
    ]
