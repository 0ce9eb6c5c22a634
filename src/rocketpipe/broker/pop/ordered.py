"""Ordered pops: one of a queue at a time, and the next when all its messages are acknowledged.

The group's offset stays where it is until messages are acknowledged, so what was popped and is not
comes again by itself when its invisible time is over. What is kept here besides is who has to be
waited for, and how often a message was popped. ConsumerOrderInfoManager, in its own form:
config/consumerOrderInfo.json.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import Enum, auto

from rocketpipe.broker.pop.checkpoints import QueueOf
from rocketpipe.broker.saving import SavedTable
from rocketpipe.broker.store.atomic_file import AtomicFile
from rocketpipe.clock import Clock
from rocketpipe.wire.bodies.pop import OrderedPop, OrderedPopTable


class Unknown(Enum):
    """Why an acknowledgement moves nothing."""

    NO_SUCH_OFFSET = auto()  # the pop it names did not give this message
    OTHER_POP = auto()  # a later pop has the queue


class OrderedPops:
    """The last ordered pop of each queue, by group."""

    def __init__(self, file: AtomicFile, clock: Clock) -> None:
        self.saved = SavedTable(file, self._encode)
        # Told of a queue whose messages are visible again.
        self.on_free: Callable[[QueueOf], None] = lambda queue: None
        self._pops: dict[QueueOf, OrderedPop] = {}
        self._timers: dict[QueueOf, asyncio.TimerHandle] = {}
        self._clock = clock
        self._is_changed = False

    def load(self) -> None:
        if saved := self.saved.load(OrderedPopTable.decode):
            for name, queues in saved.table.items():
                topic, _, group = name.rpartition("@")
                for queue_id, pop in queues.items():
                    self._keep(QueueOf(group, topic, queue_id), pop)

    def is_blocked(self, queue: QueueOf, attempt_id: str | None) -> bool:
        """Whether messages of the queue are with somebody; the same attempt may have them again."""
        pop = self._pops.get(queue)
        if pop is None or (pop.attempt_id is not None and pop.attempt_id == attempt_id):
            return False
        return _visible_at_ms(pop) > self._clock.wall_ms()

    def popped(
        self,
        queue: QueueOf,
        offsets: Sequence[int],
        *,
        pop_time: int,
        invisible_time: int,
        attempt_id: str | None,
    ) -> dict[int, int]:
        """These were popped; how often each was before, if it was."""
        counts: dict[int, int] = {}
        before = self._pops.get(queue)
        if before is not None:
            if before.attempt_id is not None and before.attempt_id == attempt_id:
                counts = before.consumed_times
            else:
                known = set(_offsets(before))
                times = before.consumed_times
                counts = {each: times.get(each, 0) + 1 for each in offsets if each in known}
        first = offsets[0]
        pop = OrderedPop(
            pop_time=pop_time,
            invisible_time=invisible_time,
            offsets=(first, *(offset - first for offset in offsets[1:])),
            consumed_times=counts,
            last_consume_timestamp=self._clock.wall_ms(),
            attempt_id=attempt_id,
        )
        self._keep(queue, pop)
        return counts

    def acknowledge(
        self, queue: QueueOf, offset: int, pop_time: int, committed: int
    ) -> int | Unknown:
        """The offset to commit: that of the first message that is not acknowledged."""
        pop = self._pops.get(queue)
        if pop is None:
            # Forgotten in a crash. Apache's goes on behind this one, and may leave out others.
            return offset + 1 if offset == committed else Unknown.OTHER_POP
        if pop_time != pop.pop_time:
            return Unknown.OTHER_POP
        offsets = _offsets(pop)
        if offset not in offsets:
            return Unknown.NO_SUCH_OFFSET
        pop = replace(pop, acknowledged=pop.acknowledged | 1 << offsets.index(offset))
        self._keep(queue, pop)
        waiting = _unacked(pop)
        return waiting[0] if waiting else offsets[-1] + 1

    def set_visible_at(self, queue: QueueOf, offset: int, pop_time: int, at_ms: int) -> None:
        """Let a message be visible again at another time."""
        pop = self._pops.get(queue)
        if pop is not None and pop.pop_time == pop_time:
            self._keep(queue, replace(pop, visible_at={**pop.visible_at, offset: at_ms}))

    def reset(self, queue: QueueOf) -> None:
        """The group goes on elsewhere: nobody is waited for."""
        if self._pops.pop(queue, None) is not None:
            self._is_changed = True
            self._cancel(queue)

    def forget(self, *, topic: str | None = None, group: str | None = None) -> None:
        for queue in [each for each in self._pops if each.topic == topic or each.group == group]:
            self.reset(queue)

    def save_if_changed(self) -> None:
        """Save what changed since last time: called now and then, and at the end."""
        if self._is_changed:
            self._is_changed = False
            self.saved.changed()

    def close(self) -> None:
        for queue in list(self._timers):
            self._cancel(queue)

    def _keep(self, queue: QueueOf, pop: OrderedPop) -> None:
        self._pops[queue] = pop
        self._is_changed = True
        self._cancel(queue)
        wait_ms = _visible_at_ms(pop) - self._clock.wall_ms()
        if wait_ms > 0:
            loop = asyncio.get_running_loop()
            self._timers[queue] = loop.call_later(wait_ms / 1000, self._free, queue)

    def _free(self, queue: QueueOf) -> None:
        del self._timers[queue]
        self.on_free(queue)

    def _cancel(self, queue: QueueOf) -> None:
        timer = self._timers.pop(queue, None)
        if timer is not None:
            timer.cancel()

    def _encode(self) -> bytes:
        table: dict[str, dict[int, OrderedPop]] = {}
        for (group, topic, queue_id), pop in self._pops.items():
            table.setdefault(f"{topic}@{group}", {})[queue_id] = pop
        return OrderedPopTable(table=table).encode()


def _offsets(pop: OrderedPop) -> list[int]:
    first, *distances = pop.offsets
    return [first, *(first + distance for distance in distances)]


def _unacked(pop: OrderedPop) -> list[int]:
    return [each for place, each in enumerate(_offsets(pop)) if not pop.acknowledged >> place & 1]


def _visible_at_ms(pop: OrderedPop) -> int:
    """When the last of its messages is visible again; 0 when all are acknowledged."""
    usual = pop.pop_time + pop.invisible_time
    return max((pop.visible_at.get(offset, usual) for offset in _unacked(pop)), default=0)
