"""Timers by the time at which they are due: as many as there are, and no work until then.

Of each timer it keeps where it stands in the queue of timers, and its slot: ten bytes in two arrays
of the minute in which it is due. All else about it stays on disk. A minute is taken apart, slot by
slot, when it has come; so an hour without a timer costs nothing, and a million timers no more than
their arrays. The wheel is made anew from the queue when a broker starts.
"""

import heapq
from array import array
from typing import NamedTuple

MINUTE_MS = 60_000
_TAKES_BACK = 1 << 15  # in the number of a slot


class Slot(NamedTuple):
    """What is due at one time, as places in the queue, in order."""

    due_ms: int
    timers: "array[int]"
    recalls: "array[int]"  # timers that take others of the same slot back

    @property
    def first_offset(self) -> int:
        return min(offsets[0] for offsets in (self.timers, self.recalls) if offsets)


class TimerWheel:
    """Places in the queue of timers, by when they are due."""

    def __init__(self, precision_ms: int) -> None:
        self.count = 0
        self._precision_ms = precision_ms
        self._minutes: dict[int, _Minute] = {}
        self._minute_heap: list[int] = []
        # Those up to this minute are taken apart.
        self._open_until_ms = 0
        self._slots: dict[int, Slot] = {}
        self._slot_heap: list[int] = []

    def add(self, queue_offset: int, due_ms: int, *, takes_back: bool) -> None:
        """Have it wait; offsets come in order."""
        self.count += 1
        due_ms = -(-due_ms // self._precision_ms) * self._precision_ms  # never before its time
        if due_ms < self._open_until_ms:
            self._add_to_slot(queue_offset, due_ms, takes_back)
            return
        number, rest_ms = divmod(due_ms, MINUTE_MS)
        minute = self._minutes.get(number)
        if minute is None:
            minute = self._minutes[number] = _Minute()
            heapq.heappush(self._minute_heap, number)
        slot = rest_ms // self._precision_ms
        minute.offsets.append(queue_offset)
        minute.slots.append(slot | _TAKES_BACK if takes_back else slot)

    @property
    def look_at_ms(self) -> int | None:
        """Until then nothing is due; None if nothing waits."""
        if self._slot_heap:
            return self._slot_heap[0]
        return self._minute_heap[0] * MINUTE_MS if self._minute_heap else None

    @property
    def first_offset(self) -> int | None:
        """The first place in the queue that waits; None if nothing does."""
        firsts = [minute.offsets[0] for minute in self._minutes.values()]
        firsts += [slot.first_offset for slot in self._slots.values()]
        return min(firsts, default=None)

    def pop_due(self, now_ms: int) -> Slot | None:
        """The earliest slot, if it is due."""
        while self._minute_heap and self._minute_heap[0] * MINUTE_MS <= now_ms:
            self._open(heapq.heappop(self._minute_heap))
        if not self._slot_heap or self._slot_heap[0] > now_ms:
            return None
        slot = self._slots.pop(heapq.heappop(self._slot_heap))
        self.count -= len(slot.timers) + len(slot.recalls)
        return slot

    def _open(self, number: int) -> None:
        start_ms = number * MINUTE_MS
        self._open_until_ms = start_ms + MINUTE_MS
        minute = self._minutes.pop(number)
        for queue_offset, slot in zip(minute.offsets, minute.slots, strict=True):
            due_ms = start_ms + (slot & ~_TAKES_BACK) * self._precision_ms
            self._add_to_slot(queue_offset, due_ms, bool(slot & _TAKES_BACK))

    def _add_to_slot(self, queue_offset: int, due_ms: int, takes_back: bool) -> None:
        slot = self._slots.get(due_ms)
        if slot is None:
            slot = self._slots[due_ms] = Slot(due_ms, array("Q"), array("Q"))
            heapq.heappush(self._slot_heap, due_ms)
        (slot.recalls if takes_back else slot.timers).append(queue_offset)


class _Minute:
    """All that is due in one minute, in the order of the queue."""

    __slots__ = ("offsets", "slots")

    def __init__(self) -> None:
        self.offsets = array("Q")
        self.slots = array("H")
