"""What a slave does: copies its master's log, and the tables that are not in the log."""

import asyncio
import logging
from collections.abc import Callable

from rocketpipe.broker.delays import DelayedMessages
from rocketpipe.broker.groups import SubscriptionGroups
from rocketpipe.broker.offsets import ConsumerOffsets
from rocketpipe.broker.registration import Registration
from rocketpipe.broker.replication import FRAME_HEAD, REPORT, Throughput
from rocketpipe.broker.settings import BrokerSettings
from rocketpipe.broker.store.message_store import MessageStore
from rocketpipe.broker.timers import TimedMessages
from rocketpipe.broker.topics import TopicConfigs
from rocketpipe.errors import BrokerError, InvalidSetting, MQError, StoreError
from rocketpipe.remoting.address import Address
from rocketpipe.remoting.connection import connect
from rocketpipe.remoting.network import Network
from rocketpipe.remoting.tls import TlsSettings, client_context
from rocketpipe.wire.requests.admin import (
    GetAllConsumerOffset,
    GetAllDelayOffset,
    GetAllSubscriptiongroupConfig,
    GetAllTopicConfig,
    GetTimerCheckPoint,
)
from rocketpipe.wire.requests.nameserver import RegisterBrokerReply
from rocketpipe.wire.signature import Credentials

log = logging.getLogger(__name__)

CONNECT_TIMEOUT = 3.0
REQUEST_TIMEOUT = 3.0
RECONNECT_DELAY = 1.0  # RocketMQ: 5 s
FRAME_BYTES_MAX = 16 * 1024 * 1024


class SlaveSync:
    """Keeps a slave's store and tables like its master's, for as long as there is one."""

    def __init__(
        self,
        settings: BrokerSettings,
        store: MessageStore,
        topics: TopicConfigs,
        groups: SubscriptionGroups,
        offsets: ConsumerOffsets,
        delays: DelayedMessages,
        timers: TimedMessages,
        registration: Registration,
        network: Network,
        *,
        tls: TlsSettings | None = None,
        credentials: Callable[[], Credentials | None] = lambda: None,
    ) -> None:
        self._settings = settings
        self._store = store
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._delays = delays
        self._timers = timers
        self._registration = registration
        self._network = network
        self._tls = tls
        self._credentials = credentials  # as whom we ask, where the master checks
        self.master_ha: Address | None = None
        self.link: _MasterLink | None = None  # while there is one
        self._master: Address | None = None
        self._wake = asyncio.Event()
        registration.on_master.append(self._take_master)

    def _take_master(self, reply: RegisterBrokerReply) -> None:
        try:
            self._master = Address.parse(reply.master_addr) if reply.master_addr else None
            self.master_ha = Address.parse(reply.ha_server_addr) if reply.ha_server_addr else None
        except InvalidSetting as error:
            log.warning("a NameServer's idea of our master: %s", error)

    # The log.

    async def copy_log_forever(self) -> None:
        while True:
            if self.master_ha is not None:
                await self._copy_log(self.master_ha)
            await asyncio.sleep(RECONNECT_DELAY)
            self._registration.register_soon()  # whose answer says where our master is by now

    async def _copy_log(self, master: Address) -> None:
        """Copy until the connection ends."""
        try:
            link = await self._network.connect(
                master,
                lambda: _MasterLink(self._settings, self._store),
                timeout=CONNECT_TIMEOUT,
                tls=client_context(self._tls) if self._tls is not None else None,
            )
        except MQError as error:
            log.info("the master's log: %s", error)
            return
        log.info("copying the log of %s from %d", master, self._store.max_physical_offset)
        self._wake.set()
        self.link = link
        try:
            await link.ended
        finally:
            self.link = None
            link.end("we are done")

    # The tables.

    async def copy_tables_forever(self) -> None:
        self._store.on_arrival.append(self._arrived)
        try:
            while True:
                if self._master is not None:
                    await self._copy_tables(self._master)
                self._wake.clear()
                try:
                    async with asyncio.timeout(self._settings.slave_sync_interval):
                        await self._wake.wait()
                except TimeoutError:
                    pass
        finally:
            self._store.on_arrival.remove(self._arrived)

    def _arrived(self, topic: str, *_: object) -> None:
        if topic not in self._topics.table:  # else nobody could read it until the next round
            self._wake.set()

    async def _copy_tables(self, master: Address) -> None:
        try:
            connection = await connect(
                self._network,
                master,
                timeout=CONNECT_TIMEOUT,
                tls=self._tls,
                credentials=self._credentials(),
            )
        except MQError as error:
            log.info("the master's tables: %s", error)
            return
        timeout = REQUEST_TIMEOUT
        try:
            topics = await connection.request(GetAllTopicConfig(), timeout=timeout)
            if topics.data_version != self._topics.data_version:
                self._topics.replace_all(topics.topic_config_table, topics.data_version)
            self._offsets.replace_all(
                await connection.request(GetAllConsumerOffset(), timeout=timeout)
            )
            self._delays.replace_all(await connection.request(GetAllDelayOffset(), timeout=timeout))
            groups = await connection.request(GetAllSubscriptiongroupConfig(), timeout=timeout)
            if groups.data_version != self._groups.data_version:
                self._groups.replace_all(groups)
            try:
                self._timers.replace_all(
                    await connection.request(GetTimerCheckPoint(), timeout=timeout)
                )
            except BrokerError as error:  # of a master before 5.0
                log.debug("the master's timers: %s", error)
        except MQError as error:
            log.warning("the tables of %s were not copied: %s", master, error)
        finally:
            await connection.close()


class _MasterLink(asyncio.Protocol):
    """The master, as its slave sees it."""

    def __init__(self, settings: BrokerSettings, store: MessageStore) -> None:
        self._settings = settings
        self._store = store
        self._loop = asyncio.get_running_loop()
        self.ended = self._loop.create_future()
        self._transport: asyncio.Transport | None = None
        self._unread = bytearray()
        self.heard_at = self.reported_at = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._throughput = Throughput(self._loop.time())

    def bytes_per_second(self) -> int:
        """How much came of late."""
        return self._throughput.per_second(self._loop.time())

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._report()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self.end(str(exc or "the master closed it"))

    def end(self, reason: str) -> None:
        if not self.ended.done():
            log.info("no longer copying: %s", reason)
            self.ended.set_result(None)
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self.heard_at = self._loop.time()
        self._throughput.add(len(data), self.heard_at)
        self._unread += data
        before = self._store.max_physical_offset
        try:
            while not self.ended.done() and self._take_frame():
                pass
        except StoreError as error:
            self.end(str(error))
        if self._store.max_physical_offset != before and not self.ended.done():
            self._report()

    def _take_frame(self) -> bool:
        """Whether there was a whole frame to take."""
        if len(self._unread) < FRAME_HEAD.size:
            return False
        offset, size = FRAME_HEAD.unpack_from(self._unread)
        have = self._store.max_physical_offset
        if have not in (0, offset) or offset < 0 or not 0 <= size <= FRAME_BYTES_MAX:
            self.end(f"{size} bytes for {offset}, but our log ends at {have}")
            return False
        end = FRAME_HEAD.size + size
        if len(self._unread) < end:
            return False
        if size:
            self._store.append_raw(offset, bytes(self._unread[FRAME_HEAD.size : end]))
        del self._unread[:end]
        return True

    def _report(self) -> None:
        assert self._transport is not None
        self.reported_at = self._loop.time()
        self._transport.write(REPORT.pack(self._store.max_physical_offset))

    def _watch(self) -> None:
        now = self._loop.time()
        settings = self._settings
        if now - self.heard_at >= settings.ha_housekeeping_interval:
            self.end(f"nothing heard for {settings.ha_housekeeping_interval:.3g} s")
            return
        if now - self.reported_at >= settings.ha_send_heartbeat_interval:
            self._report()
        self._timer = self._loop.call_later(settings.ha_send_heartbeat_interval / 2, self._watch)
