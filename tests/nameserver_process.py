"""Our NameServer in a process of its own, for those who come from other processes."""

import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Self

import rocketpipe
from tests.apache.launch import launch

_START_SECONDS_MAX = 30.0
_SOURCE = Path(rocketpipe.__file__).parents[1]
_ADDRESS_LINE = re.compile(r"^([\w.]+:\d+)\n", re.MULTILINE)  # a warning may come before it


class NameServerProcess:
    """A running NameServer with these settings, by Apache's names; killed on leaving the `with`."""

    def __init__(self, **settings: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="rocketpipe-nameserver-")
        self._output = Path(self._folder.name) / "output.txt"
        self._settings = settings
        try:
            self.start()
        except BaseException:
            self.close()
            raise

    def start(self) -> None:
        folder = Path(self._folder.name)
        with self._output.open("wb") as output:
            self._process = launch(
                [sys.executable, *self._arguments(folder, self._settings)],
                folder,
                output,
                {"PYTHONPATH": str(_SOURCE)},
            )
        self.address = self._wait_for_address()

    def kill(self) -> None:
        """End it at once; what it has written is there when it starts again."""
        self._process.kill()
        self._process.wait()

    def _arguments(self, folder: Path, settings: dict[str, str]) -> list[str]:
        script = Path(__file__).with_name("serve_nameserver.py")
        return [str(script), *(f"{name}={value}" for name, value in settings.items())]

    def _wait_for_address(self) -> str:
        deadline = time.monotonic() + _START_SECONDS_MAX
        while not (found := _ADDRESS_LINE.search(output := self._output.read_text())):
            assert self._process.poll() is None, f"it ended: {output}"
            assert time.monotonic() < deadline, f"it did not say where it listens: {output}"
            time.sleep(0.02)
        return found[1]

    def close(self) -> None:
        self.kill()
        self._folder.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
