"""One queue of a topic: where in the log each of its messages is, and the code of its tag.

Entries of 20 bytes, in files of so many entries, in RocketMQ's layout: offset in the log (8), size
(4), tags code (8). An entry of size 0 stands for a message that is lost; it points at the one after
it, so that offsets in the log never fall along a queue.

All of this is derived from the log. New entries stay in memory until the next checkpoint writes
them out; what a file holds beyond `max_offset` is from before a crash, and means nothing.
"""

from bisect import bisect_left
from pathlib import Path
from struct import Struct

from rocketpipe.broker.store.disk import Disk
from rocketpipe.broker.store.open_files import OpenFiles

ENTRY = Struct(">qiq")
ENTRY_BYTES = ENTRY.size


class ConsumeQueue:
    """The entries of one queue from `min_offset` up to `max_offset`."""

    __slots__ = (
        "_disk",
        "_files",
        "_last_path",
        "_segment_bytes",
        "_tail",
        "_tail_start",
        "folder",
        "max_offset",
        "min_offset",
        "next_offset",
        "queue_id",
        "topic",
        "topic_bytes",
    )

    def __init__(
        self,
        folder: Path,
        topic: str,
        queue_id: int,
        *,
        disk: Disk,
        files: OpenFiles,
        segment_entries: int,
        min_offset: int = 0,
        max_offset: int = 0,
    ) -> None:
        self.folder = folder
        self.topic = topic
        self.topic_bytes = topic.encode()
        self.queue_id = queue_id
        self.min_offset = min_offset
        self.max_offset = max_offset
        self.next_offset = max_offset  # ahead of max_offset by what is not written to the log yet
        self._disk = disk
        self._files = files
        self._segment_bytes = segment_entries * ENTRY_BYTES
        self._tail = bytearray()
        self._tail_start = max_offset
        self._last_path = -1, folder  # to make a path takes longer than to read from its file

    def append(self, entries: bytes) -> None:
        """Add the entries of the messages from max_offset on."""
        self._tail += entries
        self.max_offset += len(entries) // ENTRY_BYTES

    def skip_to(self, queue_offset: int, physical_offset: int) -> None:
        """Go on at a later offset: the messages before it are lost, or deleted if there are none.

        `physical_offset` is where the next one stands, whichever that is.
        """
        if self.max_offset == self.min_offset:
            self.min_offset = self.max_offset = self._tail_start = queue_offset
        while self.max_offset < queue_offset:
            self.append(ENTRY.pack(physical_offset, 0, 0))
        self.next_offset = self.max_offset

    def entries(self, offset: int, count: int) -> bytes:
        """The entries from an offset on: up to `count` of them, fewer at the end of a file."""
        if offset >= self._tail_start:
            start = (offset - self._tail_start) * ENTRY_BYTES
            return bytes(self._tail[start : start + count * ENTRY_BYTES])
        file_offset, place = divmod(offset * ENTRY_BYTES, self._segment_bytes)
        count = min(count, self._tail_start - offset)
        size = min(count * ENTRY_BYTES, self._segment_bytes - place)
        return self._files.get(self._path(file_offset)).read_at(place, size)

    def entry(self, offset: int) -> tuple[int, int, int] | None:
        """Offset in the log, size and tags code of the message at that offset of the queue."""
        if not self.min_offset <= offset < self.max_offset:
            return None
        return ENTRY.unpack(self.entries(offset, 1))

    def write_out(self, written: set[Path]) -> None:
        """Write what is in memory to the files, and add those that are not synced now."""
        while self._tail:
            file_offset, place = divmod(self._tail_start * ENTRY_BYTES, self._segment_bytes)
            path = self._path(file_offset)
            part = self._tail[: self._segment_bytes - place]
            if not place or self._tail_start == self.min_offset:
                self._disk.make_folder(self.folder)
            written.add(path)
            self._files.get(path, create=True).write_at(place, part)
            del self._tail[: len(part)]
            self._tail_start += len(part) // ENTRY_BYTES

    def has_files(self) -> bool:
        """Whether files hold all the entries that are not in memory."""
        if self.min_offset == self._tail_start:
            return True
        names = set(self._disk.names(self.folder))
        first = self.min_offset * ENTRY_BYTES // self._segment_bytes
        last = (self._tail_start - 1) * ENTRY_BYTES // self._segment_bytes
        if not all(f"{n * self._segment_bytes:020}" in names for n in range(first, last + 1)):
            return False
        size = self._files.get(self._path(last)).size()
        return size >= self._tail_start * ENTRY_BYTES - last * self._segment_bytes

    def remove_before(self, physical_offset: int) -> None:
        """Forget the messages that stand before that offset in the log, which has deleted them."""
        if self.min_offset == self.max_offset or self._physical_offset(self.min_offset) >= (
            physical_offset
        ):
            return
        first = self.min_offset * ENTRY_BYTES // self._segment_bytes
        self.min_offset = self._first_from(physical_offset)
        for n in range(first, self.min_offset * ENTRY_BYTES // self._segment_bytes):
            self._files.close(self._path(n))
            self._disk.remove(self._path(n))

    def last_before(self, physical_offset: int) -> tuple[int, int, int] | None:
        """The entry of the last message that begins before that offset in the log."""
        return self.entry(self._first_from(physical_offset) - 1)

    def cut(self, physical_offset: int) -> None:
        """Forget the messages that stand from there on in the log, which is going to end there."""
        self.max_offset = self.next_offset = self._first_from(physical_offset)
        self._tail_start = min(self._tail_start, self.max_offset)
        del self._tail[(self.max_offset - self._tail_start) * ENTRY_BYTES :]

    def remove(self) -> None:
        """Remove its files, and be empty."""
        for name in self._disk.names(self.folder):
            self._files.close(self.folder / name)
        self._disk.remove_folder(self.folder)
        self._tail.clear()
        self.min_offset = self.max_offset = self.next_offset = self._tail_start = 0

    def _first_from(self, physical_offset: int) -> int:
        """The first offset of the queue whose message stands there or behind; or its end."""
        offsets = range(self.min_offset, self.max_offset)
        place = bisect_left(offsets, physical_offset, key=self._physical_offset)
        return self.min_offset + place

    def _physical_offset(self, offset: int) -> int:
        return int.from_bytes(self.entries(offset, 1)[:8], "big")

    def _path(self, segment: int) -> Path:
        if self._last_path[0] != segment:
            self._last_path = segment, self.folder / f"{segment * self._segment_bytes:020}"
        return self._last_path[1]
