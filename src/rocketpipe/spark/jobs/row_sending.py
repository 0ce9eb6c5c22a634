"""What a task does that sends rows: leaves out what is stored, keeps to its rate, counts, and ends
when its line is cut. `sending.py` says which columns a frame has."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rocketpipe.client.encoded import Encoded
from rocketpipe.clock import SystemClock
from rocketpipe.errors import BulkFailed, InvalidMessage, MQError
from rocketpipe.message import MessageQueue, SendResult
from rocketpipe.spark.jobs.lifeline import TaskLine
from rocketpipe.spark.row_checks import InvalidRow, refuse
from rocketpipe.spark.row_encoder import RowEncoder
from rocketpipe.spark.row_ids import ids_of_rows
from rocketpipe.spark.write_options import WriteOptions
from rocketpipe.sync.producer import BulkSender, Producer

__all__ = ["Sent"]

UNIT, ROW, NAME, PROBLEM = "unit", "row", "name", "problem"
PACE_SECONDS = 0.2  # of a limited rate, what is sent at once
NAMED_MAX = 20  # bad rows that are named; all are counted


@dataclass(frozen=True)
class Sent:
    """What some tasks did."""

    rows: int = 0
    bytes: int = 0
    skipped: int = 0  # stored by an earlier run
    requests: int = 0
    retries: int = 0
    bad: int = 0
    bad_rows: tuple[str, ...] = ()  # the first of them, each with its reason
    queues: Mapping[tuple[str, str, int], int] = field(default_factory=dict)  # rows of each
    units: Mapping[str, int] = field(default_factory=dict)  # rows of those that are done
    is_stopped: bool = False  # some are left

    def __add__(self, other: "Sent") -> "Sent":
        return Sent(
            self.rows + other.rows,
            self.bytes + other.bytes,
            self.skipped + other.skipped,
            self.requests + other.requests,
            self.retries + other.retries,
            self.bad + other.bad,
            (*self.bad_rows, *other.bad_rows)[:NAMED_MAX],
            Counter(self.queues) + Counter(other.queues),
            Counter(self.units) + Counter(other.units),
            self.is_stopped or other.is_stopped,
        )


@dataclass(frozen=True, kw_only=True)
class Sending:
    """How to send; it travels to the tasks."""

    options: WriteOptions
    number: Callable[[pa.RecordBatch], pa.RecordBatch]  # adds unit, row and name
    is_dry: bool = False
    rate: float | None = None  # rows a second of each task
    done: frozenset[str] = frozenset()  # units to leave out as a whole
    stored: Mapping[str, frozenset[int]] = field(default_factory=dict)  # rows to leave out
    queues: Mapping[str, Sequence[MessageQueue]] = field(default_factory=dict)  # for a dry run


def send_batches(batches: Iterator[pa.RecordBatch], sending: Sending, line: TaskLine) -> Sent:
    """All of them, or those that came before the line was cut."""
    settings = sending.options.producer
    with Producer(settings) as producer:
        encoder = RowEncoder("", sending.options.topic, settings, cache(producer.publish_queues))
        tally = _Tally(sending.options)

        def encoded() -> Iterator[list[Encoded]]:
            for batch in _paced(_wanted(batches, sending, tally), sending.rate, line):
                with _named(batch):
                    parcels = encoder.encode_with_ids(_sink_columns(batch), _ids(batch))
                tally.add_rows(batch)
                yield parcels

        try:
            for results in BulkSender(producer).send_each(encoded()):
                line.tell(tally.add_results(results))
        except BulkFailed as error:
            raise MQError(str(error)) from None
    # A unit of which rows may be left is not done.
    return replace(tally.sent(), is_stopped=True, units={}) if line.is_cut else tally.sent()


def check_batches(batches: Iterator[pa.RecordBatch], sending: Sending) -> Sent:
    """What would be sent, and which rows can't be."""
    settings = sending.options.producer
    encoder = RowEncoder("", sending.options.topic, settings, sending.queues.__getitem__)
    tally, bad = _Tally(sending.options), []

    def check(batch: pa.RecordBatch) -> int:
        """Halves what has a bad row in it, until it stands alone."""
        try:
            _refuse_problems(batch)
            encoder.encode_with_ids(_sink_columns(batch), _ids(batch))
        except InvalidRow as error:
            if len(batch) == 1:
                bad.append(f"{_name(batch, 0)}: {error.reason}")
                return 1
            half = len(batch) // 2
            return check(batch.slice(0, half)) + check(batch.slice(half))
        tally.add_rows(batch)
        return 0

    count = sum(check(batch) for batch in _not_stored(batches, sending, tally))
    return replace(tally.sent(), bad=count, bad_rows=tuple(bad[:NAMED_MAX]))


def _wanted(
    batches: Iterator[pa.RecordBatch], sending: Sending, tally: "_Tally"
) -> Iterator[pa.RecordBatch]:
    for batch in _not_stored(batches, sending, tally):
        with _named(batch):
            _refuse_problems(batch)
        yield batch


def _not_stored(
    batches: Iterator[pa.RecordBatch], sending: Sending, tally: "_Tally"
) -> Iterator[pa.RecordBatch]:
    # A copy: whoever counts has to begin anew with each task, and workers are used again.
    for batch in map(deepcopy(sending.number), batches):
        units, rows = batch.column(UNIT).to_pylist(), np.asarray(batch.column(ROW))
        tally.add_units(units)
        if not sending.done and not sending.stored:
            yield batch
            continue
        keep = np.array(
            [
                unit not in sending.done and row not in sending.stored.get(unit, ())
                for unit, row in zip(units, rows.tolist(), strict=True)
            ],
            np.bool_,
        )
        tally.skipped += int((~keep).sum())
        if keep.any():
            yield batch.filter(pa.array(keep))


def _refuse_problems(batch: pa.RecordBatch) -> None:
    problems = batch.column(PROBLEM)
    refuse(pc.is_valid(problems), lambda n: str(problems[n].as_py()))


def _paced(
    batches: Iterator[pa.RecordBatch], rate: float | None, line: TaskLine
) -> Iterator[pa.RecordBatch]:
    """The same in pieces, not more rows a second than that, until the line is cut."""
    clock = SystemClock()
    started, rows = clock.monotonic(), 0
    for batch in batches:
        piece = len(batch) if rate is None else max(1, round(rate * PACE_SECONDS))
        for first in range(0, len(batch), piece):
            some = batch.slice(first, piece)
            early = 0.0 if rate is None else started + rows / rate - clock.monotonic()
            if line.wait(early):
                return
            rows += len(some)
            yield some


def _sink_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.drop_columns([UNIT, ROW, NAME, PROBLEM])


def _ids(batch: pa.RecordBatch) -> Any:
    return ids_of_rows(batch.column(UNIT).to_pylist(), np.asarray(batch.column(ROW)))


@contextmanager
def _named(batch: pa.RecordBatch) -> Iterator[None]:
    """A bad row ends it all, under the name that people know it by."""
    try:
        yield
    except InvalidRow as error:
        raise InvalidMessage(f"{_name(batch, error.place)}: {error.reason}") from None


def _name(batch: pa.RecordBatch, place: int) -> str:
    """The row as people know it."""
    return str(batch.column(NAME)[place].as_py())


class _Tally:
    """Counts what one task does."""

    def __init__(self, options: WriteOptions) -> None:
        self._accepted = options.accepted_statuses
        self._rows = self._bytes = self._requests = self._retries = 0
        self._queues: Counter[tuple[str, str, int]] = Counter()
        self._units: Counter[str] = Counter()
        self.skipped = 0

    def add_units(self, units: list[str]) -> None:
        self._units.update(units)

    def add_rows(self, batch: pa.RecordBatch) -> None:
        self._rows += len(batch)
        self._bytes += int(pc.sum(pc.binary_length(batch.column("body"))).as_py() or 0)

    def add_results(self, results: list[SendResult]) -> int:
        """How many messages these are; MQError for a status that is not accepted."""
        before = self._queues.total()
        for result in results:
            self._requests += 1
            self._retries += len(result.attempts) - 1
            queue = result.queue
            key = (queue.topic, queue.broker_name, queue.queue_id)
            self._queues[key] += len(result.message_ids)
            if result.status not in self._accepted:
                raise MQError(
                    f"{queue.broker_name} answered {result.status.name}: it has the message, but "
                    "not as safe as was asked for"
                )
        return self._queues.total() - before

    def sent(self) -> Sent:
        return Sent(
            rows=self._rows,
            bytes=self._bytes,
            skipped=self.skipped,
            requests=self._requests,
            retries=self._retries,
            queues=dict(self._queues),
            units=dict(self._units),
        )
