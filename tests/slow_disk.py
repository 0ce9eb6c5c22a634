"""A real disk that lets whoever writes the log wait, as one does that can't keep up."""

import errno
import os
import threading
import time
from pathlib import Path

from rocketpipe.broker.store.disk import File, RealDisk, _open, _RealFile

LET_GO_SECONDS = 30.0  # so that a test that fails does not hang


class SlowDisk(RealDisk):
    """Writes to the log take `seconds`, and none ends before `may_write` is set."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.may_write = threading.Event()
        self.may_write.set()
        self.fails = False
        self.writers: list[int] = []  # the thread of each write to the log

    def open(self, path: Path, *, create: bool = False) -> File:
        if path.parent.name != "commitlog":
            return super().open(path, create=create)
        super().open(path, create=create).close()
        return _SlowFile(self, path)


class _SlowFile(_RealFile):
    def __init__(self, disk: SlowDisk, path: Path) -> None:
        super().__init__(_open(path, os.O_RDWR))
        self._disk = disk

    def write_at(self, offset: int, data: bytes | bytearray) -> None:
        self._disk.writers.append(threading.get_ident())
        time.sleep(self._disk.seconds)
        self._disk.may_write.wait(LET_GO_SECONDS)
        if self._disk.fails:
            raise OSError(errno.ENOSPC, "no space left")
        super().write_at(offset, data)
