"""Runs the program as a person or a program would: as a process of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import rocketpipe
from rocketpipe.testing.embedded_cluster import EmbeddedCluster

END_SECONDS_MAX = 120.0


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
        self, *arguments: str, environment: Mapping[str, str] | None = None, **options: Any
    ) -> "subprocess.Popen[str]":
        inherited = {
            name: value for name, value in os.environ.items() if not name.startswith("ROCKETMQ_")
        }
        return subprocess.Popen(
            [sys.executable, "-m", "rocketpipe", *arguments],
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
        given = {} if stdin is None else {"stdin": subprocess.PIPE}
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


@pytest.fixture(scope="session")
def cli_cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(2) as cluster:
        yield cluster


@pytest.fixture
def program(cli_cluster: EmbeddedCluster) -> Program:
    return Program(cli_cluster.namesrv)
