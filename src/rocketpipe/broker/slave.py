"""What a slave does: copies its master's log, and the tables that are not in the log.

A master that lost power may come back without the end of its log, which its slave has, and then
write other messages in its place. So a slave never takes for granted that what it has is what its
master has. It asks for the end of its own log once more, whenever it connects, and compares. Where
the two differ it ends its log, sets the rest aside, and copies on from there.

As long as such a master has not written as much as it lost, what the slave has more is kept: it may
be all that is left of it.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import NamedTuple

from rocketpipe.broker.delays import DelayedMessages
from rocketpipe.broker.groups import SubscriptionGroups
from rocketpipe.broker.offsets import ConsumerOffsets
from rocketpipe.broker.registration import Registration
from rocketpipe.broker.replication import FRAME_HEAD, REPORT, Throughput
from rocketpipe.broker.settings import BrokerSettings
from rocketpipe.broker.store.message_store import MessageStore
from rocketpipe.broker.timers import TimedMessages
from rocketpipe.broker.topics import TopicConfigs
from rocketpipe.errors import BrokerError, InvalidSetting, MalformedData, MQError, StoreError
from rocketpipe.remoting.address import Address
from rocketpipe.remoting.connection import Connection, connect
from rocketpipe.remoting.network import Network
from rocketpipe.remoting.tls import TlsSettings, client_context
from rocketpipe.wire.requests.admin import (
    GetAllConsumerOffset,
    GetAllDelayOffset,
    GetAllSubscriptiongroupConfig,
    GetAllTopicConfig,
    GetBrokerRuntimeInfo,
    GetTimerCheckPoint,
)
from rocketpipe.wire.requests.nameserver import RegisterBrokerReply
from rocketpipe.wire.signature import Credentials

log = logging.getLogger(__name__)

CONNECT_TIMEOUT = 3.0
REQUEST_TIMEOUT = 3.0
RECONNECT_DELAY = 1.0  # RocketMQ: 5 s
FRAME_BYTES_MAX = 16 * 1024 * 1024
# How much of its log a slave compares when it connects. A master can only have lost what it had not
# synced, of half a second or so. It may have kept records behind some that it lost, so it is not
# enough to look at the last one.
COMPARED_BYTES = 16 * 1024 * 1024
COMPARED_TIMES_MORE = 8  # where all of that differs


class LogSpan(NamedTuple):
    """From where to where a log reaches."""

    start: int
    end: int

    def __str__(self) -> str:
        return f"from {self.start} to {self.end}"


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
        self._compared_bytes = COMPARED_BYTES
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
            if self._master is not None and self.master_ha is not None:
                try:
                    await self._copy_log(self._master, self.master_ha)
                except StoreError as error:
                    log.error("our copy of the master's log: %s", error)
                except MQError as error:
                    log.info("the master's log: %s", error)
            await asyncio.sleep(RECONNECT_DELAY)
            self._registration.register_soon()  # whose answer says where our master is by now

    async def _copy_log(self, master: Address, master_ha: Address) -> None:
        """Copy until the connection ends."""
        shared = await self._shared_span(master)
        if shared is None:
            return
        from_offset = self._compare_from(shared)
        link = await self._network.connect(
            master_ha,
            lambda: _MasterLink(self._settings, self._store, from_offset),
            timeout=CONNECT_TIMEOUT,
            tls=client_context(self._tls) if self._tls is not None else None,
        )
        log.info("copying the log of %s from %d", master_ha, self._store.max_physical_offset)
        self._wake.set()
        self.link = link
        try:
            await link.ended
        finally:
            self.link = None
            link.end("we are done")
        if link.differs_at is not None:
            await self._part(link.differs_at, from_offset, shared)

    async def _shared_span(self, master: Address) -> LogSpan | None:
        """Where both logs have something, and so can be compared; None when there is no way on."""
        store = self._store
        ours = LogSpan(store.min_physical_offset, store.max_physical_offset)
        if not ours.end:
            return ours  # whatever the master has is new to us
        theirs = await self._span_of(master)
        shared = LogSpan(max(ours.start, theirs.start), min(ours.end, theirs.end))
        if shared.start < shared.end:
            if theirs.end < ours.end:
                log.warning("our log is %s, and the master's %s: it lost its end", ours, theirs)
            return shared
        if theirs.start < theirs.end:
            await self._cut(0, f"our log is {ours}, and the master's {theirs}")
        else:  # it does not contradict us yet
            log.info("our log is %s, and the master's is empty", ours)
        return None

    async def _span_of(self, master: Address) -> LogSpan:
        # Over the port for clients: where slaves connect nothing can be asked.
        connection = await self._connect(master)
        try:
            told = await connection.request(GetBrokerRuntimeInfo(), timeout=REQUEST_TIMEOUT)
        finally:
            await connection.close()
        try:
            return LogSpan(
                max(0, int(told.table["commitLogMinOffset"])),  # RocketMQ: -1 while there is none
                int(told.table["commitLogMaxOffset"]),
            )
        except (KeyError, ValueError) as error:
            raise MalformedData(f"{master} does not tell where its log is") from error

    def _compare_from(self, shared: LogSpan) -> int:
        """A place where a record begins in our log, or what both have does."""
        if shared.end - shared.start <= self._compared_bytes:
            return shared.start
        wanted = shared.end - self._compared_bytes
        return max(shared.start, self._store.log_copy.record_start(wanted))

    async def _part(self, differs_at: int, from_offset: int, shared: LogSpan) -> None:
        """Cut off what our master does not have, or look for it further back the next time."""
        log_copy = self._store.log_copy
        agreed_end = log_copy.record_start(differs_at)
        # A whole record is no coincidence, for it says where it stands and when it was stored.
        if log_copy.has_record(from_offset, agreed_end):
            await self._cut(agreed_end, f"it differs from our master's at {differs_at}")
        elif from_offset > shared.start:
            self._compared_bytes *= COMPARED_TIMES_MORE
            log.warning("our log differs from our master's at %d, or before", differs_at)
        else:
            await self._cut(0, f"it differs from our master's at {differs_at} and all before")

    async def _cut(self, offset: int, reason: str) -> None:
        end = self._store.max_physical_offset
        aside = await self._store.log_copy.cut(offset)
        self._compared_bytes = COMPARED_BYTES
        log.error(
            "our log was cut from %d on, to be copied again: %s. What it had up to %d is in %s of "
            "the folder commitlog, and is never deleted by us",
            *(self._store.max_physical_offset, reason, end, aside),
        )

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
            connection = await self._connect(master)
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

    async def _connect(self, master: Address) -> Connection:
        return await connect(
            self._network,
            master,
            timeout=CONNECT_TIMEOUT,
            tls=self._tls,
            credentials=self._credentials(),
        )


class _MasterLink(asyncio.Protocol):
    """The master, as its slave sees it.

    What it sends from an offset on is compared with what we have, and appended behind that.
    """

    def __init__(self, settings: BrokerSettings, store: MessageStore, from_offset: int) -> None:
        self._settings = settings
        self._store = store
        # RocketMQ takes 0 for a slave that has nothing, and begins with its last file.
        self._next = max(1, from_offset) if store.max_physical_offset else 0
        self.differs_at: int | None = None  # where the master's log is not ours
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
        before = self._next
        try:
            while not self.ended.done() and self._take_frame():
                pass
        except StoreError as error:
            self.end(str(error))
        if self._next != before and not self.ended.done():
            self._report()

    def _take_frame(self) -> bool:
        """Whether there was a whole frame to take."""
        if len(self._unread) < FRAME_HEAD.size:
            return False
        offset, size = FRAME_HEAD.unpack_from(self._unread)
        is_next = offset == self._next or not self._store.max_physical_offset
        if not is_next or offset < 0 or not 0 <= size <= FRAME_BYTES_MAX:
            self.end(f"{size} bytes for {offset}, but we are at {self._next}")
            return False
        end = FRAME_HEAD.size + size
        if len(self._unread) < end:
            return False
        if size:
            self._take(offset, bytes(self._unread[FRAME_HEAD.size : end]))
        del self._unread[:end]
        return True

    def _take(self, offset: int, data: bytes) -> None:
        store = self._store
        have = store.max_physical_offset or offset
        self.differs_at = store.log_copy.first_difference(offset, data)
        if self.differs_at is not None:
            self.end(f"our log differs from the master's at {self.differs_at}")
            return
        if new := data[max(0, have - offset) :]:
            store.append_raw(have, new)
        self._next = offset + len(data)

    def _report(self) -> None:
        assert self._transport is not None
        self.reported_at = self._loop.time()
        self._transport.write(REPORT.pack(self._next))

    def _watch(self) -> None:
        now = self._loop.time()
        settings = self._settings
        if now - self.heard_at >= settings.ha_housekeeping_interval:
            self.end(f"nothing heard for {settings.ha_housekeeping_interval:.3g} s")
            return
        if now - self.reported_at >= settings.ha_send_heartbeat_interval:
            self._report()
        self._timer = self._loop.call_later(settings.ha_send_heartbeat_interval / 2, self._watch)
