"""Which ranges are read: nothing left out, nothing twice, limits kept."""

import logging
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketpipe.errors import OffsetGap
from rocketpipe.message import MessageQueue
from rocketpipe.spark.planning import (
    NOTHING,
    Held,
    QueueRange,
    limited,
    ranges_between,
    rows_between,
    split,
)

A, B, C = (MessageQueue("orders", "broker-a", number) for number in range(3))
sizes = st.lists(st.integers(0, 10_000), max_size=6)


def ranges(lengths: list[int]) -> list[QueueRange]:
    return [
        QueueRange(MessageQueue("t", "b", number), 100, 100 + length)
        for number, length in enumerate(lengths)
    ]


@given(sizes, st.integers(0, 300), st.none() | st.integers(50, 5000))
def test_splitting_keeps_every_offset_once_and_both_limits(
    lengths: list[int], partitions_min: int, records_max: int | None
) -> None:
    wholes = ranges(lengths)
    parts = split(wholes, partitions_min=partitions_min, records_max=records_max)
    total = sum(lengths)
    if not total:
        assert parts == [NOTHING]
        return
    for whole in wholes:
        mine = [part for part in parts if part.queue == whole.queue]
        assert sum(part.size for part in mine) == whole.size
        assert all(before.end == after.start for before, after in pairwise(mine))
        if mine:
            assert (mine[0].start, mine[-1].end) == (whole.start, whole.end)
    assert all(part.size > 0 for part in parts)
    assert len(parts) >= min(partitions_min, total)
    if records_max is not None:
        assert all(part.size <= records_max for part in parts)


def test_long_queues_are_divided_first() -> None:
    parts = split(ranges([900, 100]), partitions_min=10)
    assert [part.size for part in parts] == [100] * 10
    assert split(ranges([900, 100]), partitions_min=2) == ranges([900, 100])
    assert [part.size for part in split(ranges([10]), records_max=4)] == [3, 3, 4]


@given(sizes.filter(len), st.integers(1, 20_000))
def test_a_limit_is_kept_and_some_row_is_always_read(lengths: list[int], rows_max: int) -> None:
    start = {MessageQueue("t", "b", number): 7 for number in range(len(lengths))}
    end = {queue: 7 + length for queue, length in zip(start, lengths, strict=True)}
    chosen = limited(start, end, rows_max)
    assert rows_between(start, chosen) == min(rows_max, sum(lengths))
    assert all(start[queue] <= chosen[queue] <= end[queue] for queue in start)


def test_each_queue_gets_its_share_of_a_limit() -> None:
    start, end = {A: 0, B: 0, C: 5}, {A: 900, B: 100, C: 5}
    assert limited(start, end, 100) == {A: 90, B: 10, C: 5}
    assert limited(start, end, 1) == {A: 1, B: 0, C: 5}
    assert limited(start, {A: 3, B: 100, C: 2}, 50) == {A: 1, B: 49, C: 2}  # C was made anew


def test_a_new_queue_is_read_from_its_first_message_on() -> None:
    found = ranges_between({A: 5}, {A: 7, B: 9}, {A: Held(0, 9), B: Held(3, 9)}, fails_on_loss=True)
    assert found == [QueueRange(A, 5, 7), QueueRange(B, 3, 9)]


def test_what_is_gone_is_an_error_or_skipped(caplog: pytest.LogCaptureFixture) -> None:
    start, end, held = {A: 5}, {A: 50}, {A: Held(20, 60)}
    with pytest.raises(OffsetGap, match=r"offset 5 was to be read.*goes on at 20.*failOnDataLoss"):
        ranges_between(start, end, held, fails_on_loss=True)
    with caplog.at_level(logging.WARNING):
        assert ranges_between(start, end, held, fails_on_loss=False) == [QueueRange(A, 20, 50)]
    assert "offset 5 was to be read next" in caplog.text


def test_a_batch_all_of_which_is_gone_is_empty() -> None:
    found = ranges_between({A: 5}, {A: 10}, {A: Held(20, 60)}, fails_on_loss=False)
    assert split(found) == [NOTHING]
    with pytest.raises(OffsetGap):
        ranges_between({A: 5}, {A: 10}, {A: Held(20, 60)}, fails_on_loss=True)


def test_a_queue_that_nobody_can_be_asked_about_is_read_as_planned() -> None:
    assert ranges_between({A: 5}, {A: 9}, {}, fails_on_loss=True) == [QueueRange(A, 5, 9)]


def test_a_queue_that_begins_anew_is_read_from_there() -> None:
    found = ranges_between({A: 50}, {A: 5}, {A: Held(0, 5)}, fails_on_loss=False)
    assert split(found) == [NOTHING]
