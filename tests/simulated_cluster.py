"""A cluster on the simulated network: NameServers that know routes, brokers that do as told.

    @simulated(brokers=2)
    async def test_something(cluster: SimulatedCluster) -> None:
        cluster.add_topic("orders", queues=4)
        async with cluster.producer() as producer:
            await producer.send(Message("orders", b"..."))
        assert len(cluster.broker("broker-a").stored) == 1

A broker stores what it is sent, unless its `script` has something else for the next sends. When a
test is over, nothing may be left of the client: no task, no connection.
"""

import asyncio
import random
import ssl
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from rocketpipe.client.admin.admin import AsyncAdmin
from rocketpipe.client.consumer.pull_consumer import AsyncPullConsumer
from rocketpipe.client.environment import Environment
from rocketpipe.client.producer import AsyncProducer
from rocketpipe.codes import RequestCode, ResponseCode
from rocketpipe.message import offset_message_id
from rocketpipe.remoting.address import Address
from rocketpipe.remoting.connection import Connection
from rocketpipe.remoting.dispatch import Handler, Outcome, Refusal, dispatch_by_code
from rocketpipe.remoting.network import Listener, Network, P, ProtocolFactory
from rocketpipe.remoting.server import Server
from rocketpipe.remoting.tls import TlsMode
from rocketpipe.testing.simulated_loop import SimulatedClock, run
from rocketpipe.testing.simulated_network import NetworkOptions, SimulatedNetwork
from rocketpipe.wire.batch import decode_batch
from rocketpipe.wire.bodies.heartbeat import HeartbeatData
from rocketpipe.wire.bodies.route import (
    BrokerData,
    ClusterInfo,
    Perm,
    QueueData,
    TopicRouteData,
)
from rocketpipe.wire.frame import RemotingCommand
from rocketpipe.wire.properties import UNIQ_KEY, decode_properties
from rocketpipe.wire.requests.clients import UnregisterClient
from rocketpipe.wire.requests.sending import SendMessage, SendMessageReply, SendMessageV2

CALM = NetworkOptions(delay_min=0.001, delay_max=0.001, spike_chance=0.0)
BROKER_PORT = 10911
CLIENT = "client"
READ_WRITE = Perm.READ | Perm.WRITE

# What a broker does with one send.
Behaviour = Callable[["FakeBroker", RemotingCommand, Connection], Outcome | Awaitable[Outcome]]


@dataclass(frozen=True, slots=True)
class Received:
    """A send as it reached a broker."""

    at: float
    header: SendMessage
    body: bytes
    port: int
    is_oneway: bool

    @property
    def properties(self) -> dict[str, str]:
        return decode_properties(self.header.properties or "")

    @property
    def bodies(self) -> list[bytes]:
        if self.header.batch:
            return [member.body for member in decode_batch(self.body)]
        return [self.body]

    @property
    def message_ids(self) -> list[str]:
        if self.header.batch:
            return [member.properties[UNIQ_KEY] for member in decode_batch(self.body)]
        return [self.properties[UNIQ_KEY]]


# Behaviours.


def store(broker: "FakeBroker", request: RemotingCommand, connection: Connection) -> Outcome:
    return broker.store(request, ResponseCode.SUCCESS)


def store_as(code: ResponseCode) -> Behaviour:
    return lambda broker, request, _: broker.store(request, code)


def refuse(code: ResponseCode, remark: str = "no") -> Behaviour:
    def behave(broker: "FakeBroker", request: RemotingCommand, connection: Connection) -> Outcome:
        raise Refusal(code, remark)

    return behave


def lose_answer(broker: "FakeBroker", request: RemotingCommand, connection: Connection) -> None:
    broker.store(request, ResponseCode.SUCCESS)


def ignore(broker: "FakeBroker", request: RemotingCommand, connection: Connection) -> None:
    return None


def hang_up(broker: "FakeBroker", request: RemotingCommand, connection: Connection) -> None:
    connection.abort()


def answer_without_fields(
    broker: "FakeBroker", request: RemotingCommand, connection: Connection
) -> Outcome:
    return request.answer(ResponseCode.SUCCESS)


def after(seconds: float, then: Behaviour = store) -> Behaviour:
    async def behave(
        broker: "FakeBroker", request: RemotingCommand, connection: Connection
    ) -> Outcome:
        await asyncio.sleep(seconds)
        outcome = then(broker, request, connection)
        return await outcome if isinstance(outcome, Awaitable) else outcome

    return behave


class FakeBroker:
    """Its stored messages outlive a crash."""

    def __init__(self, network: SimulatedNetwork, name: str) -> None:
        self.name = name
        self.address = Address(name, BROKER_PORT)
        self.behaviour: Behaviour = store  # once the script is used up
        self.script: deque[Behaviour] = deque()
        self.received: list[Received] = []
        self.stored: list[Received] = []
        self.heartbeats: list[tuple[float, HeartbeatData]] = []
        self.unregistered: list[UnregisterClient] = []
        self.others: Counter[int] = Counter()  # requests of other codes
        self.last_other: RemotingCommand | None = None
        self.is_deaf = False  # to all but sends
        self.handlers: dict[int, Handler] = {}  # for requests of other codes
        self._network = network
        self._offset = 0

    async def start(self) -> None:
        self._server = Server(self._network.host(self.name), self._handle)
        await self._server.listen(self.address)
        self._vip = Server(self._network.host(self.name), partial(self._handle, port=10909))
        await self._vip.listen(Address(self.name, 10909))

    async def stop(self) -> None:
        await self._server.close()
        await self._vip.close()

    @property
    def connections(self) -> list[Connection]:
        return self._server.connections

    @property
    def stored_message_ids(self) -> list[str]:
        return [each for received in self.stored for each in received.message_ids]

    @property
    def stored_bodies(self) -> list[bytes]:
        return [body for received in self.stored for body in received.bodies]

    def store(self, request: RemotingCommand, code: ResponseCode) -> RemotingCommand:
        received = self._read(request, 0)
        self.stored.append(received)
        ids = []
        for _ in received.bodies:
            ids.append(offset_message_id("10.0.0.2:10911", self._offset))
            self._offset += 1
        reply = SendMessageReply(
            msg_id=",".join(ids),
            queue_id=received.header.queue_id,
            queue_offset=self._offset - len(ids),
        )
        return request.answer(code, ext_fields=reply.to_ext_fields())

    def _read(self, request: RemotingCommand, port: int) -> Received:
        header = SendMessageV2.from_ext_fields(request.ext_fields)
        now = asyncio.get_running_loop().time()
        return Received(now, header, request.body, port, request.is_oneway)

    def _handle(
        self, connection: Connection, request: RemotingCommand, port: int = BROKER_PORT
    ) -> Outcome | Awaitable[Outcome]:
        match request.code:
            case RequestCode.SEND_MESSAGE_V2 | RequestCode.SEND_BATCH_MESSAGE:
                self.received.append(self._read(request, port))
                behaviour = self.script.popleft() if self.script else self.behaviour
                return behaviour(self, request, connection)
            case _ if self.is_deaf:
                return None
            case code if code in self.handlers:
                return self.handlers[code](connection, request)
            case RequestCode.HEART_BEAT:
                now = asyncio.get_running_loop().time()
                self.heartbeats.append((now, HeartbeatData.decode(request.body)))
            case RequestCode.UNREGISTER_CLIENT:
                self.unregistered.append(UnregisterClient.from_ext_fields(request.ext_fields))
            case _:
                self.others[request.code] += 1
                self.last_other = request
        return request.answer(ResponseCode.SUCCESS, ext_fields={"offset": "0"})


class FakeNameServer:
    """Answers from the cluster's routes, or as `behaviour` says."""

    def __init__(
        self, network: SimulatedNetwork, name: str, routes: dict[str, TopicRouteData]
    ) -> None:
        self.handlers: dict[int, Handler] = {  # for requests of any code
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self._route,
            RequestCode.GET_BROKER_CLUSTER_INFO: self._cluster,
        }
        self.name = name
        self.address = Address(name, 9876)
        self.asked: list[tuple[float, str]] = []
        self.behaviour: Callable[[RemotingCommand], Outcome] | None = None
        self._network = network
        self._routes = routes

    @property
    def topics_asked(self) -> list[str]:
        return [topic for _, topic in self.asked]

    async def start(self) -> None:
        self._server = Server(self._network.host(self.name), dispatch_by_code(self.handlers))
        await self._server.listen(self.address)

    async def stop(self) -> None:
        await self._server.close()

    def _route(self, connection: Connection, request: RemotingCommand) -> Outcome:
        topic = request.ext_fields["topic"]
        self.asked.append((asyncio.get_running_loop().time(), topic))
        if self.behaviour is not None:
            return self.behaviour(request)
        if topic not in self._routes:
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"No topic route info for {topic}")
        return request.answer(0, body=self._routes[topic].encode())

    def _cluster(self, connection: Connection, request: RemotingCommand) -> Outcome:
        """Every broker that is in any route."""
        brokers = {
            broker.broker_name: broker
            for route in self._routes.values()
            for broker in route.broker_datas
        }
        clusters = {"DefaultCluster": frozenset(brokers)}
        info = ClusterInfo(broker_addr_table=brokers, cluster_addr_table=clusters)
        return request.answer(0, body=info.encode())


class _Dials:
    """The client's Network, which remembers who was dialled."""

    def __init__(self, network: Network) -> None:
        self.dials: list[tuple[float, Address]] = []
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
        self.dials.append((asyncio.get_running_loop().time(), address))
        return await self._network.connect(address, protocol_factory, timeout=timeout, tls=tls)

    async def listen(
        self,
        address: Address,
        protocol_factory: ProtocolFactory,
        *,
        tls: ssl.SSLContext | None = None,
        tls_mode: TlsMode = TlsMode.DISABLED,
    ) -> Listener:
        return await self._network.listen(address, protocol_factory)


class SimulatedCluster:
    """Everything starts well; what happens then is up to the test."""

    def __init__(
        self,
        *,
        brokers: int = 1,
        name_servers: int = 1,
        seed: int = 1,
        options: NetworkOptions = CALM,
    ) -> None:
        self.seed = seed
        self.routes: dict[str, TopicRouteData] = {}
        self.network = SimulatedNetwork(seed, options)
        self.clock = SimulatedClock(asyncio.get_running_loop())
        self.brokers = [
            FakeBroker(self.network, f"broker-{letter}") for letter in "abcdefgh"[:brokers]
        ]
        self.name_servers = [
            FakeNameServer(self.network, f"namesrv-{n}", self.routes) for n in range(name_servers)
        ]
        self._dials = _Dials(self.network.host(CLIENT))
        self.environment = self.new_environment()
        self.add_topic("TBW102", queues=8, perm=READ_WRITE | Perm.INHERIT)

    @property
    def servers(self) -> list[FakeBroker | FakeNameServer]:
        return [*self.brokers, *self.name_servers]

    async def start(self) -> None:
        for server in self.servers:
            await server.start()

    async def stop(self) -> None:
        self.network.heal_all()
        for server in self.servers:
            await server.stop()

    def new_environment(self, **changes: Any) -> Environment:
        environment = Environment(
            network=self._dials,
            clock=self.clock,
            dice=random.Random(self.seed),
            ip="10.0.0.1",
            pid=4711,
        )
        return replace(environment, **changes)

    @property
    def namesrv(self) -> str:
        return ";".join(str(server.address) for server in self.name_servers)

    @property
    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def dials(self, address: Address) -> list[float]:
        """When the client dialled this address."""
        return [at for at, dialled in self._dials.dials if dialled == address]

    def producer(self, group: str = "group", **settings: Any) -> AsyncProducer:
        settings.setdefault("namesrv", self.namesrv)
        settings.setdefault("environment", self.environment)
        return AsyncProducer(group, **settings)

    def admin(self, **settings: Any) -> AsyncAdmin:
        settings.setdefault("namesrv", self.namesrv)
        settings.setdefault("environment", self.environment)
        return AsyncAdmin(**settings)

    def pull_consumer(self, group: str = "group", **settings: Any) -> AsyncPullConsumer:
        settings.setdefault("namesrv", self.namesrv)
        settings.setdefault("environment", self.environment)
        return AsyncPullConsumer(group, **settings)

    def broker(self, name: str) -> FakeBroker:
        return next(each for each in self.brokers if each.name == name)

    def add_topic(
        self,
        topic: str,
        *,
        queues: int = 4,
        brokers: Sequence[str] | None = None,
        perm: Perm = READ_WRITE,
        order: str | None = None,
    ) -> None:
        """Let the NameServers know it from now on, in place of what they knew of it."""
        names = [each.name for each in self.brokers] if brokers is None else brokers
        self.routes[topic] = TopicRouteData(
            broker_datas=tuple(
                BrokerData(
                    cluster="DefaultCluster",
                    broker_name=name,
                    broker_addrs={0: f"{name}:{BROKER_PORT}"},
                )
                for name in names
            ),
            queue_datas=tuple(
                QueueData(
                    broker_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=perm
                )
                for name in names
            ),
            order_topic_conf=order,
        )

    async def crash(self, server: FakeBroker | FakeNameServer) -> None:
        self.network.crash(server.name)
        await server.stop()

    async def restart(self, server: FakeBroker | FakeNameServer) -> None:
        self.network.restart(server.name)
        await server.start()

    def stored_message_ids(self) -> set[str]:
        return {each for broker in self.brokers for each in broker.stored_message_ids}

    async def assert_client_is_gone(self) -> None:
        """Nothing of the client is left: no task, and after a moment no connection."""
        tasks = [
            task
            for task in asyncio.all_tasks() - {asyncio.current_task()}
            if "_await_outcome" not in repr(task)  # a server's, for a request that takes its time
        ]
        assert not tasks, tasks
        await asyncio.sleep(1)
        left = {
            transport
            for transport in self.network._conditions.transports
            if CLIENT in (transport.host, transport.peer_host)
        }
        assert not left, left


Test = Callable[[SimulatedCluster], Coroutine[Any, Any, None]]


def simulated(**options: Any) -> Callable[[Test], Callable[[], None]]:
    """Run a test on a cluster of its own, made with these options, and see that nothing is left."""

    def decorate(test: Test) -> Callable[[], None]:
        async def main() -> None:
            cluster = SimulatedCluster(**options)
            await cluster.start()
            await test(cluster)
            cluster.network.heal_all()
            await cluster.assert_client_is_gone()
            await cluster.stop()

        def wrapper() -> None:
            run(main())

        # Not by functools.wraps, which would let pytest look for a fixture named cluster.
        wrapper.__name__ = test.__name__
        wrapper.__module__ = test.__module__
        return wrapper

    return decorate
