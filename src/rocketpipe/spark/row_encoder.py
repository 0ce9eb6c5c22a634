"""Rows become messages a whole Arrow batch at a time: columns are joined into members of batches.

A member is its sizes, its body and its properties, one behind the other; so joining such columns
element by element gives one buffer that only has to be cut into requests.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rocketpipe.client.checks import RETRY_PREFIX
from rocketpipe.client.encoded import Encoded, properties_of_all
from rocketpipe.client.settings import ProducerSettings
from rocketpipe.errors import InvalidMessage
from rocketpipe.message import MessageQueue
from rocketpipe.spark.row_checks import InvalidRow, check_text, check_topics, refuse
from rocketpipe.spark.row_ids import DIGITS, FIRST_ROW, ROWS_MAX, ids_with_commas, row_id
from rocketpipe.spark.row_properties import as_type, join, row_properties
from rocketpipe.spark.row_queues import queue_numbers
from rocketpipe.wire import properties as names
from rocketpipe.wire.properties import PROPERTIES_BYTES_MAX

_HEAD_BYTES = 20  # total size, magic 0, CRC 0, flag 0, body length: as in wire.batch
_LENGTH_BYTES = 2  # of the properties

Numbers = npt.NDArray[np.int64]
QueuesOf = Callable[[str], Sequence[MessageQueue]]


class RowEncoder:
    """Makes requests of the rows of one task."""

    def __init__(
        self,
        task: str,  # what the ids begin with
        topic: str | None,  # of all rows
        settings: ProducerSettings,
        queues_of: QueuesOf,  # the queues of a topic, asked for where rows need a certain one
    ) -> None:
        self._task = task
        self._topic = topic
        self._settings = settings
        self._queues_of = queues_of
        self._shared = properties_of_all(settings.namespace)
        self._first_rows: dict[str, int] = {}  # of each topic, the one that announces the others
        self.rows = 0  # encoded so far

    def encode(self, batch: pa.RecordBatch) -> list[Encoded]:
        """The requests that carry them; InvalidMessage names a row that can't be sent, if any."""
        try:
            if self.rows + len(batch) > ROWS_MAX:
                raise InvalidRow(0, f"a task writes {ROWS_MAX} rows at most: repartition first")
            ids = ids_with_commas(self._task, self.rows, len(batch))
            parcels = self._encode(batch, ids, is_announced=True)
        except InvalidRow as error:
            raise InvalidMessage(f"row {self.rows + error.place}: {error.reason}") from None
        self.rows += len(batch)
        return [self._with_mark(parcel) for parcel in parcels]

    def encode_with_ids(self, batch: pa.RecordBatch, ids: npt.NDArray[np.uint8]) -> list[Encoded]:
        """The same for rows whose ids the caller knows; InvalidRow for one that can't be sent.

        No row announces them: whoever chose the ids knows how to tell repeats.
        """
        return self._encode(batch, ids, is_announced=False)

    def _encode(
        self, batch: pa.RecordBatch, ids: npt.NDArray[np.uint8], *, is_announced: bool
    ) -> list[Encoded]:
        if not len(batch):
            return []
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        bodies = as_type(columns["body"], pa.binary())
        body_bytes = self._check_bodies(bodies)
        topics, topic_numbers = self._topics(columns, len(batch))
        by_topic = list(_by_topic(topics, topic_numbers))
        more, is_delayed = row_properties(columns)
        if is_announced:
            said = self._announcements(by_topic, is_delayed)
            if said is not None:
                more = said if more is None else join(more, said)
        members = self._members(bodies, body_bytes, ids, more)
        alone = is_delayed | (body_bytes >= self._settings.compress_body_bytes_min)
        cutter = _Cutter(members, ids, body_bytes, alone, self._settings, self._shared)
        return [
            parcel
            for topic, rows in by_topic
            for queue, some in self._by_queue(columns, topic, rows)
            for parcel in cutter.cut(topic, queue, some)
        ]

    def _announcements(
        self, by_topic: Sequence[tuple[str, Numbers]], is_delayed: npt.NDArray[np.bool_]
    ) -> pa.BinaryArray | None:
        """The property that names the row which announces each (`row_ids.py`)."""
        announcers: Numbers = np.arange(self.rows, self.rows + len(is_delayed))
        for topic, rows in by_topic:
            prompt = rows[~is_delayed[rows]]
            if len(prompt):
                announcers[prompt] = self._first_rows.setdefault(topic, self.rows + int(prompt[0]))
        if not announcers.any():
            return None
        said = pc.binary_join_element_wise(
            f"{FIRST_ROW}\x01", pa.array(announcers).cast(pa.string()), "\x02", ""
        )
        return pc.if_else(pa.array(announcers == 0), None, said).cast(pa.binary())

    def _with_mark(self, parcel: Encoded) -> Encoded:
        first = self._first_rows.get(parcel.topic)
        if first is None or not parcel.message_id.startswith(row_id(self._task, first)):
            return parcel
        return parcel._replace(is_first=True)

    def _check_bodies(self, bodies: pa.BinaryArray) -> Numbers:
        """How long each is."""
        refuse(pc.is_null(bodies), "the body is null")
        lengths: Numbers = np.asarray(pc.binary_length(bodies)).astype(np.int64)
        refuse(lengths == 0, "the body is empty")
        allowed = self._settings.message_bytes_max
        refuse(lengths > allowed, lambda n: f"a body of {lengths[n]} bytes; {allowed} are allowed")
        return lengths

    def _topics(self, columns: dict[str, Any], count: int) -> tuple[list[str], Numbers]:
        """The topics there are, and the number of each row's among them."""
        if self._topic is not None:
            return [self._topic], np.zeros(count, np.int64)
        column = as_type(columns["topic"], pa.string())
        check_text("the topic", column)
        refuse(pc.is_null(column), "the topic is null")
        encoded = column.dictionary_encode()
        topics: list[str] = encoded.dictionary.to_pylist()
        numbers: Numbers = np.asarray(encoded.indices).astype(np.int64)
        check_topics(topics, np.unique(numbers, return_index=True)[1])
        return topics, numbers

    def _by_queue(
        self, columns: dict[str, Any], topic: str, rows: Numbers
    ) -> Iterator[tuple[MessageQueue | None, Numbers]]:
        """The rows that may go anywhere, and those that have to go to a certain queue."""
        if "shardingKey" not in columns and "queueId" not in columns:
            yield None, rows
            return
        queues, numbers = queue_numbers(columns, topic, rows, self._queues_of)
        for number, some in _grouped(numbers, rows):
            yield (None if number < 0 else queues[number]), some

    def _members(
        self,
        bodies: pa.BinaryArray,
        body_bytes: Numbers,
        ids: npt.NDArray[np.uint8],
        more: pa.BinaryArray | None,
    ) -> pa.BinaryArray:
        """Each row as a member of a batch."""
        before = f"{names.UNIQ_KEY}\x01".encode()
        after = f"\x02{self._shared}".encode()
        lengths = np.full(len(bodies), len(before) + DIGITS + len(after))
        if more is not None:
            lengths += np.asarray(pc.fill_null(pc.binary_length(more), 0))
            refuse(
                lengths > PROPERTIES_BYTES_MAX,
                lambda n: f"properties of {lengths[n]} bytes; {PROPERTIES_BYTES_MAX} are allowed",
            )
        heads = np.zeros((len(bodies), _HEAD_BYTES // 4), ">i4")
        heads[:, 0] = _HEAD_BYTES + body_bytes + _LENGTH_BYTES + lengths
        heads[:, 4] = body_bytes
        parts = [
            _fixed(heads),
            bodies,
            _fixed(lengths.astype(">i2").reshape(-1, 1)),
            before,
            _fixed(np.ascontiguousarray(ids[:, :DIGITS])),
            after,
        ]
        if more is not None:
            parts.append(more)
        return join(*parts)


class _Cutter:
    """Cuts rows into requests, each as large as the settings allow."""

    def __init__(
        self,
        members: pa.BinaryArray,
        ids: npt.NDArray[np.uint8],
        body_bytes: Numbers,
        alone: npt.NDArray[np.bool_],  # rows that no batch may hold, or that are to be compressed
        settings: ProducerSettings,
        shared: str,
    ) -> None:
        self._members = members
        self._ids = ids
        self._body_bytes = body_bytes
        self._alone = alone
        self._settings = settings
        self._shared = shared

    def cut(self, topic: str, queue: MessageQueue | None, rows: Numbers) -> Iterator[Encoded]:
        """The requests for these rows of one topic; in order, if they are for one queue."""
        if queue is None and self._alone.any():  # batches are larger without these in between
            is_alone = self._alone[rows]
            rows = np.concatenate((rows[~is_alone], rows[is_alone]))
        members, ids = self._members, self._ids
        body_bytes, alone = self._body_bytes, self._alone
        if len(rows) < len(members) or self._alone.any():
            members, ids = members.take(pa.array(rows)), ids[rows]
            body_bytes, alone = body_bytes[rows], alone[rows]
        starts = np.frombuffer(members.buffers()[1], np.int32, len(members) + 1, members.offset * 4)
        data = memoryview(members.buffers()[2])
        if topic.startswith(RETRY_PREFIX):
            alone = np.ones(len(rows), np.bool_)
        for first, end in self._spans(starts, np.flatnonzero(alone)):
            message_id = ids[first:end].tobytes()[:-1].decode()
            start, stop = int(starts[first]), int(starts[end])
            if end - first > 1:
                body, properties = data[start:stop], self._shared
            else:
                body_start = start + _HEAD_BYTES
                body_stop = body_start + int(body_bytes[first])
                body = data[body_start:body_stop]
                properties = str(data[body_stop + _LENGTH_BYTES : stop], "utf-8")
            yield Encoded(topic, end - first, message_id, bytes(body), properties, queue)

    def _spans(self, starts: npt.NDArray[np.int32], alone: Numbers) -> Iterator[tuple[int, int]]:
        """First and end of each request; a row at one of the places in `alone` is one by itself."""
        count_max, bytes_max = self._settings.batch_messages_max, self._settings.batch_bytes_max
        first = 0
        for stop in (*alone.tolist(), len(starts) - 1):
            while first < stop:
                fitting = int(np.searchsorted(starts, int(starts[first]) + bytes_max, "right")) - 1
                end = min(max(fitting, first + 1), first + count_max, stop)
                yield first, end
                first = end
            if stop < len(starts) - 1:
                yield stop, stop + 1
                first = stop + 1


def _by_topic(topics: list[str], numbers: Numbers) -> Iterator[tuple[str, Numbers]]:
    rows = np.arange(len(numbers))
    if len(topics) == 1:
        yield topics[0], rows
    else:
        for number, some in _grouped(numbers, rows):
            yield topics[number], some


def _grouped(numbers: Numbers, rows: Numbers) -> Iterator[tuple[int, Numbers]]:
    """Rows of the same number, in their order."""
    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    cuts = np.flatnonzero(np.diff(ordered)) + 1
    for some in np.split(order, cuts):
        yield int(numbers[some[0]]), rows[some]


def _fixed(lines: npt.NDArray[Any]) -> pa.BinaryArray:
    """A column of what stands in each line."""
    width = lines.dtype.itemsize * lines.shape[1]
    offsets = np.arange(0, (len(lines) + 1) * width, width, dtype=np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(lines)]
    return pa.BinaryArray.from_buffers(pa.binary(), len(lines), buffers)
