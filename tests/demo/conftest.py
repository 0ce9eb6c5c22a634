"""The demo as a process, and what is left of it."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.spark.conftest import require_java

ROOT = Path(__file__).parents[2]
END_SECONDS_MAX = 900.0  # a busy machine
GONE_SECONDS_MAX = 20.0
DEMO = ("-m", "rocketpipe", "demo")
_MARK = "ROCKETPIPE_TEST_MARK"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.slow)


class DemoProcess:
    """`rocketpipe demo`, or a program that runs it, with results in a folder."""

    def __init__(self, folder: Path, *arguments: str, program: Sequence[str]) -> None:
        self.folder = folder
        self._mark = uuid4().hex
        self._process = subprocess.Popen(
            [sys.executable, *program, "--out", str(folder), *arguments],
            cwd=ROOT,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, _MARK: self._mark, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
        )
        self.code: int | None = None
        self.output = self.errors = ""

    def wait_said(self, text: str) -> None:
        """Returns when it has written this to stderr."""
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.errors += line
            if text in line:
                return
        raise AssertionError(f"it ended without {text!r}: {self.errors}")

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def end(self) -> None:
        output, errors = self._process.communicate(timeout=END_SECONDS_MAX)
        self.output += output
        self.errors += errors
        self.code = self._process.returncode

    @property
    def result(self) -> dict[str, Any]:
        result: dict[str, Any] = json.loads(self.output)
        return result

    def left_running(self) -> list[str]:
        """The processes that it started, whoever is their parent now, when they had time to end."""
        deadline = time.monotonic() + GONE_SECONDS_MAX
        while (left := self._marked()) and time.monotonic() < deadline:
            time.sleep(0.1)
        return left

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()

    def _marked(self) -> list[str]:
        found = []
        for process in Path("/proc").iterdir():
            if process.name.isdigit():
                try:
                    if f"{_MARK}={self._mark}".encode() in (process / "environ").read_bytes():
                        command = (process / "cmdline").read_bytes().replace(b"\0", b" ")
                        found.append(f"{process.name}: {command.decode()[:200]}")
                except OSError:  # it has ended meanwhile, or is not ours
                    continue
        return found


StartDemo = Callable[..., DemoProcess]


@pytest.fixture
def start_demo(tmp_path: Path) -> Iterator[StartDemo]:
    """Start `rocketpipe demo` with these arguments, or another program with the same ones."""
    require_java()
    started: list[DemoProcess] = []

    def start(*arguments: str, program: Sequence[str] = DEMO) -> DemoProcess:
        folder = tmp_path / f"out-{len(started)}"
        started.append(DemoProcess(folder, *arguments, program=program))
        return started[-1]

    yield start
    for demo in started:
        demo.kill()
