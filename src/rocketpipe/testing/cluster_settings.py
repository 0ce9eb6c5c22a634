"""What a cluster consists of, and the plan of each of its servers."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from string import ascii_lowercase

from rocketpipe.broker.apache_settings import split_settings
from rocketpipe.broker.settings import BrokerRole
from rocketpipe.errors import InvalidSetting
from rocketpipe.lazy_dataclass import dataclass
from rocketpipe.nameserver.settings import WITHOUT_EFFECT, NameServerSettings
from rocketpipe.remoting.address import PORT_MAX, Address
from rocketpipe.remoting.tls_properties import PREFIX as TLS
from rocketpipe.remoting.tls_properties import read_tls
from rocketpipe.testing.embedded_servers import NAMESRV, ServerPlan

PORT_STEP = 10  # a broker also takes the port two below its own, and the one above
SLAVES_MAX = 8
NAMESRV_PREFIX = f"{NAMESRV}."

# What follows from the rest, and by what.
_NOT_SETTINGS = {
    "brokerName": "brokers",
    "brokerId": "slaves, or brokerRole",
    "brokerIP1": "host",
    "listenPort": "port",
    "namesrvAddr": "join",
}

# A name is that of a folder, too.
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,126}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """The servers of a cluster, where they listen, and their settings by RocketMQ's own names.

    Those that begin with `namesrv.` are the NameServer's, and `tls.*` are of all servers.
    """

    brokers: int | Sequence[str] = 1  # so many: broker-a, broker-b, ...; or those of these names
    slaves: int | Mapping[str, int] = 0  # of each of them, or of those that are named
    join: str | None = None  # NameServers elsewhere, `host:port;...`; none of its own then
    host: str = "127.0.0.1"
    namesrv_port: int = 0  # 0: any that is free
    port: int = 0  # of the first broker; those of the others are ten more each
    cluster_name: str = "DefaultCluster"
    settings: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = self.broker_names()
        for name in names:
            if not _NAME.fullmatch(name) or name == NAMESRV:
                raise InvalidSetting(f"{name!r} can't be the name of a broker")
        if len(set(names)) < len(names):
            raise InvalidSetting(f"brokers are {names}: each name only once")
        slaves = self.slaves if isinstance(self.slaves, Mapping) else {names[0]: self.slaves}
        for name, number in slaves.items():
            if name not in names:
                raise InvalidSetting(f"slaves of {name!r}: there is no such broker")
            if type(number) is not int or not 0 <= number <= SLAVES_MAX:
                raise InvalidSetting(f"slaves is {number!r}: not from 0 to {SLAVES_MAX}")
        last_port = self.port + (len(self._ids()) - 1) * PORT_STEP + 1
        if self.port < 0 or not 0 <= self.namesrv_port <= PORT_MAX or last_port > PORT_MAX:
            raise InvalidSetting(f"ports of brokers up to {last_port}: not from 0 to {PORT_MAX}")
        if self.join is not None:
            for address in self.join.split(";"):
                Address.parse(address)

    def check(self) -> None:
        """InvalidSetting if any can't be used."""
        for name, instead in _NOT_SETTINGS.items():
            if name in self.settings:
                raise InvalidSetting(f"{name} is not for settings: give {instead}")
        NameServerSettings.from_properties(self._of_nameserver())
        for plan in self.broker_plans(Path(), "127.0.0.1:9876"):
            plan.broker_settings()
        read_tls(self._tls())

    def without_effect(self) -> list[str]:
        """The settings that Apache's servers know, and that mean nothing here."""
        of_nameserver = [f"{NAMESRV_PREFIX}{name}" for name in WITHOUT_EFFECT]
        return [
            *split_settings(self._of_brokers())[1],
            *(name for name in of_nameserver if name in self.settings),
        ]

    def broker_names(self) -> list[str]:
        """Of the masters."""
        if not isinstance(self.brokers, int):
            if isinstance(self.brokers, str) or not self.brokers:
                raise InvalidSetting(f"brokers is {self.brokers!r}: neither a number nor names")
            return [str(name) for name in self.brokers]
        if type(self.brokers) is not int or not 1 <= self.brokers <= len(ascii_lowercase):
            raise InvalidSetting(f"brokers is {self.brokers!r}: not from 1 to 26")
        return [f"broker-{letter}" for letter in ascii_lowercase[: self.brokers]]

    def nameserver_plan(self, folder: Path) -> ServerPlan | None:
        """None where the brokers join NameServers elsewhere."""
        if self.join is not None:
            return None
        return ServerPlan(
            name=NAMESRV,
            host=self.host,
            port=self.namesrv_port,
            properties=self._of_nameserver(),
            tls=self._tls(),
            folder=str(folder / NAMESRV),
        )

    def broker_plans(self, folder: Path, namesrv: str) -> list[ServerPlan]:
        """Those of the brokers under these NameServers, all masters first."""
        common, _ = split_settings(self._of_brokers())
        common = {"brokerClusterName": self.cluster_name, **common, "namesrvAddr": namesrv}
        tls = self._tls()
        return [
            ServerPlan(
                name=name,
                id=id,
                host=self.host,
                port=self.port + number * PORT_STEP if self.port else 0,
                properties=common | ({"brokerRole": BrokerRole.SLAVE} if id else {}),
                tls=tls,
                folder=str(folder / (f"{name}-{id}" if id else name)),
            )
            for number, (name, id) in enumerate(self._ids())
        ]

    def _ids(self) -> list[tuple[str, int]]:
        """The name and the id of each broker."""
        names, slaves = self.broker_names(), self.slaves
        numbers = slaves if isinstance(slaves, Mapping) else dict.fromkeys(names, slaves)
        # Those that are told to be slaves are of masters elsewhere.
        first = int(self.settings.get("brokerRole") == BrokerRole.SLAVE)
        return [
            (name, first + number)
            for number in range(1 + SLAVES_MAX)
            for name in names
            if number <= numbers.get(name, 0)
        ]

    def _of_brokers(self) -> dict[str, object]:
        others = (TLS, NAMESRV_PREFIX)
        return {name: value for name, value in self.settings.items() if not name.startswith(others)}

    def _of_nameserver(self) -> dict[str, str]:
        return {
            own: text
            for name, text in self._with_prefix(NAMESRV_PREFIX).items()
            if (own := name.removeprefix(NAMESRV_PREFIX)) not in WITHOUT_EFFECT
        }

    def _tls(self) -> dict[str, str]:
        return self._with_prefix(TLS)

    def _with_prefix(self, prefix: str) -> dict[str, str]:
        texts, _ = split_settings(self.settings)
        return {name: text for name, text in texts.items() if name.startswith(prefix)}
