"""The properties of many records at once: names, values, and which row each pair belongs to.

They mean what `wire.properties.decode_properties` says: a pair without a name or a value is none,
the first 0x01 of a pair divides it, of two with the same name the last wins, and what is not UTF-8
is replaced.
"""

from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rocketpipe.spark.stored_records import Ints, binary_array, offsets_of

_DIVIDER, _END = 1, 2  # between a name and its value, and after the value
_TABLE_MAX = 1 << 22  # cells: rows times different names


class PropertyPairs:
    """All pairs of some rows, whose property strings are given as an array of binaries."""

    def __init__(self, texts: pa.Array) -> None:
        self._rows_count = len(texts)
        offsets, data = _sound(texts)
        ends: Ints = np.flatnonzero(data == _END)
        starts = np.append(0, ends[:-1] + 1) if len(ends) else ends
        counts = np.diff(np.searchsorted(ends, offsets))
        rows: Ints = np.repeat(np.arange(self._rows_count), counts)
        dividers: Ints = np.flatnonzero(data == _DIVIDER)
        is_pair = np.ones(len(ends), dtype=np.bool_)
        if len(dividers) == len(ends):  # most often each pair has its own
            is_pair = (starts < dividers) & (dividers + 1 < ends)
        if len(dividers) != len(ends) or not is_pair.all():
            first = np.searchsorted(dividers, starts)
            dividers = np.append(dividers, len(data))[first]
            is_pair = (starts < dividers) & (dividers + 1 < ends)
        self._all_pieces = _cut(data, starts, dividers, ends)
        self._pairs: Ints = np.arange(0, 4 * len(starts), 4)  # the piece that is the name of each
        if not is_pair.all():
            rows, self._pairs = rows[is_pair], self._pairs[is_pair]
        self._rows = rows
        self._name_ids, self._ids = self._identify_names()
        self._drop_overruled()

    @cached_property
    def names(self) -> pa.Array:
        return self._pieces(self._pairs)

    def values_of(self, name: str) -> pa.Array:
        """The value that each row has for this name, or null."""
        wanted = self._name_ids.get(name)
        if wanted is None:
            return pa.nulls(self._rows_count, pa.string())
        found = np.flatnonzero(self._ids == wanted)
        if len(found) == self._rows_count:  # one in each
            return self._pieces(self._pairs[found] + 2)
        places = np.full(self._rows_count, -1, dtype=np.int64)
        places[self._rows[found]] = self._pairs[found] + 2
        return self._pieces(pa.array(places, mask=places < 0))

    def maps(self, kind: pa.MapType) -> pa.Array:
        """The properties of each row."""
        offsets = np.zeros(self._rows_count + 1, dtype=np.int32)
        np.cumsum(np.bincount(self._rows, minlength=self._rows_count), out=offsets[1:])
        values = self._pieces(self._pairs + 2)
        return pa.MapArray.from_arrays(pa.array(offsets), self.names, values, type=kind)

    def _pieces(self, places: Any) -> pa.Array:
        found = self._all_pieces.take(pa.array(places))
        return pa.Array.from_buffers(pa.string(), len(found), found.buffers(), found.null_count)

    def _identify_names(self) -> tuple[dict[str, int], npt.NDArray[np.int32]]:
        encoded = self.names.dictionary_encode()
        names = encoded.dictionary.to_pylist()
        return dict(zip(names, range(len(names)), strict=True)), encoded.indices.to_numpy()

    def _drop_overruled(self) -> None:
        """Keep the last of the pairs that have the same name in one row."""
        cells = self._rows * len(self._name_ids) + self._ids
        cells_count = self._rows_count * len(self._name_ids)
        numbers = np.arange(len(cells))
        if cells_count <= _TABLE_MAX:
            last = np.zeros(cells_count, dtype=np.int64)
            last[cells] = numbers  # the last one that is written stays
            is_last = last[cells] == numbers
        else:
            _, from_behind = np.unique(cells[::-1], return_index=True)
            is_last = np.zeros(len(cells), dtype=np.bool_)
            is_last[len(cells) - 1 - from_behind] = True
        if not is_last.all():
            self._rows, self._pairs = self._rows[is_last], self._pairs[is_last]
            self._ids = self._ids[is_last]
            del self.names


def _cut(data: npt.NDArray[np.uint8], starts: Ints, dividers: Ints, ends: Ints) -> pa.Array:
    """The text in four pieces for each pair: name, divider, value, end. Arrow picks those that are
    wanted, and copies only then."""
    cuts = np.empty(4 * len(starts) + 1, dtype=np.int32)
    cuts[0:-1:4] = starts
    cuts[1::4] = np.minimum(dividers, ends)
    cuts[2::4] = np.minimum(dividers + 1, ends)
    cuts[3::4] = ends
    cuts[-1] = len(data)
    return binary_array(cuts, pa.py_buffer(data))


def _sound(texts: pa.Array) -> tuple[Ints, npt.NDArray[np.uint8]]:
    """Where the rows begin in these bytes, which are UTF-8, and in which every row ends its last
    pair. Hardly ever has anything to be done for that."""
    offsets, data = offsets_of(texts)
    ends = offsets[1:][np.diff(offsets) > 0] - 1
    is_sound = bool((data[ends] == _END).all())
    if is_sound and len(data) and data.max() >= 0x80:
        try:
            str(data.data, "utf-8")
        except UnicodeDecodeError:
            is_sound = False
    if is_sound:
        return offsets, data
    rows = [str(text, "utf-8", "replace").encode() for text in texts.to_pylist()]
    ending = bytes([_END])
    closed = [row if not row or row.endswith(ending) else row + ending for row in rows]
    return offsets_of(pa.array(closed, pa.binary()))
