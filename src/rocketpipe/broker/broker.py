"""A broker: its parts, put together; and its life from start to close."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rocketpipe.broker.access.guard import AccessGuard
from rocketpipe.broker.checks import SendChecks
from rocketpipe.broker.clients import Clients
from rocketpipe.broker.delays import DelayedMessages
from rocketpipe.broker.fault_layer import FaultLayer, FillableDisk
from rocketpipe.broker.faults import CONTROL_FAULTS, FaultKind, Faults
from rocketpipe.broker.flow_control import FlowControl
from rocketpipe.broker.groups import SubscriptionGroups
from rocketpipe.broker.held_pulls import HeldPulls
from rocketpipe.broker.hosts import packed_host
from rocketpipe.broker.notices import GroupNotices
from rocketpipe.broker.offsets import ConsumerOffsets
from rocketpipe.broker.pop.part import PopPart
from rocketpipe.broker.processors import all_handlers
from rocketpipe.broker.putting import Puts
from rocketpipe.broker.queue_locks import QueueLocks
from rocketpipe.broker.rates import SAMPLE_INTERVAL, Rates
from rocketpipe.broker.registration import Registration
from rocketpipe.broker.replication import Slaves
from rocketpipe.broker.sent_properties import PropertyTreatment
from rocketpipe.broker.settings import BrokerSettings
from rocketpipe.broker.store.atomic_file import AtomicFile
from rocketpipe.broker.store.disk import Disk, RealDisk
from rocketpipe.broker.store.message_store import MessageStore
from rocketpipe.broker.timers import TimedMessages
from rocketpipe.broker.topics import TopicConfigs
from rocketpipe.broker.transactions import Transactions
from rocketpipe.clock import Clock, SystemClock
from rocketpipe.codes import RequestCode
from rocketpipe.errors import InvalidSetting
from rocketpipe.remoting.address import Address
from rocketpipe.remoting.connection import Connection, TakesPlain
from rocketpipe.remoting.dispatch import Handler, Outcome, dispatch_by_code
from rocketpipe.remoting.network import AsyncioNetwork, Network
from rocketpipe.remoting.server import Server
from rocketpipe.remoting.tls import ServerTls
from rocketpipe.wire.frame import FrameDecoder, RemotingCommand
from rocketpipe.wire.message_id import UniqueIdGenerator

if TYPE_CHECKING:
    from rocketpipe.broker.slave import SlaveSync

log = logging.getLogger(__name__)

VIP_PORT_SHIFT = -2
PORT_TRIES_MAX = 50
AFTER_FAILURE = 10.0
SCAN_INTERVAL = 10.0  # how often silent clients are looked for

# A client's VIP channel is there for sends: that no pull can hold up.
NOT_ON_VIP = frozenset(
    {
        RequestCode.PULL_MESSAGE,
        RequestCode.LITE_PULL_MESSAGE,
        RequestCode.POP_MESSAGE,
        RequestCode.NOTIFICATION,
        RequestCode.POLLING_INFO,
    }
)


class Broker:
    """A broker on a folder. Its parts are public, for the processors; `start` gives them life."""

    def __init__(
        self,
        settings: BrokerSettings,
        folder: Path,
        *,
        disk: Disk | None = None,
        network: Network | None = None,
        clock: Clock | None = None,
        dice: random.Random | None = None,
        faults: Faults | None = None,
        tls: ServerTls | None = None,
    ) -> None:
        # A copy, which all parts share: some settings can be changed while we run.
        self.settings = settings = replace(settings)
        self.clock = clock or SystemClock()
        self.network = network or AsyncioNetwork()
        self.dice = dice or random.Random()
        self._tls = tls or ServerTls()
        self.faults = faults if faults is not None else Faults(self.clock.monotonic)
        self._fault_layer = FaultLayer(self.faults, self.dice, self.cut_connections)
        disk = FillableDisk(disk or RealDisk(), self.faults)
        self.store = MessageStore(folder, settings.store, disk=disk, clock=self.clock)
        config = folder / "config"
        self.topics = TopicConfigs(
            settings, AtomicFile(config / "topics.json", disk=disk), self.clock
        )
        self.groups = SubscriptionGroups(
            settings, AtomicFile(config / "subscriptionGroup.json", disk=disk), self.clock
        )
        self.offsets = ConsumerOffsets(
            AtomicFile(config / "consumerOffset.json", disk=disk), self.clock
        )
        self.clients = Clients(clients_max=settings.clients_max)
        self.checks = SendChecks(settings, self.topics, self.clock)
        self.slaves = Slaves(settings, self.store, self.network, tls=self._tls)
        self.slaves.are_detached = lambda: self.faults.is_now(FaultKind.DETACH_SLAVES)
        self.puts = Puts(settings, self.store, self.slaves, self.clock)
        self.flow_control = FlowControl(settings, self.store, self.clock)
        self.delays = DelayedMessages(
            settings,
            self.store,
            self.puts,
            AtomicFile(config / "delayOffset.json", disk=disk),
            self.clock,
        )
        self.timers = TimedMessages(
            settings,
            self.store,
            self.puts,
            AtomicFile(config / "timercheck", disk=disk),
            self.clock,
        )
        self.held_pulls = HeldPulls(settings, self.store)
        self.queue_locks = QueueLocks(self.clock)
        self.notices = GroupNotices(settings, self.clients, self.groups)
        self.access = AccessGuard(settings)
        self.rates = Rates(self.store.stats, self.clock)
        self.pop = PopPart(
            settings,
            self.store,
            self.puts,
            self.topics,
            self.offsets,
            config,
            disk=disk,
            clock=self.clock,
            dice=self.dice,
        )
        tables = (self.topics, self.groups, self.offsets, self.delays, self.timers)
        self._saved_tables = [*(table.saved for table in tables), *self.pop.saved]
        # Known when it listens.
        self.started_ms: int
        self.address: Address
        self.ha_address: Address
        self.store_host: bytes
        self.property_treatment: PropertyTreatment
        self.transactions: Transactions
        self.registration: Registration
        self.slave_sync: SlaveSync  # of a slave
        self.plain_sends: TakesPlain | None = None  # since the first send
        self.plain_pulls: TakesPlain | None = None  # since the first pull
        self._dispatch: Handler = _not_yet
        self._dispatch_vip: Handler = _not_yet
        self._servers: list[Server] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._loop: asyncio.AbstractEventLoop

    async def start(self) -> None:
        """Open the store, listen, and tell the NameServers; on failure nothing is left open."""
        settings = self.settings
        self._loop = asyncio.get_running_loop()
        self.faults.on_changed.add(self._tell_of_faults)
        self.faults.on_cut.add(self._cut_soon)
        self.access.load()
        await self.store.open(is_copy=settings.is_slave)
        try:
            self.topics.load()
            self.groups.load()
            self.offsets.load()
            self.delays.load()
            self.timers.load()
            await self._listen()
            await self._listen_for_slaves()
            self._serve()
            await self.registration.start()
        except BaseException:
            await self._close_parts()
            raise
        works: list[Callable[[], Awaitable[None]]]
        works = [self._forget_silent_clients, self._save_offsets, self._sample_rates]
        if self.access.is_on:
            works.append(self.access.reload_forever)
        if settings.is_slave:
            works += [self.slave_sync.copy_log_forever, self.slave_sync.copy_tables_forever]
        else:
            works += [self.delays.deliver_forever, self.transactions.check_forever, self.pop.work]
            if settings.timer_wheel_enable:
                works.append(self.timers.deliver_forever)
        self._tasks = [asyncio.create_task(self._keep_going(work)) for work in works]
        log.info("broker %s serves at %s", settings.broker_name, self.address)

    async def close(self) -> None:
        """Tell the NameServers, keep what was stored, and let go of the clients."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self.registration.close()
        await self._close_parts()
        log.info("broker %s is closed", self.settings.broker_name)

    async def kill(self) -> None:
        """End as a crash would: nothing more is written, and nobody is told."""
        self.store.kill()
        self.flow_control.close()
        self._stop_reading()
        for table in self._saved_tables:
            table.kill()
        for task in self._tasks:
            task.cancel()
        self.registration.kill()
        await self.slaves.close()
        self.cut_connections()
        await asyncio.gather(*(server.close() for server in self._servers))
        await asyncio.sleep(0)  # for the cancelled to notice

    def _stop_reading(self) -> None:
        self.held_pulls.close()
        self.pop.stop()
        self.notices.close()
        self.faults.on_changed.discard(self._tell_of_faults)
        self.faults.on_cut.discard(self._cut_soon)
        self._fault_layer.close()

    async def _close_parts(self) -> None:
        self.flow_control.close()
        self._stop_reading()
        # The store first: puts that wait are answered before their connections close.
        await self.store.close()
        await self.slaves.close()
        for _ in range(2):  # to note what was done, and then that it is safe
            self.pop.save_if_changed()
        self.offsets.save_if_changed()
        self.delays.save_if_changed()
        self.timers.save_if_changed()
        await asyncio.gather(*(table.wait_saved() for table in self._saved_tables))
        await asyncio.gather(*(server.close() for server in self._servers))

    # Listening.

    async def _listen(self) -> None:
        """Listen on the port and on the VIP port two below it."""
        host, port = self.settings.host, self.settings.listen_port
        for tries_left in reversed(range(PORT_TRIES_MAX if port == 0 else 1)):
            main, vip = self._servers = [
                Server(
                    self.network,
                    handle,
                    on_lost=self._lost,
                    holds_answer=self._fault_layer.holds,
                    takes_plain=takes_plain,
                    tls=self._tls,
                )
                for handle, takes_plain in (
                    (self._handle, self._take_plain),
                    (self._handle_vip, self._take_plain_sends),
                )
            ]
            self.address = await main.listen(Address(host, port))
            try:
                await vip.listen(Address(host, self.address.port + VIP_PORT_SHIFT))
                return
            except InvalidSetting:
                if not tries_left:
                    raise
                await main.close()

    async def _listen_for_slaves(self) -> None:
        address, port = self.address, self.settings.ha_listen_port
        if port is None:
            port = address.port + 1 if self.settings.listen_port else 0
        self.ha_address = Address(address.host, port)
        if not self.settings.is_slave:
            self.ha_address = await self.slaves.listen(self.ha_address)

    def _serve(self) -> None:
        """Make the parts that had to know our address; from now on requests are answered."""
        settings, address = self.settings, self.address
        self.started_ms = self.clock.wall_ms()
        self.store_host = packed_host(str(address))
        next_unique_id = UniqueIdGenerator(
            self.store_host[:-4],
            self.dice.getrandbits(16),
            self.dice.getrandbits(32),
            self.clock.wall_ms,
        )
        self.property_treatment = PropertyTreatment(settings, next_unique_id)
        self.transactions = Transactions(
            settings,
            self.store,
            self.puts,
            self.topics,
            self.offsets,
            self.clients,
            self.clock,
            store_host=self.store_host,
            next_unique_id=next_unique_id,
        )
        self.transactions.load()
        if not settings.is_slave:
            self.pop.load(self.store_host)
        self.registration = Registration(
            settings,
            self.topics,
            self.network,
            broker_address=address,
            ha_address=self.ha_address,
            tls=self._tls.client,
        )
        if settings.is_slave:
            self._make_slave()
        handlers = all_handlers(self)
        if settings.faults_enable:
            handlers[CONTROL_FAULTS] = self._fault_layer.control
        on_vip = {code: handler for code, handler in handlers.items() if code not in NOT_ON_VIP}
        self._dispatch, self._dispatch_vip = (
            self._fault_layer.around(self.access.around(dispatch_by_code(each)))
            for each in (handlers, on_vip)
        )

    def _make_slave(self) -> None:
        from rocketpipe.broker.slave import SlaveSync  # late: masters need none of it

        self.slave_sync = SlaveSync(
            self.settings,
            self.store,
            self.topics,
            self.groups,
            self.offsets,
            self.delays,
            self.timers,
            self.registration,
            self.network,
            tls=self._tls.client,
            credentials=lambda: self.access.inner_client,
        )

    def _tell_of_faults(self) -> None:
        self._loop.call_soon_threadsafe(self._faults_changed)  # any thread may change them

    def _faults_changed(self) -> None:
        self._fault_layer.changed()
        if self.faults.is_now(FaultKind.DETACH_SLAVES):
            self.slaves.detach()

    def _cut_soon(self) -> None:
        self._loop.call_soon_threadsafe(self.cut_connections)

    def cut_connections(self, spared: Connection | None = None) -> None:
        """Cut every connection, but perhaps one; whoever lost his may come back at once."""
        for server in self._servers:
            for connection in server.connections:
                if connection is not spared:
                    connection.abort()

    def _lost(self, connection: Connection) -> None:
        self.held_pulls.forget_connection(connection)
        self.pop.forget_connection(connection)
        self.clients.forget_connection(connection)

    def _handle(
        self, connection: Connection, request: RemotingCommand
    ) -> Outcome | Awaitable[Outcome]:
        return self._dispatch(connection, request)

    def _handle_vip(
        self, connection: Connection, request: RemotingCommand
    ) -> Outcome | Awaitable[Outcome]:
        return self._dispatch_vip(connection, request)

    def _take_plain(self, connection: Connection, decoder: FrameDecoder, most: int) -> int:
        taken = self._take_plain_sends(connection, decoder, most)
        if not taken and self.plain_pulls is not None:
            taken = self.plain_pulls(connection, decoder, most)
        return taken

    def _take_plain_sends(self, connection: Connection, decoder: FrameDecoder, most: int) -> int:
        return self.plain_sends(connection, decoder, most) if self.plain_sends is not None else 0

    # In the background.

    async def _keep_going(self, work: Callable[[], Awaitable[None]]) -> None:
        """Work until cancelled: a mistake of ours in one work must not end it, nor any other."""
        while True:
            try:
                await work()
            except Exception:
                log.exception("broker %s stumbled, and goes on", self.settings.broker_name)
            await asyncio.sleep(AFTER_FAILURE)

    async def _forget_silent_clients(self) -> None:
        while True:
            await asyncio.sleep(SCAN_INTERVAL)
            since = self.clock.monotonic() - self.settings.channel_expired_timeout
            for connection in self.clients.forget_silent(since):
                connection.abort()
            self.queue_locks.forget_expired()

    async def _sample_rates(self) -> None:
        while True:
            await asyncio.sleep(SAMPLE_INTERVAL)
            self.rates.sample()

    async def _save_offsets(self) -> None:
        async def save(
            interval: float, *tables: ConsumerOffsets | DelayedMessages | TimedMessages | PopPart
        ) -> None:
            while True:
                await asyncio.sleep(interval)
                for table in tables:
                    table.save_if_changed()

        settings = self.settings
        await asyncio.gather(
            save(settings.flush_consumer_offset_interval, self.pop, self.offsets),
            save(settings.flush_delay_offset_interval, self.delays),
            save(settings.timer_flush_interval, self.timers),
        )


def _not_yet(connection: Connection, request: RemotingCommand) -> None:
    """A broker that is only starting: who lost a connection knows that he may try again."""
    connection.abort()
