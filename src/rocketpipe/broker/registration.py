"""How a broker makes itself known: to every NameServer, from its start until it closes."""

import asyncio
import logging
import zlib
from collections.abc import Callable
from dataclasses import replace

from rocketpipe.broker.settings import BrokerSettings
from rocketpipe.broker.topics import TopicConfigs
from rocketpipe.errors import MalformedData, MQError
from rocketpipe.remoting.address import Address
from rocketpipe.remoting.connection import Connection, connect
from rocketpipe.remoting.network import Network
from rocketpipe.remoting.tls import TlsSettings
from rocketpipe.wire.bodies.route import KVTable, Perm, TopicRouteData
from rocketpipe.wire.bodies.topics import RegisterBrokerBody, TopicConfig
from rocketpipe.wire.requests.nameserver import (
    GetRouteinfoByTopic,
    RegisterBroker,
    RegisterBrokerReply,
    UnregisterBroker,
)

log = logging.getLogger(__name__)

CONNECT_TIMEOUT = 3.0
RETRY_DELAY = 1.0  # after a failure; RocketMQ waits for the next period
UNREGISTER_TIMEOUT = 3.0
ROUTE_TIMEOUT = 3.0


class Registration:
    """Registers with each NameServer on its own, so that a dead one holds up no other."""

    def __init__(
        self,
        settings: BrokerSettings,
        topics: TopicConfigs,
        network: Network,
        *,
        broker_address: Address,
        ha_address: Address,
        tls: TlsSettings | None = None,
    ) -> None:
        # Told what a NameServer knows of our master; only a slave is told.
        self.on_master: list[Callable[[RegisterBrokerReply], None]] = []
        self._topics = topics
        self._settings = settings
        header = RegisterBroker(
            broker_name=settings.broker_name,
            broker_addr=str(broker_address),
            cluster_name=settings.broker_cluster_name,
            ha_server_addr=str(ha_address),
            broker_id=settings.broker_id,
            enable_acting_master=False,
        )
        self._contacts = [
            _Contact(self, address, network, header, tls) for address in settings.namesrv
        ]
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Returns when each NameServer has been told, or did not answer."""
        await asyncio.gather(*(contact.tell() for contact in self._contacts))
        self._topics.on_changed.append(self._topics_changed)
        self._tasks = [asyncio.create_task(contact.keep_telling()) for contact in self._contacts]

    async def close(self) -> None:
        """Tell every NameServer that we are gone."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await asyncio.gather(*(contact.leave() for contact in self._contacts))

    def kill(self) -> None:
        """Be gone without a word."""
        for task in self._tasks:
            task.cancel()
        for contact in self._contacts:
            contact.cut()

    async def wait_told(self, *, timeout: float) -> None:
        """Returns when each NameServer knows of all changes, or after the timeout."""
        waits = [asyncio.create_task(contact.told.wait()) for contact in self._contacts]
        if waits:
            _, late = await asyncio.wait(waits, timeout=timeout)
            for wait in late:
                wait.cancel()

    async def route(self, topic: str) -> TopicRouteData | None:
        """Where the topic is, on all brokers, by the first NameServer that knows."""
        for contact in self._contacts:
            if (route := await contact.route(topic)) is not None:
                return route
        return None

    def register_soon(self) -> None:
        """Tell all NameServers everything, without waiting for the period."""
        for contact in self._contacts:
            contact.wake()

    def take_answer(self, reply: RegisterBrokerReply, body: bytes) -> None:
        if self._settings.is_slave:
            for listener in self.on_master:
                listener(reply)
        elif body:
            try:
                self._topics.mark_ordered(KVTable.decode(body).table)
            except MalformedData as error:
                log.warning("a NameServer's table of ordered topics can't be read: %s", error)

    @property
    def period(self) -> float:
        return min(max(self._settings.register_nameserver_period, 10.0), 60.0)  # as RocketMQ

    @property
    def timeout(self) -> float:
        return self._settings.register_broker_timeout

    def body(self, topics: dict[str, None] | None) -> bytes:
        wrapper = self._topics.wrapper(topics)
        allowed = self._settings.broker_permission
        if Perm.READ | Perm.WRITE not in allowed:
            # What a broker does not allow its topics do not either: so clients go elsewhere.
            table = {
                name: replace(config, perm=config.perm & allowed)
                for name, config in wrapper.topic_config_table.items()
            }
            wrapper = replace(wrapper, topic_config_table=table)
        return RegisterBrokerBody(topic_config_serialize_wrapper=wrapper).encode()

    def _topics_changed(self, configs: list[TopicConfig]) -> None:
        for contact in self._contacts:
            contact.wake([config.topic_name for config in configs])


class _Contact:
    """One NameServer, told one thing after another."""

    def __init__(
        self,
        owner: Registration,
        address: Address,
        network: Network,
        header: RegisterBroker,
        tls: TlsSettings | None,
    ) -> None:
        self._owner = owner
        self._address = address
        self._network = network
        self._header = header
        self._tls = tls
        self._connection: Connection | None = None
        self._changed: dict[str, None] = {}  # topics it has not been told of; a dict for its order
        self._is_all_told = False
        self._wake = asyncio.Event()
        self.told = asyncio.Event()  # everything

    def wake(self, changed: list[str] | None = None) -> None:
        """There is something to tell: changed topics, or everything."""
        if changed is None:
            self._is_all_told = False
        else:
            self._changed.update(dict.fromkeys(changed))
        self.told.clear()
        self._wake.set()

    async def keep_telling(self) -> None:
        while True:
            while not self._is_all_told:
                await asyncio.sleep(RETRY_DELAY)
                await self.tell()
            try:
                async with asyncio.timeout(self._owner.period):
                    await self._wake.wait()
            except TimeoutError:
                self._is_all_told = False  # the period is over: all of it again
            await self.tell()

    async def tell(self) -> None:
        """Tell of what changed; or of everything, the first time and after a failure."""
        self._wake.clear()
        changed, self._changed = self._changed, {}
        if self._is_all_told and not changed:
            self.told.set()
            return
        topics = changed if self._is_all_told else None
        self._is_all_told = False
        body = self._owner.body(topics)
        command = self._header.to_command(body)
        command.ext_fields["bodyCrc32"] = str(zlib.crc32(body) & 0x7FFFFFFF)
        try:
            connection = await self._connected()
            answer = await connection.invoke(command, timeout=self._owner.timeout)
            if answer.code != 0:
                log.warning("%s does not register us: %s", self._address, answer.remark)
                return
            self._owner.take_answer(RegisterBrokerReply.from_answer(answer), answer.body)
        except MQError as error:
            log.warning("could not register: %s", error)
        else:
            self._is_all_told = connection.lost is None
            if self._is_all_told and not self._changed:
                self.told.set()

    async def route(self, topic: str) -> TopicRouteData | None:
        """What it knows of a topic; None if nothing, or if it does not answer."""
        if self._connection is None:
            return None
        try:
            return await self._connection.request(
                GetRouteinfoByTopic(topic=topic, accept_standard_json_only=True),
                timeout=ROUTE_TIMEOUT,
            )
        except MQError as error:
            log.info("the route of %s: %s", topic, error)
            return None

    async def leave(self) -> None:
        """Say that we are gone, if anybody listens."""
        connection = self._connection
        if connection is None:
            return
        header = self._header
        try:
            await connection.request(
                UnregisterBroker(
                    broker_name=header.broker_name,
                    broker_addr=header.broker_addr,
                    cluster_name=header.cluster_name,
                    broker_id=header.broker_id,
                ),
                timeout=UNREGISTER_TIMEOUT,
            )
        except MQError as error:
            log.info("could not unregister: %s", error)
        await connection.close()

    def cut(self) -> None:
        if self._connection is not None:
            self._connection.abort()

    async def _connected(self) -> Connection:
        if self._connection is None or self._connection.lost is not None:
            self._connection = await connect(
                self._network,
                self._address,
                timeout=CONNECT_TIMEOUT,
                on_lost=self._lost,
                tls=self._tls,
            )
        return self._connection

    def _lost(self, connection: Connection) -> None:
        # A NameServer takes us for dead when our connection closes, and a new one knows nobody.
        self._is_all_told = False
        asyncio.get_running_loop().call_later(RETRY_DELAY, self._wake.set)
