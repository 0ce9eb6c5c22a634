"""Poppers and a broker that crashes, by seed: what is not acknowledged comes again, until it is.

One broker on simulated time, network and disk is restarted, killed, or loses its power, while some
poppers acknowledge in time, too late or not at all, and hide messages for longer. In the end every
message that the broker has must have been acknowledged by somebody in time; and none that was may
have come again, but for two reasons: it was popped for another time and stored again just when
the broker crashed, or the power took away what was not synced.
"""

import asyncio
import random
from itertools import count
from typing import Any

import pytest

from rocketpipe.broker.settings import BrokerSettings
from rocketpipe.broker.store.settings import StoreSettings
from rocketpipe.errors import MQError
from rocketpipe.message import StoredMessage
from rocketpipe.remoting.address import Address
from rocketpipe.remoting.connection import Connection, connect
from rocketpipe.testing.simulated_loop import SimulatedClock, run
from rocketpipe.testing.simulated_network import NetworkOptions, SimulatedNetwork
from rocketpipe.wire.bodies.topics import TopicConfig
from rocketpipe.wire.pop_receipt import Receipt
from rocketpipe.wire.properties import POP_CK
from tests.faults.whole_cluster import Machine
from tests.unit.broker.bench import messages, send
from tests.unit.broker.pop.pops import ack, hide, pop

SEEDS = 20
SEEDS_THAT_FOUND_SOMETHING = (44, 48)
HOST = "10.0.0.1"
CLIENT_HOST = "10.0.1.1"
PORT = 10911
QUEUES = 3
MESSAGES = 60
POPPERS = 4
TROUBLES = 8
INVISIBLE_MS = (1_000, 5_000, 20_000)
MARGIN_MS = 200  # who acknowledges so shortly before the time is up may be too late
ENDS = ("restart", "kill", "power")


class Trial:
    def __init__(self, seed: int, end: str) -> None:
        self.dice = dice = random.Random(seed)
        self.end = end
        self.clock = SimulatedClock(asyncio.get_running_loop())
        self.network = SimulatedNetwork(
            dice.getrandbits(32), NetworkOptions(spike_chance=dice.choice([0.0, 0.05]), spike_max=1)
        )
        self.is_synced = end != "power" or dice.random() < 0.5
        store = StoreSettings(
            flush_disk_type="sync" if self.is_synced else "async",
            commit_log_segment_bytes=dice.choice([8192, 100_000]),
            checkpoint_bytes=dice.choice([1000, 100_000]),
            consume_queue_segment_entries=16,
            message_bytes_max=4096,
        )
        settings = BrokerSettings(
            host=HOST,
            store=store,
            flush_consumer_offset_interval=dice.choice([0.2, 5.0]),
            enable_retry_topic_v2=dice.random() < 0.3,
        )
        self.machine = Machine(settings, self.network, self.clock, dice.getrandbits(32))
        self.acknowledged: set[bytes] = set()  # in time, though the broker may not have heard it
        self.for_good: set[bytes] = set()  # it has: these can not come again
        self.given = 0
        self.is_calm = False

    async def live(self) -> None:
        broker = await self.machine.start()
        config = TopicConfig(topic_name="orders", read_queue_nums=QUEUES, write_queue_nums=QUEUES)
        broker.topics.put([config])
        await broker.topics.saved.wait_saved()
        poppers = [asyncio.create_task(self._pop_for_ever()) for _ in range(POPPERS)]
        await asyncio.gather(self._send_all(), self._trouble())
        self.is_calm = True
        await self._until_all_is_consumed()
        for popper in poppers:
            popper.cancel()
        await asyncio.wait(poppers)
        for popper in poppers:
            if not popper.cancelled():
                popper.result()
        await self.machine.stop()

    async def _connected(self) -> Connection:
        host = self.network.host(CLIENT_HOST)
        return await connect(host, Address(HOST, PORT), timeout=3.0)

    async def _send_all(self) -> None:
        for number in range(MESSAGES):
            for attempt in count():
                body = b"%d-%d" % (number, attempt)  # one that was not answered may be there
                try:
                    client = await self._connected()
                    await send(client, body=body, queue_id=self.dice.randrange(QUEUES))
                    await client.close()
                    break
                except MQError:
                    await asyncio.sleep(0.5)
            await asyncio.sleep(self.dice.choice([0.0, 0.01, 1.0]))

    async def _trouble(self) -> None:
        for _ in range(TROUBLES):
            await asyncio.sleep(self.dice.choice([0.05, 2.0, 8.0]) * self.dice.random())
            if self.end == "restart":
                await self.machine.stop()
            else:
                await self.machine.crash(is_power_lost=self.end == "power")
                if self.dice.random() < 0.2 and self.end == "power":
                    await self.machine.start_in_part(self.dice.random() * 0.1)
            await asyncio.sleep(self.dice.choice([0.0, 3.0]))
            await self.machine.start()

    async def _pop_for_ever(self) -> None:
        while True:
            try:
                client = await self._connected()
                while True:
                    await self._pop(client)
            except MQError:
                await asyncio.sleep(self.dice.random())

    async def _pop(self, client: Connection) -> None:
        dice = self.dice
        invisible_ms = dice.choice(INVISIBLE_MS)
        queue_id = dice.choice([-1, -1, dice.randrange(QUEUES)])
        found = await pop(
            client,
            queue_id=queue_id,
            max_msg_nums=dice.choice([1, 3, 32]),
            invisible_time=invisible_ms,
            poll_time=dice.choice([0, 2_000]),
        )
        self.given += len(found)
        for message in found:
            assert message.body not in self.for_good, f"{message} came again"
        await asyncio.sleep(dice.choice([0.01, 0.5]))
        for message in found:
            await self._treat(client, message)

    async def _treat(self, client: Connection, message: StoredMessage) -> None:
        dice = self.dice
        action = "ack" if self.is_calm else dice.choice(["ack", "ack", "hide", "drop", "late"])
        receipt = Receipt.parse(message.properties[POP_CK])
        changes: dict[str, Any] = {}
        if action == "drop":
            return
        if action == "late":
            await asyncio.sleep(receipt.invisible_time / 1000)
        if action == "hide":
            reply = await hide(client, message, dice.choice(INVISIBLE_MS))
            receipt = receipt._replace(
                start_offset=receipt.queue_offset,
                pop_time=reply.pop_time,
                invisible_time=reply.invisible_time,
            )
            changes = {"extra_info": str(receipt)}
        visible_at_ms = receipt.pop_time + receipt.invisible_time
        if self.clock.wall_ms() < visible_at_ms + MARGIN_MS:
            self.acknowledged.add(message.body)
        answer = await ack(client, message, **changes)
        is_in_time = self.clock.wall_ms() < visible_at_ms - MARGIN_MS
        if answer.code == 0 and is_in_time and self.is_synced and message.reconsume_times == 0:
            self.for_good.add(message.body)

    async def _until_all_is_consumed(self) -> None:
        broker = self.machine.broker
        assert broker is not None
        stored = {
            each.body for queue_id in range(QUEUES) for each in messages(broker, "orders", queue_id)
        }
        for _ in range(600):
            if stored <= self.acknowledged:
                break
            await asyncio.sleep(1)
        assert stored <= self.acknowledged, f"lost: {stored - self.acknowledged}"
        if self.is_synced:
            assert len(stored) >= MESSAGES
        await asyncio.sleep(60)  # for what is not acknowledged yet, to come and to be
        assert len(broker.pop.log.checkpoints) == 0


@pytest.mark.final
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("seed", [*range(SEEDS), *SEEDS_THAT_FOUND_SOMETHING])
def test_nothing_is_lost(seed: int, end: str) -> None:
    async def main() -> None:
        await Trial(seed, end).live()

    run(main())
