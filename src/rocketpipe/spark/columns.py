"""Stored records into Arrow columns, many at once: the part of reading that has to be fast.

Nothing is done for each record by itself that can be done for all: numbers are picked from the
buffer as arrays, bodies and properties by Arrow's own copying. Only what no such call exists for
goes record by record: finding where each begins, and the CRC of its body. A column that nobody asks
for costs nothing.
"""

import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rocketpipe.client.namespace import without_namespace
from rocketpipe.errors import MalformedRecord
from rocketpipe.host import PACKED_V4_BYTES, PACKED_V6_BYTES, unpack_host
from rocketpipe.message import offset_message_id
from rocketpipe.spark.compiled_columns import CompiledColumns
from rocketpipe.spark.property_pairs import PropertyPairs
from rocketpipe.spark.repeats import Repeats
from rocketpipe.spark.row_ids import FIRST_ROW
from rocketpipe.spark.stored_records import (
    BORN_HOST_AT,
    RECONSUME_TIMES_AT,
    STORE_HOST_AT,
    STORE_TIMESTAMP_AT,
    Ints,
    StoredRecords,
    binary_array,
)
from rocketpipe.wire.compression import decompress
from rocketpipe.wire.properties import KEYS, TAGS, UNIQ_KEY
from rocketpipe.wire.record import (
    BORN_TIMESTAMP_AT,
    FLAG_AT,
    PHYSICAL_OFFSET_AT,
    QUEUE_ID_AT,
    QUEUE_OFFSET_AT,
    decode_record,
    encode_record,
    is_inner_batch,
    unwrap_inner_batch,
)
from rocketpipe.wire.sys_flag import BORN_HOST_V6, COMPRESSED, INNER_BATCH, STORE_HOST_V6

# Of decompressed bodies in one batch; an Arrow array holds 2 GiB at most.
PLAIN_BYTES_MAX = 64 << 20

_MICROSECONDS = pa.timestamp("us", tz="UTC")
_TAGS_FIELD = pa.field("tags", pa.string())
_MAP = pa.map_(pa.string(), pa.string())
_TIMESTAMP_MS_MAX = (1 << 63) // 1000 - 1  # beyond it a count of microseconds overflows
# Each byte as two hex digits, which stand in memory in the order they are read.
_HEX = np.frombuffer(b"".join(b"%02X" % byte for byte in range(256)), dtype="S2").view(np.uint16)


class ColumnDecoder:
    """Makes record batches of one schema from the answers to pulls of one broker's queues."""

    def __init__(
        self,
        schema: pa.Schema,
        *,
        broker_name: str,
        namespace: str | None = None,
        tags: Collection[str] = (),
        repeats: Repeats | None = None,
    ) -> None:
        self._schema = schema
        self._broker_name = broker_name
        self._namespace = namespace
        self._tags = pa.array(sorted(tags), pa.string()) if tags else None
        self._repeats = repeats
        filters = [] if self._tags is None else [_TAGS_FIELD]
        self._compiled = CompiledColumns([*schema, *filters], broker_name, self._topic_of)

    def decode(self, answers: Sequence[bytes], start: int, end: int) -> Iterator[pa.RecordBatch]:
        """The messages of these answers whose offsets lie in this range, in order.

        With tags, only those that have one of them: brokers compare hashes, and hashes collide.
        MalformedRecord when a record is damaged. It is one batch, unless bodies turn out to be much
        larger than they are stored.
        """
        if (batch := self._compiled_batch(answers)) is not None:
            yield batch
            return
        records = StoredRecords.of_answers(answers)
        if (records.sys_flags & INNER_BATCH).any():
            buffer = _unwrapped(records, start, end)
            if not buffer:
                return
            records = StoredRecords(buffer)
        yield from self._batches(records)

    def _compiled_batch(self, answers: Sequence[bytes]) -> pa.RecordBatch | None:
        """All of it at once, if there is nothing special about it."""
        if self._repeats is not None:
            return None
        arrays = self._compiled.read(answers)
        if arrays is None:
            return None
        tags = arrays.pop() if self._tags is not None else None
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        return batch if tags is None else self._filtered(batch, tags)

    def _batches(self, records: StoredRecords) -> Iterator[pa.RecordBatch]:
        try:
            batch = self._batch(records)
        except _TooLarge:
            middle = int(records.starts[len(records) // 2])
            yield from self._batches(StoredRecords(records.buffer[:middle]))
            yield from self._batches(StoredRecords(records.buffer[middle:]))
        else:
            if batch is not None:
                yield batch

    def _batch(self, records: StoredRecords) -> pa.RecordBatch | None:
        columns = _Columns(records, self._broker_name, self._namespace)
        if self._repeats is not None:
            repeated = self._repeats.find(
                columns.unique_ids, columns.first_rows, columns.queue_offsets
            )
            if len(repeated) == len(records):
                return None
            if len(repeated):
                records = records.without(repeated)
                columns = _Columns(records, self._broker_name, self._namespace)
        arrays = [_fit(_COLUMNS[field.name.lower()](columns), field.type) for field in self._schema]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        return batch if self._tags is None else self._filtered(batch, columns.tags)

    def _filtered(self, batch: pa.RecordBatch, tags: pa.Array) -> pa.RecordBatch:
        return batch.filter(pc.is_in(tags, value_set=self._tags))

    def _topic_of(self, encoded: bytes) -> str:
        return without_namespace(self._namespace, str(encoded, "utf-8"))


class _TooLarge(Exception):
    """Decompressed, the bodies of some records are more than one batch should hold."""


class _Columns:
    """The columns of some records; each is made when first asked for."""

    def __init__(self, records: StoredRecords, broker_name: str, namespace: str | None) -> None:
        self._records = records
        self._broker_name = broker_name
        self._namespace = namespace

    def topic(self) -> pa.Array:
        encoded = self._records.topics.dictionary_encode()
        try:
            topics = [str(topic, "utf-8") for topic in encoded.dictionary.to_pylist()]
        except UnicodeDecodeError as error:
            raise MalformedRecord(f"the topic of a record: {error}") from error
        names = [without_namespace(self._namespace, topic) for topic in topics]
        return pa.array(names, pa.string()).take(encoded.indices)

    def broker_name(self) -> pa.Array:
        return pa.repeat(self._broker_name, len(self._records))

    def queue_id(self) -> pa.Array:
        return pa.array(self._records.numbers(">i4", QUEUE_ID_AT))

    def queue_offset(self) -> pa.Array:
        return pa.array(self.queue_offsets)

    @property
    def queue_offsets(self) -> Ints:
        return self._records.numbers(">i8", QUEUE_OFFSET_AT)

    @cached_property
    def unique_ids(self) -> pa.Array:
        return self._pairs.values_of(UNIQ_KEY)

    @property
    def first_rows(self) -> pa.Array:
        """What the sink says of a row's task (`row_ids.py`)."""
        return self._pairs.values_of(FIRST_ROW)

    def message_id(self) -> pa.Array:
        """The id its producer gave it; without one, that of the place it is stored at."""
        ids = self.unique_ids
        return pc.coalesce(ids, self.offset_message_id()) if ids.null_count else ids

    def offset_message_id(self) -> pa.Array:
        records = self._records
        hosts = records.starts + STORE_HOST_AT + records.after_born_host
        offsets = records.numbers(">i8", PHYSICAL_OFFSET_AT)
        if (records.sys_flags & STORE_HOST_V6).any():
            texts = map(offset_message_id, self.store_host().to_pylist(), offsets.tolist())
            return pa.array(texts, pa.string())
        packed = np.empty((len(records), 2), dtype=np.int64)
        packed[:, 0] = records.numbers_at("<i8", hosts)  # the order of bytes stays as it is
        packed[:, 1] = records.numbers_at("<i8", records.starts + PHYSICAL_OFFSET_AT)
        digits = _HEX[packed.view(np.uint8)]
        ends = np.arange(0, 32 * len(records) + 1, 32, dtype=np.int32)
        return _text(binary_array(ends, digits.tobytes()))

    @cached_property
    def tags(self) -> pa.Array:
        return self._pairs.values_of(TAGS)

    def keys(self) -> pa.Array:
        texts = self._pairs.values_of(KEYS)
        keys = pc.split_pattern(texts.drop_null(), " ")
        if pc.equal(keys.flatten(), "").true_count:
            split = [[key for key in row if key] for row in keys.to_pylist()]
            keys = pa.array(split, pa.list_(pa.string()))
        if not texts.null_count:
            return keys
        # Those without any have empty lists.
        counts = np.zeros(len(texts), dtype=np.int64)
        counts[np.asarray(texts.is_valid())] = np.asarray(pc.list_value_length(keys))
        ends = np.append(0, np.cumsum(counts)).astype(np.int32)
        return pa.ListArray.from_arrays(pa.array(ends), keys.flatten())

    def body(self) -> pa.Array:
        """Plain, and checked against its CRC as it is stored."""
        records = self._records
        # Arrow makes Python's bytes of them faster than Python slices.
        plain_bytes = records.bodies.to_numpy(zero_copy_only=False)
        crcs = np.fromiter(map(zlib.crc32, plain_bytes), np.int64, len(records))
        bad = (crcs & 0x7FFFFFFF) != records.body_crcs
        if bad.any():
            decode_record(records.buffer, int(records.starts[np.argmax(bad)]))
        is_compressed = records.sys_flags & COMPRESSED != 0
        if not is_compressed.any():
            return records.bodies
        rows = np.flatnonzero(is_compressed).tolist()
        plain: list[bytes] = []
        size = 0
        for row in rows:
            plain.append(decompress(records.bodies[row].as_py(), int(records.sys_flags[row])))
            size += len(plain[-1])
            if size > PLAIN_BYTES_MAX and len(records) > 1:
                raise _TooLarge
        both = pa.concat_arrays([records.bodies, pa.array(plain, pa.binary())])
        places = np.arange(len(records))
        places[rows] = len(records) + np.arange(len(rows))
        return both.take(pa.array(places))

    def properties(self) -> pa.Array:
        return self._pairs.maps(_MAP)

    def born_timestamp(self) -> pa.Array:
        return _timestamps(self._records.numbers(">i8", BORN_TIMESTAMP_AT))

    def store_timestamp(self) -> pa.Array:
        place = STORE_TIMESTAMP_AT + self._records.after_born_host
        return _timestamps(self._records.numbers(">i8", place))

    def born_host(self) -> pa.Array:
        return self._hosts(self._records.starts + BORN_HOST_AT, BORN_HOST_V6)

    def store_host(self) -> pa.Array:
        records = self._records
        return self._hosts(records.starts + STORE_HOST_AT + records.after_born_host, STORE_HOST_V6)

    def flag(self) -> pa.Array:
        return pa.array(self._records.numbers(">i4", FLAG_AT))

    def sys_flag(self) -> pa.Array:
        """Without the bit that says "compressed": bodies are plain here."""
        return pa.array(self._records.sys_flags & ~COMPRESSED)

    def reconsume_times(self) -> pa.Array:
        return pa.array(self._reconsume_times)

    def delivery_attempt(self) -> pa.Array:
        """Which one it is to be, of a message that comes again; of others nothing is stored."""
        times = self._reconsume_times
        return pa.array(times + 1, mask=times <= 0)

    @cached_property
    def _reconsume_times(self) -> npt.NDArray[np.int32]:
        place = RECONSUME_TIMES_AT + self._records.after_hosts
        return self._records.numbers(">i4", place)

    @cached_property
    def _pairs(self) -> PropertyPairs:
        return PropertyPairs(self._records.properties)

    def _hosts(self, places: Ints, v6_bit: int) -> pa.Array:
        records = self._records
        is_v6 = records.sys_flags & v6_bit != 0
        if is_v6.any():
            lengths = np.where(is_v6, PACKED_V6_BYTES, PACKED_V4_BYTES)
            cuts = zip(places.tolist(), (places + lengths).tolist(), strict=True)
            texts = [unpack_host(records.buffer[start:end]) for start, end in cuts]
            return pa.array(texts, pa.string())
        encoded = pa.array(records.numbers_at("<i8", places)).dictionary_encode()
        packed = encoded.dictionary.to_numpy().astype("<i8")
        hosts = [unpack_host(each.tobytes()) for each in packed]
        return pa.array(hosts, pa.string()).take(encoded.indices)


# In the order in which they are shown.
_COLUMNS: dict[str, Callable[[_Columns], pa.Array]] = {
    "topic": _Columns.topic,
    "brokername": _Columns.broker_name,
    "queueid": _Columns.queue_id,
    "queueoffset": _Columns.queue_offset,
    "messageid": _Columns.message_id,
    "offsetmessageid": _Columns.offset_message_id,
    "tags": lambda columns: columns.tags,
    "keys": _Columns.keys,
    "body": _Columns.body,
    "properties": _Columns.properties,
    "borntimestamp": _Columns.born_timestamp,
    "storetimestamp": _Columns.store_timestamp,
    "bornhost": _Columns.born_host,
    "storehost": _Columns.store_host,
    "flag": _Columns.flag,
    "sysflag": _Columns.sys_flag,
    "reconsumetimes": _Columns.reconsume_times,
    "deliveryattempt": _Columns.delivery_attempt,
}


def _unwrapped(records: StoredRecords, start: int, end: int) -> bytes:
    """The same buffer, where batches that were stored as one record are a record for each message
    of theirs; those that lie outside of the range that was asked for are left out."""
    parts = []
    for at, until in zip(records.starts.tolist(), records.ends.tolist(), strict=True):
        message = decode_record(records.buffer, at)
        if is_inner_batch(message):
            members = unwrap_inner_batch(message)
            parts += [encode_record(each) for each in members if start <= each.queue_offset < end]
        else:
            parts.append(records.buffer[at:until])
    return b"".join(parts)


def _timestamps(ms: npt.NDArray[np.int64]) -> pa.Array:
    """Instants; null where a producer's clock said what no timestamp can hold."""
    fits = (ms <= _TIMESTAMP_MS_MAX) & (ms >= -_TIMESTAMP_MS_MAX)
    return pa.array(ms * 1000, _MICROSECONDS, mask=None if fits.all() else ~fits)


def _text(binaries: pa.Array) -> pa.Array:
    """The same bytes, which are known to be UTF-8, as text."""
    return pa.Array.from_buffers(pa.string(), len(binaries), binaries.buffers())


def _fit(column: pa.Array, kind: Any) -> pa.Array:
    """Arrow's names for the parts of lists and maps differ from Spark's; nothing is copied."""
    return column if column.type == kind else column.cast(kind)
