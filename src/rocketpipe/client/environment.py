"""What a client finds around it: network, clock, dice, and who it is on this machine."""

import os
import random
import socket
from dataclasses import dataclass, field
from ipaddress import ip_address

from rocketpipe.clock import Clock, SystemClock
from rocketpipe.remoting.address import Address
from rocketpipe.remoting.network import AsyncioNetwork, Network

_ELSEWHERE = Address("192.0.2.1", 9)  # reserved for documentation: beyond our own network


@dataclass(frozen=True, eq=False, kw_only=True)
class Environment:
    """The real one by default; tests hand in a simulated one."""

    network: Network = field(default_factory=AsyncioNetwork)
    clock: Clock = field(default_factory=SystemClock)
    dice: random.Random = field(default_factory=random.Random)
    ip: str | None = None  # ours; by default the one that our NameServer sees
    pid: int | None = None

    def local_ip(self, name_server: Address) -> str:
        return self.ip or _source_ip(name_server) or _source_ip(_ELSEWHERE) or "127.0.0.1"

    def process_id(self) -> int:
        return self.pid if self.pid is not None else os.getpid()


def _source_ip(destination: Address) -> str | None:
    """The address this machine would send from; nothing is sent to find out."""
    try:
        # A name would have to be looked up, which may take long.
        version = ip_address(destination.host).version
        family = socket.AF_INET if version == 4 else socket.AF_INET6
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(destination)
            source: str = probe.getsockname()[0]
            return source
    except (ValueError, OSError):
        return None
