"""A client instance: what all producers and consumers of one client id share.

Connections, routes and heartbeats belong to it; it starts with its first user and ends with its
last.
"""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from ipaddress import ip_address
from weakref import WeakKeyDictionary

from rocketpipe.client.background import Background
from rocketpipe.client.connections import Connections
from rocketpipe.client.environment import Environment
from rocketpipe.client.group_members import GroupMember, GroupMembers
from rocketpipe.client.name_servers import NameServers
from rocketpipe.client.replies import Replies
from rocketpipe.client.route import MASTER_ID, TopicRoute
from rocketpipe.client.routes import Routes
from rocketpipe.client.settings import DEFAULT_INSTANCE_NAME, ClientSettings
from rocketpipe.codes import RequestCode
from rocketpipe.errors import BrokerError, ClientError, MQError, NoRoute
from rocketpipe.message import StoredMessage
from rocketpipe.remoting.address import Address
from rocketpipe.remoting.connection import Connection
from rocketpipe.remoting.dispatch import Handler, dispatch_by_code
from rocketpipe.wire.bodies.heartbeat import HeartbeatData, ProducerData
from rocketpipe.wire.frame import RemotingCommand
from rocketpipe.wire.message_id import UniqueIdGenerator
from rocketpipe.wire.properties import PGROUP
from rocketpipe.wire.record import decode_record
from rocketpipe.wire.requests.callbacks import CheckTransactionState
from rocketpipe.wire.requests.clients import HeartBeat, UnregisterClient
from rocketpipe.wire.requests.reading import GetMaxOffset

log = logging.getLogger(__name__)

# Given who asks, where the half message is, and the message itself.
CheckTransaction = Callable[[Address, CheckTransactionState, StoredMessage], None]

_default_environment = Environment()
if hasattr(os, "register_at_fork"):
    # Or all children of one process would draw the same correlation ids and the same jitter.
    os.register_at_fork(after_in_child=_default_environment.dice.seed)
# By event loop, which connections can't leave.
_instances: "WeakKeyDictionary[asyncio.AbstractEventLoop, dict[object, ClientInstance]]"
_instances = WeakKeyDictionary()


class ClientInstance:
    """Get one with `join`, and give it back with `leave`."""

    @classmethod
    def join(
        cls, settings: ClientSettings, environment: Environment | None = None
    ) -> "ClientInstance":
        """The instance of these settings in this event loop; a new one starts working at once."""
        environment = environment or _default_environment
        loop = asyncio.get_running_loop()
        instances = _instances.setdefault(loop, {})
        # Not by client id alone: two clusters used from one process are not to be mixed up.
        key = (settings, environment, os.getpid())
        instance = instances.get(key)
        if instance is None:
            instance = instances[key] = cls(settings, environment)
            instance._leave_registry = lambda: instances.pop(key, None)
        instance._users += 1
        return instance

    def __init__(self, settings: ClientSettings, environment: Environment) -> None:
        self.settings = settings
        self.environment = environment
        ip = environment.local_ip(settings.name_servers[0])
        pid = environment.process_id()
        number = environment.dice.getrandbits(32)  # one that no other instance here has
        self.client_id = _client_id(ip, settings, f"{pid}#{number}")
        self.stable_client_id = _client_id(ip, settings, DEFAULT_INSTANCE_NAME)
        self.new_message_id = UniqueIdGenerator(
            ip_address(ip).packed, pid, number, environment.clock.wall_ms
        )
        self._users = 0
        self._leave_registry: Callable[[], object] = lambda: None
        self._producers: dict[str, CheckTransaction | None] = {}
        self._consumers = GroupMembers()
        self.replies = Replies(environment.clock.wall_ms)
        handlers: dict[int, Handler] = {
            **self._consumers.handlers(),
            RequestCode.CHECK_TRANSACTION_STATE: self._check_transaction,
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: self.replies.take,
        }
        self._background = Background()
        self.connections = Connections(
            environment, settings, dispatch_by_code(handlers), self._greet
        )
        self.name_servers = NameServers(settings.name_servers, self.connections, environment.dice)
        self.routes = Routes(
            self.name_servers,
            request_timeout=settings.request_timeout,
            on_change=self._greet_brokers,
        )
        self._background.every(settings.poll_name_server_interval, self._refresh)
        self._background.every(settings.heartbeat_broker_interval, self.send_heartbeats)
        log.info("client %s started", self.client_id)

    async def leave(self) -> None:
        """One user less; the last one closes everything."""
        self._users -= 1
        if self._users == 0:
            self._leave_registry()
            async with AsyncExitStack() as ending:  # all of it, even if our caller is cancelled
                ending.push_async_callback(self.connections.close)
                ending.push_async_callback(self.routes.close)
                ending.push_async_callback(self._background.close)
            log.info("client %s closed", self.client_id)

    # Who uses it.

    def add_producer(self, group: str, check_transaction: CheckTransaction | None = None) -> None:
        """A producer of this group is here; who can, answers for its transactions."""
        if group in self._producers:
            raise ClientError(
                f"there is a producer of group {group!r} in client {self.client_id} already: "
                "share it, or give one of them another instance_name"
            )
        self._producers[group] = check_transaction
        self._background.spawn(self.send_heartbeats())  # where others of this client sent already

    async def remove_producer(self, group: str) -> None:
        """Tell every broker that the group is gone from this client."""
        self._producers.pop(group, None)
        await self._say_goodbye(UnregisterClient(client_id=self.client_id, producer_group=group))

    def add_consumer(self, group: str, member: GroupMember) -> None:
        """A consumer of this group is here; brokers know it from the next heartbeat on."""
        self._consumers.add(group, member, self.client_id)

    async def remove_consumer(self, group: str) -> None:
        """Tell every broker that the group is gone from this client: others take its queues."""
        self._consumers.remove(group)
        await self._say_goodbye(UnregisterClient(client_id=self.client_id, consumer_group=group))

    async def _say_goodbye(self, farewell: UnregisterClient) -> None:
        await self._tell_brokers(
            lambda address: self.connections.request(
                address, farewell, timeout=self.settings.request_timeout
            )
        )

    async def master(self, topic: str, broker_name: str, *, timeout: float) -> Address:
        """Where the topic's broker of this name takes requests."""
        route = self.routes.find(topic)
        address = route.master(broker_name) if route is not None else None
        if address is None:
            route = await self.routes.refresh(topic, None, timeout=timeout)
            address = route.master(broker_name)
        if address is None:
            asked = tuple(self.name_servers.addresses)
            raise NoRoute(topic, asked, f"broker {broker_name!r} has no master there")
        return address

    async def is_reachable(self, broker_name: str, *, timeout: float) -> bool:
        """Whether the broker's master answers anything at all."""
        address = self.routes.address(broker_name, MASTER_ID)
        if address is None:
            return False
        try:
            # As Java's detector asks; what the answer says is of no interest.
            question = GetMaxOffset(topic=broker_name, queue_id=0)
            await self.connections.request(address, question, timeout=timeout)
        except BrokerError:
            return True
        except MQError:
            return False
        return True

    # What brokers ask.

    def _check_transaction(self, connection: Connection, request: RemotingCommand) -> None:
        header = CheckTransactionState.from_ext_fields(request.ext_fields)
        message = decode_record(request.body)
        group = message.properties.get(PGROUP)
        check = self._producers.get(group) if group is not None else None
        if check is not None:
            check(Address.parse(connection.address), header, message)
        else:  # it will ask again, and perhaps another
            log.warning(
                "%s asks how transaction %s of group %r ended, but no transaction producer of that "
                "group is here",
                *(connection.address, message.message_id, group),
            )

    # Heartbeats.

    async def send_heartbeats(self) -> None:
        """Tell every master in our routes who we are, connecting where we have to."""
        addresses = self.routes.addresses().items()
        await self.greet(address for address, broker_id in addresses if broker_id == MASTER_ID)

    async def greet(self, addresses: Iterable[Address]) -> None:
        """Tell these brokers who we are; they know when this returns, unless they failed."""
        await asyncio.gather(*map(self._send_heartbeat, addresses))

    async def _send_heartbeat(self, address: Address) -> None:
        data = HeartbeatData(
            client_id=self.client_id,
            producer_data_set=tuple(ProducerData(group_name=group) for group in self._producers),
            consumer_data_set=self._consumers.consumer_data(),
        )
        try:
            await self.connections.request(
                address, HeartBeat(), data.encode(), timeout=self.settings.request_timeout
            )
        except MQError as error:
            log.info("heartbeat: %s", error)

    def _greet(self, address: Address) -> None:
        """A new connection: if it is to a broker, tell it at once who we are."""
        if address in self.routes.addresses():
            self._background.spawn(self._send_heartbeat(address))

    def _greet_brokers(self, route: TopicRoute) -> None:
        """A new route: any broker may have something to ask of us, so let all know us."""
        self._consumers.rebalance_soon()
        for broker in route.brokers:
            address = route.master(broker)
            if address is not None and self.connections.find(address) is None:
                self._background.spawn(
                    self.connections.get(address, timeout=self.settings.request_timeout)
                )

    async def _tell_brokers(self, tell: Callable[[Address], Awaitable[object]]) -> None:
        """Those we are connected with, as the others can't know us."""
        known = [each for each in self.routes.addresses() if self.connections.find(each)]
        outcomes = await asyncio.gather(*map(tell, known), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                log.info("%s", outcome)

    # Routes.

    async def _refresh(self) -> None:
        await self.routes.refresh_all()
        brokers = self.routes.addresses()
        self.connections.keep_only(
            {*self.settings.name_servers, *brokers, *map(vip_address, brokers)}
        )


def vip_address(address: Address) -> Address:
    """The broker's other port, which serves no pulls (MixAll.brokerVIPChannel)."""
    return Address(address.host, max(0, address.port - 2))


def _client_id(ip: str, settings: ClientSettings, default: str) -> str:
    name = settings.instance_name
    instance = default if name == DEFAULT_INSTANCE_NAME else name
    return "@".join((ip, instance, *([settings.unit_name] if settings.unit_name else ())))
