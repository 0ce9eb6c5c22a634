"""Runs the program as a person or a program would: as a process of its own."""

import json
import os
import pty
import select
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pytest

import rocketpipe
from rocketpipe.testing.embedded_cluster import EmbeddedCluster

END_SECONDS_MAX = 300.0
CTRL_C, CTRL_D = "\x03", "\x04"


@dataclass(frozen=True)
class Finished:
    code: int
    output: str
    errors: str

    @property
    def rows(self) -> list[list[str]]:
        """A table's lines, by words, without the head."""
        return [line.split() for line in self.output.splitlines()[1:]]

    @property
    def objects(self) -> list[dict[str, Any]]:
        """JSON, an object a line."""
        return [json.loads(line) for line in self.output.splitlines()]


_PIPES = {
    "stdin": subprocess.DEVNULL,
    "stdout": subprocess.PIPE,
    "stderr": subprocess.PIPE,
}


class Program:
    """`rocketpipe(...)` runs a command against a cluster."""

    def __init__(self, namesrv: str) -> None:
        self.namesrv = namesrv

    def start(
        self,
        *arguments: str,
        runner: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        **options: Any,
    ) -> "subprocess.Popen[str]":
        inherited = {
            name: value for name, value in os.environ.items() if not name.startswith("ROCKETMQ_")
        }
        return subprocess.Popen(
            [*runner, sys.executable, "-m", "rocketpipe", *arguments],
            text=True,
            env={
                **inherited,
                "PYTHONPATH": os.pathsep.join(
                    [str(Path(rocketpipe.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
                ),
                "NAMESRV_ADDR": self.namesrv,
                **(environment or {}),
            },
            **{**_PIPES, **options},
        )

    def __call__(
        self,
        *arguments: str,
        stdin: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Finished:
        given: dict[str, Any] = {} if stdin is None else {"stdin": subprocess.PIPE}
        process = self.start(*arguments, environment=environment, **given)
        try:
            output, errors = process.communicate(stdin, timeout=END_SECONDS_MAX)
        finally:
            process.kill()  # does nothing to one that has ended
        return Finished(process.returncode, output, errors)

    def done(self, *arguments: str, stdin: str | None = None) -> Finished:
        """Run a command that must end well."""
        finished = self(*arguments, stdin=stdin)
        assert finished.code == 0, finished.errors
        return finished


class Terminal:
    """A command in a terminal, as a person has it: `with Terminal(program, ...) as terminal: ...`

    What it writes to stderr is seen there as well.
    """

    def __init__(self, program: Program, *arguments: str, columns: int = 120) -> None:
        self._screen, terminal = pty.openpty()
        # Who leads a session and opens a terminal has it: then Ctrl-C and Ctrl-D go to the program.
        shell = ("sh", "-c", 'exec "$@" < "$0" > "$0" 2>&1', os.ttyname(terminal))
        self._process = program.start(
            *arguments,
            runner=shell,
            environment={"COLUMNS": str(columns), "LINES": "40", "TERM": "xterm"},
            start_new_session=True,
            stdout=terminal,  # so that it is never without a reader
            stderr=terminal,
        )
        os.close(terminal)
        self._seen = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._screen)

    @property
    def seen(self) -> str:
        return self._seen.decode(errors="replace").replace("\r\n", "\n")

    def read_until(self, text: str) -> None:
        while text not in self.seen:
            assert self._read(), f"it ended without {text!r}: {self.seen}"

    def type(self, keys: str) -> None:
        os.write(self._screen, keys.encode())

    def end(self) -> tuple[int, str]:
        """Its exit code, and all that was seen."""
        while self._read():
            pass
        return self._process.wait(END_SECONDS_MAX), self.seen

    def _read(self) -> bool:
        ready, _, _ = select.select([self._screen], [], [], END_SECONDS_MAX)
        assert ready, f"nothing comes after: {self.seen}"
        try:
            chunk = os.read(self._screen, 4096)
        except OSError:  # the other side is closed: all is read
            return False
        self._seen += chunk
        return bool(chunk)


@pytest.fixture(scope="session")
def cli_cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(2) as cluster:
        yield cluster


@pytest.fixture
def program(cli_cluster: EmbeddedCluster) -> Program:
    return Program(cli_cluster.namesrv)
