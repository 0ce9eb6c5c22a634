"""How a master feeds its slaves: raw bytes of its log, over connections of their own.

A slave connects and says how far its log reaches: 8 bytes, and again whenever that changes, and
every few seconds. The master sends frames: an offset (8 bytes), a size (4), and that many bytes of
its log; a frame of size 0 only says that it is there. Who hears nothing for long closes.

A slave that has nothing yet is given the whole log (RocketMQ: its last file only). A master does
not feed a slave whose log it can't continue: neither one that ends before ours begins, nor one that
goes beyond our end, for its last part is not ours. Whether all before is ours nobody asks: a slave
of RocketMQ's can't tell, and ours compares by itself (see slave.py).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import NamedTuple

from rocketpipe.broker.settings import BrokerRole, BrokerSettings
from rocketpipe.broker.store.message_store import MessageStore
from rocketpipe.codes import ResponseCode
from rocketpipe.remoting.address import Address
from rocketpipe.remoting.network import Listener, Network
from rocketpipe.remoting.tls import ServerTls, server_context

log = logging.getLogger(__name__)

FRAME_HEAD = Struct(">qi")  # offset in the log, size
REPORT = Struct(">q")  # how far a slave's log reaches
SLAVES_MAX = 64
FRAMES_PER_TURN = 32

# SUCCESS, FLUSH_SLAVE_TIMEOUT or SLAVE_NOT_AVAILABLE.
Replicated = Callable[[ResponseCode], None]


class Throughput:
    """How many bytes go by in a second: in the last one that is over."""

    def __init__(self, now: float) -> None:
        self._since = now
        self._bytes = self._rate = 0

    def add(self, count: int, now: float) -> None:
        self._turn(now)
        self._bytes += count

    def per_second(self, now: float) -> int:
        self._turn(now)
        return self._rate

    def _turn(self, now: float) -> None:
        elapsed = now - self._since
        if elapsed >= 1:
            self._rate, self._bytes, self._since = round(self._bytes / elapsed), 0, now


class _Waiting(NamedTuple):
    """Someone who waits until slaves have the log up to an offset."""

    end_offset: int
    deadline: float
    done: Replicated


class Slaves:
    """The slaves of a master: feeds them, and knows what they have."""

    def __init__(
        self,
        settings: BrokerSettings,
        store: MessageStore,
        network: Network,
        *,
        tls: ServerTls | None = None,
    ) -> None:
        self.links: dict[_SlaveLink, None] = {}  # a dict for its order
        self._settings = settings
        self._store = store
        self._network = network
        self._tls = tls or ServerTls()
        self.are_detached: Callable[[], bool] = lambda: False  # for now, on purpose
        self._needed = settings.in_sync_replicas - 1
        self._listener: Listener | None = None
        self._waiting: deque[_Waiting] = deque()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def are_waited_for(self) -> bool:
        """Whether a message counts as stored only when slaves have it."""
        return self._needed > 0 and self._settings.broker_role is BrokerRole.SYNC_MASTER

    async def listen(self, address: Address) -> Address:
        """Let slaves come; the answer has the real port when 0 was asked."""
        # RocketMQ's is plain always. Ours has the messages of all, so it goes by the same rules as
        # the ports for clients; slaves of RocketMQ can come unless TLS is enforced.
        tls = server_context(self._tls.server) if self._tls.server is not None else None
        self._listener = await self._network.listen(
            address, self._make_link, tls=tls, tls_mode=self._tls.mode
        )
        self._store.on_written.append(self._written)
        return self._listener.address

    async def close(self) -> None:
        """Let all slaves go."""
        if self._listener is not None:
            await self._listener.close()
        for link in list(self.links):
            link.leave("we are closing")
        while self._waiting:
            self._waiting.popleft().done(ResponseCode.FLUSH_SLAVE_TIMEOUT)
        if self._timer is not None:
            self._timer.cancel()

    def detach(self) -> None:
        """Let all slaves go; they come back when they are no longer detached."""
        for link in list(self.links):
            link.leave("it is detached on purpose")

    def wait(self, end_offset: int, done: Replicated) -> None:
        """Call this when enough slaves have the log up to there, or it is clear they won't.

        As in 4.9: without enough slaves that are close behind nobody waits at all.
        """
        if self._common_offset() >= end_offset:
            done(ResponseCode.SUCCESS)
            return
        gap_max = self._settings.ha_max_gap_not_in_sync
        near = sum(end_offset - link.acked <= gap_max for link in self.links if link.is_fed)
        if near < self._needed:
            done(ResponseCode.SLAVE_NOT_AVAILABLE)
            return
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._settings.slave_timeout
        self._waiting.append(_Waiting(end_offset, deadline, done))
        if self._timer is None:
            self._timer = loop.call_at(deadline, self._expire)

    def _common_offset(self) -> int:
        """How far the log reaches on as many slaves as are needed."""
        acked = sorted((link.acked for link in self.links), reverse=True)
        return acked[self._needed - 1] if len(acked) >= self._needed > 0 else -1

    def _expire(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting and self._waiting[0].deadline <= loop.time():
            self._waiting.popleft().done(ResponseCode.FLUSH_SLAVE_TIMEOUT)
        self._timer = (
            loop.call_at(self._waiting[0].deadline, self._expire) if self._waiting else None
        )

    def acknowledged(self) -> None:
        """A slave has more than before."""
        common = self._common_offset()
        # Those who wait came in the order of the log, or nearly so: a later one may be done first,
        # but is only looked at when those before it are.
        while self._waiting and self._waiting[0].end_offset <= common:
            self._waiting.popleft().done(ResponseCode.SUCCESS)

    def _written(self, _: int) -> None:
        for link in self.links:
            link.feed()

    def _make_link(self) -> "_SlaveLink":
        return _SlaveLink(self, self._settings, self._store)


class _SlaveLink(asyncio.Protocol):
    """One slave, as its master sees it."""

    def __init__(self, slaves: Slaves, settings: BrokerSettings, store: MessageStore) -> None:
        self.address = "?"
        self.acked = -1  # how far the slave's log reaches
        self.is_fed = False
        self._slaves = slaves
        self._settings = settings
        self._store = store
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._next = -1  # the offset to send from
        self._throughput = Throughput(self._loop.time())
        self._is_paused = False
        self._unread = b""
        self._heard_at = self._sent_at = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        host, port, *_ = transport.get_extra_info("peername")
        self.address = str(Address(host, port))
        if len(self._slaves.links) >= SLAVES_MAX:
            self.leave("there are too many slaves")
            return
        if self._slaves.are_detached():
            self.leave("it is detached on purpose")
            return
        self._slaves.links[self] = None
        log.info("slave %s is here", self.address)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()

    def leave(self, reason: str) -> None:
        log.info("slave %s is let go: %s", self.address, reason)
        self._forget()
        if self._transport is not None:
            self._transport.abort()

    def _forget(self) -> None:
        self._slaves.links.pop(self, None)
        self.is_fed = False
        if self._timer is not None:
            self._timer.cancel()

    @property
    def next_offset(self) -> int:
        """What it will be sent next."""
        return self._next

    def bytes_per_second(self) -> int:
        """How much it was sent of late."""
        return self._throughput.per_second(self._loop.time())

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        self.feed()

    def data_received(self, data: bytes) -> None:
        self._heard_at = self._loop.time()
        data = self._unread + data
        whole = len(data) - len(data) % REPORT.size
        self._unread = data[whole:]
        if whole:
            (reported,) = REPORT.unpack_from(data, whole - REPORT.size)
            self._take_report(reported)

    def _take_report(self, reported: int) -> None:
        if self._next < 0:
            first, last = self._store.min_physical_offset, self._store.max_physical_offset
            self._next = reported or first
            if not first <= self._next <= last:
                self.leave(f"its log ends at {reported}, and ours is from {first} to {last}")
                return
            log.info("slave %s is fed from %d", self.address, self._next)
            self.is_fed = True
        if reported > self._next:
            self.leave(f"it claims to have {reported}, and got {self._next}")
            return
        self.acked = reported
        self.feed()
        self._slaves.acknowledged()

    def feed(self) -> None:
        """Send what it has not got, as much as the connection takes."""
        for _ in range(FRAMES_PER_TURN):
            if not self.is_fed or self._is_paused:
                return
            data = self._store.log_slice(self._next, self._settings.ha_transfer_batch_size)
            if not data:
                return
            self._send(data)
            self._next += len(data)
        self._loop.call_soon(self.feed)  # one that is far behind must not keep others waiting

    def _send(self, data: bytes) -> None:
        assert self._transport is not None
        self._sent_at = self._loop.time()
        self._throughput.add(len(data), self._sent_at)
        self._transport.write(FRAME_HEAD.pack(self._next, len(data)) + data)

    def _watch(self) -> None:
        now = self._loop.time()
        settings = self._settings
        if now - self._heard_at >= settings.ha_housekeeping_interval:
            self.leave(f"nothing heard for {settings.ha_housekeeping_interval:.3g} s")
            return
        if self.is_fed and now - self._sent_at >= settings.ha_send_heartbeat_interval:
            self._send(b"")
        self._timer = self._loop.call_later(settings.ha_send_heartbeat_interval / 2, self._watch)
