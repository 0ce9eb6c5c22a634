"""Push consumers whose members die and whose brokers restart, by seed, on simulated time.

Every message that a broker took must reach the listener of a member that lives to return from it.
"""

import asyncio
import random

import pytest

from rocketpipe.client.consumer.push_consumer import AsyncPushConsumer
from rocketpipe.errors import MQError
from rocketpipe.message import Message, StoredMessage
from rocketpipe.testing.simulated_loop import run
from tests.consumer_bench import ConsumerBench

SEEDS = 10
MEMBERS = 3
TROUBLES = 8
MESSAGES = 240


class Member:
    """A consumer in a process of its own, which may be killed: then nothing it does counts."""

    def __init__(self, trial: "Trial", pid: int, *, orderly: bool) -> None:
        self.host = f"10.0.2.{pid}"
        self.is_dead = False
        self._trial = trial
        self.consumer: AsyncPushConsumer = trial.bench.push_consumer(
            self._listen, pid=pid, orderly=orderly, close_timeout=5.0, max_reconsume_times=1000
        )

    async def _listen(self, messages: list[StoredMessage]) -> None:
        dice = self._trial.dice
        await asyncio.sleep(dice.choice([0.0, 0.01, 0.5, 3.0]))
        if self.is_dead:
            await asyncio.Event().wait()
        if dice.random() < 0.05:
            raise ZeroDivisionError("on purpose")
        self._trial.consumed += [message.body for message in messages]
        self._trial.progress.set()

    def kill(self) -> None:
        self.is_dead = True
        self._trial.bench.network.crash(self.host)


class Trial:
    def __init__(self, seed: int, *, orderly: bool) -> None:
        self.dice = random.Random(seed)
        self.bench = ConsumerBench(brokers=2)
        self.consumed: list[bytes] = []
        self.progress = asyncio.Event()
        self.sent: list[bytes] = []
        self.members: list[Member] = []
        self.dead: list[Member] = []
        self._orderly = orderly
        self._pids = iter(range(2, 100))

    async def run(self) -> None:
        await self.bench.start()
        await self.bench.create_topic("orders")
        for _ in range(MEMBERS):
            await self._join()
        sending = asyncio.create_task(self._send())
        for _ in range(TROUBLES):
            await asyncio.sleep(self.dice.uniform(0, 30))
            await self.dice.choice([self._kill, self._leave, self._cut, self._restart_broker])()
        await sending
        async with asyncio.timeout(3600):  # retries are minutes apart when they are many
            while not set(self.sent) <= set(self.consumed):
                self.progress.clear()
                await self.progress.wait()

    async def close(self) -> None:
        self.bench.network.heal_all()
        for member in self.dead:
            self.bench.network.restart(member.host)
        for member in self.members + self.dead:
            await member.consumer.close()
        await self.bench.close()

    async def _join(self) -> None:
        member = Member(self, next(self._pids), orderly=self._orderly)
        await member.consumer.start()
        self.members.append(member)

    async def _send(self) -> None:
        for number in range(MESSAGES):
            body = str(number).encode()
            try:
                await self.bench.producer.send(Message("orders", body))
                self.sent.append(body)  # else nobody has promised anything
            except MQError:
                await asyncio.sleep(1)
            await asyncio.sleep(self.dice.uniform(0, 1.5))

    async def _kill(self) -> None:
        """One is gone without a word; after a while another takes its place."""
        member = self.members.pop(self.dice.randrange(len(self.members)))
        member.kill()
        self.dead.append(member)
        await asyncio.sleep(self.dice.uniform(0, 10))
        await self._join()

    async def _leave(self) -> None:
        member = self.members.pop(self.dice.randrange(len(self.members)))
        await self._join()
        await member.consumer.close()

    async def _cut(self) -> None:
        """A member and a broker do not reach each other for some time."""
        member, broker = self.dice.choice(self.members), self.dice.choice(self.bench.brokers)
        self.bench.network.cut(member.host, broker.settings.host)
        await asyncio.sleep(self.dice.choice([2, 40, 150]))
        self.bench.network.heal(member.host, broker.settings.host)

    async def _restart_broker(self) -> None:
        await self.bench.restart_broker(
            self.dice.randrange(len(self.bench.brokers)), down_for=self.dice.uniform(0, 20)
        )


@pytest.mark.final
@pytest.mark.slow
@pytest.mark.parametrize("orderly", [False, True], ids=["concurrent", "orderly"])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_message_is_lost_while_members_die_and_brokers_restart(seed: int, orderly: bool) -> None:
    async def main() -> None:
        trial = Trial(seed, orderly=orderly)
        try:
            await trial.run()
        finally:
            await trial.close()
        assert len(trial.sent) > MESSAGES * 0.8
        # Some come twice, since a killed member may have consumed what it could not say; not many.
        twice = len(trial.consumed) - len(set(trial.consumed))
        assert twice < MESSAGES

    run(main(), time_max=40_000)
