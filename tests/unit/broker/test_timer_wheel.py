"""The wheel: what waits, until when, and how little that costs."""

import random
import tracemalloc
from collections import defaultdict
from typing import Any

import pytest

from rocketpipe.broker.timer_wheel import Slot, TimerWheel

DAY_MS = 24 * 3600 * 1000
START_MS = 1_750_000_000_000


def parts(slot: Slot | None) -> tuple[int, list[int], list[int]] | None:
    return slot and (slot.due_ms, list(slot.timers), list(slot.recalls))


def test_a_slot_comes_at_its_time_and_not_before() -> None:
    wheel = TimerWheel(1000)
    wheel.add(7, START_MS + 90_000, takes_back=False)
    wheel.add(8, START_MS + 90_000, takes_back=True)
    wheel.add(9, START_MS + 90_000, takes_back=False)
    assert (wheel.count, wheel.first_offset) == (3, 7)
    assert wheel.pop_due(START_MS + 89_999) is None
    assert wheel.look_at_ms == START_MS + 90_000
    assert parts(wheel.pop_due(START_MS + 90_000)) == (START_MS + 90_000, [7, 9], [8])
    assert wheel.pop_due(START_MS + DAY_MS) is None
    assert (wheel.count, wheel.first_offset) == (0, None)
    assert TimerWheel(1000).look_at_ms is None


def test_a_time_within_a_slot_waits_for_its_end() -> None:
    wheel = TimerWheel(1000)
    wheel.add(0, START_MS + 1, takes_back=False)
    assert wheel.pop_due(START_MS + 999) is None
    assert parts(wheel.pop_due(START_MS + 1000)) == (START_MS + 1000, [0], [])


def test_until_its_minute_a_timer_is_not_looked_at() -> None:
    wheel = TimerWheel(1000)
    wheel.add(0, START_MS + 10 * 60_000 + 5000, takes_back=False)
    look_at_ms = wheel.look_at_ms
    assert look_at_ms is not None
    assert START_MS + 9 * 60_000 <= look_at_ms <= START_MS + 10 * 60_000 + 5000


def test_one_that_comes_too_late_is_due_at_once() -> None:
    wheel = TimerWheel(1000)
    wheel.add(0, START_MS, takes_back=False)
    assert wheel.pop_due(START_MS) is not None
    wheel.add(1, START_MS - DAY_MS, takes_back=False)
    assert wheel.look_at_ms == START_MS - DAY_MS
    assert parts(wheel.pop_due(START_MS)) == (START_MS - DAY_MS, [1], [])


@pytest.mark.parametrize("seed", range(20))
def test_whatever_is_added_comes_once_in_order_of_time_and_then_of_the_queue(seed: int) -> None:
    dice = random.Random(seed)
    precision_ms = dice.choice([100, 200, 500, 1000])
    wheel = TimerWheel(precision_ms)
    expected: dict[int, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    now_ms, offset = START_MS, 0
    while offset < 500 or wheel.count:
        if offset < 500:
            for _ in range(dice.randrange(20)):
                due_ms = now_ms + dice.choice([-5000, 100, 10_000, 1_000_000]) * dice.randrange(10)
                takes_back = dice.random() < 0.2
                wheel.add(offset, due_ms, takes_back=takes_back)
                expected[-(-due_ms // precision_ms) * precision_ms][takes_back].append(offset)
                offset += 1
        waiting = [each for slot in expected.values() for each in (*slot[0], *slot[1])]
        assert (wheel.count, wheel.first_offset) == (len(waiting), min(waiting, default=None))
        now_ms += dice.choice([10, 1000, 30_000, 600_000])
        while slot := wheel.pop_due(now_ms):
            assert slot.due_ms == min(expected) <= now_ms
            assert (list(slot.timers), list(slot.recalls)) == expected.pop(slot.due_ms)
        look_at_ms = wheel.look_at_ms
        assert look_at_ms is None or look_at_ms <= min(expected)
        assert min(expected, default=now_ms + 1) > now_ms


def test_many_wait_in_little_memory_and_without_work(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 100_000
    dice = random.Random(1)
    dues = [START_MS + dice.randrange(3 * DAY_MS) for _ in range(count)]
    tracemalloc.start()
    try:
        wheel = TimerWheel(1000)
        for offset, due_ms in enumerate(dues):
            wheel.add(offset, due_ms, takes_back=False)
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # Ten bytes each, room to grow, and 4320 minutes with three objects each.
    assert size < 12 * count + 4320 * 600

    moved = []
    put_into_slot = TimerWheel._add_to_slot

    def counted(self: TimerWheel, *args: Any) -> None:
        moved.append(args)
        put_into_slot(self, *args)

    monkeypatch.setattr(TimerWheel, "_add_to_slot", counted)
    ticks = 0
    came = 0
    now_ms = START_MS
    while now_ms < START_MS + 3600_000:
        ticks += 1
        now_ms += 1000
        while slot := wheel.pop_due(now_ms):
            came += len(slot.timers)
    minute_after = -(-now_ms // 60_000) * 60_000
    assert ticks == 3600
    assert came == sum(due_ms <= now_ms for due_ms in dues) > 1000
    # Each was touched once, in the minute in which it is due, and no other at all.
    assert came <= len(moved) <= sum(due_ms <= minute_after for due_ms in dues)
