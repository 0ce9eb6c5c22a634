"""A disk in memory that forgets, like a real one, what was not synced when the power went.

    disk = SimulatedDisk(seed)
    ...                      # a store writes to it
    disk.lose_power()        # of what was not synced some is there, some not, some in part
    ...                      # a new store opens the same folder

It can also be full, slow, stuck or broken. All chances come from the seed.
"""

import asyncio
import errno
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rocketpipe.broker.store.disk import DiskUsage

_PAGE_BYTES = 4096
_SECTOR_BYTES = 512
_LOOK_INTERVAL = 0.01  # how often a write looks whether the disk is stuck still


class Killed(SystemExit):
    """The process that uses the disk was killed."""


class SimulatedDisk:
    """Implements `Disk`. Folders exist as soon as they are named, and are never lost."""

    def __init__(self, seed: int = 0, *, capacity_bytes: int = 1 << 40) -> None:
        self.capacity_bytes = capacity_bytes
        self.sync_seconds = (0.0001, 0.005)  # how long a sync takes, from and to
        self.is_stuck = False  # writes have to wait
        self.fails_writes = False
        self.fails_syncs = False
        self.syncs = 0  # of files, that were begun
        self.writes = 0
        self._dice = random.Random(seed)
        self._files: dict[Path, _Content] = {}
        self._durable_files: dict[Path, _Content] = {}
        self._name_changes: dict[Path, list[_NameChange]] = {}
        self.changes_left: int | None = None
        """After so many more changes, whoever makes the next is `Killed`; None: nobody is."""
        self._locked: set[Path] = set()
        self._power = _Power()

    # Disk

    def open(self, path: Path, *, create: bool = False) -> "_SimulatedFile":
        if path not in self._files:
            if not create:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
            self._check_for_room(1)
            self._change_name(path, _Content())
        return _SimulatedFile(self, self._files[path], self._power)

    def names(self, folder: Path) -> list[str]:
        depth = len(folder.parts)
        return sorted(
            {path.parts[depth] for path in self._files if path.is_relative_to(folder)} - {""}
        )

    def make_folder(self, folder: Path) -> None:
        pass

    def rename(self, source: Path, target: Path) -> None:
        # Within one folder: both happen or neither does.
        assert source.parent == target.parent
        self._change()
        content = self._files.pop(source)
        self._files[target] = content
        self._name_changes.setdefault(source.parent, []).append({source: None, target: content})

    def remove(self, path: Path) -> None:
        if path in self._files:
            self._change_name(path, None)

    def remove_folder(self, folder: Path) -> None:
        for path in [path for path in self._files if path.is_relative_to(folder)]:
            self._change_name(path, None)

    async def sync_folder(self, folder: Path) -> None:
        changes = list(self._name_changes.get(folder, ()))
        await self._take_time()
        for change in changes:
            if change in self._name_changes[folder]:  # not if another sync was faster
                self._name_changes[folder].remove(change)
                _apply(change, self._durable_files)

    def lock(self, path: Path) -> "_SimulatedLock":
        if path in self._locked:
            raise BlockingIOError(errno.EAGAIN, "locked", str(path))
        self._locked.add(path)
        return _SimulatedLock(self._locked, path)

    def usage(self, folder: Path) -> DiskUsage:
        return DiskUsage(self.capacity_bytes, max(0, self.capacity_bytes - self._used_bytes()))

    # What may happen to it

    def lose_power(self) -> None:
        """Forget, at random, what was not synced; whoever has files open can't use them again."""
        self.kill_users()
        for changes in self._name_changes.values():
            # A journal keeps the order of such changes, and loses the last ones.
            for change in changes[: self._dice.randint(0, len(changes))]:
                _apply(change, self._durable_files)
        self._name_changes.clear()
        self._files = dict(self._durable_files)
        for content in self._files.values():
            content.lose_power(self._dice)

    def kill_users(self) -> None:
        """As the death of a process does: files and locks are let go, nothing is forgotten."""
        self._power.is_lost = True
        self._power = _Power()
        self._locked = set()

    def flip_bit(self, path: Path, bit: int) -> None:
        """Damage a file, for good."""
        content = self._files[path]
        for data in (content.data, content.durable):
            if bit // 8 < len(data):
                data[bit // 8] ^= 1 << bit % 8

    def cut(self, path: Path, size: int) -> None:
        """Lose the end of a file."""
        content = self._files[path]
        del content.data[size:], content.durable[size:]
        content.changes.clear()

    def content(self, path: Path) -> bytes:
        """What a file holds."""
        return bytes(self._files[path].data)

    @contextmanager
    def full(self) -> Iterator[None]:
        """Have no room for anything new, for a while."""
        capacity, self.capacity_bytes = self.capacity_bytes, self._used_bytes()
        try:
            yield
        finally:
            self.capacity_bytes = capacity

    # How it works

    def _change(self) -> None:
        """Called before anything changes, as a system call would do it."""
        if self.changes_left is not None:
            if self.changes_left <= 0:
                raise Killed
            self.changes_left -= 1

    def _change_name(self, path: Path, content: "_Content | None") -> None:
        self._change()
        change: _NameChange = {path: content}
        _apply(change, self._files)
        self._name_changes.setdefault(path.parent, []).append(change)

    def _used_bytes(self) -> int:
        return sum(len(content.pages) for content in self._files.values()) * _PAGE_BYTES

    def _check_for_room(self, pages: int) -> None:
        if pages and self._used_bytes() + pages * _PAGE_BYTES > self.capacity_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _write(self, content: "_Content", offset: int, data: bytes) -> None:
        if self.is_stuck:
            raise BlockingIOError(errno.EAGAIN, "the disk is stuck")
        try:
            self._change()
        except Killed:
            content.write(offset, data[: self._dice.randint(0, len(data))])
            raise
        self.writes += 1
        pages = set(range(offset // _PAGE_BYTES, (offset + len(data) - 1) // _PAGE_BYTES + 1))
        try:
            if self.fails_writes:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            self._check_for_room(len(pages - content.pages))
        except OSError:
            part = data[: self._dice.randint(0, len(data))]
            if part and not self.fails_writes:
                # What was there before it was full, to the end of its last page.
                part = part[: _PAGE_BYTES - offset % _PAGE_BYTES]
                if offset // _PAGE_BYTES in content.pages:
                    content.write(offset, part)
            raise
        content.pages |= pages
        content.write(offset, data)

    async def _take_time(self) -> None:
        power = self._power
        await asyncio.sleep(self._dice.uniform(*self.sync_seconds))
        power.check()

    async def _sync(self, content: "_Content") -> None:
        self.syncs += 1
        count = content.hardened + len(content.changes)
        await self._take_time()
        if self.fails_syncs:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        content.harden(count)


class _Power:
    is_lost = False

    def check(self) -> None:
        if self.is_lost:
            raise OSError(errno.EIO, "the one who opened this is dead")


class _Content:
    """The bytes of a file: as they are, as they are safe, and the changes in between."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.durable = bytearray()
        self.changes: list[tuple[int, bytes | None]] = []  # no bytes: cut or stretched to there
        self.hardened = 0  # how many changes are safe and no longer in the list
        self.pages: set[int] = set()

    def write(self, offset: int, data: bytes) -> None:
        self._change(self.data, offset, data)
        self.changes.append((offset, data))

    def truncate(self, size: int) -> None:
        self._change(self.data, size, None)
        self.changes.append((size, None))
        self.pages = {page for page in self.pages if page * _PAGE_BYTES < size}

    def harden(self, count: int) -> None:
        while self.hardened < count:
            self._change(self.durable, *self.changes.pop(0))
            self.hardened += 1

    def lose_power(self, dice: random.Random) -> None:
        chance = dice.choice((0.0, 0.5, 0.9, 1.0))
        for offset, data in self.changes:
            if dice.random() < chance:
                self._change(self.durable, offset, data)
            elif data is not None and dice.random() < 0.5:
                # Only some of its sectors, or the beginning of it.
                start = dice.randrange(0, len(data) + 1, _SECTOR_BYTES)
                end = dice.randint(start, len(data))
                self._change(self.durable, offset + start, data[start:end])
        self.changes.clear()
        self.data = bytearray(self.durable)

    @staticmethod
    def _change(content: bytearray, offset: int, data: bytes | None) -> None:
        if len(content) < offset:
            content.extend(bytes(offset - len(content)))
        if data is None:
            del content[offset:]
        else:
            content[offset : offset + len(data)] = data


_NameChange = dict[Path, _Content | None]


def _apply(change: _NameChange, files: dict[Path, _Content]) -> None:
    for path, content in change.items():
        if content is None:
            files.pop(path, None)
        else:
            files[path] = content


class _SimulatedFile:
    def __init__(self, disk: SimulatedDisk, content: _Content, power: _Power) -> None:
        self._disk = disk
        self._content = content
        self._power = power
        self._is_closed = False

    def size(self) -> int:
        self._check()
        return len(self._content.data)

    def read_at(self, offset: int, size: int) -> bytes:
        self._check()
        return bytes(self._content.data[offset : offset + size])

    def write_at(self, offset: int, data: bytes | bytearray) -> None:
        self._check()
        self._disk._write(self._content, offset, bytes(data))

    async def write_aside(self, offset: int, data: bytes) -> None:
        while self._disk.is_stuck:  # noqa: ASYNC110 -- a plain attribute, which a test sets
            await asyncio.sleep(_LOOK_INTERVAL)
        self.write_at(offset, data)

    def truncate(self, size: int) -> None:
        self._check()
        self._disk._change()
        self._content.truncate(size)

    async def sync(self) -> None:
        self._check()
        await self._disk._sync(self._content)

    def close(self) -> None:
        self._is_closed = True

    def _check(self) -> None:
        self._power.check()
        if self._is_closed:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))


class _SimulatedLock:
    def __init__(self, locked: set[Path], path: Path) -> None:
        self._locked = locked
        self._path = path

    def release(self) -> None:
        self._locked.discard(self._path)
