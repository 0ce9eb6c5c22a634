"""Which ranges of which queues a query reads: decisions only, from offsets that are known."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from pyspark.sql.datasource import InputPartition

from rocketpipe.errors import OffsetGap
from rocketpipe.message import MessageQueue
from rocketpipe.spark.offsets import Offsets

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class QueueRange(InputPartition):
    """What one task reads: one queue, from one offset up to, and without, another."""

    queue: MessageQueue
    start: int
    end: int
    among: "tuple[QueueRange, ...]" = ()  # all that is read with it, where that matters

    @property
    def size(self) -> int:
        return self.end - self.start


# Spark makes a partition of its own when it gets none, so an empty plan has one that says so.
NOTHING = QueueRange(MessageQueue("", "", 0), 0, 0)


@dataclass(frozen=True)
class Held:
    """What a queue holds now: offsets from `first` up to, and without, `end`."""

    first: int
    end: int


def split(
    ranges: list[QueueRange], *, partitions_min: int = 0, records_max: int | None = None
) -> list[QueueRange]:
    """The same offsets in the same order, in at least so many parts of at most so many offsets.

    Long ranges are divided first, each in parts of about the same size; empty ones are left out.
    """
    ranges = [each for each in ranges if each.size > 0]
    total = sum(each.size for each in ranges)
    goal = min(partitions_min, total)
    size_max = records_max or total
    # As long as there are too few parts, a smaller part makes more; ends at one offset each.
    if goal > len(ranges):
        size_max = min(size_max, max(1, total // goal))
    parts = [part for each in ranges for part in _cut(each, size_max)]
    return parts or [NOTHING]


def all_knowing(parts: list[QueueRange], ranges: list[QueueRange]) -> list[QueueRange]:
    """The same parts, each of which knows all ranges that are read with it."""
    return [replace(part, among=tuple(ranges)) for part in parts]


def _cut(whole: QueueRange, size_max: int) -> list[QueueRange]:
    count = -(-whole.size // size_max)
    cuts = [whole.start + whole.size * number // count for number in range(count + 1)]
    return [QueueRange(whole.queue, start, end) for start, end in pairwise(cuts)]


def limited(start: Mapping[MessageQueue, int], end: Offsets, rows_max: int) -> Offsets:
    """Ends that are at most so many rows after the starts: each queue gets a share as large as its
    part of all that waits, and at least one row is read where any waits.

    `start` has each queue of `end`.
    """
    waiting = {queue: max(0, end[queue] - start[queue]) for queue in end}
    total = sum(waiting.values())
    if total <= rows_max:
        return dict(end)
    shares = {queue: count * rows_max // total for queue, count in waiting.items()}
    # What rounding left over goes to the longest queues, one row each: else a limit smaller than
    # the number of queues would read nothing for ever.
    left = rows_max - sum(shares.values())
    by_length = sorted(waiting, key=lambda queue: (-(waiting[queue] - shares[queue]), queue))
    for queue in by_length[:left]:
        shares[queue] += 1
    # An end may lie before its start, when a topic was made anew: then there is nothing to share.
    return {queue: min(end[queue], start[queue] + shares[queue]) for queue in end}


def rows_between(start: Mapping[MessageQueue, int], end: Mapping[MessageQueue, int]) -> int:
    """How many offsets lie between; `start` has each queue of `end`."""
    return sum(max(0, end[queue] - start[queue]) for queue in end)


def ranges_between(
    start: Offsets, end: Offsets, held: Mapping[MessageQueue, Held], *, fails_on_loss: bool
) -> list[QueueRange]:
    """What a micro-batch reads. A queue that the start does not know is new, and read from its
    first message on. OffsetGap when offsets in between are gone, unless that is allowed.
    """
    ranges = []
    for queue in sorted(end):
        now = held.get(queue)
        first = start.get(queue, now.first if now else 0)
        if now is not None and first < min(now.first, end[queue]):
            report_loss(queue, first, now.first, fails=fails_on_loss)
            first = now.first
        ranges.append(QueueRange(queue, first, max(first, end[queue])))
    return ranges


def report_loss(queue: MessageQueue, wanted: int, found: int, *, fails: bool) -> None:
    """Raise that offsets are gone, or log it, as the user wants."""
    reason = "messages are gone; with the option failOnDataLoss=false reading goes on without them"
    gap = OffsetGap(queue, wanted, found, reason)
    if fails:
        raise gap
    log.warning("%s", gap)


def name_of(queue: MessageQueue) -> str:
    """As errors name it."""
    return f"queue {queue.queue_id} of topic {queue.topic!r} on {queue.broker_name}"
