"""Files kept open for the next reader: as many as are used, up to a limit."""

from collections import OrderedDict
from pathlib import Path

from rocketpipe.broker.store.disk import Disk, File


class OpenFiles:
    """Open files by path; with too many of them, the one not used for longest is closed."""

    def __init__(self, disk: Disk, *, count_max: int = 128) -> None:
        self._disk = disk
        self._count_max = count_max
        self._files: OrderedDict[Path, File] = OrderedDict()

    def get(self, path: Path, *, create: bool = False) -> File:
        """The file, opened if need be. Good until the next call: not to be kept."""
        file = self._files.get(path)
        if file is None:
            file = self._files[path] = self._disk.open(path, create=create)
            if len(self._files) > self._count_max:
                self._files.popitem(last=False)[1].close()
        else:
            self._files.move_to_end(path)
        return file

    def close(self, path: Path) -> None:
        """Close the file if it is open, as one must before it is removed."""
        file = self._files.pop(path, None)
        if file is not None:
            file.close()

    def close_all(self) -> None:
        """Close every file."""
        for file in self._files.values():
            file.close()
        self._files.clear()
