"""How an administrator asks: one broker, several of them at once, or every NameServer."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import fields, replace
from types import TracebackType
from typing import Any, Self, TypeVar

from rocketpipe.client.admin.values import BrokerInfo, BrokerRuntime
from rocketpipe.client.environment import Environment
from rocketpipe.client.instance import ClientInstance
from rocketpipe.client.lifecycle import Lifecycle
from rocketpipe.client.route import TopicRoute
from rocketpipe.client.settings import ClientSettings
from rocketpipe.errors import (
    BrokerError,
    BrokersFailed,
    ClientError,
    InvalidSetting,
    MQError,
    NotFound,
    RemotingError,
)
from rocketpipe.message import MessageQueue
from rocketpipe.remoting.address import Address
from rocketpipe.wire.headers import Reply, Request
from rocketpipe.wire.requests.admin import GetBrokerRuntimeInfo
from rocketpipe.wire.requests.nameserver import GetBrokerClusterInfo

R = TypeVar("R", bound=Reply)
T = TypeVar("T")

V5_0 = (5, 0)
V5_1 = (5, 1)


class Asking:
    """The life of an administrator's client, and its ways to ask.

    `doing` is what an error begins with: "create topic 'orders'".
    """

    def __init__(
        self,
        settings: ClientSettings | None = None,
        *,
        environment: Environment | None = None,
        **others: Any,
    ) -> None:
        self.settings = _settings(settings, others)
        self._environment = environment
        self._lifecycle = Lifecycle("admin")

    async def start(self) -> None:
        """Get ready to ask; an admin can be started once."""
        self._lifecycle.begin()
        self._client = ClientInstance.join(self.settings, self._environment)
        self._lifecycle.started()

    async def close(self) -> None:
        """Leave. What is still asked for fails. Closing twice is no error."""
        if self._lifecycle.close():
            await self._client.leave()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    @property
    def _instance(self) -> ClientInstance:
        self._lifecycle.require_running()
        return self._client

    # One server.

    async def _ask(
        self, address: Address, request: Request[R], body: bytes = b"", *, doing: str
    ) -> R:
        """A server's reply."""
        timeout = self.settings.request_timeout
        try:
            return await self._instance.connections.request(address, request, body, timeout=timeout)
        except BrokerError as error:
            raise BrokerError(error.code, error.remark, error.address, doing) from None

    async def _ask_queue(self, queue: MessageQueue, request: Request[R], *, doing: str) -> R:
        """The reply of the master of this queue's broker."""
        address = await self._master_of(queue)
        try:
            return await self._ask(address, request, doing=doing)
        except RemotingError:
            self._instance.routes.refresh_soon(queue.topic)  # it may have moved
            raise

    async def _master_of(self, queue: MessageQueue) -> Address:
        timeout = self.settings.request_timeout
        return await self._instance.master(queue.topic, queue.broker_name, timeout=timeout)

    async def _ask_name_server(self, request: Request[R], *, question: str) -> R:
        """The reply of whichever NameServer answers first."""
        timeout = self.settings.request_timeout
        return await self._instance.name_servers.ask(request, question=question, timeout=timeout)

    # Several servers.

    async def _on_each(
        self,
        servers: Mapping[str, Address],
        work: Callable[[str, Address], Awaitable[T]],
        *,
        doing: str,
    ) -> dict[str, T]:
        """What each gave, by name; BrokersFailed unless all of them gave something."""

        async def attempt(name: str, address: Address) -> T | MQError:
            try:
                return await work(name, address)
            except MQError as error:
                return error

        outcomes = await asyncio.gather(*(attempt(*server) for server in servers.items()))
        failures: list[tuple[str, MQError]] = []
        done: dict[str, T] = {}
        for name, outcome in zip(servers, outcomes, strict=True):
            if isinstance(outcome, MQError):
                failures.append((name, outcome))
            else:
                done[name] = outcome
        if failures:
            raise BrokersFailed(doing, tuple(failures), tuple(done))
        return done

    async def _ask_each(
        self, servers: Mapping[str, Address], request: Request[R], body: bytes = b"", *, doing: str
    ) -> dict[str, R]:
        """The reply of each, by name, to the same request."""
        return await self._on_each(
            servers, lambda _, address: self._ask(address, request, body, doing=doing), doing=doing
        )

    async def _ask_every_name_server(self, request: Request[R], *, doing: str) -> dict[str, R]:
        """The reply of each, by address: they do not tell each other."""
        servers = {str(address): address for address in self.settings.name_servers}
        return await self._ask_each(servers, request, doing=doing)

    # Who there is.

    async def brokers(self, *, cluster: str | None = None) -> tuple[BrokerInfo, ...]:
        """Every broker that the NameServer knows, or those of one cluster."""
        info = await self._ask_name_server(GetBrokerClusterInfo(), question="the brokers")
        if cluster is not None and cluster not in info.cluster_addr_table:
            raise NotFound(f"cluster {cluster!r}", _known("cluster", info.cluster_addr_table))
        return tuple(
            BrokerInfo(name, data.cluster, dict(sorted(data.broker_addrs.items())))
            for name, data in sorted(info.broker_addr_table.items())
            if cluster is None or name in info.cluster_addr_table[cluster]
        )

    async def _masters(
        self, *, cluster: str | None = None, brokers: Iterable[str] | None = None
    ) -> dict[str, Address]:
        """Where to change something: the brokers of these names, of this cluster, or all."""
        if isinstance(brokers, str):
            raise ClientError(f"brokers is {brokers!r}: give a list of names")
        known = {broker.name: broker for broker in await self.brokers(cluster=cluster)}
        names = list(known) if brokers is None else list(dict.fromkeys(brokers))
        if not names:
            raise NotFound("broker", "the NameServer knows none")
        masters = {}
        for name in names:
            if name not in known:
                raise NotFound(f"broker {name!r}", _known("broker", known))
            master = known[name].master
            if master is None:
                raise NotFound(f"master of broker {name!r}", "only slaves are there now")
            masters[name] = Address.parse(master)
        return masters

    async def _readers(self) -> dict[str, Address]:
        """Where to ask: the master of each broker, or else a slave."""
        brokers = await self.brokers()
        return {each.name: Address.parse(each.reader) for each in brokers if each.reader}

    async def _route(self, topic: str) -> TopicRoute:
        """A topic's route as a NameServer has it now, or NoRoute."""
        timeout = self.settings.request_timeout
        return await self._instance.routes.refresh(topic, None, timeout=timeout)

    async def _readers_of(self, topic: str) -> dict[str, Address]:
        """Where to ask about a topic: the master of each of its brokers, or else a slave."""
        brokers = (await self._route(topic)).brokers.items()
        return {name: addresses[min(addresses)] for name, addresses in brokers if addresses}

    async def _server(self, broker: str) -> Address:
        """Where the broker of this name has its master; an address stands for itself."""
        if ":" in broker:
            return Address.parse(broker)
        return (await self._masters(brokers=[broker]))[broker]

    async def _runtime(self, address: Address) -> BrokerRuntime:
        reply = await self._ask(address, GetBrokerRuntimeInfo(), doing="ask a broker how it is")
        return BrokerRuntime(reply.table)

    async def _require_release(self, address: Address, release: tuple[int, ...], why: str) -> None:
        """ClientError where a broker would ignore what it does not know yet."""
        runtime = await self._runtime(address)
        if runtime.release < release:
            raise ClientError(f"{address} is a broker of {runtime.version}: {why}")


def describe(queue: MessageQueue) -> str:
    """As errors name it."""
    return f"queue {queue.queue_id} of topic {queue.topic!r} on {queue.broker_name}"


def _known(kind: str, names: Iterable[str]) -> str:
    listed = ", ".join(sorted(names)) or "none"
    return f"the NameServer knows {kind} {listed}"


def _settings(settings: ClientSettings | None, others: dict[str, Any]) -> ClientSettings:
    known = {each.name for each in fields(ClientSettings)}
    if unknown := others.keys() - known:
        raise InvalidSetting(f"an admin has no setting {', '.join(sorted(unknown))}")
    return ClientSettings(**others) if settings is None else replace(settings, **others)
