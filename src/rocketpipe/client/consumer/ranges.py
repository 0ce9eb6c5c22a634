"""Reading a range of a queue's offsets for bulk readers: whole answers, several on their way.

A stock broker gives 32 messages for a pull, so who waits for each answer before he asks again
waits most of the time. Offsets are dense in a queue: pulls for the next ranges can be asked for
before the first is answered. An answer may be shorter than its range; the rest of it is then asked
for before anything after it is given out. How much may wait here to be given out is bounded in
bytes, as nobody knows how large the messages of a range are.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from struct import Struct
from typing import TypeVar

from rocketpipe.client.consumer.pulling import Pulled, Puller, PullStatus
from rocketpipe.client.consumer.settings import PullConsumerSettings
from rocketpipe.client.consumer.subscriptions import is_filtered
from rocketpipe.codes import ResponseCode
from rocketpipe.compiled import Pull
from rocketpipe.errors import (
    BrokerError,
    InvalidSetting,
    MalformedRecord,
    MQError,
    NoRoute,
    OffsetGap,
    RemotingError,
)
from rocketpipe.message import MessageQueue
from rocketpipe.wire.bodies.heartbeat import SubscriptionData
from rocketpipe.wire.frame import RemotingCommand
from rocketpipe.wire.record import QUEUE_OFFSET_AT, SYS_FLAG_AT, record_starts
from rocketpipe.wire.sys_flag import INNER_BATCH

log = logging.getLogger(__name__)

T = TypeVar("T")

FILTERED_SPAN = 16  # pulls' worth of offsets asked for at once where a filter leaves most out
READY_BYTES_MAX = 1 << 20  # of answers that could be given out: then nothing more is asked for
HELD_BYTES_MAX = 64 << 20  # of all that wait to be given out
# A few large answers keep the wire as busy as many small ones: pulls on their way ask for so much,
# going by the last answer, but there may always be so many.
ASKED_BYTES_MAX = 4 << 20
ALWAYS_ASKED = 8
FREE_BYTES_KEPT = 8 << 20
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

_QUEUE_OFFSET = Struct(">q")


class _Span:
    """Some neighbouring offsets, and the answers for them as they come.

    It waits for the answer of its pull in a future's stead, and is told at once: see `PullWaiter`.
    """

    __slots__ = ("_reader", "bodies", "end", "error", "is_asked", "next_offset")

    def __init__(self, reader: "RangeReader", offset: int, end: int) -> None:
        self._reader = reader
        self.next_offset = offset  # where the next pull begins, and in the end where the queue is
        self.end = end
        self.bodies: list[bytes] = []
        self.is_asked = False  # its pull is on its way
        self.error: MQError | None = None  # an answer that makes no sense

    def done(self) -> bool:
        return not self.is_asked

    def set_result(self, answer: RemotingCommand | Pull) -> None:
        self.is_asked = False
        self._reader.take(self, answer)

    def set_exception(self, error: MQError) -> None:
        self.is_asked = False
        self._reader.advance()  # who asks again finds out whether that lasts


class RangeReader:
    """Pulls the offsets of one queue from `start` up to, and without, `end`.

    Pulls are sent, and whole answers to them taken, without a task for each, or a future: these
    would cost more than the pull. Whatever else happens is left to the turn of the span it happened
    to: then what has to be waited for is waited for.
    """

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
        self._frames = puller.frames(queue, subscription)
        pulls = FILTERED_SPAN if self._is_filtered else 1
        self._span_size = pulls * settings.pull_batch_size
        self._held_bytes = 0
        self._spans: deque[_Span] = deque()
        self._offset = self._end = 0  # what no span is for yet
        self._ready: list[bytes] = []
        self._ready_bytes = 0
        self._answer_bytes = 1  # of the last
        self._bytes_min = 1
        self._news: asyncio.Future[None] | None = None

    async def read(
        self, start: int, end: int, *, bytes_min: int = 1
    ) -> AsyncGenerator[list[bytes], None]:
        """Answers in order, none of them empty; so many bytes of them at once, but for the last
        and what comes before something that has to be waited for."""
        if not 0 <= start <= end:
            raise InvalidSetting(f"no range of offsets: from {start} up to {end}")
        await self._patiently(
            lambda: self._require_filter(self._queue, self._subscription),
            PASSING - {ResponseCode.SYSTEM_ERROR},  # here it means that the broker has no SQL92
        )
        # Answers come and go by the megabyte. The C library would give their memory back each time,
        # which costs as much as all of ours does, unless it has seen so large a piece come and go.
        bytes(FREE_BYTES_KEPT)
        self._offset, self._end, self._bytes_min = start, end, bytes_min
        loop = asyncio.get_running_loop()
        try:
            self.advance()
            while self._ready or self._spans:
                if not self._has_news():
                    self._news = loop.create_future()
                    await self._news
                elif self._ready:
                    given, self._ready = self._ready, []
                    size, self._ready_bytes = self._ready_bytes, 0
                    self.advance()
                    yield given
                    self._held_bytes -= size
                elif (error := self._spans[0].error) is not None:
                    raise error
                else:
                    await self._pull_patiently(self._spans[0])
                    self.advance()
        finally:
            for span in self._spans:
                span.is_asked = False

    def _has_news(self) -> bool:
        """Whether there is something to give out, or to do in the turn of the first span."""
        return (
            self._ready_bytes >= self._bytes_min or not self._spans or not self._spans[0].is_asked
        )

    def advance(self) -> None:
        """Make ready what comes next, and ask for as much behind it."""
        spans, pulls_max = self._spans, self._pulls_max()
        while spans:
            span = spans[0]
            if span.bodies:
                self._ready += span.bodies
                self._ready_bytes += sum(map(len, span.bodies))
                span.bodies.clear()
            if span.next_offset < span.end:
                break
            spans.popleft()
            self._offset = max(self._offset, span.next_offset)  # nothing to ask for in a gap
        while (
            self._offset < self._end
            and len(spans) < pulls_max
            and self._ready_bytes < READY_BYTES_MAX
        ):
            span = _Span(self, self._offset, min(self._offset + self._span_size, self._end))
            spans.append(span)
            self._offset = span.end
            self._pull_on(span)
        if self._news is not None and self._has_news() and not self._news.done():
            self._news.set_result(None)

    def _pulls_max(self) -> int:
        most = max(ALWAYS_ASKED, ASKED_BYTES_MAX // self._answer_bytes)
        return min(most, self._settings.pulls_in_flight_max)

    def _pull_on(self, span: _Span) -> None:
        """Send the next pull of a span, if it can be sent now and there is room for its answer."""
        offset = span.next_offset
        if offset < span.end and self._held_bytes < HELD_BYTES_MAX:
            count = min(span.end - offset, self._settings.pull_batch_size)
            span.is_asked = self._puller.pull_nowait(
                self._queue, self._frames, offset, span, messages_max=count
            )

    def take(self, span: _Span, answer: RemotingCommand | Pull) -> None:
        try:
            if isinstance(answer, tuple):
                self._take_plain(span, answer)
            elif (pulled := self._puller.read(self._queue, answer)) is not None:
                self._take(span, pulled)
        except MQError as error:
            span.error = error
        self.advance()

    def _take_plain(self, span: _Span, pull: Pull) -> None:
        """It has no gaps; and usually it is of the very offsets that were asked for."""
        _, _, broker_id, next_offset, min_offset, max_offset, first, count, body = pull
        self._puller.follow(self._queue, broker_id)
        if first == span.next_offset < next_offset and first + count <= span.end:
            self._keep(span, body, next_offset)
        else:
            self._take(
                span, Pulled(PullStatus.FOUND, next_offset, min_offset, max_offset, body, "")
            )

    def _take(self, span: _Span, pulled: Pulled) -> bool:
        """Whether an answer brings its span on by itself; then the next pull of it is sent."""
        offset = span.next_offset
        if pulled.status is PullStatus.FOUND:
            self._keep(span, self._check(pulled, offset, span.end), pulled.next_offset)
            return True
        if pulled.status is PullStatus.NO_MATCHED and self._is_filtered:
            self._keep(span, b"", max(offset + 1, pulled.next_offset))
            return True
        return False

    def _keep(self, span: _Span, body: bytes, next_offset: int) -> None:
        if body:
            self._answer_bytes = len(body)
            self._held_bytes += len(body)
            span.bodies.append(body)
        span.next_offset = next_offset
        if next_offset < span.end:
            self._pull_on(span)

    async def _pull_patiently(self, span: _Span) -> None:
        """Bring the first span on, where the broker has to be waited for, or asked again."""
        offset = span.next_offset
        pulled = await self._pull(offset, span.end - offset)
        if self._take(span, pulled):
            for each in self._spans:  # now that this broker answers
                if not each.is_asked and each.error is None:
                    self._pull_on(each)
        elif pulled.is_reset:  # no concern of ours, who know which range we want
            await asyncio.sleep(RETRY_PAUSE)
        else:
            found = self._over_gap(offset, span.end, pulled)
            for each in self._spans:  # they have asked for what is not there, too
                if not each.is_asked:
                    each.next_offset = max(each.next_offset, found)

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
            except (RemotingError, NoRoute, BrokerError) as error:
                # No route: the queue is known to us, so its broker is away, and may come back.
                if isinstance(error, BrokerError) and error.code not in passing:
                    raise
                if loop.time() > deadline:
                    raise
                log.info("ask again: %s", error)
            await asyncio.sleep(RETRY_PAUSE)

    def _check(self, pulled: Pulled, offset: int, end: int) -> bytes:
        """The part of an answer before the offset `end`; OffsetGap if a message is missing."""
        body, starts = pulled.body, record_starts(pulled.body)
        if not starts or pulled.next_offset <= offset:
            raise MalformedRecord(
                f"{self._queue}: an answer from offset {offset} on that leads nowhere"
            )
        first, last = queue_offset(body, starts[0]), queue_offset(body, starts[-1])
        # Offsets rise from record to record, so the ends tell whether any is missing in between.
        is_dense = first == offset and last - first == len(starts) - 1
        if not is_dense and not self._is_filtered and not self._skips_gaps:
            self._find_gap(body, starts, offset)
        if last >= end:  # with a filter a broker looks beyond what was asked for
            body = body[: next(start for start in starts if queue_offset(body, start) >= end)]
        return body

    def _find_gap(self, body: bytes, starts: list[int], offset: int) -> None:
        """OffsetGap, unless some records are batches of messages, which may begin anywhere."""
        lowest_byte = SYS_FLAG_AT + 3
        if any(body[start + lowest_byte] & INNER_BATCH for start in starts):
            return
        for expected, start in enumerate(starts, offset):
            found = queue_offset(body, start)
            if found != expected:
                raise OffsetGap(self._queue, expected, found, "messages in between are gone")

    def _over_gap(self, offset: int, end: int, pulled: Pulled) -> int:
        """Where the queue goes on; OffsetGap unless gaps are to be skipped."""
        found = pulled.next_offset
        if pulled.status is PullStatus.NO_NEW:
            found = pulled.max_offset
        if not self._skips_gaps:
            raise OffsetGap(self._queue, offset, found, pulled.remark or pulled.status.name)
        log.warning("%s: offsets from %d up to %d are gone", self._queue, offset, found)
        return found if found > offset else end  # it ends before our range does


def queue_offset(body: bytes, start: int) -> int:
    """That of the record which begins there."""
    found: int = _QUEUE_OFFSET.unpack_from(body, start + QUEUE_OFFSET_AT)[0]
    return found
