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
from rocketpipe.spark.row_checks import (
    InvalidRow,
    check_keys,
    check_properties,
    check_text,
    check_topics,
    refuse,
)
from rocketpipe.spark.row_ids import DIGITS, ids_with_commas
from rocketpipe.spark.row_queues import queue_numbers
from rocketpipe.wire import properties as names
from rocketpipe.wire.properties import PROPERTIES_BYTES_MAX

_HEAD_BYTES = 20  # total size, magic 0, CRC 0, flag 0, body length: as in wire.batch
_LENGTH_BYTES = 2  # of the properties
_INT_MAX = (1 << 31) - 1

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
        self.rows = 0  # encoded so far

    def encode(self, batch: pa.RecordBatch) -> list[Encoded]:
        """The requests that carry them; InvalidMessage names a row that can't be sent, if any."""
        try:
            parcels = self._encode(batch)
        except InvalidRow as error:
            raise InvalidMessage(f"row {self.rows + error.place}: {error.reason}") from None
        self.rows += len(batch)
        return parcels

    def _encode(self, batch: pa.RecordBatch) -> list[Encoded]:
        if not len(batch):
            return []
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        bodies = _as(columns["body"], pa.binary())
        body_bytes = self._check_bodies(bodies)
        ids = ids_with_commas(self._task, self.rows, len(batch))
        more, is_delayed = _properties(columns)
        members = self._members(bodies, body_bytes, ids, more)
        topics, topic_numbers = self._topics(columns, len(batch))
        alone = is_delayed | (body_bytes >= self._settings.compress_body_bytes_min)
        cutter = _Cutter(members, ids, body_bytes, alone, self._settings, self._shared)
        return [
            parcel
            for topic, rows in _by_topic(topics, topic_numbers)
            for queue, some in self._by_queue(columns, topic, rows)
            for parcel in cutter.cut(topic, queue, some)
        ]

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
        column = _as(columns["topic"], pa.string())
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
        return _join(*parts)


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
                fitting = int(np.searchsorted(starts, starts[first] + bytes_max, "right")) - 1
                end = min(max(fitting, first + 1), first + count_max, stop)
                yield first, end
                first = end
            if stop < len(starts) - 1:
                yield stop, stop + 1
                first = stop + 1


def _properties(columns: dict[str, Any]) -> tuple[pa.BinaryArray | None, npt.NDArray[np.bool_]]:
    """What the columns add to each row's properties, and which rows are delayed."""
    count = len(columns["body"])
    parts = []
    if "tags" in columns:
        parts.append(_text_property("tags", names.TAGS, columns["tags"]))
    if "keys" in columns:
        parts.append(_property(names.KEYS, _keys(columns["keys"])))
    if "shardingKey" in columns:
        parts.append(_text_property("the sharding key", names.SHARDING_KEY, columns["shardingKey"]))
    is_delayed = np.zeros(count, np.bool_)
    if "delayLevel" in columns or "deliverAt" in columns:
        level, deliver_at = _delay_level(columns, count), _deliver_at_ms(columns, count)
        has_level, has_time = np.asarray(level.is_valid()), np.asarray(deliver_at.is_valid())
        refuse(has_level & has_time, "delayLevel and deliverAt: give one of them")
        is_delayed = has_level | has_time
        parts.append(_property(names.DELAY, level.cast(pa.string())))
        parts.append(_property(names.TIMER_DELIVER_MS, deliver_at.cast(pa.string())))
    if "properties" in columns:
        parts.append(_user_properties(columns["properties"]))
    return (_join(*parts) if parts else None), is_delayed


def _text_property(what: str, name: str, column: Any) -> pa.BinaryArray:
    texts = _as(column, pa.string())
    check_text(what, texts)
    return _property(name, texts)


def _property(name: str, values: pa.StringArray) -> pa.BinaryArray:
    """Null where there is no value: an empty text is none."""
    values = pc.if_else(pc.equal(values, ""), None, values)
    return pc.binary_join_element_wise(f"{name}\x01", values, "\x02", "").cast(pa.binary())


def _keys(column: Any) -> pa.StringArray:
    if not pa.types.is_nested(column.type):
        texts = _as(column, pa.string())
        check_keys(texts)
        return texts
    lists = column.cast(pa.list_(pa.string()))
    keys, rows = lists.flatten(), np.asarray(pc.list_parent_indices(lists)).astype(np.int64)
    refuse(pc.is_null(keys), "a key is null", rows)
    check_keys(keys, rows)
    return pc.binary_join(lists, " ")


def _user_properties(column: Any) -> pa.BinaryArray:
    # As a list of pairs: pyarrow flattens that with regard to nulls and slices.
    pairs = column.cast(pa.map_(pa.string(), pa.string())).cast(
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())]))
    )
    flat, rows = pairs.flatten(), np.asarray(pc.list_parent_indices(pairs)).astype(np.int64)
    names_, values = flat.field("key"), flat.field("value")
    check_properties(names_, values, rows)
    texts = pc.binary_join_element_wise(names_, "\x01", values, "\x02", "")
    ends = np.cumsum(np.bincount(rows, minlength=len(column)))
    offsets = pa.array(np.concatenate(([0], ends)), pa.int32())
    return pc.binary_join(pa.ListArray.from_arrays(offsets, texts), "").cast(pa.binary())


def _delay_level(columns: dict[str, Any], count: int) -> pa.Int64Array:
    """Null where there is none: 0 is at once."""
    if "delayLevel" not in columns:
        return pa.nulls(count, pa.int64())
    levels = columns["delayLevel"].cast(pa.int64())
    refuse(
        pc.or_(pc.less(levels, 0), pc.greater(levels, _INT_MAX)),
        lambda n: f"delayLevel {levels[n]}: levels start at 1; 0 is at once",
    )
    return pc.if_else(pc.equal(levels, 0), None, levels)


def _deliver_at_ms(columns: dict[str, Any], count: int) -> pa.Int64Array:
    if "deliverAt" not in columns:
        return pa.nulls(count, pa.int64())
    times = columns["deliverAt"].cast(pa.timestamp("us", columns["deliverAt"].type.tz))
    microseconds = times.cast(pa.int64())
    refuse(pc.less(microseconds, 0), lambda n: f"deliverAt {times[n]}: it is before 1970")
    return pc.divide(microseconds, 1000)


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


def _as(column: Any, kind: Any) -> Any:
    """Spark has other types for long columns, if it is set so."""
    return column if column.type == kind else column.cast(kind)


def _fixed(lines: npt.NDArray[Any]) -> pa.BinaryArray:
    """A column of what stands in each line."""
    width = lines.dtype.itemsize * lines.shape[1]
    offsets = np.arange(0, (len(lines) + 1) * width, width, dtype=np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(lines)]
    return pa.BinaryArray.from_buffers(pa.binary(), len(lines), buffers)


def _join(*parts: pa.BinaryArray | bytes) -> pa.BinaryArray:
    return pc.binary_join_element_wise(*parts, b"", null_handling="replace", null_replacement=b"")
