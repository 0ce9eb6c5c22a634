"""Transactions and a whole cluster that breaks, by seed: each ends as its producer says, no sooner.

Producers send in transactions, and commit, roll back or do not know yet, while brokers are killed,
lose their power and crash again while they recover. What a broker is told of an end may get lost
with it: then it has to ask. In the end every half message was settled; what was to be committed is
there, at least once; what was rolled back is not; and nothing was there before it was decided.
"""

import asyncio
from collections import Counter

import pytest

from rocketpipe.broker.names import HALF_TOPIC, TRANSACTION_GROUP
from rocketpipe.client.transaction import AsyncTransactionProducer, HalfMessage
from rocketpipe.errors import MQError
from rocketpipe.message import Message, SendStatus, StoredMessage, TransactionState
from rocketpipe.testing.simulated_loop import run
from tests.faults.whole_cluster import NAMESERVER, Machine, WholeCluster
from tests.unit.broker.bench import messages

SEEDS = 40
SEEDS_THAT_FOUND_SOMETHING = (59, 94)
SENDERS = 4
SENDS_EACH = 12
TROUBLES = 6  # of each broker
TOPIC = "orders"
CHECK_INTERVAL = 1.0
PATIENCE = 120  # seconds, to settle what is left when the trouble is over
ENDS = (TransactionState.COMMIT, TransactionState.COMMIT, TransactionState.ROLLBACK)


class Decisions:
    """A listener that decides by dice, of each message once; for some it takes its time."""

    def __init__(self, cluster: WholeCluster) -> None:
        self._dice = cluster.dice
        self._clock = cluster.clock
        self.executed: set[bytes] = set()
        self.made: dict[bytes, TransactionState] = {}
        self.made_at_ms: dict[bytes, int] = {}
        self.asked: Counter[bytes] = Counter()
        self._unsure: dict[bytes, int] = {}  # how often it does not know yet

    async def execute(self, message: HalfMessage, arg: object) -> TransactionState:
        self.executed.add(message.body)
        await asyncio.sleep(self._dice.choice([0.0, 0.01, 4.0]) * self._dice.random())
        self._unsure[message.body] = self._dice.choice([0, 0, 1, 3])
        return self._decide(message.body)

    async def check(self, message: StoredMessage) -> TransactionState:
        self.asked[message.body] += 1
        await asyncio.sleep(self._dice.choice([0.0, 1.0]) * self._dice.random())
        return self._decide(message.body)

    def _decide(self, body: bytes) -> TransactionState:
        if body not in self.made:
            unsure = self._unsure.setdefault(body, 1)
            if unsure > 0:
                self._unsure[body] = unsure - 1
                return TransactionState.UNKNOWN
            self.made[body] = self._dice.choice(ENDS)
            self.made_at_ms[body] = self._clock.wall_ms()
        return self.made[body]


class Trial:
    def __init__(self, seed: int) -> None:
        self.cluster = WholeCluster(
            seed,
            has_slave=False,
            transaction_check_interval=CHECK_INTERVAL,
            transaction_timeout=[0.5, 3.0][seed % 2],
            transaction_check_max=10_000,
            flush_consumer_offset_interval=[0.2, 5.0][seed % 5 % 2],
        )
        self.dice = self.cluster.dice
        self.decisions = Decisions(self.cluster)
        self.acknowledged: set[bytes] = set()

    async def live(self) -> None:
        cluster = self.cluster
        await cluster.start()
        await cluster.create_topic(TOPIC)
        producer = AsyncTransactionProducer(
            "dealers",
            self.decisions,
            namesrv=str(NAMESERVER),
            environment=cluster.environment(1),
            heartbeat_broker_interval=2.0,
        )
        await producer.start()
        senders = [self._send_in_turn(producer, sender) for sender in range(SENDERS)]
        await asyncio.gather(*senders, *map(self._trouble, cluster.masters))
        await self._until_all_is_settled()
        self.check()
        await producer.close()
        await cluster.stop()

    async def _send_in_turn(self, producer: AsyncTransactionProducer, sender: int) -> None:
        for number in range(SENDS_EACH):
            await asyncio.sleep(self.dice.choice([0.0, 0.003, 0.5, 4.0]) * self.dice.random())
            body = b"%d-%d" % (sender, number)
            properties = {}
            if self.dice.random() < 0.2:
                properties["CHECK_IMMUNITY_TIME_IN_SECONDS"] = str(self.dice.randrange(10))
            try:
                result = await producer.send_in_transaction(
                    Message(TOPIC, body, properties=properties)
                )
            except MQError:
                continue
            if result.send_result.status is SendStatus.SEND_OK:
                self.acknowledged.add(body)

    async def _trouble(self, machine: Machine) -> None:
        dice = self.dice
        for _ in range(TROUBLES):
            await asyncio.sleep(dice.choice([0.5, 4.0, 8.0]) * dice.random())
            await machine.crash(is_power_lost=dice.random() < 0.6)
            await asyncio.sleep(dice.choice([0.0, 3.0]) * dice.random())
            while dice.random() < 0.2:
                await machine.start_in_part(dice.choice([0.001, 0.02, 2.0]) * dice.random())
            await machine.start()

    async def _until_all_is_settled(self) -> None:
        for _ in range(PATIENCE):
            if all(map(_is_settled, self.cluster.masters)):
                return
            await asyncio.sleep(1)
        raise AssertionError("there is always one more question")

    def check(self) -> None:
        decisions = self.decisions
        assert self.acknowledged <= decisions.executed
        unsettled = self.acknowledged - decisions.made.keys()
        assert not unsettled, f"nobody asked again about {unsettled}"
        came: set[bytes] = set()
        for machine in self.cluster.masters:
            assert machine.broker is not None
            for queue_id in range(4):
                for message in messages(machine.broker, TOPIC, queue_id):
                    came.add(message.body)
                    assert message.store_timestamp_ms >= decisions.made_at_ms[message.body]
        committed = {body for body, end in decisions.made.items() if end is TransactionState.COMMIT}
        assert came <= committed, f"rolled back: {came - committed}"
        # One that was not acknowledged may have been lost before its broker heard of its end.
        lost = committed & self.acknowledged - came
        assert not lost, f"lost: {lost}"


def _is_settled(machine: Machine) -> bool:
    """Whether a broker is done with all of its half messages."""
    assert machine.broker is not None
    done = machine.broker.offsets.query(TRANSACTION_GROUP, HALF_TOPIC, 0)
    return max(done, 0) == machine.broker.store.max_offset(HALF_TOPIC, 0)


def live(seed: int) -> Trial:
    async def main() -> Trial:
        trial = Trial(seed)
        await trial.live()
        return trial

    return run(main())


@pytest.mark.final
@pytest.mark.slow  # all of them together
@pytest.mark.parametrize("seed", [*range(SEEDS), *SEEDS_THAT_FOUND_SOMETHING])
def test_every_transaction_ends_as_its_producer_says(seed: int) -> None:
    live(seed)


def test_the_trouble_is_real() -> None:
    trials = [live(seed) for seed in range(4)]
    assert all(each.crashes >= TROUBLES for trial in trials for each in trial.cluster.masters)
    made = Counter(end for trial in trials for end in trial.decisions.made.values())
    assert min(made[TransactionState.COMMIT], made[TransactionState.ROLLBACK]) > 20
    assert sum(len(trial.acknowledged) for trial in trials) > 100
    assert sum(trial.decisions.asked.total() for trial in trials) > 50
