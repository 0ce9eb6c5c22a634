"""Garbage for every request code: a server answers or hangs up, and serves all others as before.

Broker and NameServer run on simulated time and network, so that a seed repeats a run. That no
handler fails by a mistake of ours is read from the log; that none takes memory by the number it was
told, from a limit of what this process may take.
"""

import asyncio
import logging
import math
import random
import resource
import struct
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from rocketpipe.broker.broker import Broker
from rocketpipe.broker.faults import CONTROL_FAULTS
from rocketpipe.codes import ResponseCode
from rocketpipe.errors import BrokerError, ConnectionLost, RequestTimeout
from rocketpipe.nameserver.server import NameServer
from rocketpipe.remoting.address import Address
from rocketpipe.remoting.connection import Connection
from rocketpipe.testing.simulated_loop import run
from rocketpipe.testing.simulated_network import SimulatedHost
from rocketpipe.wire.batch import BatchMember, encode_batch
from rocketpipe.wire.bodies.groups import SubscriptionGroupConfig
from rocketpipe.wire.frame import FrameDecoder, RemotingCommand
from rocketpipe.wire.headers import Request
from rocketpipe.wire.requests.admin import (
    GetAllTopicConfig,
    GetTopicStatsInfo,
    QueryConsumeQueue,
    UpdateAndCreateSubscriptiongroup,
    UpdateAndCreateTopic,
)
from rocketpipe.wire.requests.nameserver import GetKvConfig, PutKvConfig
from rocketpipe.wire.requests.reading import QueryMessage
from rocketpipe.wire.requests.sending import ConsumerSendMsgBack
from tests.faults.garbage import CODES, GarbageMaker
from tests.unit.broker.bench import CLIENT_HOST, NAMESERVER, Bench, messages, send, send_header
from tests.unit.broker.reading import bodies, pull, pull_header

SEEDS = 3
REQUESTS_EACH = 40
ORDERS = 60
NO_CODE = 31_999
MEMORY_BYTES_MAX = 512 << 20  # more than this process has when the test begins
ANSWER_SECONDS_MAX = 130.0  # simulated: a pull may be held for two minutes
GREAT = 0x7FFFFFFF
QUERY: dict[str, Any] = {"topic": "orders", "key": "U1", "begin_timestamp": 0, "end_timestamp": 9}
TOPIC: dict[str, Any] = {
    "topic": "orders",
    "default_topic": "TBW102",
    "read_queue_nums": 4,
    "write_queue_nums": 4,
    "perm": 6,
    "topic_filter_type": "SINGLE_TAG",
    "order": False,
}


class Peer(asyncio.Protocol):
    """Sends bytes as they are, and remembers what was answered."""

    def __init__(self) -> None:
        self.answered: set[int] = set()
        self.is_lost = False
        self._decoder = FrameDecoder()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._decoder.feed(data)
        while frame := self._decoder.next_frame():
            self.answered.add(RemotingCommand.decode(frame).opaque)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True


@contextmanager
def limited_memory() -> Iterator[None]:
    """Let whoever takes too much fail, instead of this machine."""
    if sys.platform != "linux":
        yield
        return
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = pages * resource.getpagesize() + MEMORY_BYTES_MAX
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def in_any_order(seed: int) -> list[int]:
    """Every code, some after others that made what they ask for."""
    return random.Random(seed).sample(CODES, len(CODES))


async def send_garbage(host: SimulatedHost, address: Address, code: int, seed: int) -> int:
    """Send it over as many connections as it takes: how many requests were answered."""
    maker = GarbageMaker(code, random.Random(f"{code} {seed}"))
    numbers = iter(range(REQUESTS_EACH))
    sign_of_life = RemotingCommand(NO_CODE)
    sign_of_life.mark_oneway()
    answered = 0
    number = next(numbers, None)
    while number is not None:
        peer = await host.connect(address, Peer, timeout=3)
        waiting: set[int] = set()
        is_in_step = True
        while number is not None and is_in_step and not peer.is_lost:
            garbage = maker.make(number)
            peer.transport.write(garbage.data)
            is_in_step = garbage.is_frame
            if garbage.needs_answer:
                waiting.add(number)
            number = next(numbers, None)
            await asyncio.sleep(0.01)
        began = asyncio.get_running_loop().time()
        while not peer.is_lost and waiting - peer.answered:
            waited = asyncio.get_running_loop().time() - began
            assert waited < ANSWER_SECONDS_MAX, "neither answered nor cut"
            # A connection on which nothing moves would be cut in the end, answered or not.
            peer.transport.write(sign_of_life.encode())
            await asyncio.sleep(1)
        answered += len(peer.answered)
        peer.transport.abort()
    return answered


def mistakes(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What failed by a mistake of ours, with where that was: so says the log."""
    return [logging.Formatter().format(each) for each in caplog.records if each.exc_info]


async def assert_nothing_is_left(tasks: int, connections: Callable[[], int]) -> None:
    await asyncio.sleep(ANSWER_SECONDS_MAX)
    assert len(asyncio.all_tasks()) == tasks
    assert connections() == 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_broker_gets_over_any_garbage(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        bench = Bench(seed)
        await bench.nameserver.server.listen(NAMESERVER)
        host = bench.network.host(CLIENT_HOST)
        async with bench.broker(faults_enable=True) as broker:
            await asyncio.sleep(1)
            tasks = len(asyncio.all_tasks())
            answered = 0
            for number, code in enumerate(in_any_order(seed)):
                answered += await send_garbage(host, broker.address, code, seed)
                broker.faults.clear()  # some of that may have been orders, and well understood
                async with bench.client(broker.address) as good:
                    stored = await send(good, "safe", b"%d" % number)
                    assert stored.queue_offset == number
                    assert bodies(await pull(good, topic="safe", queue_offset=number)) == [
                        b"%d" % number
                    ]
            assert answered > len(CODES) * REQUESTS_EACH // 2
            await assert_nothing_is_left(tasks, lambda: sum(map(len, broker_connections(broker))))
            assert len(broker.held_pulls) == 0
            assert broker.flow_control.unanswered == 0
            assert len(messages(broker, "safe")) == len(CODES)
        await bench.nameserver.server.close()

    with limited_memory():
        run(main(), time_max=math.inf)
    assert mistakes(caplog) == []


def broker_connections(broker: Broker) -> list[list[Connection]]:
    return [server.connections for server in broker._servers]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_nameserver_gets_over_any_garbage(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        bench = Bench(seed)
        host = bench.network.host(CLIENT_HOST)
        nameserver = NameServer(bench.network.host(NAMESERVER.host), clock=bench.clock)
        await nameserver.start(NAMESERVER)
        await asyncio.sleep(1)
        tasks = len(asyncio.all_tasks())
        for number, code in enumerate(in_any_order(seed)):
            await send_garbage(host, NAMESERVER, code, seed)
            async with bench.client(NAMESERVER) as good:
                put = PutKvConfig(namespace="safe", key="key", value=str(number))
                await good.request(put, timeout=3)
                got = await good.request(GetKvConfig(namespace="safe", key="key"), timeout=3)
                assert got.value == str(number)
        await assert_nothing_is_left(tasks, lambda: len(nameserver._server.connections))
        await nameserver.close()

    with limited_memory():
        run(main(), time_max=math.inf)
    assert mistakes(caplog) == []


@pytest.mark.parametrize("seed", range(10))
def test_an_odd_order_of_a_fault_is_refused_or_does_what_a_fault_can_do(
    seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        maker = GarbageMaker(CONTROL_FAULTS, random.Random(seed))
        bench = Bench(seed)
        await bench.nameserver.server.listen(NAMESERVER)

        async def order(body: bytes) -> bool:
            async with bench.client(broker.address) as client:
                command = RemotingCommand(CONTROL_FAULTS, {}, body)
                return (await client.invoke(command, timeout=3)).code == ResponseCode.SUCCESS

        async with bench.broker(faults_enable=True) as broker:
            obeyed = 0
            for _ in range(ORDERS):
                obeyed += await order(maker.fault_order())
                async with bench.client(broker.address) as victim:
                    with suppress(BrokerError, ConnectionLost, RequestTimeout):
                        await send(victim)
                assert await order(b'{"list": true}')
                assert await order(b'{"clear": null}')
                async with bench.client(broker.address) as good:
                    await send(good, "safe")
            assert ORDERS // 10 < obeyed < ORDERS * 9 // 10
        await bench.nameserver.server.close()

    with limited_memory():
        run(main())
    assert mistakes(caplog) == []


def test_a_great_number_in_a_header_costs_a_broker_nothing() -> None:
    async def main() -> None:
        bench = Bench()
        await bench.nameserver.server.listen(NAMESERVER)
        async with bench.broker() as broker, bench.client(broker.address) as client:
            batch = encode_batch([BatchMember(b"x", {})])
            lengths = [batch[:at] + GREAT.to_bytes(4, "big") + batch[at + 4 :] for at in (0, 12)]
            group = SubscriptionGroupConfig(group_name="readers", retry_queue_nums=GREAT)
            requests: list[tuple[Request[Any], bytes]] = [
                (send_header(default_topic_queue_nums=GREAT), b"x"),
                *((send_header(batch=True), body) for body in lengths),
                (pull_header(max_msg_nums=GREAT, max_msg_bytes=GREAT), b""),
                (QueryMessage(**QUERY, max_num=GREAT), b""),
                (QueryConsumeQueue(topic="orders", queue_id=0, index=0, count=GREAT), b""),
                (GetAllTopicConfig(topic_seq=0, max_topic_num=GREAT), b""),
                (UpdateAndCreateTopic(**(TOPIC | {"read_queue_nums": GREAT})), b""),
                (UpdateAndCreateTopic(**(TOPIC | {"write_queue_nums": GREAT})), b""),
                (UpdateAndCreateSubscriptiongroup(), group.encode()),
                (ConsumerSendMsgBack(group="readers", offset=0, delay_level=GREAT), b""),
                (GetTopicStatsInfo(topic="%RETRY%readers"), b""),
            ]
            for request, body in requests:
                tracemalloc.start()
                await client.invoke(request.to_command(body), timeout=60)
                _, peak = tracemalloc.get_traced_memory()
                tracemalloc.stop()
                assert peak < 4 << 20, request
        await bench.nameserver.server.close()

    with limited_memory():
        run(main())


class Slave(asyncio.Protocol):
    """Takes whatever it is given."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport


@pytest.mark.parametrize("seed", range(20))
def test_a_master_gets_over_slaves_that_talk_garbage(
    seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        dice = random.Random(seed)
        bench = Bench(seed)
        host = bench.network.host(CLIENT_HOST)
        await bench.nameserver.server.listen(NAMESERVER)
        async with bench.broker() as broker, bench.client(broker.address) as good:
            await send(good, "safe")
            tasks = len(asyncio.all_tasks())
            for _ in range(20):
                slave = await host.connect(broker.ha_address, Slave, timeout=3)
                claim = dice.choice([-1, 0, 1, 1 << 40, (1 << 63) - 1, -(1 << 63)])
                slave.transport.write(struct.pack(">q", claim) + dice.randbytes(dice.randrange(30)))
                await asyncio.sleep(1)
                slave.transport.abort()
            await asyncio.sleep(1)
            assert not broker.slaves.links
            assert len(asyncio.all_tasks()) == tasks
            await send(good, "safe")
        await bench.nameserver.server.close()

    run(main())
    assert mistakes(caplog) == []
