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
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from struct import Struct
from typing import TypeVar

from rocketpipe.client.consumer.pulling import Pulled, Puller, PullStatus
from rocketpipe.client.consumer.settings import PullConsumerSettings
from rocketpipe.client.consumer.subscriptions import is_filtered
from rocketpipe.codes import ResponseCode
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
HELD_BYTES_MAX = 64 << 20  # of answers that wait to be given out
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


class Answer(bytes):
    """Stored messages, and where each begins: who finds that out looks at all of them, so it is
    told to who reads them next."""

    starts: Sequence[int]


@dataclass(slots=True, eq=False)
class _Span:
    """Some neighbouring offsets, and the answers for them as they come."""

    next_offset: int  # where the next pull begins, and in the end where the queue goes on
    end: int
    bodies: deque[Answer] = field(default_factory=deque)
    answer: "asyncio.Future[RemotingCommand] | None" = None  # of the pull that is on its way
    error: MQError | None = None  # an answer that makes no sense


class RangeReader:
    """Pulls the offsets of one queue from `start` up to, and without, `end`.

    Pulls are sent, and whole answers to them taken, without a task for each: a task would cost more
    than the pull. Whatever else happens is left to the turn of the span it happened to: then what
    has to be waited for is waited for.
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
        self._held_bytes = 0
        self._spans: deque[_Span] = deque()
        self._changed: asyncio.Future[None] | None = None  # the first span, if that is waited for

    async def read(self, start: int, end: int) -> AsyncIterator[Answer]:
        """Answers in order, none of them empty."""
        if not 0 <= start <= end:
            raise InvalidSetting(f"no range of offsets: from {start} up to {end}")
        await self._patiently(
            lambda: self._require_filter(self._queue, self._subscription),
            PASSING - {ResponseCode.SYSTEM_ERROR},  # here it means that the broker has no SQL92
        )
        size = self._settings.pull_batch_size * (FILTERED_SPAN if self._is_filtered else 1)
        spans, offset = self._spans, start
        loop = asyncio.get_running_loop()
        try:
            while spans or offset < end:
                while offset < end and len(spans) < self._settings.pulls_in_flight_max:
                    span = _Span(offset, min(offset + size, end))
                    spans.append(span)
                    self._pull_on(span)
                    offset = span.end
                span = spans[0]
                while span.bodies or span.next_offset < span.end:
                    if span.bodies:
                        body = span.bodies.popleft()
                        self._held_bytes -= len(body)
                        yield body
                    elif span.answer is not None:
                        self._changed = loop.create_future()
                        await self._changed
                    elif span.error is not None:
                        raise span.error
                    else:
                        await self._pull_patiently(span)
                spans.popleft()
                offset = max(offset, span.next_offset)  # nothing to ask for in a gap
        finally:
            for span in spans:
                if span.answer is not None:
                    span.answer.cancel()

    def _pull_on(self, span: _Span) -> None:
        """Send the next pull of a span, if it can be sent now and there is room for its answer."""
        if span.next_offset < span.end and self._held_bytes < HELD_BYTES_MAX:
            count = min(span.end - span.next_offset, self._settings.pull_batch_size)
            span.answer = self._puller.pull_nowait(
                self._queue, span.next_offset, self._subscription, messages_max=count
            )
            if span.answer is not None:
                span.answer.add_done_callback(partial(self._arrived, span))

    def _arrived(self, span: _Span, answer: "asyncio.Future[RemotingCommand]") -> None:
        span.answer = None
        if not answer.cancelled() and answer.exception() is None:
            try:
                pulled = self._puller.read(self._queue, answer.result())
                if pulled is not None and self._take(span, pulled):
                    self._pull_on(span)
            except MQError as error:
                span.error = error
        changed = self._changed
        if changed is not None and span is self._spans[0] and not changed.done():
            changed.set_result(None)

    def _take(self, span: _Span, pulled: Pulled) -> bool:
        """Whether an answer brings its span on by itself."""
        offset = span.next_offset
        if pulled.status is PullStatus.FOUND:
            body = self._check(pulled, offset, span.end)
            if body:
                self._held_bytes += len(body)
                span.bodies.append(body)
            span.next_offset = pulled.next_offset
            return True
        if pulled.status is PullStatus.NO_MATCHED and self._is_filtered:
            span.next_offset = max(offset + 1, pulled.next_offset)
            return True
        return False

    async def _pull_patiently(self, span: _Span) -> None:
        """Bring the first span on, where the broker has to be waited for, or asked again."""
        offset = span.next_offset
        pulled = await self._pull(offset, span.end - offset)
        if self._take(span, pulled):
            for each in self._spans:  # now that this broker answers
                if each.answer is None and each.error is None:
                    self._pull_on(each)
        elif pulled.is_reset:  # no concern of ours, who know which range we want
            await asyncio.sleep(RETRY_PAUSE)
        else:
            span.next_offset = self._over_gap(offset, span.end, pulled)

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

    def _check(self, pulled: Pulled, offset: int, end: int) -> Answer:
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
            count = next(n for n, start in enumerate(starts) if queue_offset(body, start) >= end)
            body, starts = body[: starts[count]], starts[:count]
        answer = Answer(body)
        answer.starts = starts
        return answer

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
