"""A broker in a process of its own, and peers that are many, slow or mad: others don't notice.

What is compared is progress and memory, never speed: a machine may be as slow as it likes.
"""

import asyncio
import random
import resource
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from pathlib import Path

import pytest

from rocketpipe.remoting.address import Address
from rocketpipe.remoting.connection import Connection, connect
from rocketpipe.remoting.network import AsyncioNetwork
from rocketpipe.wire.frame import RemotingCommand
from rocketpipe.wire.requests.nameserver import GetBrokerClusterInfo
from tests.cluster_process import ClusterProcess
from tests.faults.garbage import CODES, GarbageMaker
from tests.unit.broker.bench import send_header
from tests.unit.broker.reading import bodies, pull_header

IDLE_CONNECTIONS = 2000
DESCRIPTORS = IDLE_CONNECTIONS + 500  # each end needs a few for itself
SLOW_READERS = 3
PULLS_EACH = 3000  # of a quarter of a megabyte
ROUND_TRIPS = 200
SECONDS_MAX = 60.0  # for anything that is waited for
# Idle connections take 20 KB each, and slow readers have 16 MiB each on their way at most, which
# exist two or three times for a moment. Without that limit they would have 2 GiB.
CROWD_GROWTH_MAX = 400 << 20
GARBAGE_GROWTH_MAX = 100 << 20
LONG_TEXT = "x" * 200_000

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="asks /proc how a process is doing"),
]


class Server:
    """A broker's process, seen from outside."""

    def __init__(self, process: ClusterProcess) -> None:
        self.namesrv = Address.parse(process.address)
        self.address = asyncio.run(self._broker_address())
        self._facts = Path(f"/proc/{process._process.pid}")

    def memory_bytes(self) -> int:
        """How much of the machine's memory it has now."""
        status = (self._facts / "status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) * 1024

    def open_files(self) -> int:
        """How many files and connections it has."""
        return len(list((self._facts / "fd").iterdir()))

    def connected(self) -> AbstractAsyncContextManager[Connection]:
        return connected(self.address)

    async def _broker_address(self) -> Address:
        async with connected(self.namesrv) as nameserver:
            known = await nameserver.request(GetBrokerClusterInfo(), timeout=SECONDS_MAX)
        return Address.parse(known.broker_addr_table["broker-a"].broker_addrs[0])


@asynccontextmanager
async def connected(address: Address) -> AsyncIterator[Connection]:
    connection = await connect(AsyncioNetwork(), address, timeout=SECONDS_MAX)
    try:
        yield connection
    finally:
        await connection.close()


@pytest.fixture
def server() -> Iterator[Server]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < DESCRIPTORS:
        pytest.skip(f"this process may have {hard} descriptors, and not {DESCRIPTORS}")
    if soft != resource.RLIM_INFINITY and soft < DESCRIPTORS:
        resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, hard))
    try:
        with ClusterProcess() as process:
            yield Server(process)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def go_round(connection: Connection, topic: str, first: int = 0) -> None:
    """Send messages one by one, and read each."""
    for number in range(first, first + ROUND_TRIPS):
        body = b"%d" % number
        header = send_header(topic)
        stored = await connection.request(header, body, timeout=SECONDS_MAX)
        assert stored.queue_offset == number
        pull = pull_header(topic=topic, queue_offset=number).to_command()
        assert bodies(await connection.invoke(pull, timeout=SECONDS_MAX)) == [body]


async def store_much(connection: Connection) -> None:
    body = random.Random(1).randbytes(60_000)
    for _ in range(40):
        await connection.request(send_header("much"), body, timeout=SECONDS_MAX)


def ask_for_much_and_read_nothing(address: Address) -> socket.socket:
    reader = socket.create_connection(address)
    reader.settimeout(0)
    pull = pull_header(topic="much").to_command()
    for opaque in range(PULLS_EACH):
        pull.opaque = opaque
        try:
            # A small part is as good as none: who can't even ask more is a slow reader as well.
            reader.send(pull.encode())
        except BlockingIOError:
            break
    return reader


def test_idle_connections_and_slow_readers_do_not_hurt_a_fast_one(server: Server) -> None:
    async def main() -> None:
        async with server.connected() as fast:
            await go_round(fast, "fast")
            await store_much(fast)
            before = server.memory_bytes()
            with ExitStack() as crowd:
                for _ in range(IDLE_CONNECTIONS):
                    crowd.enter_context(socket.create_connection(server.address))
                for _ in range(SLOW_READERS):
                    crowd.enter_context(ask_for_much_and_read_nothing(server.address))
                await go_round(fast, "fast", ROUND_TRIPS)
                async with server.connected() as newcomer:
                    await go_round(newcomer, "new")
                assert server.open_files() > IDLE_CONNECTIONS
                assert server.memory_bytes() - before < CROWD_GROWTH_MAX
            await go_round(fast, "fast", 2 * ROUND_TRIPS)

    asyncio.run(main())


@pytest.mark.parametrize("which", ["broker", "NameServer"])
def test_garbage_does_not_fill_the_memory_of_a_server(server: Server, which: str) -> None:
    address = server.address if which == "broker" else server.namesrv

    async def main() -> None:
        async with server.connected() as fast:
            await go_round(fast, "fast")
            await talk_garbage(address, seed=1)  # what it takes once it may keep
            before = server.memory_bytes()
            for seed in range(2, 4):
                await talk_garbage(address, seed)
            assert server.memory_bytes() - before < GARBAGE_GROWTH_MAX
            await go_round(fast, "fast", ROUND_TRIPS)

    asyncio.run(main())


async def talk_garbage(address: Address, seed: int) -> None:
    """Of every code a few requests, and one whose every field is as long as a book."""
    for code in CODES:
        maker = GarbageMaker(code, random.Random(f"{code} {seed}"))
        long_fields = dict.fromkeys(list(maker.fields)[:4], f"{seed}{LONG_TEXT}")
        data = [RemotingCommand(code, long_fields).encode()]
        data += [maker.make(opaque).data for opaque in range(5)]
        try:
            await hand_over(address, b"".join(data))
        except OSError:
            pass  # cut, as it may be


async def hand_over(address: Address, data: bytes) -> None:
    """Returns when the server has taken it and hung up."""
    async with asyncio.timeout(SECONDS_MAX):
        reader, writer = await asyncio.open_connection(*address)
        try:
            writer.write(data)
            await writer.drain()
            writer.write_eof()
            while await reader.read(1 << 20):
                pass
        finally:
            writer.transport.abort()
