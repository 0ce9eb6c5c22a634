"""Messages that were pulled and are not consumed yet: how many, how large, and how far that is."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rocketpipe.client.consumer.settings import ConsumerSettings
from rocketpipe.message import MessageQueue, StoredMessage


class ProcessQueue:
    """Those of one queue, and the offset up to which all are consumed.

    `next_offset` is where pulling goes on. What lies before it was consumed, waits here, or was
    left out by a filter: so the offset to store is the first that waits, or this.
    """

    def __init__(self, queue: MessageQueue, offset: int, cache: "Cache") -> None:
        self.queue = queue
        self.next_offset = offset
        self.is_dropped = False  # the queue is another's now, or begins anew elsewhere
        self.bytes = 0
        self.last_pulled_at: float | None = None  # this and the next by the loop's time
        self.last_consumed_at: float | None = None
        self._cache = cache
        self._last_put = offset
        self._waiting: dict[int, int] = {}  # bytes by offset, in order of offsets

    def put(self, messages: Sequence[StoredMessage], next_offset: int) -> None:
        """Pulled: these, and nothing else before `next_offset`."""
        sizes = {message.queue_offset: len(message.body) for message in messages}
        size = sum(sizes.values())
        self._waiting |= sizes
        if messages:
            self._last_put = messages[-1].queue_offset
        self.bytes += size
        self.next_offset = next_offset
        self._cache.count(len(messages), size)

    def done(self, messages: Sequence[StoredMessage]) -> None:
        """Consumed, or in the hands of somebody else."""
        if self.is_dropped:
            return
        count = size = 0
        for message in messages:
            bytes_ = self._waiting.pop(message.queue_offset, None)
            if bytes_ is not None:
                count += 1
                size += bytes_
        self.bytes -= size
        self._cache.count(-count, -size)

    def drop(self) -> None:
        """Whatever becomes of what is here, it is not ours to say so."""
        if not self.is_dropped:
            self.is_dropped = True
            self._cache.count(-len(self._waiting), -self.bytes)

    @property
    def commit_offset(self) -> int:
        """Everything before it is consumed."""
        return next(iter(self._waiting), self.next_offset)

    @property
    def last_offset(self) -> int:
        """Of what waits, or where pulling goes on if nothing does."""
        return next(reversed(self._waiting), self.next_offset)

    @property
    def span(self) -> int:
        """How far the last message that came here is from the first that waits."""
        return self._last_put - self.commit_offset if self._waiting else 0

    @property
    def count(self) -> int:
        return len(self._waiting)


@dataclass(slots=True, eq=False)
class Assigned:
    """A queue that a consumer reads."""

    process_queue: ProcessQueue
    gate: asyncio.Event  # closed while it is paused
    reader: asyncio.Task[None]
    is_leaving: bool = False  # it will be another's, once what has begun has ended


class Cache:
    """All that waits in a consumer: no more is pulled while it is too much."""

    def __init__(self, settings: ConsumerSettings, span_max: int | None = None) -> None:
        self.messages = 0
        self.bytes = 0
        self._settings = settings
        self._span_max = span_max
        self._hopeful: set[asyncio.Event] = set()  # who waits for there to be less

    def is_full(self, queue: ProcessQueue, messages: int = 0, size: int = 0) -> bool:
        """Whether no more of a queue may be pulled, once so many more are here."""
        settings = self._settings
        return (
            queue.count + messages >= settings.queue_messages_max
            or queue.bytes + size >= settings.queue_bytes_max
            or self.messages + messages >= settings.messages_max
            or self.bytes + size >= settings.bytes_max
            or (self._span_max is not None and queue.span + messages > self._span_max)
        )

    async def wait_for_room(self, queue: ProcessQueue) -> None:
        if self.is_full(queue):
            await self._wait_while(lambda: self.is_full(queue))

    async def wait_consumed(self, queue: ProcessQueue) -> None:
        """Until nothing of a queue waits, or it is not ours any more."""
        await self._wait_while(lambda: queue.count > 0 and not queue.is_dropped)

    async def _wait_while(self, is_so: Callable[[], bool]) -> None:
        changed = asyncio.Event()
        self._hopeful.add(changed)
        try:
            while is_so():
                changed.clear()
                await changed.wait()
        finally:
            self._hopeful.discard(changed)

    def count(self, messages: int, size: int) -> None:
        self.messages += messages
        self.bytes += size
        if messages < 0:
            for changed in self._hopeful:
                changed.set()
