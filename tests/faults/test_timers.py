"""Timers and a whole cluster that breaks, by seed: nothing is lost, doubled or early.

Producers send messages for a time of their own, and take some back, while brokers are killed, lose
their power and crash again while they recover. In the end each broker's log is asked: of each timer
that it has, it has delivered one copy. What it delivered and then lost with its power counts as not
delivered, and so it comes again. At last a slave takes its master's place.
"""

import asyncio
from collections import Counter
from dataclasses import replace

import pytest

from rocketpipe.broker.broker import Broker
from rocketpipe.broker.settings import BrokerRole
from rocketpipe.client.producer import AsyncProducer
from rocketpipe.errors import MQError
from rocketpipe.message import Message, SendStatus, StoredMessage
from rocketpipe.testing.simulated_loop import run
from tests.faults.whole_cluster import NAMESERVER, Machine, WholeCluster
from tests.unit.broker.bench import messages

SEEDS = 150
SENDERS = 4
SENDS_EACH = 15
TOPIC = "orders"
TIMERS = "rmq_sys_wheel_timer"
SOON = 40.0  # seconds; all but the last few timers are for a time before that
# A slot, and how long a broker may take to see and write what is due, with others at work.
LATE_MS_MAX = 1500


class Trial:
    """What was sent for which time, what was taken back, and when which broker was there."""

    def __init__(self, seed: int) -> None:
        self.cluster = WholeCluster(
            seed,
            has_slave=seed % 3 == 0,
            # Small, so that a short run has timers that are stored anew.
            store={"timer_roll_window_slots": 8 if seed % 2 else 100_000},
            timer_flush_interval=[0.1, 1.0, 10.0][seed % 5 % 3],
            recall_message_enable=True,
            slave_sync_interval=2.0,
        )
        self.dice = self.cluster.dice
        self.acknowledged: dict[str, str] = {}  # by message id: the broker
        # By message id and broker: a message may be at two, if an answer got lost.
        self.recalled: set[tuple[str, str]] = set()
        self.maybe_recalled: set[tuple[str, str]] = set()
        self.rolled = 0
        self._up_since_ms: dict[Machine, list[int]] = {}
        self._acknowledgement = asyncio.Event()
        self._is_over = asyncio.Event()

    async def live(self) -> None:
        cluster = self.cluster
        await cluster.start()
        for machine in cluster.machines:
            self._is_up(machine)
        await cluster.create_topic(TOPIC)
        producer = AsyncProducer(
            "group", namesrv=str(NAMESERVER), environment=cluster.environment(1)
        )
        await producer.start()
        crashes = [
            asyncio.create_task(self._crash_again_and_again(machine))
            for machine in cluster.machines
        ]
        await asyncio.gather(*(self._send_in_turn(producer, n) for n in range(SENDERS)))
        await asyncio.sleep(SOON / 2)
        self._is_over.set()
        self._acknowledgement.set()
        await asyncio.gather(*crashes)
        await asyncio.sleep(SOON / 2 + 20)
        for machine in cluster.masters:
            self.check(machine)
        await self._send_for_later(producer)
        await producer.close()
        if cluster.slave is not None:
            await self._take_the_masters_place(cluster.slave)
        await cluster.stop()

    # Sending.

    async def _send_in_turn(self, producer: AsyncProducer, sender: int) -> None:
        for number in range(SENDS_EACH):
            await asyncio.sleep(self.dice.choice([0.0, 0.003, 0.5, 2.0]) * self.dice.random())
            delay_ms = round(self.dice.choice([0.5, 3.0, SOON]) * self.dice.random() * 1000)
            await self._send(producer, b"%d-%d" % (sender, number), delay_ms)

    async def _send(self, producer: AsyncProducer, body: bytes, delay_ms: int) -> None:
        deliver_ms = self.cluster.clock.wall_ms() + delay_ms
        try:
            result = await producer.send(Message(TOPIC, body, deliver_at_ms=deliver_ms))
        except MQError:
            return
        if result.status is not SendStatus.SEND_OK:
            return
        self.acknowledged[result.message_id] = result.queue.broker_name
        self._acknowledgement.set()
        if result.recall_handle is not None and self.dice.random() < 0.2:
            place = (result.message_id, result.queue.broker_name)
            self.maybe_recalled.add(place)
            try:
                await producer.recall(TOPIC, result.recall_handle)
            except MQError:
                return
            self.recalled.add(place)

    async def _send_for_later(self, producer: AsyncProducer) -> None:
        for number in range(10):
            await self._send(producer, b"later-%d" % number, 60_000)

    # Crashing.

    async def _crash_again_and_again(self, machine: Machine) -> None:
        dice = self.dice
        while await self._goes_on(0.05, 8.0):
            if dice.random() < 0.4:
                self._acknowledgement.clear()
                await self._acknowledgement.wait()
            await machine.crash(is_power_lost=dice.random() < 0.6)
            await self._goes_on(0.0, 4.0)
            while dice.random() < 0.2:
                await machine.start_in_part(dice.choice([0.001, 0.02, 2.0]) * dice.random())
                self._is_up(machine)  # what it managed to deliver
            await machine.start()
            self._is_up(machine)

    async def _goes_on(self, shortest: float, longest: float) -> bool:
        """Wait for a while: whether there is something to disturb afterwards."""
        try:
            async with asyncio.timeout(self.dice.uniform(shortest, longest)):
                await self._is_over.wait()
        except TimeoutError:
            return True
        return False

    def _is_up(self, machine: Machine) -> None:
        self._up_since_ms.setdefault(machine, []).append(self.cluster.clock.wall_ms())

    # Looking.

    def check(self, machine: Machine) -> None:
        """Each timer of this broker's log was delivered, once, at its time."""
        broker = machine.broker
        assert broker is not None
        waited = messages(broker, TIMERS)
        came = [each for queue_id in range(4) for each in messages(broker, TOPIC, queue_id)]
        copies = Counter(each.prepared_transaction_offset for each in (*waited, *came))
        for timer in waited:
            if "TIMER_DEL_UNIQKEY" in timer.properties and self._is_last(timer):
                continue
            count = copies[timer.physical_offset + timer.store_size]
            place = (timer.properties["UNIQ_KEY"], machine.settings.broker_name)
            if place in self.maybe_recalled and self._is_last(timer):
                assert count <= (place not in self.recalled), f"{timer} was taken back"
            else:
                assert count == 1, f"{timer} came {count} times"
        timed = [each for each in came if "TIMER_DEQUEUE_MS" in each.properties]
        for message in timed:
            self._check_time(machine, message)
        found = {each.message_id for each in (*waited, *came)}
        for message_id, broker_name in self.acknowledged.items():
            if broker_name == machine.settings.broker_name:
                assert message_id in found, f"{message_id} was acknowledged"
        self.rolled += sum("TIMER_ROLL_TIMES" in each.properties for each in timed)

    def _is_last(self, timer: StoredMessage) -> bool:
        """Whether it waits for its own time, and not for the end of a window."""
        return int(timer.properties["TIMER_OUT_MS"]) <= timer.store_timestamp_ms + self._window_ms

    @property
    def _window_ms(self) -> int:
        return self.cluster.masters[0].settings.store.timer_roll_window_slots * 1000

    def _check_time(self, machine: Machine, message: StoredMessage) -> None:
        at_ms = message.store_timestamp_ms
        deliver_ms = int(message.properties["TIMER_DELIVER_MS"])
        assert at_ms >= deliver_ms, f"{message} is early"
        since_ms = max(since for since in self._up_since_ms[machine] if since <= at_ms)
        late_ms = at_ms - max(deliver_ms, since_ms)
        assert late_ms <= LATE_MS_MAX, f"{message} is {late_ms} ms late"

    async def _take_the_masters_place(self, slave: Machine) -> None:
        """The master is gone for good; its slave has all that was acknowledged."""
        master = self.cluster.masters[0]
        deadline = asyncio.get_running_loop().time() + 300
        assert master.broker is not None
        assert slave.broker is not None
        while _end(slave.broker) != _end(master.broker):
            assert asyncio.get_running_loop().time() < deadline, "the slave does not catch up"
            await asyncio.sleep(1)
        await asyncio.sleep(2)  # for it is safe there only a little later
        await slave.crash(is_power_lost=True)
        await asyncio.sleep(self.dice.choice([0.0, 55.0, 58.0]))
        await master.crash(is_power_lost=True)
        slave.settings = replace(slave.settings, broker_id=0, broker_role=BrokerRole.ASYNC_MASTER)
        await slave.start()
        self._is_up(slave)
        await asyncio.sleep(90)
        self._up_since_ms[slave] += self._up_since_ms[master]
        self.check(slave)
        self.cluster.masters[0] = slave  # for it to be stopped, and once
        self.cluster.slave = None


def _end(broker: Broker) -> int:
    return broker.store.max_physical_offset


def live(seed: int) -> Trial:
    async def main() -> Trial:
        trial = Trial(seed)
        await trial.live()
        return trial

    return run(main())


@pytest.mark.final
@pytest.mark.slow  # all of them together
@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_timer_is_lost_doubled_or_early(seed: int) -> None:
    live(seed)


def test_the_trouble_is_real() -> None:
    trials = [live(seed) for seed in range(6)]
    crashes = [machine.crashes for trial in trials for machine in trial.cluster.machines]
    assert min(crashes) >= 1
    assert sum(crashes) > 3 * len(crashes)
    assert sum(len(trial.acknowledged) for trial in trials) > 200
    assert sum(len(trial.recalled) for trial in trials) > 5
    assert sum(trial.rolled for trial in trials) > 5
