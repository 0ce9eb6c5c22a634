"""What a test of behaviour may ask of a cluster, be it Apache's or our own.

A test takes the fixture `cluster` and gets by with this: where its servers are, ways to hurt them,
and a Reader of what is stored, which uses nothing of the client it is to judge. Apache's programs
come in by `mqadmin` and `java`.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol, Self, TypeVar

import pytest

from rocketpipe.clock import SystemClock
from rocketpipe.codes import ResponseCode
from rocketpipe.errors import BrokerError
from rocketpipe.message import MessageQueue, SendResult, StoredMessage
from rocketpipe.remoting.address import Address
from rocketpipe.remoting.connection import Connection, connect
from rocketpipe.remoting.network import AsyncioNetwork
from rocketpipe.remoting.tls import TlsSettings
from rocketpipe.wire.bodies.route import Perm, TopicRouteData
from rocketpipe.wire.message_id import parse_offset_message_id
from rocketpipe.wire.record import decode_records
from rocketpipe.wire.requests.admin import UpdateAndCreateTopic
from rocketpipe.wire.requests.nameserver import GetBrokerClusterInfo, GetRouteinfoByTopic
from rocketpipe.wire.requests.reading import (
    PULL_SUBSCRIPTION,
    GetMaxOffset,
    PullMessage,
    QueryMessage,
    ViewMessageById,
)
from rocketpipe.wire.requests.sending import SendMessageV2
from rocketpipe.wire.signature import Credentials
from tests.apache import programs
from tests.apache.require import require

TIMEOUT = 20.0  # ample, as a busy machine may take its time
UNTIL_SECONDS_MAX = 60.0  # for what brokers do by themselves, now and then
EMBEDDED = "embedded"  # our own, beside the releases of Apache's
JAVA = Path(__file__).parent / "java"

T = TypeVar("T")


class Server(Protocol):
    """A NameServer or broker that may be hurt; `Cluster.heal` brings it back."""

    @property
    def name(self) -> str: ...
    @property
    def address(self) -> str: ...
    def start(self) -> None: ...
    def kill(self) -> None: ...
    def freeze(self) -> None: ...
    def thaw(self) -> None: ...
    def frozen(self) -> AbstractContextManager[None]: ...


class Cluster(Protocol):
    """A NameServer with broker-a and broker-b, which make topics as they are asked for."""

    @property
    def version(self) -> str:
        """The release that it is, or behaves like: where releases differ, tests look here."""
        ...

    @property
    def namesrv(self) -> str: ...
    @property
    def nameserver(self) -> Server: ...
    @property
    def brokers(self) -> Sequence[Server]: ...
    def broker(self, name: str) -> Server: ...
    def heal(self) -> None: ...


def needs_timers(cluster: Cluster) -> None:
    """Skip the test on clusters that hold messages for a delay level only."""
    if cluster.version == "4.9.4":
        pytest.skip("4.9.4 has no timers: it delivers such messages at once")


def mqadmin(cluster: Cluster, command: str, *args: str) -> str:
    """What Apache's tool prints."""
    require(cluster.version)
    return programs.mqadmin(cluster.version, cluster.namesrv, command, *args, timeout=120).output


def java(cluster: Cluster, program: str, *args: str) -> str:
    """What one of our own Java programs prints, which must end well."""
    require(cluster.version)
    finished = programs.java_program(
        cluster.version, JAVA / program, args, namesrv=cluster.namesrv, timeout=120
    )
    assert finished.exit_code == 0, finished.output
    return finished.output


async def until(ask: Callable[[], Awaitable[T | None]]) -> T:
    """What `ask` gives, as soon as it gives something: clusters need a moment for many things."""
    async with asyncio.timeout(UNTIL_SECONDS_MAX):
        while True:
            answer = await ask()
            if answer is not None:
                return answer
            await asyncio.sleep(0.05)


_numbers = itertools.count(1)


def new_topic(about: str) -> str:
    """A name that no other test has."""
    return f"{about}-{next(_numbers)}"


class Reader:
    """Asks a cluster by raw requests. `async with Reader(cluster.namesrv) as reader: ...`"""

    def __init__(
        self,
        namesrv: str,
        *,
        tls: TlsSettings | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        self._namesrv = namesrv
        self._tls = tls
        self._credentials = credentials
        self._connections: dict[str, Connection] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        for connection in self._connections.values():
            await connection.close()

    async def at(self, address: str) -> Connection:
        """A connection to this address."""
        connection = self._connections.get(address)
        if connection is None or connection.lost is not None:
            connection = self._connections[address] = await connect(
                AsyncioNetwork(),
                Address.parse(address),
                timeout=TIMEOUT,
                tls=self._tls,
                credentials=self._credentials,
            )
        return connection

    async def broker(self, queue: MessageQueue) -> Connection:
        """A connection to the master of this queue's broker."""
        namesrv = await self.at(self._namesrv)
        info = await namesrv.request(GetBrokerClusterInfo(), timeout=TIMEOUT)
        return await self.at(info.broker_addr_table[queue.broker_name].broker_addrs[0])

    async def route(self, topic: str) -> TopicRouteData:
        """A topic's route, which a NameServer has a little after the broker has the topic."""
        namesrv = await self.at(self._namesrv)

        async def ask() -> TopicRouteData | None:
            try:
                return await namesrv.request(GetRouteinfoByTopic(topic=topic), timeout=TIMEOUT)
            except BrokerError as error:
                assert error.code == ResponseCode.TOPIC_NOT_EXIST
                return None

        return await until(ask)

    async def queues(self, topic: str) -> list[MessageQueue]:
        """Every queue that can be read, in order."""
        return sorted(
            MessageQueue(topic, data.broker_name, queue_id)
            for data in (await self.route(topic)).queue_datas
            for queue_id in range(data.read_queue_nums)
        )

    async def create_topic(
        self, topic: str, brokers: Iterable[Server], *, queues: int = 4, order: bool = False
    ) -> list[MessageQueue]:
        """Make a topic on these brokers and wait until the NameServer knows it there."""
        names = set()
        for broker in brokers:
            names.add(broker.name)
            request = UpdateAndCreateTopic(
                topic=topic,
                default_topic="TBW102",
                read_queue_nums=queues,
                write_queue_nums=queues,
                perm=Perm.READ | Perm.WRITE,
                topic_filter_type="SINGLE_TAG",
                order=order,
            )
            await (await self.at(broker.address)).request(request, timeout=TIMEOUT)

        async def is_known() -> bool | None:
            route = await self.route(topic)
            return {data.broker_name for data in route.queue_datas} == names or None

        await until(is_known)
        return await self.queues(topic)

    async def send_unchecked(self, address: str, topic: str, properties: str = "") -> None:
        """Send a message to queue 0, also one that no producer of ours would send."""
        header = SendMessageV2(
            producer_group="interop-reader",
            topic=topic,
            default_topic="TBW102",
            default_topic_queue_nums=4,
            queue_id=0,
            sys_flag=0,
            born_timestamp=SystemClock().wall_ms(),
            flag=0,
            properties=properties,
            reconsume_times=0,
            unit_mode=False,
            batch=False,
        )
        await (await self.at(address)).request(header, b"x", timeout=TIMEOUT)

    async def stored(self, result: SendResult) -> StoredMessage:
        """The message at the place that a send says it has."""
        return (await self.pull(result.queue, result.queue_offset))[0]

    async def pull(self, queue: MessageQueue, offset: int) -> list[StoredMessage]:
        """Some messages from this offset on; waits for the first, as a queue follows the log."""
        request = PullMessage(
            consumer_group="interop-reader",
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=offset,
            max_msg_nums=32,
            sys_flag=PULL_SUBSCRIPTION,
            commit_offset=0,
            suspend_timeout_millis=0,
            subscription="*",
            sub_version=0,
        )
        broker = await self.broker(queue)

        async def ask() -> list[StoredMessage] | None:
            answer = await broker.invoke(request.to_command(), timeout=TIMEOUT)
            assert answer.code in PullMessage.accepts, answer
            is_found = answer.code == ResponseCode.SUCCESS
            return decode_records(answer.body) if is_found else None

        return await until(ask)

    async def messages(self, topic: str, count: int) -> list[StoredMessage]:
        """All messages of a topic, once it has at least so many."""

        async def ask() -> dict[MessageQueue, int] | None:
            ends = {queue: await self.end(queue) for queue in await self.queues(topic)}
            return ends if sum(ends.values()) >= count else None

        ends = await until(ask)
        return [each for queue, end in ends.items() for each in await self.read(queue, end)]

    async def read(self, queue: MessageQueue, end: int) -> list[StoredMessage]:
        """All messages of a queue up to this offset."""
        found: list[StoredMessage] = []
        while len(found) < end:
            found += await self.pull(queue, len(found))
        return found

    async def end(self, queue: MessageQueue) -> int:
        """How many messages the queue has had."""
        broker = await self.broker(queue)
        request = GetMaxOffset(topic=queue.topic, queue_id=queue.queue_id)
        return (await broker.request(request, timeout=TIMEOUT)).offset

    async def view(self, offset_message_id: str) -> StoredMessage:
        """The message at a place in a commit log."""
        place = parse_offset_message_id(offset_message_id)
        broker = await self.at(place.store_host)
        request = ViewMessageById(offset=place.physical_offset)
        (message,) = decode_records(await broker.request(request, timeout=TIMEOUT))
        return message

    async def query(
        self, queue: MessageQueue, key: str, *, is_unique_id: bool = False
    ) -> list[StoredMessage]:
        """The messages with this key at the broker of this queue, once there are any."""
        request = QueryMessage(
            topic=queue.topic,
            key=key,
            max_num=32,
            begin_timestamp=0,
            end_timestamp=SystemClock().wall_ms() + 3_600_000,
            unique_key_query=True if is_unique_id else None,
        )
        broker = await self.broker(queue)

        async def ask() -> list[StoredMessage] | None:
            answer = await broker.invoke(request.to_command(), timeout=TIMEOUT)
            if answer.code == ResponseCode.QUERY_NOT_FOUND:
                return None  # the index follows the log as well
            assert answer.code == ResponseCode.SUCCESS, answer
            return decode_records(answer.body)

        return await until(ask)
