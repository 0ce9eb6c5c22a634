"""Our broker and Apache's as master and slave of each other."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from rocketpipe.broker.broker import Broker
from rocketpipe.broker.settings import BrokerRole, BrokerSettings
from rocketpipe.broker.store.settings import StoreSettings
from rocketpipe.clock import SystemClock
from rocketpipe.message import StoredMessage
from rocketpipe.remoting.address import Address
from rocketpipe.remoting.connection import Connection, connect
from rocketpipe.remoting.network import AsyncioNetwork
from rocketpipe.wire.properties import encode_properties
from rocketpipe.wire.record import decode_records
from rocketpipe.wire.requests.reading import PULL_SUBSCRIPTION, PullMessage
from rocketpipe.wire.requests.sending import SendMessageV2
from tests.apache.cluster import ApacheCluster, BrokerSpec

TIMEOUT = 10.0
PATIENCE = 60.0
SEGMENT = 64 << 20  # as the harness sets it for Apache's: a log is copied as it lies in its files

only_5_5 = pytest.mark.parametrize("apache_version", ["5.5.0"], indirect=True)


async def send(connection: Connection, body: bytes) -> int:
    header = SendMessageV2(
        producer_group="replication",
        topic="replicated",
        default_topic="TBW102",
        default_topic_queue_nums=1,
        queue_id=0,
        sys_flag=0,
        born_timestamp=SystemClock().wall_ms(),
        flag=0,
        properties=encode_properties({"UNIQ_KEY": body.decode(), "WAIT": "true"}),
    )
    answer = await connection.invoke(header.to_command(body), timeout=TIMEOUT)
    return answer.code


async def pull(connection: Connection) -> list[StoredMessage]:
    request = PullMessage(
        consumer_group="replication",
        topic="replicated",
        queue_id=0,
        queue_offset=0,
        max_msg_nums=32,
        sys_flag=PULL_SUBSCRIPTION,
        commit_offset=0,
        suspend_timeout_millis=0,
        subscription="*",
        sub_version=0,
    )
    answer = await connection.invoke(request.to_command(), timeout=TIMEOUT)
    return decode_records(answer.body) if answer.code == 0 else []


def read(broker: Broker) -> list[StoredMessage]:
    return decode_records(
        broker.store.read("replicated", 0, 0, count_max=32, bytes_max=1 << 20).records
    )


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not await holds():  # noqa: ASYNC110  # a broker of Java's has no events for us
            await asyncio.sleep(0.5)


def bodies(messages: list[StoredMessage]) -> list[bytes]:
    return [message.body for message in messages]


def settings(namesrv: str, **changes: object) -> BrokerSettings:
    fields: dict[str, object] = {
        "broker_name": "shared",
        "listen_port": 0,
        "namesrv": (Address.parse(namesrv),),
        "store": StoreSettings(commit_log_segment_bytes=SEGMENT),
    }
    return BrokerSettings(**(fields | changes))  # type: ignore[arg-type]


@pytest.fixture
def apache_master(apache_version: str) -> Iterator[ApacheCluster]:
    spec = BrokerSpec("shared", 0, {"brokerRole": "ASYNC_MASTER", "autoCreateTopicEnable": "true"})
    with ApacheCluster(apache_version, [spec]) as cluster:
        yield cluster


@only_5_5
def test_our_slave_copies_an_apache_master(apache_master: ApacheCluster, tmp_path: Path) -> None:
    async def main() -> None:
        master = apache_master.broker("shared")
        connection = await connect(AsyncioNetwork(), Address.parse(master.address), timeout=TIMEOUT)
        assert [await send(connection, b"before %d" % number) for number in range(5)] == [0] * 5
        slave = Broker(
            settings(apache_master.namesrv, broker_role=BrokerRole.SLAVE, broker_id=1), tmp_path
        )
        await slave.start()
        try:

            async def has_all() -> bool:
                return len(read(slave)) >= 5

            await until(has_all)
            assert await send(connection, b"after") == 0

            async def has_one_more() -> bool:
                return len(read(slave)) >= 6 and "replicated" in slave.topics.table

            await until(has_one_more)
            assert read(slave) == await pull(connection)
        finally:
            await slave.close()
            await connection.close()

    asyncio.run(main())


def test_our_slave_gives_way_to_an_apache_master_that_lost_its_end(
    apache_master: ApacheCluster, tmp_path: Path
) -> None:
    async def follow(holds: Callable[[Broker], bool]) -> list[StoredMessage]:
        slave = Broker(
            settings(apache_master.namesrv, broker_role=BrokerRole.SLAVE, broker_id=1), tmp_path
        )
        await slave.start()
        try:

            async def is_so() -> bool:
                return holds(slave)

            await until(is_so)
            return read(slave)
        finally:
            await slave.close()

    async def main() -> None:
        master = apache_master.broker("shared")
        connection = await connect(AsyncioNetwork(), Address.parse(master.address), timeout=TIMEOUT)
        assert [await send(connection, b"old %d" % number) for number in range(10)] == [0] * 10
        assert bodies(await follow(lambda slave: len(read(slave)) == 10))[-1] == b"old 9"
        place = (await pull(connection))[6].physical_offset
        await connection.close()

        # All but the first six were not on its disk when the power went.
        master.kill()
        (segment,) = master.folder.glob("**/commitlog/" + "0" * 20)
        with segment.open("r+b") as file:
            file.seek(place)
            file.write(bytes(100_000))
        master.start()
        connection = await connect(AsyncioNetwork(), Address.parse(master.address), timeout=TIMEOUT)
        assert [await send(connection, b"new %d" % number) for number in range(8)] == [0] * 8
        has = await pull(connection)
        expected = [b"old %d" % number for number in range(6)]
        expected += [b"new %d" % number for number in range(8)]
        assert bodies(has) == expected
        assert await follow(lambda slave: read(slave) == has) == has
        await connection.close()

    asyncio.run(main())


@only_5_5
def test_an_apache_slave_copies_our_master(apache_version: str, tmp_path: Path) -> None:
    async def main(cluster: ApacheCluster) -> None:
        master = Broker(
            settings(cluster.namesrv, broker_role=BrokerRole.SYNC_MASTER, in_sync_replicas=2),
            tmp_path,
        )
        await master.start()
        connection = await connect(AsyncioNetwork(), master.address, timeout=TIMEOUT)
        try:
            assert await send(connection, b"alone") == 11  # SLAVE_NOT_AVAILABLE

            async def has_slave() -> bool:
                return any(link.is_fed for link in master.slaves.links)

            await until(has_slave)

            async def is_sync() -> bool:
                return await send(connection, b"together") == 0

            await until(is_sync)
            slave = await connect(
                AsyncioNetwork(),
                Address.parse(cluster.broker("shared", 1).address),
                timeout=TIMEOUT,
            )

            async def has_all() -> bool:
                return await pull(slave) == read(master)

            await until(has_all)
            assert bodies(read(master))[0] == b"alone"
            assert bodies(read(master))[-1] == b"together"
            await slave.close()
        finally:
            await connection.close()
            await master.close()

    spec = BrokerSpec("shared", 1, {"brokerRole": "SLAVE", "slaveReadEnable": "true"})
    with ApacheCluster(apache_version, [spec]) as cluster:
        asyncio.run(main(cluster))
