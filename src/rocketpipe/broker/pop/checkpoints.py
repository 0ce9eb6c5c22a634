"""What was popped and is not acknowledged yet, and when it will be visible again. Plain data.

The checkpoints of a moment are found by that moment, those of a tick together; the oldest, behind
which nothing of the log is needed any more, stands at the front of a line.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Iterable
from typing import NamedTuple

TICK_MS = 100


class QueueOf(NamedTuple):
    """A queue, as a group sees it."""

    group: str
    topic: str
    queue_id: int


class Key(NamedTuple):
    """What names a checkpoint, in receipts too."""

    queue: QueueOf
    start_offset: int
    pop_time: int


class Checkpoint:
    """Messages of one queue that one pop gave away."""

    __slots__ = ("claimed", "invisible_time", "is_done", "key", "place", "unacked")

    def __init__(self, key: Key, invisible_time: int, offsets: Iterable[int]) -> None:
        self.key = key
        self.invisible_time = invisible_time  # in ms
        self.unacked = set(offsets)
        self.claimed: set[int] = set()  # of those, which somebody is about to settle
        self.place = -1  # the queue offset of its record, once that is stored
        self.is_done = False

    @property
    def visible_at_ms(self) -> int:
        return self.key.pop_time + self.invisible_time


class Checkpoints:
    """Those that are not done."""

    def __init__(self) -> None:
        self._by_key: dict[Key, Checkpoint] = {}  # which can still be acknowledged
        self._line: deque[Checkpoint] = deque()  # in the order of their records
        self._by_tick: dict[int, dict[Checkpoint, None]] = {}
        self._ticks: list[int] = []  # a heap of those
        self._in_flight: Counter[QueueOf] = Counter()
        self._undone = 0

    def __len__(self) -> int:
        return self._undone

    def __contains__(self, key: Key) -> bool:
        return key in self._by_key

    def add(self, checkpoint: Checkpoint, place: int) -> None:
        """Its record is stored at that place, behind all others. An older one of its name ends."""
        older = self._by_key.get(checkpoint.key)
        if older is not None:
            self.settle(older, list(older.unacked))
        checkpoint.place = place
        self._line.append(checkpoint)
        self._undone += 1
        self._by_key[checkpoint.key] = checkpoint
        self._in_flight[checkpoint.key.queue] += len(checkpoint.unacked)
        self._set_tick(checkpoint, checkpoint.visible_at_ms)

    def find(self, key: Key) -> Checkpoint | None:
        """The one of this name, while its time is not up."""
        return self._by_key.get(key)

    def take_due(self, now_ms: int, *, count_max: int) -> list[Checkpoint]:
        """Some whose time is up, which nobody can acknowledge now: to be settled, or put off."""
        due: list[Checkpoint] = []
        while len(due) < count_max and self._ticks and self._ticks[0] * TICK_MS <= now_ms:
            same = list(self._by_tick[self._ticks[0]])
            room = count_max - len(due)
            due += same[:room]
            self._by_tick[self._ticks[0]] = dict.fromkeys(same[room:])
            if len(same) <= room:
                del self._by_tick[heapq.heappop(self._ticks)]
        for checkpoint in due:
            self._by_key.pop(checkpoint.key, None)
        return due

    def claim(self, checkpoint: Checkpoint, offsets: Iterable[int]) -> list[int]:
        """Those that are waited for: nobody else may have them until they are settled, or released.

        Their time may be up before the record of what happens to them is stored.
        """
        free = checkpoint.unacked - checkpoint.claimed
        claimed = [offset for offset in offsets if offset in free]
        checkpoint.claimed.update(claimed)
        return claimed

    def release(self, checkpoint: Checkpoint, offsets: Iterable[int]) -> None:
        """Nothing happened to them after all."""
        checkpoint.claimed.difference_update(offsets)
        if self._by_key.get(checkpoint.key) is not checkpoint:
            self._set_tick(checkpoint, checkpoint.visible_at_ms)  # their time is up by now

    def settle(self, checkpoint: Checkpoint, offsets: Iterable[int]) -> None:
        """These of its messages are done with: acknowledged, stored again, or gone."""
        before = len(checkpoint.unacked)
        checkpoint.unacked.difference_update(offsets)
        checkpoint.claimed.difference_update(offsets)
        self._land(checkpoint.key.queue, before - len(checkpoint.unacked))
        if not checkpoint.unacked and not checkpoint.is_done:
            self._end(checkpoint)

    def put_off(self, checkpoint: Checkpoint, until_ms: int) -> None:
        """One that was taken could not be stored again: it is due once more then."""
        self._set_tick(checkpoint, until_ms)

    def next_due_ms(self) -> int | None:
        """When there is something to take; None when nothing waits."""
        while self._ticks and not self._by_tick[self._ticks[0]]:
            del self._by_tick[heapq.heappop(self._ticks)]
        return self._ticks[0] * TICK_MS if self._ticks else None

    def oldest(self) -> Checkpoint | None:
        """The one whose record is first in the log."""
        while self._line and self._line[0].is_done:
            self._line.popleft()
        return self._line[0] if self._line else None

    def moved(self, checkpoint: Checkpoint, place: int) -> None:
        """The oldest has a new record, behind all others."""
        self._line.popleft()
        checkpoint.place = place
        self._line.append(checkpoint)

    def in_flight(self, queue: QueueOf) -> int:
        """How many messages of it are popped and not acknowledged."""
        return self._in_flight[queue]

    def forget(self, *, topic: str | None = None, group: str | None = None) -> None:
        """Forget those of a topic or a group that is deleted."""
        for checkpoint in list(self._by_key.values()):
            if checkpoint.key.queue.topic == topic or checkpoint.key.queue.group == group:
                self.settle(checkpoint, list(checkpoint.unacked))

    def _end(self, checkpoint: Checkpoint) -> None:
        checkpoint.is_done = True
        self._undone -= 1
        if self._by_key.get(checkpoint.key) is checkpoint:
            del self._by_key[checkpoint.key]
        same = self._by_tick.get(_tick(checkpoint.visible_at_ms))
        if same is not None:
            same.pop(checkpoint, None)

    def _land(self, queue: QueueOf, count: int) -> None:
        self._in_flight[queue] -= count
        if not self._in_flight[queue]:
            del self._in_flight[queue]

    def _set_tick(self, checkpoint: Checkpoint, at_ms: int) -> None:
        tick = _tick(at_ms)
        same = self._by_tick.get(tick)
        if same is None:
            same = self._by_tick[tick] = {}
            heapq.heappush(self._ticks, tick)
        same[checkpoint] = None


def _tick(at_ms: int) -> int:
    return -(-at_ms // TICK_MS)
