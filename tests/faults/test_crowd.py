"""A broker in a process of its own, and peers that are many, slow or mad: others don't notice.

What is compared is progress, memory, and speed only with itself: a machine may be as slow as it
likes.
"""

import asyncio
import random
import resource
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from statistics import median

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
CROWDS = 7
SLOWER_MAX = 5.0  # times, by the medians; it is about twice
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


async def go_round(connection: Connection, topic: str, first: int = 0) -> float:
    """Send messages one by one, and read each; the seconds that took."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    for number in range(first, first + ROUND_TRIPS):
        body = b"%d" % number
        header = send_header(topic)
        stored = await connection.request(header, body, timeout=SECONDS_MAX)
        assert stored.queue_offset == number
        pull = pull_header(topic=topic, queue_offset=number).to_command()
        assert bodies(await connection.invoke(pull, timeout=SECONDS_MAX)) == [body]
    return loop.time() - began


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


@contextmanager
def crowd(address: Address) -> Iterator[None]:
    with ExitStack() as stack:
        for _ in range(IDLE_CONNECTIONS):
            idle = stack.enter_context(socket.create_connection(address))
            idle.send(b"\0")  # of a frame; until then a server waits whether it will speak TLS
        for _ in range(SLOW_READERS):
            stack.enter_context(ask_for_much_and_read_nothing(address))
        yield


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS_MAX):
        while True:
            if is_so():
                return
            await asyncio.sleep(0.01)


def test_idle_connections_and_slow_readers_do_not_hurt_a_fast_one(server: Server) -> None:
    async def main() -> None:
        alone: list[float] = []
        among_many: list[float] = []
        async with server.connected() as fast:
            await go_round(fast, "fast")
            await store_much(fast)
            before = server.memory_bytes()
            # By turns, so that whatever else this machine is doing meets both.
            for number in range(1, 2 * CROWDS, 2):
                await until(lambda: server.open_files() < IDLE_CONNECTIONS // 10)
                alone.append(await go_round(fast, "fast", number * ROUND_TRIPS))
                with crowd(server.address):
                    await until(lambda: server.open_files() > IDLE_CONNECTIONS)
                    among_many.append(await go_round(fast, "fast", (number + 1) * ROUND_TRIPS))
                    async with server.connected() as newcomer:
                        await go_round(newcomer, f"new-{number}")
                    assert server.memory_bytes() - before < CROWD_GROWTH_MAX
        assert median(among_many) < SLOWER_MAX * median(alone), (among_many, alone)

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
