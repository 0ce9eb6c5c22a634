"""A producer against brokers and NameServers that break, by seed, on simulated time."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from rocketpipe.client.producer import AsyncProducer
from rocketpipe.client.queue_choice import POLICIES
from rocketpipe.codes import ResponseCode
from rocketpipe.errors import MQError, SendFailed
from rocketpipe.message import Message, SendResult
from rocketpipe.testing.simulated_loop import run
from rocketpipe.testing.simulated_network import NetworkOptions
from tests.simulated_cluster import (
    CLIENT,
    FakeBroker,
    SimulatedCluster,
    after,
    answer_without_fields,
    hang_up,
    ignore,
    lose_answer,
    refuse,
    store,
)

SENDERS = 16
SENDS_EACH = 10
SEND_TIMEOUT = 3.0  # the default
SEEDS = 100

Trouble = Callable[["Run", FakeBroker], Any]  # an async context manager: trouble while inside


@asynccontextmanager
async def cut(trial: "Run", broker: FakeBroker) -> AsyncIterator[None]:
    trial.cluster.network.cut(CLIENT, broker.name)
    yield
    trial.cluster.network.heal(CLIENT, broker.name)


@asynccontextmanager
async def cut_the_way_back(trial: "Run", broker: FakeBroker) -> AsyncIterator[None]:
    trial.cluster.network.cut_one_way(broker.name, CLIENT)
    yield
    trial.cluster.network.heal(CLIENT, broker.name)


@asynccontextmanager
async def freeze(trial: "Run", broker: FakeBroker) -> AsyncIterator[None]:
    trial.cluster.network.freeze(broker.name)
    yield
    trial.cluster.network.thaw(broker.name)


@asynccontextmanager
async def crash(trial: "Run", broker: FakeBroker) -> AsyncIterator[None]:
    await trial.cluster.crash(broker)
    yield
    await trial.cluster.restart(broker)


@asynccontextmanager
async def resets(trial: "Run", broker: FakeBroker) -> AsyncIterator[None]:
    async def again_and_again() -> None:
        while True:
            trial.cluster.network.reset(CLIENT, broker.name)
            await asyncio.sleep(trial.dice.uniform(0.01, 0.5))

    resetting = asyncio.create_task(again_and_again())
    yield
    resetting.cancel()
    await asyncio.wait([resetting])


@asynccontextmanager
async def misbehave(trial: "Run", broker: FakeBroker) -> AsyncIterator[None]:
    broker.behaviour = trial.dice.choice(
        [
            lose_answer,
            ignore,
            hang_up,
            answer_without_fields,
            after(1.5),
            refuse(ResponseCode.SYSTEM_ERROR),
            refuse(ResponseCode.SYSTEM_BUSY),
            refuse(ResponseCode.NO_PERMISSION),
            refuse(ResponseCode.SERVICE_NOT_AVAILABLE),
            refuse(ResponseCode.GO_AWAY),
        ]
    )
    yield
    broker.behaviour = store


@asynccontextmanager
async def leave_the_route(trial: "Run", broker: FakeBroker) -> AsyncIterator[None]:
    others = [each.name for each in trial.cluster.brokers if each is not broker]
    trial.cluster.add_topic("orders", brokers=others)
    yield
    trial.cluster.add_topic("orders")


TROUBLES: list[Trouble] = [
    cut,
    cut_the_way_back,
    freeze,
    crash,
    resets,
    misbehave,
    leave_the_route,
]


class Run:
    """Sixteen senders, two brokers, two NameServers, and what became of each message."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.cluster = SimulatedCluster(
            brokers=2, name_servers=2, seed=seed, options=NetworkOptions()
        )
        self.cluster.add_topic("orders")
        self.policy = list(POLICIES)[seed % len(POLICIES)]
        self.results: list[SendResult] = []
        self.failures: list[MQError] = []
        self.took_longest = 0.0
        self._is_over = asyncio.Event()

    async def send_through(self, trouble: Callable[[], Any]) -> None:
        await self.cluster.start()
        async with self.cluster.producer(policy=self.policy) as producer:
            await producer.send(Message("orders", b"the first, while all is well"))
            troubles = asyncio.create_task(trouble())
            await asyncio.gather(*(self._send_in_turn(producer) for _ in range(SENDERS)))
            self._is_over.set()
            await troubles
        await self.cluster.assert_client_is_gone()
        await self.cluster.stop()

    async def _send_in_turn(self, producer: AsyncProducer) -> None:
        loop = asyncio.get_running_loop()
        for n in range(SENDS_EACH):
            await asyncio.sleep(self.dice.uniform(0.0, 2.0))
            began = loop.time()
            try:
                self.results.append(await producer.send(Message("orders", b"%d" % n)))
            except MQError as error:
                self.failures.append(error)
            self.took_longest = max(self.took_longest, loop.time() - began)

    async def trouble_one_broker_and_the_name_servers(self) -> None:
        await asyncio.gather(self._trouble(self.cluster.brokers), self._trouble_name_servers())

    async def trouble_everything(self) -> None:
        await asyncio.gather(
            *(self._trouble([broker]) for broker in self.cluster.brokers),
            self._trouble_name_servers(),
        )

    async def _trouble(self, brokers: list[FakeBroker]) -> None:
        while not self._is_over.is_set():
            # What one trouble held up has to arrive before the next may begin.
            await self._wait(1.0, 5.0)
            async with self.dice.choice(TROUBLES)(self, self.dice.choice(brokers)):
                await self._wait(0.1, 10.0)

    async def _trouble_name_servers(self) -> None:
        while not self._is_over.is_set():
            await self._wait(0.1, 5.0)
            gone = [each for each in self.cluster.name_servers if self.dice.random() < 0.7]
            for name_server in gone:
                await self.cluster.crash(name_server)
            await self._wait(1.0, 40.0)
            for name_server in gone:
                await self.cluster.restart(name_server)

    async def _wait(self, shortest: float, longest: float) -> None:
        seconds = self.dice.uniform(shortest, longest)
        try:
            async with asyncio.timeout(seconds):
                await self._is_over.wait()
        except TimeoutError:
            pass

    def assert_what_was_acknowledged_is_stored(self) -> None:
        acknowledged = {each.message_id for each in self.results}
        assert len(acknowledged) == len(self.results)
        assert acknowledged <= self.cluster.stored_message_ids()


def trial(seed: int, trouble: Callable[[Run], Any]) -> Run:
    async def main() -> Run:
        run_of_seed = Run(seed)
        await run_of_seed.send_through(lambda: trouble(run_of_seed))
        return run_of_seed

    return run(main())


@pytest.mark.parametrize("seed", range(SEEDS))
def test_one_sick_broker_never_fails_a_send_while_the_other_can_take_it(seed: int) -> None:
    result = trial(seed, Run.trouble_one_broker_and_the_name_servers)
    assert not result.failures, "\n".join(map(str, result.failures))
    assert len(result.results) == SENDERS * SENDS_EACH
    assert result.took_longest <= SEND_TIMEOUT + 0.01
    result.assert_what_was_acknowledged_is_stored()


@pytest.mark.parametrize("seed", range(SEEDS // 2))
def test_whatever_breaks_every_failure_explains_itself_in_time(seed: int) -> None:
    result = trial(seed, Run.trouble_everything)
    assert len(result.results) + len(result.failures) == SENDERS * SENDS_EACH
    assert result.took_longest <= SEND_TIMEOUT + 0.01
    result.assert_what_was_acknowledged_is_stored()
    for error in result.failures:
        assert isinstance(error, SendFailed)  # the route was known
        assert 1 <= len(error.attempts) <= 3
        for attempt in error.attempts:
            assert attempt.error is not None
            assert attempt.reason
            assert str(attempt.error) in str(error)
            assert attempt.queue.broker_name in str(error)
        assert sum(attempt.elapsed for attempt in error.attempts) <= SEND_TIMEOUT + 0.01


def test_the_trouble_is_real() -> None:
    results = [trial(seed, Run.trouble_everything) for seed in range(10)]
    assert sum(len(each.failures) for each in results) > 50
    attempts = [attempt for each in results for done in each.results for attempt in done.attempts]
    kinds = {type(each.error).__name__ for each in attempts if each.error is not None}
    assert kinds >= {"BrokerError", "ConnectFailed", "ConnectionLost", "RequestTimeout"}


def test_the_same_seed_gives_the_same_run() -> None:
    first, again = (trial(7, Run.trouble_everything) for _ in range(2))
    assert first.cluster.network.fingerprint == again.cluster.network.fingerprint
    assert [str(each) for each in first.failures] == [str(each) for each in again.failures]
