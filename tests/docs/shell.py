"""A terminal, as the reader of a document has one: one shell for all that is typed."""

import os
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple


class Typed(NamedTuple):
    """How some lines ended, and what they printed."""

    code: int
    output: str
    errors: str


class Shell:
    """bash, which stops at the first command that fails. What it leaves running ends with it."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._files = folder / ".typed"  # readers leave out what begins with a dot
        self._files.mkdir()
        self._count = 0
        reads, writes = os.pipe()
        self._process = subprocess.Popen(
            ["bash", "-euo", "pipefail"],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[writes],
            start_new_session=True,
            text=True,
        )
        os.close(writes)
        self._writes = writes  # the shell's number for it
        self._done = os.fdopen(reads)

    def type(self, text: str, *, may_fail: bool) -> Typed:
        """Type these lines, and wait until the prompt is back."""
        self._count += 1
        lines, output, errors = (
            self._files / f"{self._count}.{kind}" for kind in ("sh", "out", "err")
        )
        lines.write_text(text)
        code = "|| code=$?" if may_fail else ""
        assert self._process.stdin is not None
        self._process.stdin.write(
            f"code=0; . {lines} </dev/null >{output} 2>{errors} {code}\n"
            f"echo $code >&{self._writes}\n"
        )
        self._process.stdin.flush()
        answer = self._done.readline()
        ended = int(answer) if answer else self._process.wait()
        return Typed(ended, output.read_text(), errors.read_text())

    def wait_printed(self, seconds_max: float) -> str:
        """What was typed last goes on in the background: the first line that it prints."""
        deadline = time.monotonic() + seconds_max
        while time.monotonic() < deadline:
            printed = (self._files / f"{self._count}.out").read_text()
            if "\n" in printed:
                return printed.splitlines()[0]
            time.sleep(0.05)
        return ""

    def close(self) -> None:
        """End the shell, and whatever runs in it."""
        try:
            os.killpg(self._process.pid, signal.SIGTERM)
            time.sleep(0.2)
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._done.close()
