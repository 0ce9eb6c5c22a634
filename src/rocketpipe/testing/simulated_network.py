"""A network in memory, by the roll of seeded dice: delays, split streams, cuts, freezes, crashes.

    network = SimulatedNetwork(seed)
    listener = await network.host("broker-a").listen(Address("broker-a", 10911), Server)
    client = await network.host("client").connect(listener.address, Client, timeout=3.0)
    network.cut("client", "broker-a")

Every die is rolled with the one Random given, and everything that happens is noted: two runs with
the same seed end with the same `fingerprint`.
"""

import asyncio
import errno
import itertools
import random
import socket
import ssl
from collections import deque
from collections.abc import Callable

from rocketpipe.errors import ConnectFailed, InvalidSetting
from rocketpipe.remoting.address import Address
from rocketpipe.remoting.network import Listener, P, ProtocolFactory, tcp_reason
from rocketpipe.remoting.tls import TlsMode
from rocketpipe.testing.simulated_transport import (
    Conditions,
    NetworkOptions,
    join,
    os_error,
    reset_error,
)

__all__ = ["NetworkOptions", "SimulatedHost", "SimulatedNetwork"]

_SERVER_PORTS_FROM = 20_001
_CLIENT_PORTS_FROM = 40_001


class SimulatedNetwork:
    """Hosts by name, and the links between them. A host exists once `host` was called for it."""

    def __init__(self, seed: int | random.Random, options: NetworkOptions | None = None) -> None:
        dice = seed if isinstance(seed, random.Random) else random.Random(seed)
        self._conditions = Conditions(dice, options or NetworkOptions())
        self._hosts: dict[str, SimulatedHost] = {}
        self._listeners: dict[Address, _Listener] = {}
        self._server_ports = itertools.count(_SERVER_PORTS_FROM)
        self._client_ports = itertools.count(_CLIENT_PORTS_FROM)
        self._changed = asyncio.Event()

    def host(self, name: str) -> "SimulatedHost":
        """The Network as the host of this name sees it."""
        return self._hosts.setdefault(name, SimulatedHost(self, name))

    @property
    def trace(self) -> deque[tuple[float, str]]:
        """The last things that happened, and when."""
        return self._conditions.trace

    @property
    def fingerprint(self) -> int:
        """A checksum of all that ever happened, and when."""
        return self._conditions.fingerprint

    # What can go wrong.

    def cut(self, a: str, b: str) -> None:
        """Let nothing pass between two hosts: bytes and connects wait until it is healed."""
        self.cut_one_way(a, b)
        self.cut_one_way(b, a)

    def cut_one_way(self, source: str, target: str) -> None:
        """Let nothing pass from one host to another; the way back stays open."""
        self._conditions.note(f"cut {source} -> {target}")
        self._conditions.cut.add((source, target))

    def heal(self, a: str, b: str) -> None:
        """End the cuts between two hosts; what waited arrives."""
        self._conditions.note(f"heal {a} - {b}")
        self._conditions.cut -= {(a, b), (b, a)}
        self._retry()

    def reset(self, a: str, b: str) -> None:
        """End all connections between two hosts, at both ends and at once."""
        self._conditions.note(f"reset {a} - {b}")
        for transport in list(self._conditions.transports):
            if (transport.host, transport.peer_host) in {(a, b), (b, a)}:
                transport.fall(reset_error(), tell_peer=False)

    def freeze(self, host: str) -> None:
        """Stop a host's programs but not its kernel, as SIGSTOP would.

        One can connect to it, but it takes nothing and answers nothing. Its timers do go on, since
        all hosts share an event loop; what they write leaves the host when it thaws.
        """
        self._conditions.note(f"freeze {host}")
        self._conditions.frozen.add(host)

    def thaw(self, host: str) -> None:
        """Let a frozen host go on."""
        self._conditions.note(f"thaw {host}")
        self._conditions.frozen.discard(host)
        self._retry()

    def crash(self, host: str) -> None:
        """End a host's listeners and connections; its peers see a reset, a little later.

        The tasks of its programs are yours to cancel. Their connections are lost at once, so that
        they do not wait for them.
        """
        self._conditions.note(f"crash {host}")
        self._conditions.crashed.add(host)
        for address in [address for address in self._listeners if address.host == host]:
            del self._listeners[address]
        for transport in [each for each in self._conditions.transports if each.host == host]:
            transport.fall(ConnectionAbortedError(errno.ECONNABORTED, "this host crashed"))
        if host in self._conditions.frozen:
            self.thaw(host)

    def restart(self, host: str) -> None:
        """Let a crashed host connect and listen again."""
        self._conditions.note(f"restart {host}")
        self._conditions.crashed.discard(host)

    def heal_all(self) -> None:
        """End all cuts, freezes and crashes."""
        for a, b in sorted(self._conditions.cut):
            self.heal(a, b)
        for host in sorted(self._conditions.frozen):
            self.thaw(host)
        for host in sorted(self._conditions.crashed):
            self.restart(host)

    # What the hosts do.

    async def _connect(self, source: str, address: Address, make: Callable[[], P]) -> P:
        conditions = self._conditions
        loop = conditions.loop = asyncio.get_running_loop()
        self._check_is_up(source)
        if address.host not in self._hosts:
            raise socket.gaierror(socket.EAI_NONAME, "no host of this name in the simulation")
        await self._until(lambda: source not in conditions.frozen)
        await self._travel(source, address.host)
        listener = self._listeners.get(address)
        if listener is None:
            await self._travel(address.host, source)
            raise os_error(errno.ECONNREFUSED)
        client = join(
            conditions,
            Address(source, next(self._client_ports)),
            address,
            lambda: listener.make() if self._listeners.get(address) is listener else None,
        )
        try:
            # The kernel answers for a program that is frozen.
            await self._travel(address.host, source)
            await self._until(lambda: source not in conditions.frozen)
            if client.is_lost:
                raise reset_error()
            protocol = make()
            client.begin(protocol)
            made = asyncio.Event()
            loop.call_soon(made.set)
            await made.wait()
        except BaseException:
            client.abort()
            raise
        return protocol

    def _listen(self, host: str, address: Address, make: ProtocolFactory) -> "_Listener":
        self._conditions.loop = asyncio.get_running_loop()
        self._check_is_up(host)
        if address.host not in {host, "0.0.0.0", "::"}:
            raise os_error(errno.EADDRNOTAVAIL)
        address = Address(host, address.port or next(self._server_ports))
        if address in self._listeners:
            raise os_error(errno.EADDRINUSE)
        self._conditions.note(f"{address} listens")
        listener = self._listeners[address] = _Listener(self._listeners, address, make)
        return listener

    def _check_is_up(self, host: str) -> None:
        if host in self._conditions.crashed:
            raise OSError(errno.ENETDOWN, "this host crashed")

    async def _travel(self, source: str, target: str) -> None:
        await asyncio.sleep(self._conditions.delay())
        await self._until(lambda: (source, target) not in self._conditions.cut)

    async def _until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            await self._changed.wait()

    def _retry(self) -> None:
        self._changed.set()  # wakes those who wait now; whoever waits later waits for the next
        self._changed.clear()
        self._conditions.retry()


class SimulatedHost:
    """The Network of one host; made by SimulatedNetwork.host."""

    def __init__(self, network: SimulatedNetwork, name: str) -> None:
        self.name = name
        self._network = network

    async def connect(
        self,
        address: Address,
        protocol_factory: Callable[[], P],
        *,
        timeout: float,
        tls: ssl.SSLContext | None = None,
        server_hostname: str | None = None,
    ) -> P:
        if tls is not None:
            raise InvalidSetting(_NO_TLS)
        try:
            async with asyncio.timeout(timeout) as limit:
                return await self._network._connect(self.name, address, protocol_factory)
        except OSError as error:
            reason = f"no answer within {timeout:.3g} s" if limit.expired() else tcp_reason(error)
            raise ConnectFailed(str(address), reason) from error

    async def listen(
        self,
        address: Address,
        protocol_factory: ProtocolFactory,
        *,
        tls: ssl.SSLContext | None = None,
        tls_mode: TlsMode = TlsMode.DISABLED,
    ) -> Listener:
        if tls_mode is not TlsMode.DISABLED:
            raise InvalidSetting(_NO_TLS)
        try:
            return self._network._listen(self.name, address, protocol_factory)
        except OSError as error:
            raise InvalidSetting(f"cannot listen on {address}: {tcp_reason(error)}") from error


_NO_TLS = "the simulated network speaks no TLS: test that on a real one"


class _Listener:
    def __init__(
        self, listeners: "dict[Address, _Listener]", address: Address, make: ProtocolFactory
    ) -> None:
        self.address = address
        self.make = make
        self._listeners = listeners

    async def close(self) -> None:
        if self._listeners.get(self.address) is self:  # and not one after a restart
            del self._listeners[self.address]
