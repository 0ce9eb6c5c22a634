"""A NameServer and real brokers on simulated time, network and disks, each on a host of its own.

A broker that crashes loses its connections, its tasks and, when the power goes, whatever its disk
had not synced; started again it finds what is left.
"""

import asyncio
import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rocketpipe.broker.broker import Broker
from rocketpipe.broker.settings import BrokerRole, BrokerSettings
from rocketpipe.broker.store.settings import StoreSettings
from rocketpipe.client.environment import Environment
from rocketpipe.nameserver.server import NameServer
from rocketpipe.remoting.address import Address
from rocketpipe.testing.simulated_disk import SimulatedDisk
from rocketpipe.testing.simulated_loop import SimulatedClock
from rocketpipe.testing.simulated_network import NetworkOptions, SimulatedNetwork
from rocketpipe.wire.bodies.topics import TopicConfig

NAMESERVER = Address("10.0.0.9", 9876)
CLIENT_HOST = "10.0.1.1"
FOLDER = Path("/broker")


class Machine:
    """The host of one broker: its disk stays, brokers come and go."""

    def __init__(
        self, settings: BrokerSettings, network: SimulatedNetwork, clock: SimulatedClock, seed: int
    ) -> None:
        self.settings = settings
        self.host = settings.host
        self.disk = SimulatedDisk(seed)
        self.broker: Broker | None = None
        self.crashes = 0
        self._network = network
        self._clock = clock
        self._dice = random.Random(seed)

    def __str__(self) -> str:
        return f"{self.settings.broker_name}-{self.settings.broker_id}"

    async def start(self) -> Broker:
        broker = self._new_broker()
        await broker.start()
        self.broker = broker
        return broker

    async def start_in_part(self, seconds: float) -> None:
        """Start a broker, and crash so soon afterwards, most likely while it is at it."""
        broker = self._new_broker()
        starting = asyncio.create_task(broker.start())
        await asyncio.wait([starting], timeout=seconds)
        self._go_down(is_power_lost=True)
        if starting.done() and not starting.cancelled() and starting.exception() is None:
            await broker.kill()
        else:
            starting.cancel()
            await asyncio.wait([starting])
            assert starting.cancelled() or starting.exception() is not None

    async def crash(self, *, is_power_lost: bool) -> None:
        """End as a process that is killed, or as a machine that loses its power."""
        broker, self.broker = self.broker, None
        assert broker is not None
        self._go_down(is_power_lost=is_power_lost)
        await broker.kill()

    async def stop(self) -> None:
        """End in order."""
        broker, self.broker = self.broker, None
        if broker is not None:
            await broker.close()

    def _new_broker(self) -> Broker:
        self._network.restart(self.host)
        return Broker(
            self.settings,
            FOLDER,
            disk=self.disk,
            network=self._network.host(self.host),
            clock=self._clock,
            dice=self._dice,
        )

    def _go_down(self, *, is_power_lost: bool) -> None:
        self.crashes += 1
        self._network.crash(self.host)
        if is_power_lost:
            self.disk.lose_power()
        else:
            self.disk.kill_users()


class WholeCluster:
    """Two masters with sync flush; with `has_slave` the first is a SYNC_MASTER and has one.

    `store` are other settings of their stores, `settings` of the brokers.
    """

    def __init__(
        self,
        seed: int,
        *,
        has_slave: bool,
        store: Mapping[str, Any] | None = None,
        **settings: object,
    ) -> None:
        self.dice = dice = random.Random(seed)
        self.network = SimulatedNetwork(
            dice.getrandbits(32),
            NetworkOptions(spike_chance=dice.choice([0.01, 0.03, 0.1]), spike_max=1.0),
        )
        self.clock = SimulatedClock(asyncio.get_running_loop())
        store_settings = replace(
            StoreSettings(
                flush_disk_type="sync",
                # Small, so that a short run meets the ends of files.
                commit_log_segment_bytes=dice.choice([8192, 100_000]),
                checkpoint_bytes=dice.choice([1000, 100_000]),
                consume_queue_segment_entries=16,
                index_slots=16,
                index_entries_max=64,
                message_bytes_max=4096,
            ),
            **(store or {}),
        )
        self._settings = {"store": store_settings, **settings}
        role = BrokerRole.SYNC_MASTER if has_slave else BrokerRole.ASYNC_MASTER
        self.masters = [
            self._machine("10.0.0.1", broker_name="broker-a", broker_role=role),
            self._machine("10.0.0.2", broker_name="broker-b"),
        ]
        self.slave: Machine | None = None
        if has_slave:
            self.slave = self._machine(
                "10.0.0.3", broker_name="broker-a", broker_id=1, broker_role=BrokerRole.SLAVE
            )
        self._nameserver: NameServer | None = None

    @property
    def machines(self) -> list[Machine]:
        return [*self.masters, *([self.slave] if self.slave is not None else [])]

    def master(self, broker_name: str) -> Machine:
        return next(each for each in self.masters if each.settings.broker_name == broker_name)

    def environment(self, process_id: int) -> Environment:
        """What a client process finds around it."""
        return Environment(
            network=self.network.host(CLIENT_HOST),
            clock=self.clock,
            dice=random.Random(self.dice.getrandbits(32)),
            ip=CLIENT_HOST,
            pid=process_id,
        )

    async def start(self) -> None:
        await self.start_nameserver()
        for machine in self.machines:
            await machine.start()

    async def create_topic(self, topic: str) -> None:
        """Have it on every master; one that producers create is where the first of them sent."""
        for machine in self.masters:
            assert machine.broker is not None
            config = TopicConfig(topic_name=topic, read_queue_nums=4, write_queue_nums=4)
            machine.broker.topics.put([config])
            await machine.broker.topics.saved.wait_saved()
            await machine.broker.registration.wait_told(timeout=10)

    async def stop(self) -> None:
        for machine in self.machines:
            await machine.stop()
        await self.crash_nameserver()

    async def start_nameserver(self) -> None:
        self.network.restart(NAMESERVER.host)
        self._nameserver = NameServer(self.network.host(NAMESERVER.host), clock=self.clock)
        await self._nameserver.start(NAMESERVER)

    async def crash_nameserver(self) -> None:
        nameserver, self._nameserver = self._nameserver, None
        assert nameserver is not None
        self.network.crash(NAMESERVER.host)
        await nameserver.kill()

    def _machine(self, host: str, **settings: object) -> Machine:
        own = BrokerSettings(host=host, namesrv=(NAMESERVER,), **self._settings, **settings)  # type: ignore[arg-type]  # by name
        return Machine(own, self.network, self.clock, self.dice.getrandbits(32))
