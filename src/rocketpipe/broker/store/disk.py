"""The file system as the store sees it: small, so that a test can hand in one that forgets."""

import asyncio
import fcntl
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol


class DiskUsage(NamedTuple):
    """How much the disk under a folder holds, in bytes."""

    total: int
    free: int

    @property
    def used_ratio(self) -> float:
        """How full it is, from 0 to 1."""
        return 1 - self.free / self.total if self.total else 0.0


class File(Protocol):
    """An open file. What was written may be lost with the power until `sync` has returned."""

    def size(self) -> int: ...

    def read_at(self, offset: int, size: int) -> bytes:
        """Up to `size` bytes; fewer only at the end of the file."""

    def write_at(self, offset: int, data: bytes | bytearray) -> None:
        """Hand all of it to the kernel.

        BlockingIOError says that this would have to wait, and that nothing was written. After any
        other OSError any part of it may have been written.
        """

    async def write_aside(self, offset: int, data: bytes) -> None:
        """The same, while all else goes on. What is done to the file next waits for it."""

    def truncate(self, size: int) -> None:
        """Cut the file there, or lengthen it with zeros that take no room."""

    async def sync(self) -> None:
        """Make all that was written before this call safe from a power loss."""

    def close(self) -> None: ...


class Lock(Protocol):
    """A hold on a folder."""

    def release(self) -> None: ...


class Disk(Protocol):
    """Folders and files by path."""

    def open(self, path: Path, *, create: bool = False) -> File:
        """FileNotFoundError when there is none and none is to be created."""

    def names(self, folder: Path) -> list[str]:
        """What a folder holds, sorted; nothing when there is no such folder."""

    def make_folder(self, folder: Path) -> None:
        """With its parents; no matter if it is there already."""

    def rename(self, source: Path, target: Path) -> None:
        """Replaces the target at once: whoever looks sees the one or the other."""

    def remove(self, path: Path) -> None:
        """Remove a file; no matter if there is none."""

    def remove_folder(self, folder: Path) -> None:
        """With all that it holds; no matter if there is none."""

    async def sync_folder(self, folder: Path) -> None:
        """Make files created, renamed or removed in it so also after a power loss."""

    def lock(self, path: Path) -> Lock:
        """Hold the file at that path; BlockingIOError when somebody else does."""

    def usage(self, folder: Path) -> DiskUsage: ...


class RealDisk:
    """The disk of this machine. Another thread syncs, and makes the writes that are slow."""

    def open(self, path: Path, *, create: bool = False) -> File:
        return _RealFile(_open(path, os.O_RDWR | (os.O_CREAT if create else 0)))

    def names(self, folder: Path) -> list[str]:
        try:
            return sorted(os.listdir(folder))  # noqa: PTH208 -- a thousand Paths would be slow
        except FileNotFoundError:
            return []

    def make_folder(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)

    def rename(self, source: Path, target: Path) -> None:
        source.replace(target)

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def remove_folder(self, folder: Path) -> None:
        for root, folders, files in os.walk(folder, topdown=False):
            for name in files:
                Path(root, name).unlink()
            for name in folders:
                Path(root, name).rmdir()
        if folder.exists():
            folder.rmdir()

    async def sync_folder(self, folder: Path) -> None:
        descriptor = _open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            await _sync(descriptor, os.fsync)
        finally:
            os.close(descriptor)

    def lock(self, path: Path) -> Lock:
        return _RealLock(_open(path, os.O_RDWR | os.O_CREAT))

    def usage(self, folder: Path) -> DiskUsage:
        stat = os.statvfs(folder)
        # Not f_bfree: the blocks reserved for root are not ours to fill.
        used = stat.f_blocks - stat.f_bfree
        return DiskUsage(
            total=(used + stat.f_bavail) * stat.f_frsize, free=stat.f_bavail * stat.f_frsize
        )


class _RealFile:
    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._aside: threading.Event | None = None  # what is written by another thread is there

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def read_at(self, offset: int, size: int) -> bytes:
        data = os.pread(self._descriptor, size, offset)
        while len(data) < size:  # the end of the file, most often
            more = os.pread(self._descriptor, size - len(data), offset + len(data))
            if not more:
                break
            data += more
        return data

    def write_at(self, offset: int, data: bytes | bytearray) -> None:
        written = os.pwrite(self._descriptor, data, offset)
        while written < len(data):  # a disk that fills up takes a part, and then says why
            written += os.pwrite(self._descriptor, data[written:], offset + written)

    async def write_aside(self, offset: int, data: bytes) -> None:
        written = threading.Event()

        def work() -> None:
            try:
                self.write_at(offset, data)
            finally:
                written.set()

        writing = asyncio.get_running_loop().run_in_executor(None, work)
        self._aside = written
        await asyncio.shield(writing)  # it goes on when nobody waits for it any more

    def truncate(self, size: int) -> None:
        self._wait_for_aside()
        os.ftruncate(self._descriptor, size)

    async def sync(self) -> None:
        await _sync(self._descriptor, _sync_data)

    def close(self) -> None:
        self._wait_for_aside()
        os.close(self._descriptor)

    def _wait_for_aside(self) -> None:
        # Else it might write what was cut again, or into a folder that somebody else has by then.
        if self._aside is not None:
            self._aside.wait()


class _RealLock:
    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise

    def release(self) -> None:
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)  # also where a forked child has a copy of it
        os.close(self._descriptor)


def _open(path: Path, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o644)


async def _sync(descriptor: int, sync: Callable[[int], None]) -> None:
    # The thread has a descriptor of its own: whoever gives up waiting may close the other.
    own = os.dup(descriptor)

    def work() -> None:
        try:
            sync(own)
        finally:
            os.close(own)

    # Shielded, as work that is given up before it begins would leave its descriptor open.
    await asyncio.shield(asyncio.get_running_loop().run_in_executor(None, work))


# It syncs the size as well, but not the times.
_sync_data: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)
