"""Requests and answers through both ends of the remoting, on simulated time and a bad network."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Iterator
from typing import cast

import pytest

from rocketpipe.errors import (
    ConnectFailed,
    ConnectionLost,
    MQError,
    RemotingError,
    RequestTimeout,
)
from rocketpipe.remoting.address import Address
from rocketpipe.remoting.connection import Connection, connect
from rocketpipe.remoting.dispatch import dispatch_by_code
from rocketpipe.remoting.server import Server
from rocketpipe.remoting.settings import RemotingSettings
from rocketpipe.remoting.unanswered import Unanswered
from rocketpipe.testing.misbehaviour import misbehave
from rocketpipe.testing.simulated_loop import run
from rocketpipe.testing.simulated_network import SimulatedNetwork
from rocketpipe.wire.frame import RemotingCommand

SERVER = Address("server", 10911)
DOUBLE, DOUBLE_LATER, IGNORE = 1, 2, 3
TIMEOUT = 3.0


def double(connection: Connection, request: RemotingCommand) -> RemotingCommand:
    number = int(request.ext_fields["number"])
    return request.answer(0, ext_fields={"double": str(2 * number)}, body=request.body)


async def double_later(connection: Connection, request: RemotingCommand) -> RemotingCommand:
    await asyncio.sleep(0.05 * (int(request.ext_fields["number"]) % 7))
    return double(connection, request)


def ignore(connection: Connection, request: RemotingCommand) -> None:
    return None


HANDLER = dispatch_by_code({DOUBLE: double, DOUBLE_LATER: double_later, IGNORE: ignore})


class Exchange:
    """A client, a server, a network that misbehaves, and what became of each request."""

    def __init__(self, seed: int) -> None:
        self.network = SimulatedNetwork(seed)
        self.dice = random.Random(seed)
        self.answered: Counter[int] = Counter()
        self.failed: dict[int, MQError] = {}
        self.took_longest = 0.0
        self._connection: Connection | None = None

    async def ask_through_trouble(self, requests: int) -> None:
        server = Server(self.network.host("server"), HANDLER)
        await server.listen(SERVER)
        trouble = asyncio.create_task(
            misbehave(self.network, ["client", "server"], self.dice, until=1000)
        )
        numbers = iter(range(requests))
        await asyncio.gather(*(self._ask_in_turn(numbers) for _ in range(16)))
        trouble.cancel()
        await asyncio.wait([trouble])
        if self._connection is not None:
            await self._connection.close()  # one that waits for what a fault held back is cut
        await self._ask(requests)  # all is well again: this one may not fail
        assert self._connection is not None
        await self._connection.close()
        await server.close()
        assert not server.connections

    async def _ask_in_turn(self, numbers: Iterator[int]) -> None:
        loop = asyncio.get_running_loop()
        for number in numbers:
            began = loop.time()
            try:
                await self._ask(number)
            except RemotingError as error:
                self.failed[number] = error
            self.took_longest = max(self.took_longest, loop.time() - began)
            await asyncio.sleep(self.dice.uniform(0.0, 1.0))

    async def _ask(self, number: int) -> None:
        connection = self._connection
        if connection is None or connection.lost is not None:
            host = self.network.host("client")
            connection = self._connection = await connect(host, SERVER, timeout=TIMEOUT)
        code = self.dice.choice([DOUBLE, DOUBLE_LATER])
        command = RemotingCommand(code, {"number": str(number)}, bytes(number))
        answer = await connection.invoke(command, timeout=TIMEOUT)
        assert answer.ext_fields == {"double": str(2 * number)}
        assert answer.body == bytes(number)
        self.answered[number] += 1


def exchange(seed: int, requests: int) -> Exchange:
    async def main() -> Exchange:
        run_of_seed = Exchange(seed)
        await run_of_seed.ask_through_trouble(requests)
        return run_of_seed

    return run(main())


@pytest.mark.parametrize("seed", range(20))
def test_every_request_ends_with_its_own_answer_or_an_error_in_time(seed: int) -> None:
    result = exchange(seed, requests=200)
    assert set(result.answered) | set(result.failed) == set(range(201))
    assert set(result.answered.values()) == {1}
    assert not set(result.answered) & set(result.failed)
    # A connect and a request, each with its own deadline.
    assert result.took_longest <= 2 * TIMEOUT + 0.001
    assert {type(error) for error in result.failed.values()} <= {
        ConnectFailed,
        ConnectionLost,
        RequestTimeout,
    }


def test_a_thousand_exchanges_under_faults_are_the_same_for_the_same_seed() -> None:
    began = time.process_time()
    first, again, other = (exchange(seed, requests=1000) for seed in (7, 7, 8))
    spent = time.process_time() - began
    assert first.network.fingerprint == again.network.fingerprint
    assert list(first.failed) == list(again.failed)
    assert first.network.fingerprint != other.network.fingerprint
    assert first.failed, "the network was too kind: nothing was tested"
    assert len(first.answered) > 500
    # Generous: it takes about half a second for each on a small machine.
    assert spent < 30


def test_a_connection_on_which_nothing_moves_is_closed_by_either_end() -> None:
    async def main() -> None:
        network = SimulatedNetwork(1)
        for idle_client, idle_server, reason in (
            (60.0, 120.0, "nothing moved for 60 s"),
            (120.0, 60.0, "reset"),
        ):
            server = Server(
                network.host("server"), HANDLER, settings=RemotingSettings(idle_timeout=idle_server)
            )
            await server.listen(SERVER)
            settings = RemotingSettings(idle_timeout=idle_client)
            connection = await connect(network.host("client"), SERVER, timeout=1, settings=settings)
            for _ in range(5):  # as long as it is used it lives
                await asyncio.sleep(50)
                await connection.invoke(RemotingCommand(DOUBLE, {"number": "1"}), timeout=1)
            await asyncio.sleep(61)
            with pytest.raises(ConnectionLost, match=reason):
                await connection.invoke(RemotingCommand(DOUBLE, {"number": "1"}), timeout=1)
            await server.close()

    run(main())


def test_many_deadlines_on_one_connection_are_each_kept() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        network = SimulatedNetwork(1)
        server = Server(network.host("server"), HANDLER)
        await server.listen(SERVER)
        connection = await connect(network.host("client"), SERVER, timeout=1)

        async def ask(timeout: float) -> None:
            began = loop.time()
            with pytest.raises(RequestTimeout):
                await connection.invoke(RemotingCommand(IGNORE), timeout=timeout)
            assert loop.time() - began == pytest.approx(timeout, abs=1e-6)

        await asyncio.gather(*(ask(timeout) for timeout in (9.0, 3.0, 0.5, 7.5, 0.5, 60.0)))
        await connection.close()
        await server.close()

    run(main())


def test_what_moves_one_way_alone_keeps_both_ends_awake() -> None:
    async def main() -> None:
        network = SimulatedNetwork(1)
        server = Server(network.host("server"), HANDLER)
        await server.listen(SERVER)
        connection = await connect(network.host("client"), SERVER, timeout=1)
        for _ in range(5):
            await asyncio.sleep(70)
            await connection.send_oneway(RemotingCommand(IGNORE), timeout=1)
        assert connection.lost is None
        assert len(server.connections) == 1
        await connection.close()
        await server.close()

    run(main())


def test_the_wait_for_room_is_part_of_a_deadline() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        network = SimulatedNetwork(1)
        server = Server(network.host("server"), HANDLER)
        await server.listen(SERVER)
        settings = RemotingSettings(requests_in_flight_max=1)
        connection = await connect(network.host("client"), SERVER, timeout=1, settings=settings)
        began = loop.time()
        ended = await asyncio.gather(
            *(connection.invoke(RemotingCommand(IGNORE), timeout=timeout) for timeout in (2, 3)),
            return_exceptions=True,
        )
        assert [type(error) for error in ended] == [RequestTimeout, RequestTimeout]
        assert loop.time() - began == pytest.approx(3, abs=1e-4)
        await connection.close()
        await server.close()

    run(main())


def test_thousands_of_deadlines_are_looked_at_together(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0
    look = Unanswered._expire

    def count(unanswered: Unanswered) -> None:
        nonlocal looks
        looks += 1
        look(unanswered)

    monkeypatch.setattr(Unanswered, "_expire", count)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        network = SimulatedNetwork(1)
        server = Server(network.host("server"), HANDLER)
        await server.listen(SERVER)
        connection = await network.host("client").connect(
            SERVER, lambda: Connection(HANDLER, RemotingSettings(), address=SERVER), timeout=1
        )

        async def ask(timeout: float) -> None:
            began = loop.time()
            with pytest.raises(RequestTimeout):
                await connection.invoke(RemotingCommand(IGNORE), timeout=timeout)
            assert timeout <= loop.time() - began + 1e-6 < timeout + 0.01

        await asyncio.gather(*(ask(3 + number * 1e-5) for number in range(5000)))
        await connection.close()
        await server.close()

    run(main())
    assert 0 < looks < 100  # each looks at every request that waits


def test_a_peer_that_reads_slowly_is_not_idle() -> None:
    class Slow(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport = cast(asyncio.Transport, transport)

        def data_received(self, data: bytes) -> None:
            self.transport.pause_reading()
            asyncio.get_running_loop().call_later(50, self.transport.resume_reading)

    async def main() -> None:
        network = SimulatedNetwork(1)
        listener = await network.host("server").listen(SERVER, Slow)
        settings = RemotingSettings(close_timeout=10)
        connection = await connect(network.host("client"), SERVER, timeout=1, settings=settings)
        await connection.send_oneway(RemotingCommand(IGNORE, body=bytes(8 << 20)), timeout=1)
        await asyncio.sleep(400)
        assert connection.lost is None
        network.freeze("server")
        await asyncio.sleep(400)
        assert "nothing moved for 120 s" in str(connection.lost)
        await listener.close()

    run(main())


def test_a_frozen_server_costs_no_request_more_than_its_deadline() -> None:
    async def main() -> None:
        network = SimulatedNetwork(1)
        server = Server(network.host("server"), HANDLER)
        await server.listen(SERVER)
        connection = await connect(network.host("client"), SERVER, timeout=1)
        network.freeze("server")
        with pytest.raises(RequestTimeout):
            await connection.invoke(RemotingCommand(DOUBLE, {"number": "1"}), timeout=1)
        network.thaw("server")
        answer = await connection.invoke(RemotingCommand(DOUBLE, {"number": "4"}), timeout=1)
        assert answer.ext_fields == {"double": "8"}  # not the late answer to the first
        await connection.close()
        await server.close()

    run(main())
