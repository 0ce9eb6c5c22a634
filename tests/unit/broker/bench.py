"""A broker on a simulated network, a NameServer that writes down what it is told, and a client."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from rocketpipe.broker.broker import Broker
from rocketpipe.broker.settings import BrokerSettings
from rocketpipe.codes import RequestCode
from rocketpipe.message import StoredMessage
from rocketpipe.remoting.address import Address
from rocketpipe.remoting.connection import Connection, connect
from rocketpipe.remoting.dispatch import Handler, dispatch_by_code
from rocketpipe.remoting.server import Server
from rocketpipe.testing.simulated_disk import SimulatedDisk
from rocketpipe.testing.simulated_loop import SimulatedClock, run
from rocketpipe.testing.simulated_network import SimulatedNetwork
from rocketpipe.wire.bodies.topics import RegisterBrokerBody, TopicConfig
from rocketpipe.wire.frame import RemotingCommand
from rocketpipe.wire.properties import encode_properties
from rocketpipe.wire.record import decode_records
from rocketpipe.wire.requests.sending import SendMessageReply, SendMessageV2

NAMESERVER = Address("10.0.0.9", 9876)
BROKER_HOST = "10.0.0.1"
CLIENT_HOST = "10.0.0.2"
FOLDER = Path("/broker")


class RecordingNameServer:
    """Accepts every broker, and remembers what it was told."""

    def __init__(self, network: SimulatedNetwork, host: str = NAMESERVER.host) -> None:
        self.code = 0  # how registrations are answered
        self.told: list[tuple[str, dict[str, TopicConfig]]] = []  # by broker name
        self.unregistered: list[str] = []
        self.answer_fields: dict[str, str] = {}
        self.answer_body = b""
        self.handlers: dict[int, Handler] = {
            RequestCode.REGISTER_BROKER: self._register,
            RequestCode.UNREGISTER_BROKER: self._unregister,
        }
        self.server = Server(network.host(host), dispatch_by_code(self.handlers))

    def _register(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        body = RegisterBrokerBody.decode(request.body)
        topics = body.topic_config_serialize_wrapper.topic_config_table
        self.told.append((request.ext_fields["brokerName"], topics))
        fields = dict(self.answer_fields)
        return request.answer(self.code, ext_fields=fields, body=self.answer_body)

    def _unregister(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        self.unregistered.append(request.ext_fields["brokerName"])
        return request.answer(0)


class Bench:
    """What a test works on; made by `bench`."""

    def __init__(self, seed: int = 1) -> None:
        self.network = SimulatedNetwork(seed)
        self.disk = SimulatedDisk(seed)
        self.clock = SimulatedClock(asyncio.get_running_loop())
        self.nameserver = RecordingNameServer(self.network)

    def make_broker(
        self, *, host: str = BROKER_HOST, disk: SimulatedDisk | None = None, **settings: Any
    ) -> Broker:
        settings.setdefault("namesrv", (NAMESERVER,))
        return Broker(
            BrokerSettings(host=host, **settings),
            FOLDER,
            disk=disk or self.disk,
            network=self.network.host(host),
            clock=self.clock,
            dice=random.Random(1),
        )

    @asynccontextmanager
    async def broker(self, **settings: Any) -> AsyncIterator[Broker]:
        broker = self.make_broker(**settings)
        await broker.start()
        try:
            yield broker
        finally:
            await broker.close()

    @asynccontextmanager
    async def client(self, address: Address, **options: Any) -> AsyncIterator[Connection]:
        host = self.network.host(CLIENT_HOST)
        connection = await connect(host, address, timeout=3.0, **options)
        try:
            yield connection
        finally:
            await connection.close()


Test = Callable[[Bench], Coroutine[Any, Any, None]]


def simulated(test: Test) -> Callable[[], None]:
    """Runs a test on a bench whose NameServer is up."""

    async def main() -> None:
        bench = Bench()
        await bench.nameserver.server.listen(NAMESERVER)
        try:
            await test(bench)
        finally:
            await bench.nameserver.server.close()

    def wrapper() -> None:
        run(main())

    wrapper.__name__ = test.__name__
    return wrapper


def send_header(topic: str = "orders", **changes: Any) -> SendMessageV2:
    properties: Mapping[str, str] = changes.pop("properties", {"UNIQ_KEY": "U1"})
    fields: dict[str, Any] = {
        "producer_group": "order-service",
        "default_topic": "TBW102",
        "default_topic_queue_nums": 4,
        "queue_id": 0,
        "sys_flag": 0,
        "born_timestamp": 1_750_000_000_123,
        "flag": 0,
        "properties": encode_properties(properties),
    }
    return SendMessageV2(topic=topic, **(fields | changes))


async def send(
    client: Connection, topic: str = "orders", body: bytes = b"hello", **changes: Any
) -> SendMessageReply:
    return await client.request(send_header(topic, **changes), body, timeout=3.0)


def messages(broker: Broker, topic: str = "orders", queue_id: int = 0) -> list[StoredMessage]:
    """All that a queue holds."""
    found: list[StoredMessage] = []
    offset = broker.store.min_offset(topic, queue_id)
    while offset < broker.store.max_offset(topic, queue_id):
        read = broker.store.read(topic, queue_id, offset, count_max=100, bytes_max=1 << 20)
        found += decode_records(read.records, decompressing=False)
        offset = read.next_offset
    return found
