"""Small files that are replaced as a whole: a crash leaves the old or the new, never half."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from rocketpipe.broker.store.disk import Disk

T = TypeVar("T")

_log = logging.getLogger(__name__)


class AtomicFile:
    """A file with one content at a time, and the one before it as `<name>.bak`.

    topics.json, consumerOffset.json and the like, and the store's own checkpoint.
    """

    def __init__(self, path: Path, *, disk: Disk) -> None:
        self._path = path
        self._new = path.with_name(path.name + ".tmp")
        self._old = path.with_name(path.name + ".bak")
        self._disk = disk
        self._lock = asyncio.Lock()

    def load(self, parse: Callable[[bytes], T]) -> T | None:
        """What `parse` makes of the content, or of the one before it where that raises ValueError.

        None when neither is there, or neither makes sense.
        """
        for path in (self._path, self._old):
            try:
                content = self._read(path)
                if content is not None:
                    return parse(content)
            except ValueError as error:
                _log.error("%s is damaged, trying what was there before: %s", path, error)
        return None

    async def write(self, data: bytes) -> None:
        """Replace the content; it is safe from a power loss when this returns."""
        async with self._lock:
            await self._write(data)

    async def _write(self, data: bytes) -> None:
        folder = self._path.parent
        self._disk.make_folder(folder)
        file = self._disk.open(self._new, create=True)
        try:
            file.truncate(0)
            file.write_at(0, data)
            await file.sync()
        finally:
            file.close()
        # Between the two renames the content is in the .bak alone, where `load` finds it.
        if self._path.name in self._disk.names(folder):
            self._disk.rename(self._path, self._old)
        self._disk.rename(self._new, self._path)
        await self._disk.sync_folder(folder)

    def _read(self, path: Path) -> bytes | None:
        try:
            file = self._disk.open(path)
        except FileNotFoundError:
            return None
        try:
            return file.read_at(0, file.size())
        finally:
            file.close()
