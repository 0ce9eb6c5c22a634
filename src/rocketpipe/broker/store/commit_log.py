"""The commit log: every accepted message, one record after another, in order of arrival.

A log of endless bytes, kept in files named by the offset at which each begins. No record spans two
files: what is left at the end of one is closed by a blank filler, and the file stretched, without
taking room, to where the next begins. A file that is shorter than that, or missing, is a hole.
"""

import asyncio
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

from rocketpipe.broker.store.disk import Disk, File
from rocketpipe.broker.store.open_files import OpenFiles
from rocketpipe.errors import StoreError
from rocketpipe.wire.record import encode_blank

SET_ASIDE = ".cut-"  # in the names of files that are no longer part of the log
_COPIED_AT_ONCE = 1 << 20


class CommitLog:
    """The bytes of the log and where they are; what they mean is for others to know."""

    def __init__(self, folder: Path, *, disk: Disk, files: OpenFiles, segment_bytes: int) -> None:
        self._folder = folder
        self._disk = disk
        self._files = files
        self._segment_bytes = segment_bytes
        self._starts: list[int] = []
        self._last: File | None = None  # the segment that is written to
        self._last_start = 0
        self._unsynced: list[File] = []  # segments before the last; closed once they are safe
        self._is_folder_synced = True
        self._is_tail_clean = True
        self._sync_lock = asyncio.Lock()
        self.max_offset = 0
        self.flushed_offset = 0

    def open(self) -> None:
        """Find the segments; the log ends where the last of them does."""
        self._disk.make_folder(self._folder)
        names = [name for name in self._disk.names(self._folder) if SET_ASIDE not in name]
        if strange := [name for name in names if not (len(name) == 20 and name.isdigit())]:
            raise StoreError(f"{self._folder} holds {strange[0]!r}, which is no part of a log")
        self._starts = [int(name) for name in names]
        if self._starts:
            self._open_last()
            assert self._last is not None
            self.max_offset = self._last_start + self._last.size()

    @property
    def min_offset(self) -> int:
        """Where the oldest segment begins."""
        return self._starts[0] if self._starts else self.max_offset

    @property
    def segment_starts(self) -> list[int]:
        """Where each segment begins, the oldest first."""
        return list(self._starts)

    def segment_end(self, offset: int) -> int:
        """Where the segment that holds, or will hold, this offset ends and the next begins."""
        if offset >= self._last_start or not self._starts:
            # The larger, for one that was written when segments were larger.
            return max(self._last_start + self._segment_bytes, self.max_offset)
        return self._starts[bisect_right(self._starts, offset)]

    # Writing

    def write(self, data: bytes) -> None:
        """Append bytes that fit the segment. Handed to the kernel, but not safe from power loss.

        After an OSError the log is as it was before. BlockingIOError says that it would have to
        wait: see `write_aside`.
        """
        with self._appended(len(data)) as (file, offset):
            file.write_at(offset, data)

    async def write_aside(self, data: bytes) -> None:
        """As `write`, but all else goes on while this waits for the disk."""
        with self._appended(len(data)) as (file, offset):
            await file.write_aside(offset, data)

    @contextmanager
    def _appended(self, size: int) -> Iterator[tuple[File, int]]:
        """Where so many bytes are to be written; the log ends behind them if they were."""
        if self._last is None or self.max_offset >= self._last_start + self._segment_bytes:
            self._add_segment(self.max_offset)
        assert self._last is not None
        if not self._is_tail_clean:
            self._cut_tail()
        try:
            yield self._last, self.max_offset - self._last_start
        except BlockingIOError:
            raise
        except OSError:
            # Part of it may be there. The next records would be written over that, but would have
            # other sizes: a crash would then leave something between records that is none.
            self._is_tail_clean = False
            try:
                self._cut_tail()
            except OSError:
                pass  # tried again before anything else is written
            raise
        self.max_offset += size

    def close_segment(self) -> None:
        """Write the filler, and leave the rest of the segment as zeros that take no room."""
        with self._closed_segment() as filler:
            if filler:
                self.write(filler)

    async def close_segment_aside(self) -> None:
        """As `close_segment`, but all else goes on while this waits for the disk."""
        with self._closed_segment() as filler:
            if filler:
                await self.write_aside(filler)

    @contextmanager
    def _closed_segment(self) -> Iterator[bytes]:
        """The filler to write, if there is room for one; behind it the segment is closed."""
        start, end = self.max_offset, self._last_start + self._segment_bytes
        if start >= end:
            yield b""  # it is full to the last byte
            return
        yield encode_blank(end - start)
        try:
            self.stretch(end)
        except OSError:
            self.max_offset = start
            self._is_tail_clean = False
            raise

    def stretch(self, end: int) -> None:
        """Let the last segment, whose filler is written, reach to where the next begins."""
        assert self._last is not None
        self._last.truncate(end - self._last_start)
        self.max_offset = end

    def start_at(self, offset: int) -> None:
        """Let an empty log begin elsewhere than at 0, as that of a new slave does."""
        assert not self._starts
        self.max_offset = self.flushed_offset = self._last_start = offset

    def truncate(self, offset: int) -> None:
        """Cut off all from there on."""
        self._is_tail_clean = True
        while self._starts and self._starts[-1] >= offset and len(self._starts) > 1:
            self._close_last()
            path = self._path(self._starts.pop())
            self._files.close(path)  # one of this name may follow, and is another
            self._disk.remove(path)
            self._is_folder_synced = False
        if self._starts:
            if self._last is None:
                self._open_last()
            assert self._last is not None
            self._last.truncate(offset - self._last_start)
        self._end_at(offset)

    async def set_aside(self, offset: int, suffix: str) -> None:
        """Cut off all from there on, but keep it, in files whose names end so.

        They are named by where they begin, as those of the log are. When nothing is left, the log
        may begin anywhere again.
        """
        place = bisect_right(self._starts, offset) - 1
        if place >= 0 and self._starts[place] < offset:
            await self._copy(offset, self._aside(offset, suffix))
        async with self._sync_lock:  # a sync would tell of the log as it was when that began
            while self._starts and self._starts[-1] >= offset:
                start = self._starts[-1]
                self._disk.rename(self._path(start), self._aside(start, suffix))
                self._is_folder_synced = False
                self._close_last()
                self._files.close(self._path(self._starts.pop()))
                self._end_at(start)
                if self._starts:
                    self._open_last()
            if self._starts:
                self.truncate(offset)
            else:
                self.start_at(0)

    def distrust(self, offset: int) -> None:
        """Sync next time also what was there when this was opened, from that offset on.

        What a killed process wrote can be read, but may not be safe from a power loss yet.
        """
        for start, end in pairwise(self._starts):
            if end > offset:
                self._unsynced.append(self._disk.open(self._path(start)))
        self._is_folder_synced = False
        self.flushed_offset = min(offset, self.max_offset)

    async def sync(self) -> None:
        """Make all that was written before this call safe from a power loss."""
        async with self._sync_lock:
            target = self.max_offset
            if target == self.flushed_offset and self._is_folder_synced:
                return
            while self._unsynced:
                await self._unsynced[0].sync()
                self._unsynced.pop(0).close()
            if self._last is not None:
                await self._last.sync()
            if not self._is_folder_synced:
                self._is_folder_synced = True
                try:
                    await self._disk.sync_folder(self._folder)
                except OSError:
                    self._is_folder_synced = False
                    raise
            # Meanwhile the log may have been cut.
            self.flushed_offset = min(target, self.max_offset)

    # Reading

    def read(self, offset: int, size: int) -> bytes:
        """Up to `size` bytes; fewer where a segment or the log ends, or has a hole."""
        if offset >= self._last_start and self._last is not None:
            return self._last.read_at(offset - self._last_start, size)
        index = bisect_right(self._starts, offset) - 1
        if index < 0 or index + 1 >= len(self._starts):
            return b""
        start = self._starts[index]
        size = min(size, self._starts[index + 1] - offset)
        return self._files.get(self._path(start)).read_at(offset - start, size)

    # The end of things

    def remove_oldest(self) -> None:
        """Delete the oldest segment; there must be a newer one."""
        assert len(self._starts) > 1
        path = self._path(self._starts.pop(0))
        self._files.close(path)
        self._disk.remove(path)
        self._is_folder_synced = False

    def close(self) -> None:
        """Let go of the files."""
        self._close_last()
        for file in self._unsynced:
            file.close()
        self._unsynced.clear()

    async def _copy(self, offset: int, target: Path) -> None:
        """Copy what the segment has from there on."""
        file = self._disk.open(target, create=True)
        try:
            position, end = offset, self.segment_end(offset)
            while data := self.read(position, min(_COPIED_AT_ONCE, end - position)):
                file.write_at(position - offset, data)
                position += len(data)
                await asyncio.sleep(0)
            await file.sync()
        finally:
            file.close()

    def _end_at(self, offset: int) -> None:
        self.max_offset = offset
        self.flushed_offset = min(self.flushed_offset, offset)

    def _add_segment(self, start: int) -> None:
        self._disk.make_folder(self._folder)
        file = self._disk.open(self._path(start), create=True)
        if self._last is not None:
            self._unsynced.append(self._last)
        self._last = file
        self._last_start = start
        self._starts.append(start)
        self._is_folder_synced = False

    def _open_last(self) -> None:
        self._last_start = self._starts[-1]
        self._last = self._disk.open(self._path(self._last_start))

    def _close_last(self) -> None:
        if self._last is not None:
            self._last.close()
            self._last = None

    def _cut_tail(self) -> None:
        assert self._last is not None
        self._last.truncate(self.max_offset - self._last_start)
        self._is_tail_clean = True

    def _path(self, start: int) -> Path:
        return self._folder / f"{start:020}"

    def _aside(self, start: int, suffix: str) -> Path:
        return self._folder / f"{start:020}{suffix}"
