"""Columns straight from the answers of a broker, by the compiled part; `columns.py` is its twin.

What C writes are the buffers of Arrow's arrays, as `csrc/columns.c` lists them, all in one block of
memory. A block is used again when nothing refers to it any more: to get new pages from the system
for every batch costs as much as to decode it.
"""

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rocketpipe.compiled import Buffers, compiled
from rocketpipe.host import unpack_host

# In the order in which C numbers them. All but the broker's name stand in the records.
_KINDS = (
    *("topic", "queueid", "queueoffset", "messageid", "offsetmessageid", "tags", "keys", "body"),
    *("properties", "borntimestamp", "storetimestamp", "bornhost", "storehost", "flag"),
    *("sysflag", "reconsumetimes", "deliveryattempt"),
)
_NUMBERS = {name: number for number, name in enumerate(_KINDS)}
_BLOCKS_MAX = 3  # one is written while others are read
_SPARE_BYTES_MAX = 64 << 20

_Block = npt.NDArray[np.uint8]


class CompiledColumns:
    """The columns of one schema."""

    def __init__(
        self, fields: Sequence[Any], broker_name: str, topic_of: Callable[[bytes], str]
    ) -> None:
        self._fields = fields
        self._broker_name = broker_name
        self._topic_of = topic_of
        names = [field.name.lower() for field in fields]
        self._kinds = tuple(_NUMBERS[name] for name in names if name in _NUMBERS)
        self._blocks: list[_Block] = []

    def read(self, answers: Sequence[bytes]) -> list[pa.Array] | None:
        """A column for each field; None where the twin has to see to it."""
        if compiled is None:
            return None
        read = compiled.read_columns(
            list(answers), self._kinds, self._topic_of, unpack_host, self._block
        )
        if read is None:
            return None
        rows, block, columns = read
        memory, unread = pa.py_buffer(block), iter(columns)
        return [
            _Column(memory, rows, next(unread)).array(field.type)
            if field.name.lower() in _NUMBERS
            else pa.repeat(self._broker_name, rows)
            for field in self._fields
        ]

    def _block(self, size: int) -> _Block:
        for block in self._blocks:
            # Ours, the loop's and this call's are three: no array lives on that would be changed.
            if sys.getrefcount(block) == 3:
                if len(block) >= size:
                    return block
                self._blocks = [each for each in self._blocks if each is not block]
                break
        block = np.empty(size, dtype=np.uint8)
        if len(self._blocks) < _BLOCKS_MAX and size <= _SPARE_BYTES_MAX:
            self._blocks.append(block)
        return block


class _Column:
    """One column's buffers in memory."""

    def __init__(self, memory: pa.Buffer, rows: int, told: Buffers) -> None:
        self._rows = rows
        self._nulls, *places = told
        self._buffers = [memory.slice(start, size) for start, size in places]

    def array(self, kind: Any) -> pa.Array:
        validity, first, second, *_ = self._buffers
        if pa.types.is_map(kind):
            names, values = self._texts(kind.key_type, 2), self._texts(kind.item_type, 4)
            fields = [kind.key_field, kind.item_field]
            entries = pa.StructArray.from_arrays([names, values], fields=fields)
            return self._lists(kind, entries)
        if pa.types.is_list(kind):
            return self._lists(kind, self._texts(kind.value_type, 2))
        own = [first, second] if kind in (pa.string(), pa.binary()) else [first]
        buffers = [validity if self._nulls else None, *own]
        return pa.Array.from_buffers(kind, self._rows, buffers, self._nulls)

    def _texts(self, kind: Any, ends: int) -> pa.Array:
        count = self._buffers[ends].size // 4 - 1
        return pa.Array.from_buffers(kind, count, [None, *self._buffers[ends : ends + 2]], 0)

    def _lists(self, kind: Any, members: pa.Array) -> pa.Array:
        buffers = [None, self._buffers[1]]
        return pa.Array.from_buffers(kind, self._rows, buffers, 0, children=[members])
