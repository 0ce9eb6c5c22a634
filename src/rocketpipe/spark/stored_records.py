"""Many stored records at once: where their parts stand in a buffer, as arrays with a row for each.

Records are as `wire.record` tells. What is found here is checked as strictly as there: a record
that does not fill its size exactly is an error, and it is `wire.record` that words it.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rocketpipe.errors import MalformedRecord
from rocketpipe.wire.properties import PROPERTIES_BYTES_MAX
from rocketpipe.wire.record import (
    BODY_CRC_AT,
    BORN_TIMESTAMP_AT,
    MAGIC_AT,
    MAGIC_V1,
    MAGIC_V2,
    SYS_FLAG_AT,
    record_starts,
    split_record,
)
from rocketpipe.wire.sys_flag import BORN_HOST_V6, STORE_HOST_V6

Ints = npt.NDArray[np.int64]

_V6_MORE = 12  # bytes that an IPv6 host takes beyond those of an IPv4 one

# Places in a record whose hosts are IPv4.
BORN_HOST_AT = BORN_TIMESTAMP_AT + 8
STORE_TIMESTAMP_AT = BORN_HOST_AT + 8
STORE_HOST_AT = STORE_TIMESTAMP_AT + 8
RECONSUME_TIMES_AT = STORE_HOST_AT + 8
BODY_LENGTH_AT = RECONSUME_TIMES_AT + 4 + 8
BODY_AT = BODY_LENGTH_AT + 4


class StoredRecords:
    """The records of a buffer. Each part is worked out when first asked for."""

    def __init__(self, buffer: bytes, starts: Ints | None = None) -> None:
        self.buffer = buffer
        if starts is None:
            starts = np.array(record_starts(buffer), dtype=np.int64)
        self.starts = starts
        self.ends: Ints = np.append(self.starts[1:], len(buffer))
        self._check()

    @classmethod
    def of_answers(cls, answers: Sequence[bytes]) -> "StoredRecords":
        """Those of several buffers, one behind the other."""
        base, starts = 0, []
        for answer in answers:
            starts.append(np.array(record_starts(answer), dtype=np.int64) + base)
            base += len(answer)
        return cls(b"".join(answers), np.concatenate(starts))

    def __len__(self) -> int:
        return len(self.starts)

    def without(self, rows: Ints) -> "StoredRecords":
        """The others, if there are any."""
        keeps = np.ones(len(self), dtype=np.bool_)
        keeps[rows] = False
        cuts = zip(self.starts[keeps].tolist(), self.ends[keeps].tolist(), strict=True)
        return StoredRecords(b"".join([self.buffer[start:end] for start, end in cuts]))

    def numbers(self, kind: str, at: int | Ints) -> npt.NDArray[Any]:
        """The numbers of this kind at a place of each record."""
        dtype = np.dtype(kind)
        if not isinstance(at, int) or at + dtype.itemsize > BODY_AT:
            return self.numbers_at(kind, self.starts + at)
        heads = self._heads
        column: npt.NDArray[Any] = np.ndarray(
            (len(heads),), dtype, heads, offset=at, strides=(BODY_AT,)
        )
        return column.astype(dtype.newbyteorder("="))

    def numbers_at(self, kind: str, places: Ints) -> npt.NDArray[Any]:
        dtype = np.dtype(kind)
        # Every place of the buffer as such a number: nothing is copied before it is picked.
        everywhere: npt.NDArray[Any] = np.ndarray(
            (len(self.buffer) - dtype.itemsize + 1,), dtype, self.buffer, strides=(1,)
        )
        return everywhere[places].astype(dtype.newbyteorder("="), copy=False)

    @cached_property
    def _heads(self) -> npt.NDArray[Any]:
        """All before the bodies, close together: picking that once is less work than picking each
        number from wherever in the memory its record is."""
        return self.numbers_at(f"V{BODY_AT}", self.starts)

    @cached_property
    def sys_flags(self) -> npt.NDArray[np.int32]:
        return self.numbers(">i4", SYS_FLAG_AT)

    @cached_property
    def has_v6_hosts(self) -> bool:
        return bool((self.sys_flags & (BORN_HOST_V6 | STORE_HOST_V6)).any())

    @cached_property
    def after_born_host(self) -> int | Ints:
        """How much further than `..._AT` says the parts after the born host stand."""
        if not self.has_v6_hosts:
            return 0
        more: Ints = np.where(self.sys_flags & BORN_HOST_V6, _V6_MORE, 0)
        return more

    @cached_property
    def after_hosts(self) -> int | Ints:
        if not self.has_v6_hosts:
            return 0
        more: Ints = np.where(self.sys_flags & STORE_HOST_V6, _V6_MORE, 0)
        return more + self.after_born_host

    @cached_property
    def body_starts(self) -> Ints:
        starts: Ints = self.starts + (BODY_AT + self.after_hosts)
        return starts

    @cached_property
    def body_ends(self) -> Ints:
        ends: Ints = self.body_starts + self.numbers(">i4", BODY_LENGTH_AT + self.after_hosts)
        return ends

    @cached_property
    def topic_starts(self) -> Ints:
        is_v2 = self.numbers(">i4", MAGIC_AT) == MAGIC_V2
        return self.body_ends + np.where(is_v2, 2, 1)

    @cached_property
    def topic_ends(self) -> Ints:
        lengths = self.numbers_at(">u1", self.body_ends).astype(np.int64)
        if (is_v2 := self.topic_starts - self.body_ends == 2).any():
            long = self.numbers_at(">u2", self.body_ends).astype(np.int64)
            lengths = np.where(is_v2, long, lengths)
        return self.topic_starts + lengths

    @cached_property
    def properties_starts(self) -> Ints:
        return self.topic_ends + 2

    @cached_property
    def bodies(self) -> pa.Array:
        """As they are stored, maybe compressed."""
        return self._parts.take(self._rows_of_parts + 1)

    @cached_property
    def topics(self) -> pa.Array:
        return self._parts.take(self._rows_of_parts + 3)

    @cached_property
    def properties(self) -> pa.Array:
        return self._parts.take(self._rows_of_parts + 5)

    @cached_property
    def body_crcs(self) -> npt.NDArray[np.int32]:
        return self.numbers(">i4", BODY_CRC_AT)

    @cached_property
    def _parts(self) -> pa.Array:
        """The whole buffer cut in pieces, six for a record: so that Arrow can pick some of them,
        and copies bytes only then."""
        cuts = np.empty(6 * len(self) + 1, dtype=np.int32)
        cuts[0:-1:6] = self.starts
        cuts[1::6] = self.body_starts
        cuts[2::6] = self.body_ends
        cuts[3::6] = self.topic_starts
        cuts[4::6] = self.topic_ends
        cuts[5::6] = self.properties_starts
        cuts[-1] = len(self.buffer)
        return binary_array(cuts, self.buffer)

    @cached_property
    def _rows_of_parts(self) -> Any:
        return np.arange(0, 6 * len(self), 6, dtype=np.int32)

    def _check(self) -> None:
        """MalformedRecord unless each record fills its size exactly."""
        magics = self.numbers(">i4", MAGIC_AT)
        bad = (magics != MAGIC_V1) & (magics != MAGIC_V2)
        bad |= self.body_starts + 3 > self.ends
        if not bad.any():
            bad = (self.body_ends < self.body_starts) | (self.body_ends + 3 > self.ends)
        if not bad.any():
            bad = self.properties_starts > self.ends
        if not bad.any():
            lengths = self.numbers_at(">u2", self.topic_ends)
            bad = lengths > PROPERTIES_BYTES_MAX
            bad |= self.properties_starts + lengths != self.ends
        if bad.any():
            self.explain(int(np.argmax(bad)))

    def explain(self, row: int) -> None:
        """Raise what is wrong with a record."""
        split_record(self.buffer[: self.ends[row]], int(self.starts[row]))
        raise MalformedRecord(f"the record at {self.starts[row]} makes no sense")


def binary_array(offsets: npt.NDArray[np.int32], data: bytes | pa.Buffer) -> pa.Array:
    """The pieces of `data` between these offsets."""
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)


def offsets_of(pieces: pa.Array) -> tuple[Ints, npt.NDArray[np.uint8]]:
    """Where each piece begins, with the end of the last, in these bytes; no nulls, please."""
    _, offsets_buffer, data = pieces.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int32, len(pieces) + 1, 4 * pieces.offset)
    first, last = int(offsets[0]), int(offsets[-1])
    if data is None or first == last:
        return offsets.astype(np.int64) - first, np.empty(0, dtype=np.uint8)
    return offsets.astype(np.int64) - first, np.frombuffer(data, np.uint8, last - first, first)
