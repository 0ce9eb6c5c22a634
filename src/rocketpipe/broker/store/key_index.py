"""Finds messages by key: which places in the log hold a record of `topic#key`.

RocketMQ's idea in a layout of our own. A file is a table of slots (4 bytes each) and entries of 20
bytes: key hash (4), offset in the log (8), store time in seconds since the file's first (4), number
of the entry before it in the same slot (4). A key's hash chooses its slot, which names the newest
entry; from there each names the next older one. Entries are numbered from 1, and 0 ends a chain.

Files are named by the offset in the log at which they begin. The slots of the one that is being
filled are in memory, where writing to them costs nothing, and can be worked out from its entries.
What else there is to know of a file is in the checkpoint.
"""

import sys
from array import array
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from struct import Struct
from typing import Any

from rocketpipe.broker.store.disk import Disk
from rocketpipe.broker.store.open_files import OpenFiles
from rocketpipe.compiled import compiled
from rocketpipe.lazy_dataclass import dataclass

_ENTRY = Struct(">IqiI")
_SLOT = Struct(">I")

KEYED = Struct(">Iq")  # the hash of a key and the offset in the log: how an entry begins
_PLACE = Struct(">4xq")

# One key for all messages would make a lookup walk past all of them; a broker has other work.
HOPS_MAX = 20_000


@dataclass(slots=True, kw_only=True)
class IndexFileState:
    """What the checkpoint remembers of a file."""

    start: int  # the offset in the log at which it begins
    slots: int
    count: int = 0  # of entries
    begin_ms: int = 0
    end_ms: int = 0
    end_offset: int = 0  # where the last message stands that it has a key of


class _IndexFile:
    def __init__(self, folder: Path, state: IndexFileState, files: OpenFiles) -> None:
        self.path = folder / f"{state.start:020}"
        self.state = state
        self.slots: array[int] | None = None  # None: they are on disk
        self.tail = bytearray()  # entries that are not on disk
        self._entries_start = state.slots * _SLOT.size - _ENTRY.size  # there is no entry 0
        self._tail_start = state.count + 1
        self._files = files

    def add(self, keyed: bytes, store_timestamp_ms: int) -> None:
        state = self.state
        assert self.slots is not None
        if not state.count:
            state.begin_ms = store_timestamp_ms
        seconds = (store_timestamp_ms - state.begin_ms) // 1000
        self.tail += index_entries(self.slots, state.count, keyed, seconds)
        state.count += len(keyed) // KEYED.size
        state.end_ms = store_timestamp_ms
        (state.end_offset,) = _PLACE.unpack_from(keyed, len(keyed) - KEYED.size)

    def newest(self, key_hash: int) -> int:
        slot = key_hash % self.state.slots
        if self.slots is not None:
            return self.slots[slot]
        return int(_SLOT.unpack(self._read(slot * _SLOT.size, _SLOT.size))[0])

    def entry(self, number: int) -> tuple[int, int, int, int]:
        if number >= self._tail_start:
            return _ENTRY.unpack_from(self.tail, (number - self._tail_start) * _ENTRY.size)
        return _ENTRY.unpack(self._read(self._entries_start + number * _ENTRY.size, _ENTRY.size))

    def write_entries(self) -> None:
        self._files.get(self.path, create=True).write_at(
            self._entries_start + self._tail_start * _ENTRY.size, self.tail
        )
        self._tail_start += len(self.tail) // _ENTRY.size
        self.tail.clear()

    def write_slots(self) -> None:
        assert self.slots is not None
        self._files.get(self.path, create=True).write_at(0, _big_endian(self.slots).tobytes())

    def load_slots(self) -> bool:
        data = self._read(0, self.state.slots * _SLOT.size)
        self.slots = _big_endian(array("I", data))
        # They may be from after the checkpoint: written, and then there was a crash.
        return max(self.slots) <= self.state.count

    def work_out_slots(self) -> None:
        self.slots = slots = array("I", bytes(self.state.slots * _SLOT.size))
        number = 1
        while number <= self.state.count:
            count = min(self.state.count + 1 - number, 50_000)
            data = self._read(self._entries_start + number * _ENTRY.size, count * _ENTRY.size)
            for key_hash, _, _, _ in _ENTRY.iter_unpack(data):
                slots[key_hash % len(slots)] = number
                number += 1

    def cut(self, physical_offset: int) -> None:
        """Forget the entries from that offset on, but for the first there must be one before."""
        if self.tail:
            self.write_entries()  # the slots are worked out from the file
        numbers = range(1, self.state.count + 1)
        count = bisect_left(numbers, physical_offset, key=lambda number: self.entry(number)[1])
        _, end_offset, seconds, _ = self.entry(count)
        state = self.state
        state.count, state.end_offset = count, end_offset
        state.end_ms = min(state.end_ms, state.begin_ms + seconds * 1000 + 999)
        self._tail_start = count + 1
        self.work_out_slots()

    def is_there(self) -> bool:
        try:
            size = self._files.get(self.path).size()
        except FileNotFoundError:
            return False
        return size >= self._entries_start + (self.state.count + 1) * _ENTRY.size

    def _read(self, offset: int, size: int) -> bytes:
        return self._files.get(self.path).read_at(offset, size)


class KeyIndex:
    """The index files, the oldest first."""

    def __init__(
        self, folder: Path, *, disk: Disk, files: OpenFiles, slots: int, entries_max: int
    ) -> None:
        self._folder = folder
        self._disk = disk
        self._open_files = files
        self._slots = slots
        self._entries_max = entries_max
        self._files: list[_IndexFile] = []

    def restore(self, states: list[dict[str, Any]], *, was_closed: bool) -> bool:
        """Take up the files the checkpoint knew; False when they are not there.

        `was_closed`: that the checkpoint was the last before the store was closed.
        """
        self._files = [
            _IndexFile(self._folder, IndexFileState(**state), self._open_files) for state in states
        ]
        if not all(file.is_there() for file in self._files):
            return False
        if self._files:
            last = self._files[-1]
            if not (was_closed and last.load_slots()):
                last.work_out_slots()
        return True

    def add(self, keyed: bytes, store_timestamp_ms: int) -> None:
        """Note where records are, stored at that time, that have keys of these hashes (KEYED)."""
        while keyed:
            file = self._newest_file(_PLACE.unpack_from(keyed)[0])
            end = (self._entries_max - file.state.count) * KEYED.size
            file.add(keyed[:end], store_timestamp_ms)
            keyed = keyed[end:]

    def _newest_file(self, physical_offset: int) -> _IndexFile:
        """The file to add to, where the next record with a key stands there."""
        if not self._files or self._files[-1].state.count >= self._entries_max:
            state = IndexFileState(start=physical_offset, slots=self._slots)
            # A message with many keys may meet two files; their names differ by a little.
            if self._files and self._files[-1].state.start >= physical_offset:
                state.start = self._files[-1].state.start + 1
            file = _IndexFile(self._folder, state, self._open_files)
            file.slots = array("I", bytes(self._slots * _SLOT.size))
            self._files.append(file)
        return self._files[-1]

    def find(self, key_hash: int, *, begin_ms: int, end_ms: int) -> Iterator[int]:
        """Where records of such a key are, newest first.

        Times are known to a second: some that were stored just outside the span are among them.
        """
        hops = 0
        for file in reversed(self._files):
            state = file.state
            if state.end_ms < begin_ms or state.begin_ms > end_ms:
                continue
            number = file.newest(key_hash)
            while number and hops < HOPS_MAX:
                hops += 1
                entry_hash, physical_offset, seconds, number = file.entry(number)
                at_ms = state.begin_ms + seconds * 1000
                if entry_hash == key_hash and begin_ms - 1000 < at_ms <= end_ms:
                    yield physical_offset

    @property
    def last_update(self) -> tuple[int, int]:
        """When the newest message with a key was stored, and where; zeros when there is none."""
        if not self._files:
            return 0, 0
        return self._files[-1].state.end_ms, self._files[-1].state.end_offset

    def snapshot(self) -> list[dict[str, Any]]:
        """What `restore` needs, as of now."""
        return [asdict(file.state) for file in self._files]

    def write_out(self, written: set[Path], *, is_closing: bool = False) -> None:
        """Write what is in memory to the files, and add those that are not synced now."""
        for file in self._files:
            if file.slots is None:
                continue
            self._disk.make_folder(self._folder)
            written.add(file.path)
            if file.tail:
                file.write_entries()
            if file is not self._files[-1]:
                file.write_slots()
                file.slots = None
            elif is_closing:
                file.write_slots()

    def remove_before(self, physical_offset: int) -> None:
        """Remove the files all of whose messages the log has deleted."""
        while len(self._files) > 1 and self._files[0].state.end_offset < physical_offset:
            file = self._files.pop(0)
            self._open_files.close(file.path)
            self._disk.remove(file.path)

    def cut(self, physical_offset: int) -> None:
        """Forget the messages that stand from there on in the log, which is going to end there."""
        while self._files and self._files[-1].entry(1)[1] >= physical_offset:
            file = self._files.pop()
            self._open_files.close(file.path)
            self._disk.remove(file.path)
        if self._files and self._files[-1].state.end_offset >= physical_offset:
            self._files[-1].cut(physical_offset)

    def clear(self) -> None:
        """Remove every file, and be empty."""
        for file in self._files:
            self._open_files.close(file.path)
        self._files = []
        self._disk.remove_folder(self._folder)


def index_entries(slots: "array[int]", count: int, keyed: bytes, seconds: int) -> bytes:
    """The entries of hashes and places, after so many that there are; the slots then name them."""
    if compiled is not None:
        return compiled.index_entries(slots, count, keyed, seconds)
    entries = bytearray()
    pack, slot_count = _ENTRY.pack, len(slots)
    for key_hash, physical_offset in KEYED.iter_unpack(keyed):
        slot = key_hash % slot_count
        entries += pack(key_hash, physical_offset, seconds, slots[slot])
        count += 1
        slots[slot] = count
    return bytes(entries)


def _big_endian(slots: "array[int]") -> "array[int]":
    if sys.byteorder == "big":
        return slots
    swapped = array("I", slots)
    swapped.byteswap()
    return swapped
