"""Producers and a whole cluster that breaks, by seed: nothing that was acknowledged is lost.

Client, NameServer and brokers run in one process on simulated time, network and disks. Brokers are
killed or lose their power, at any moment and most often just when an acknowledgement has arrived;
they crash again while they recover; the network is cut, frozen and slow, and so are the disks.
"""

import asyncio
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rocketpipe.client.producer import AsyncProducer
from rocketpipe.errors import MQError
from rocketpipe.message import Message, MessageQueue, SendResult, SendStatus
from rocketpipe.testing.misbehaviour import FAULTS, cut, cut_one_way, misbehave
from rocketpipe.testing.simulated_loop import run
from tests.faults.whole_cluster import CLIENT_HOST, NAMESERVER, Machine, WholeCluster
from tests.stores import everything

SEEDS = 300
SEEDS_THAT_FOUND_SOMETHING = (450,)  # besides 0 and 72
PRODUCERS = 2
SENDERS_EACH = 3
SENDS_EACH = 12
CUTS = (cut, cut_one_way)
TOPICS = ("orders", "made-by-producers")
RECOVERY_SECONDS_MAX = 300.0  # simulated: until all is well again when nothing breaks any more


class Trial:
    """What was sent, what was acknowledged and where, and what breaks meanwhile."""

    def __init__(self, seed: int) -> None:
        # Every third has a slave, without which nothing is acknowledged as SEND_OK.
        self.cluster = WholeCluster(seed, has_slave=seed % 3 == 0)
        self.dice = self.cluster.dice
        self.sent: set[bytes] = set()
        self.acknowledged: dict[tuple[MessageQueue, int], bytes] = {}
        self.last_offset: dict[tuple[str, MessageQueue], int] = {}  # of each sender
        self.failures = 0
        self._acknowledgement = asyncio.Event()
        self._is_over = asyncio.Event()

    async def live(self) -> None:
        await self.cluster.start()
        await self.cluster.create_topic(TOPICS[0])
        producers = [
            AsyncProducer(
                f"group-{number}",
                namesrv=str(NAMESERVER),
                environment=self.cluster.environment(number),
            )
            for number in range(PRODUCERS)
        ]
        for producer in producers:
            await producer.start()
        trouble = asyncio.create_task(self._trouble())
        await asyncio.gather(
            *(
                self._send_in_turn(producer, f"p{number}s{sender}")
                for number, producer in enumerate(producers)
                for sender in range(SENDERS_EACH)
            )
        )
        self._is_over.set()
        self._acknowledgement.set()
        await trouble
        await self._all_is_well_again(producers[0])
        for producer in producers:
            await producer.close()
        await self._stop_and_look_again()

    @property
    def fingerprint(self) -> tuple[int, int, int]:
        """A checksum of all that happened on the network, and what came of it."""
        return self.cluster.network.fingerprint, len(self.acknowledged), self.failures

    # Sending.

    async def _send_in_turn(self, producer: AsyncProducer, sender: str) -> None:
        for number in range(SENDS_EACH):
            await asyncio.sleep(self.dice.choice([0.0, 0.003, 0.5, 2.0]) * self.dice.random())
            await self._send(producer, sender, number)

    async def _send(
        self, producer: AsyncProducer, sender: str, number: int, queue: MessageQueue | None = None
    ) -> bool:
        """Whether it was acknowledged."""
        count = self.dice.choice([1, 1, 1, 3])
        padding = self.dice.randbytes(self.dice.choice([0, 10, 900]))
        bodies = [b"%s-%d-%d %s" % (sender.encode(), number, n, padding) for n in range(count)]
        self.sent.update(bodies)
        topic = queue.topic if queue is not None else self.dice.choice(TOPICS)
        messages = [Message(topic, body) for body in bodies]
        try:
            if count == 1:
                result = await producer.send(messages[0], queue=queue)
            else:
                result = await producer.send_batch(messages, queue=queue)
        except MQError:
            self.failures += 1
            return False
        if result.status is SendStatus.SEND_OK:
            self._remember(sender, bodies, result)
        return result.status is SendStatus.SEND_OK

    def _remember(self, sender: str, bodies: list[bytes], result: SendResult) -> None:
        self._acknowledgement.set()
        before = self.last_offset.get((sender, result.queue), -1)
        assert result.queue_offset > before, "an older message of this sender is behind it"
        self.last_offset[sender, result.queue] = result.queue_offset + len(bodies) - 1
        for place, body in enumerate(bodies, result.queue_offset):
            assert (result.queue, place) not in self.acknowledged, "a place was given twice"
            self.acknowledged[result.queue, place] = body

    # Trouble.

    async def _trouble(self) -> None:
        hosts = [CLIENT_HOST, NAMESERVER.host, *(each.host for each in self.cluster.machines)]
        network = self.cluster.network
        cuts = [
            asyncio.create_task(
                misbehave(
                    network,
                    hosts,
                    self.dice,
                    until=math.inf,
                    faults=faults,
                    calm=calm,
                    trouble=(0.01, 3.0),
                )
            )
            for faults, calm in ((FAULTS, (0.1, 5.0)), (CUTS, (0.1, 2.0)))
        ]
        await asyncio.gather(
            *(self._crash_again_and_again(machine) for machine in self.cluster.machines),
            self._lose_the_nameserver(),
            self._slow_down_disks(),
        )
        for each in cuts:
            each.cancel()
        await asyncio.wait(cuts)

    async def _crash_again_and_again(self, machine: Machine) -> None:
        dice = self.dice
        while await self._goes_on(0.05, 4.0):
            if dice.random() < 0.6:  # a promise that was made too early is now at its weakest
                self._acknowledgement.clear()
                await self._acknowledgement.wait()
            await machine.crash(is_power_lost=dice.random() < 0.8)
            await self._goes_on(0.0, 4.0)
            while dice.random() < 0.2:
                await machine.start_in_part(dice.choice([0.001, 0.02, 0.5]) * dice.random())
            await machine.start()
            if machine is not self.cluster.slave:
                self.check(machine)

    async def _lose_the_nameserver(self) -> None:
        while await self._goes_on(0.1, 20.0):
            await self.cluster.crash_nameserver()
            await self._goes_on(0.1, 10.0)
            await self.cluster.start_nameserver()

    async def _slow_down_disks(self) -> None:
        while await self._goes_on(0.1, 5.0):
            disk = self.dice.choice(self.cluster.machines).disk
            quick, disk.sync_seconds = disk.sync_seconds, (0.001, 0.2)
            await self._goes_on(0.1, 5.0)
            disk.sync_seconds = quick

    async def _goes_on(self, shortest: float, longest: float) -> bool:
        """Wait for a while: whether there is something to disturb afterwards."""
        try:
            async with asyncio.timeout(self.dice.uniform(shortest, longest)):
                await self._is_over.wait()
        except TimeoutError:
            return True
        return False

    # Looking.

    def check(self, machine: Machine) -> None:
        """All that this broker has acknowledged is there, and nothing that nobody sent."""
        broker, name = machine.broker, machine.settings.broker_name
        assert broker is not None
        found = {
            (MessageQueue(topic, name, queue_id), offset): body
            for (topic, queue_id), messages in everything(broker.store).items()
            for offset, body in messages
        }
        for place, body in self.acknowledged.items():
            if place[0].broker_name == name:
                assert found.get(place) == body, f"{body!r} was acknowledged at {place}"
        assert self.sent >= set(found.values())

    async def _all_is_well_again(self, producer: AsyncProducer) -> None:
        """Each broker takes messages."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + RECOVERY_SECONDS_MAX
        for machine in self.cluster.masters:
            queue = MessageQueue(TOPICS[0], machine.settings.broker_name, 0)
            number = 0
            while not await self._send(producer, f"after-{queue.broker_name}", number, queue):
                number += 1
                assert loop.time() < deadline, f"{machine} takes no messages"
                await asyncio.sleep(1)
            self.check(machine)
        if self.cluster.slave is not None:
            await self._slave_has_it_all(self.cluster.slave, deadline)

    async def _slave_has_it_all(self, slave: Machine, deadline: float) -> None:
        master = self.cluster.masters[0]
        assert slave.broker is not None
        assert master.broker is not None
        while slave.broker.store.max_physical_offset != master.broker.store.max_physical_offset:
            assert asyncio.get_running_loop().time() < deadline, "the slave does not catch up"
            await asyncio.sleep(1)
        assert everything(slave.broker.store) == everything(master.broker.store)

    async def _stop_and_look_again(self) -> None:
        await self.cluster.stop()
        for machine in self.cluster.machines:
            machine.disk.lose_power()  # which harms nothing now
        await self.cluster.start()
        for machine in self.cluster.masters:
            self.check(machine)
        await self.cluster.stop()


def live(seed: int) -> Trial:
    async def main() -> Trial:
        trial = Trial(seed)
        await trial.live()
        return trial

    return run(main())


@pytest.mark.final
@pytest.mark.slow  # all of them together
@pytest.mark.parametrize("seed", [*range(SEEDS), *SEEDS_THAT_FOUND_SOMETHING])
def test_no_acknowledged_message_is_lost(seed: int) -> None:
    cluster = live(seed).cluster
    # Else the seed has shown less than it seems to.
    assert all(master.crashes for master in cluster.masters)
    happened = [event for _, event in cluster.network.trace]
    assert any(event.startswith("cut ") for event in happened)
    assert any(event.startswith("a piece takes ") for event in happened)


def test_the_trouble_is_real() -> None:
    trials = [live(seed) for seed in range(6)]
    crashes = [machine.crashes for trial in trials for machine in trial.cluster.machines]
    assert min(crashes) >= 1
    assert sum(crashes) > 2 * len(crashes)
    assert sum(trial.failures for trial in trials) > 10
    assert sum(len(trial.acknowledged) for trial in trials) > 300


@pytest.mark.slow
def test_the_same_seed_gives_the_same_run_in_any_process() -> None:
    program = f"from {__name__} import live; print(live(3).fingerprint)"
    root = Path(__file__).parents[2]
    path = os.pathsep.join([str(root / "src"), str(root)])
    prints = {
        subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            check=True,
            text=True,
            env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": hash_seed},
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert prints == {f"{live(3).fingerprint}\n"}
    assert prints != {f"{live(4).fingerprint}\n"}
