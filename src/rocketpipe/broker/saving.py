"""Small tables of a broker that outlive it: written after each change, once for many changes."""

import asyncio
import logging
from collections.abc import Callable
from typing import TypeVar

from rocketpipe.broker.store.atomic_file import AtomicFile
from rocketpipe.errors import MalformedData

log = logging.getLogger(__name__)

T = TypeVar("T")


class SavedTable:
    """Keeps a file in step with a table that `encode` writes."""

    def __init__(self, file: AtomicFile, encode: Callable[[], bytes]) -> None:
        self._file = file
        self._encode = encode
        self._is_stale = False
        self._writing: asyncio.Task[None] | None = None
        self._waiting: list[Callable[[], None]] = []  # for the file that is being written
        self._waiting_for_next: list[Callable[[], None]] = []

    @property
    def is_saved(self) -> bool:
        """Whether the file holds what the table does."""
        return self._writing is None

    def load(self, decode: Callable[[bytes], T]) -> T | None:
        """What was saved last; None when nothing was, or nothing that can be read."""

        def parse(data: bytes) -> T:
            try:
                return decode(data)
            except MalformedData as error:
                raise ValueError(str(error)) from error  # the file's word for damage

        return self._file.load(parse)

    def changed(self) -> None:
        """The table is no longer what was saved: save it, soon."""
        self._is_stale = True
        if self._writing is None:
            self._writing = asyncio.get_running_loop().create_task(self._write())

    def when_saved(self, then: Callable[[], None]) -> None:
        """Call this when all changes up to now are saved, or could not be."""
        if self._writing is None:
            then()
        elif self._is_stale:
            self._waiting_for_next.append(then)
        else:
            self._waiting.append(then)

    async def wait_saved(self) -> None:
        """Returns when nothing is left to save."""
        if self._writing is not None:
            await asyncio.wait([self._writing])

    def kill(self) -> None:
        """Save nothing more, as after a crash."""
        if self._writing is not None:
            self._writing.cancel()

    async def _write(self) -> None:
        try:
            while self._is_stale:
                self._is_stale = False
                self._waiting, self._waiting_for_next = self._waiting_for_next, []
                try:
                    await self._file.write(self._encode())
                except OSError as error:
                    # As in RocketMQ the broker goes on: the next change is another chance.
                    log.error("a table could not be saved: %s", error)
                self._tell()
        finally:
            self._writing = None
            self._tell()

    def _tell(self) -> None:
        waiting, self._waiting = self._waiting, []
        for then in waiting:
            then()
