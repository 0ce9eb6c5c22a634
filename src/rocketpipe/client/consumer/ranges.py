"""Reading a range of a queue's offsets for bulk readers: whole answers, several on their way.

A stock broker gives 32 messages for a pull, so who waits for each answer before he asks again
waits most of the time. Offsets are dense in a queue: pulls for the next ranges can be asked for
before the first is answered. An answer may be shorter than its range; the rest of it is then asked
for before anything after it is given out.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from struct import Struct
from typing import NamedTuple, TypeVar

from rocketpipe.client.consumer.pulling import Pulled, Puller, PullStatus
from rocketpipe.client.consumer.settings import PullConsumerSettings
from rocketpipe.client.consumer.subscriptions import is_filtered
from rocketpipe.codes import ResponseCode
from rocketpipe.errors import BrokerError, InvalidSetting, MalformedRecord, OffsetGap, RemotingError
from rocketpipe.message import MessageQueue
from rocketpipe.wire.bodies.heartbeat import SubscriptionData
from rocketpipe.wire.record import RECORD_BYTES_MIN
from rocketpipe.wire.sys_flag import INNER_BATCH

log = logging.getLogger(__name__)

T = TypeVar("T")

FILTERED_SPAN = 16  # pulls' worth of offsets asked for at once where a filter leaves most out
RETRY_PAUSE = 0.2
# What a broker says when it can't now, but may soon.
PASSING = frozenset(
    {
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.FLOW_CONTROL,
        ResponseCode.GO_AWAY,
    }
)

_HEAD = Struct(">i16xq8xi")  # size, queue offset and sysFlag of a record


class _Span(NamedTuple):
    """The answers for some neighbouring offsets, and where the queue goes on after them."""

    bodies: list[bytes]
    next_offset: int


class RangeReader:
    """Pulls the offsets of one queue from `start` up to, and without, `end`."""

    def __init__(
        self,
        puller: Puller,
        settings: PullConsumerSettings,
        queue: MessageQueue,
        subscription: SubscriptionData,
        *,
        skip_gaps: bool,
        require_filter: Callable[[MessageQueue, SubscriptionData], Awaitable[None]],
    ) -> None:
        self._puller = puller
        self._settings = settings
        self._queue = queue
        self._subscription = subscription
        self._skips_gaps = skip_gaps
        self._require_filter = require_filter
        self._is_filtered = is_filtered(subscription)

    async def read(self, start: int, end: int) -> AsyncIterator[bytes]:
        """Answers in order, none of them empty."""
        if not 0 <= start <= end:
            raise InvalidSetting(f"no range of offsets: from {start} up to {end}")
        await self._patiently(
            lambda: self._require_filter(self._queue, self._subscription),
            PASSING - {ResponseCode.SYSTEM_ERROR},  # here it means that the broker has no SQL92
        )
        size = self._settings.pull_batch_size * (FILTERED_SPAN if self._is_filtered else 1)
        spans: deque[asyncio.Task[_Span]] = deque()
        offset = start
        loop = asyncio.get_running_loop()
        try:
            while spans or offset < end:
                while offset < end and len(spans) < self._settings.pulls_in_flight_max:
                    stop = min(offset + size, end)
                    spans.append(loop.create_task(self._read_span(offset, stop)))
                    offset = stop
                span = await spans[0]
                spans.popleft()
                offset = max(offset, span.next_offset)  # a gap: nothing to ask for before
                for body in span.bodies:
                    yield body
        finally:
            for each in spans:
                each.cancel()
            await asyncio.gather(*spans, return_exceptions=True)

    async def _read_span(self, start: int, end: int) -> _Span:
        bodies: list[bytes] = []
        offset = start
        while offset < end:
            pulled = await self._pull(offset, end - offset)
            if pulled.status is PullStatus.FOUND:
                found = self._check(pulled, offset)
                body = pulled.body if found[-1][1] < end else cut(pulled.body, found, end)
                if body:
                    bodies.append(body)
                offset = pulled.next_offset
            elif pulled.status is PullStatus.NO_MATCHED and self._is_filtered:
                offset = max(offset + 1, pulled.next_offset)
            else:
                offset = self._over_gap(offset, end, pulled)
        return _Span(bodies, offset)

    async def _pull(self, offset: int, messages_max: int) -> Pulled:
        """An answer; for the end of a queue a little later, as a queue follows the log."""
        loop = asyncio.get_running_loop()
        patience = loop.time() + self._settings.request_timeout
        count = min(messages_max, self._settings.pull_batch_size)
        while True:
            pulled = await self._patiently(
                lambda: self._puller.pull(
                    self._queue, offset, self._subscription, messages_max=count
                )
            )
            if pulled.status is not PullStatus.NO_NEW or loop.time() > patience:
                return pulled
            await asyncio.sleep(RETRY_PAUSE)

    async def _patiently(
        self, ask: Callable[[], Awaitable[T]], passing: Collection[int] = PASSING
    ) -> T:
        """What a broker answers, which may be busy or restart meanwhile."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._settings.pull_timeout
        while True:
            try:
                return await ask()
            except (RemotingError, BrokerError) as error:
                if isinstance(error, BrokerError) and error.code not in passing:
                    raise
                if loop.time() > deadline:
                    raise
                log.info("ask again: %s", error)
            await asyncio.sleep(RETRY_PAUSE)

    def _check(self, pulled: Pulled, offset: int) -> "list[tuple[int, int]]":
        """Where the records of an answer begin, and their offsets; OffsetGap if any is missing."""
        found, is_dense = walk(pulled.body)
        if not found or pulled.next_offset <= offset:
            raise MalformedRecord(
                f"{self._queue}: an answer from offset {offset} on that leads nowhere"
            )
        if is_dense and not self._is_filtered and not self._skips_gaps:
            for expected, (_, at) in enumerate(found, offset):
                if at != expected:
                    raise OffsetGap(self._queue, expected, at, "messages in between are gone")
        return found

    def _over_gap(self, offset: int, end: int, pulled: Pulled) -> int:
        """Where the queue goes on; OffsetGap unless gaps are to be skipped."""
        found = pulled.next_offset
        if pulled.status is PullStatus.NO_NEW:
            found = pulled.max_offset
        if not self._skips_gaps:
            raise OffsetGap(self._queue, offset, found, pulled.remark or pulled.status.name)
        log.warning("%s: offsets from %d up to %d are gone", self._queue, offset, found)
        return found if found > offset else end  # it ends before our range does


def walk(body: bytes) -> tuple[list[tuple[int, int]], bool]:
    """Where each record begins and which queue offset it has, and whether each is one message."""
    found = []
    position = 0
    is_dense = True
    while position < len(body):
        if len(body) - position < RECORD_BYTES_MIN:
            raise MalformedRecord(f"the record at {position} of {len(body)} bytes is cut off")
        size, queue_offset, sys_flag = _HEAD.unpack_from(body, position)
        if size < RECORD_BYTES_MIN or size > len(body) - position:
            raise MalformedRecord(f"the record at {position} of {len(body)} bytes says {size}")
        found.append((position, queue_offset))
        is_dense = is_dense and not sys_flag & INNER_BATCH
        position += size
    return found, is_dense


def cut(body: bytes, found: "list[tuple[int, int]]", end: int) -> bytes:
    """The part of an answer before the offset `end`: with a filter a broker looks beyond it."""
    stop = next(position for position, queue_offset in found if queue_offset >= end)
    return body[:stop]
