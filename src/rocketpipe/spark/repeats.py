"""What the sink sent more than once, of which each task drops all but one copy, by itself.

Copies of a message stand anywhere in its topic. The one that counts is the first that this query
reads: one before the ranges that are read now, which an earlier micro-batch or query had,
or else the first of those in these ranges, in the order of queues and offsets. That is settled by
offsets alone, so all tasks agree, whenever and however often they run.

Where the copies stand is asked of the brokers' key index. Not for every message: one that announces
all others of its task (`row_ids.py`) is asked for, and only where it is there several times, each.
"""

import logging
import threading
from collections.abc import Callable
from itertools import pairwise
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rocketpipe.client.namespace import with_namespace
from rocketpipe.clock import Clock, SystemClock
from rocketpipe.errors import BrokersFailed, MQError, NoRoute, NotFound, RemotingError
from rocketpipe.message import MessageQueue, StoredMessage
from rocketpipe.spark.planning import QueueRange
from rocketpipe.spark.read_options import ReadOptions
from rocketpipe.spark.row_ids import DIGITS, TASK_DIGITS, row_id
from rocketpipe.spark.stored_records import Ints, offsets_of
from rocketpipe.sync.admin import Admin

log = logging.getLogger(__name__)

RETRY_PAUSE = 0.2
IDS_AT_ONCE = 256  # asked for together; the answers hold whole messages

_ZEROS = np.frombuffer(b"0000", np.uint8)  # behind the task: no task has so many rows

Found = dict[str, list[StoredMessage]]


class Repeats:
    """Finds the repeats among the messages of one range."""

    def __init__(
        self, options: ReadOptions, wanted: QueueRange, clock: Clock | None = None
    ) -> None:
        self._queue = wanted.queue
        self._spans = {each.queue: each for each in wanted.among}
        self._patience = options.pull_timeout
        self._clock = clock or SystemClock()
        self._topic = with_namespace(options.connection.namespace, wanted.queue.topic)
        self._admin = Admin(**options.connection.client_settings())
        self._is_single: dict[str, bool] = {}  # by the id of the row that announces others
        # With failOnDataLoss=false, what a broker had that is gone is gone.
        self._brokers = (
            {queue.broker_name for queue in self._spans if queue.topic == wanted.queue.topic}
            if options.fail_on_data_loss
            else set()
        )

    def __enter__(self) -> Self:
        self._admin.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._admin.close()

    def find(self, ids: pa.Array, first_rows: pa.Array, offsets: Ints) -> Ints:
        """The rows to drop; their ids are null where the producer gave none, and `first_rows` has
        what the sink says of them."""
        rows, digits = _of_the_sink(ids)
        if not len(rows):
            return rows
        announcers = _announcers(rows, digits, first_rows)
        unknown = [each for each in set(announcers) if each not in self._is_single]
        for some in _chunks(unknown):
            found = self._ask(some)
            # None at all may be deleted, or somebody else's: then nothing is known of the others.
            self._is_single.update({each: len(found[each]) == 1 for each in some})
        doubtful = [
            int(row)
            for row, each in zip(rows.tolist(), announcers, strict=True)
            if not self._is_single[each]
        ]
        return np.array(self._repeated(doubtful, ids, offsets), dtype=np.int64)

    def _repeated(self, rows: list[int], ids: pa.Array, offsets: Ints) -> list[int]:
        repeated = []
        for some in _chunks(rows):
            wanted = {row: ids[row].as_py() for row in some}
            own = {row: (self._queue, int(offsets[row])) for row in some}

            def is_whole(found: Found, wanted: Any = wanted, own: Any = own) -> bool:
                return all(own[row] in map(self._place, found[wanted[row]]) for row in wanted)

            found = self._ask(list(wanted.values()), is_whole)
            repeated += [
                row
                for row, message_id in wanted.items()
                if any(self._is_before(self._place(each), own[row]) for each in found[message_id])
            ]
        return repeated

    def _is_before(self, other: tuple[MessageQueue, int], own: tuple[MessageQueue, int]) -> bool:
        """Whether another copy counts instead of our own."""
        queue, offset = other
        span = self._spans.get(queue)
        if span is None or offset >= span.end:
            return False  # not read by this query, or not yet
        return offset < span.start or other < own

    def _place(self, message: StoredMessage) -> tuple[MessageQueue, int]:
        assert message.broker_name is not None
        topic = self._queue.topic
        queue = MessageQueue(topic, message.broker_name, message.queue_id)
        return queue, message.queue_offset

    def _ask(self, ids: list[str], is_whole: Callable[[Found], bool] | None = None) -> Found:
        """All copies of these, as soon as every broker tells, and the index has what we have."""
        deadline = self._clock.monotonic() + self._patience
        while True:
            try:
                found = self._admin.copies(self._topic, ids, brokers=self._brokers)
                if is_whole is None or is_whole(found):
                    return found
                error: MQError = NotFound(
                    f"a message of {self._queue}",
                    "the brokers' key index does not have it, which the option dropRepeats needs"
                    " (messageIndexEnable=true)",
                )
            except (RemotingError, BrokersFailed, NoRoute) as failure:
                error = failure
            if self._clock.monotonic() > deadline:
                raise error
            log.info("look for repeats again: %s", error)
            threading.Event().wait(RETRY_PAUSE)


def _of_the_sink(ids: pa.Array) -> tuple[Ints, npt.NDArray[np.uint8]]:
    """The rows whose ids may be those of a sink, and their digits, a line for each."""
    fits = np.asarray(pc.equal(pc.binary_length(ids), DIGITS).fill_null(False))
    rows: Ints = np.flatnonzero(fits)
    if len(rows) < len(ids):
        ids = ids.take(pa.array(rows))
    _, data = offsets_of(ids)
    digits = data.reshape(len(rows), DIGITS)
    is_ours = (digits[:, TASK_DIGITS : TASK_DIGITS + len(_ZEROS)] == _ZEROS).all(axis=1)
    return (rows, digits) if is_ours.all() else (rows[is_ours], digits[is_ours])


def _announcers(rows: Ints, digits: npt.NDArray[np.uint8], first_rows: pa.Array) -> list[str]:
    """The id of the row that announces each."""
    tasks = np.ascontiguousarray(digits[:, :TASK_DIGITS])
    # Neighbours are most often of one task.
    changes = np.flatnonzero((tasks[1:] != tasks[:-1]).any(axis=1)) + 1
    announcers: list[str] = []
    for start, end in pairwise((0, *changes.tolist(), len(rows))):
        announcers += [row_id(tasks[start].tobytes().decode(), 0)] * (end - start)
    if first_rows.null_count < len(first_rows):
        for place, text in enumerate(first_rows.take(pa.array(rows)).to_pylist()):
            if text is not None and text.isascii() and text.isdigit():
                announcers[place] = row_id(tasks[place].tobytes().decode(), int(text))
    return announcers


def _chunks(items: list[Any]) -> list[list[Any]]:
    return [items[at : at + IDS_AT_ONCE] for at in range(0, len(items), IDS_AT_ONCE)]
