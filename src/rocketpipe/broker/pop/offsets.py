"""How far groups have popped: known at once, and committed when the log is sure to remember.

What is committed outlives us, whatever happens to the end of the log. So an offset is committed
only when all checkpoints before it are where no crash reaches them; until then it is ahead. The
steps of all groups are committed in the order of their records, and how far that got is saved with
the offsets: at a start, the records behind it make the rest of the steps.
"""

from __future__ import annotations

from collections import deque

from rocketpipe.broker.names import SYSTEM_GROUP_PREFIX, SYSTEM_TOPIC_PREFIX
from rocketpipe.broker.offsets import ConsumerOffsets
from rocketpipe.broker.pop.checkpoints import QueueOf
from rocketpipe.broker.settings import BrokerSettings
from rocketpipe.broker.store.message_store import MessageStore

# Kept like the offsets of groups: where the oldest checkpoint is that is not done, and up to where
# checkpoints have been committed.
REVIVE_GROUP = f"{SYSTEM_GROUP_PREFIX}REVIVE_GROUP"
COMMITTED_GROUP = f"{SYSTEM_GROUP_PREFIX}REVIVE_COMMITTED"
REVIVE_QUEUE = 0  # the only one we use of eight


def revive_topic(settings: BrokerSettings) -> str:
    return f"{SYSTEM_TOPIC_PREFIX}REVIVE_LOG_{settings.broker_cluster_name}"


class Step:
    """From one offset of a queue to another, by one pop."""

    __slots__ = ("end", "is_dropped", "is_first", "next", "place", "queue", "start")

    def __init__(self, queue: QueueOf, start: int, next_offset: int, *, is_first: bool) -> None:
        self.queue = queue
        self.start = start
        self.next = next_offset
        self.is_first = is_first
        self.end: int | None = None  # of its record in the log; None while that is not stored
        self.place = -1  # of its record in the queue of records
        self.is_dropped = False


class PopOffsets:
    """Where each group goes on popping."""

    def __init__(
        self, settings: BrokerSettings, store: MessageStore, offsets: ConsumerOffsets
    ) -> None:
        self._store = store
        self._offsets = offsets
        self._topic = revive_topic(settings)
        self._ahead: dict[QueueOf, int] = {}
        self._steps: deque[Step] = deque()
        self._new: set[QueueOf] = set()  # which groups have only begun to read, and not popped yet
        store.on_written.append(lambda _: self.commit())

    def query(self, queue: QueueOf) -> int:
        """Where to go on; -1 when the group never read the queue."""
        return max(self._ahead.get(queue, -1), self._offsets.query(*queue))

    def begin(self, queue: QueueOf, offset: int) -> None:
        """The group reads the queue for the first time."""
        self._offsets.commit(*queue, offset)
        self._new.add(queue)

    def step(self, queue: QueueOf, start: int, next_offset: int) -> Step:
        """Go on; the step is to be told where its record is, or that there is none."""
        step = Step(queue, start, next_offset, is_first=queue in self._new)
        self._new.discard(queue)
        self._steps.append(step)
        self._ahead[queue] = next_offset
        return step

    def skip(self, queue: QueueOf, start: int, next_offset: int) -> None:
        """Go on past what nobody wants: there is nothing to remember."""
        self.step(queue, start, next_offset).end = 0
        self.commit()

    def recorded(self, step: Step, place: int, end: int) -> None:
        step.place, step.end = place, end
        self.commit()

    def failed(self, step: Step) -> None:
        """Its record could not be stored: go back, and let no later step be committed."""
        self._drop(step.queue)
        if step.is_first:
            self._new.add(step.queue)
        if step.start > self._offsets.query(*step.queue):
            self._ahead[step.queue] = step.start
        step.end = 0
        self.commit()

    def reset(self, queue: QueueOf) -> None:
        """The group was sent elsewhere: what it popped before says nothing any more."""
        self._drop(queue)

    def _drop(self, queue: QueueOf) -> None:
        self._ahead.pop(queue, None)
        for step in self._steps:
            if step.queue == queue:
                step.is_dropped = True

    def forget(self, *, topic: str | None = None, group: str | None = None) -> None:
        for queue in [each for each in self._ahead if each.topic == topic or each.group == group]:
            self._drop(queue)

    def commit(self) -> None:
        """Commit the steps whose records are safe by now."""
        safe = self._store.flushed_offset
        steps = self._steps
        while steps and steps[0].end is not None and steps[0].end <= safe:
            step = steps.popleft()
            if step.place >= 0:
                self._offsets.commit(COMMITTED_GROUP, self._topic, REVIVE_QUEUE, step.place + 1)
            if step.is_dropped or self._offsets.is_reset(*step.queue):
                continue
            self._offsets.commit(*step.queue, step.next)
            if self._ahead.get(step.queue) == step.next:
                del self._ahead[step.queue]

    # At a start.

    @property
    def committed_place(self) -> int:
        """From there on, records make steps."""
        return self._offsets.query(COMMITTED_GROUP, self._topic, REVIVE_QUEUE)

    def replay(
        self,
        queue: QueueOf,
        start: int,
        next_offset: int,
        *,
        is_first: bool,
        place: int,
        end: int,
    ) -> None:
        """A record made this step before we started. One that leaves a gap is not made again."""
        known = self.query(queue)
        if start <= known < next_offset or (known < 0 and is_first):
            self.recorded(self.step(queue, start, next_offset), place, end)
