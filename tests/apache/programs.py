"""Runs Apache RocketMQ's own Java programs, and small ones of a test's own, against any NameServer.

finished = mqadmin("5.5.0", namesrv, "topicRoute", "-t", "orders")
finished = java_program("5.5.0", "org.apache.rocketmq.example.quickstart.Producer", namesrv=namesrv)
finished = java_program("4.9.4", Path("tests/Check.java"), ["orders"], namesrv=namesrv)
with JavaProgram("5.5.0", CONSUMER, namesrv=namesrv) as consumer:
    consumer.wait_for("Consumer Started.")
"""

import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tests.apache.launch import java_command, launch

_MQADMIN = Path(__file__).parent / "java" / "Mqadmin.java"
_NEXT = "--next--"


@dataclass(frozen=True)
class Finished:
    """A program's exit code and what it printed, standard output and error in one."""

    exit_code: int
    output: str


class ProgramTimeout(Exception):
    """A program did not end, or not print what was awaited, in time; `output` is all it printed."""

    def __init__(self, program: str, timeout: float, output: str) -> None:
        super().__init__(program, timeout, output)
        self.output = output

    def __str__(self) -> str:
        program, timeout, output = self.args
        return f"waited {timeout:g} s in vain for {program}; it printed:\n{output}"


def mqadmin(version: str, namesrv: str, command: str, *args: str, timeout: float = 60) -> Finished:
    """Run a command of mqadmin. Its exit code is 0 even when it fails: read the output."""
    main_class = "org.apache.rocketmq.tools.command.MQAdminStartup"
    return java_program(version, main_class, [command, "-n", namesrv, *args], timeout=timeout)


def mqadmin_session(version: str, namesrv: str, *commands: str, timeout: float = 120) -> list[str]:
    """Run commands of mqadmin, each a line, in one Java: far sooner done. What each printed."""
    args: list[str] = []
    for line in commands:
        command, *rest = line.split()
        args += [*([_NEXT] if args else []), command, "-n", namesrv, *rest]
    finished = java_program(version, _MQADMIN, args, timeout=timeout)
    assert finished.exit_code == 0, finished.output
    return finished.output.split(f"\n{_NEXT}\n")


def java_program(
    version: str,
    program: str | Path,
    args: Sequence[str] = (),
    *,
    namesrv: str | None = None,
    jvm_properties: Mapping[str, str] | None = None,
    full_speed: bool = False,
    timeout: float = 60,
) -> Finished:
    """Run a program to its end."""
    with JavaProgram(
        version,
        program,
        args,
        namesrv=namesrv,
        jvm_properties=jvm_properties,
        full_speed=full_speed,
    ) as running:
        return running.wait(timeout)


class JavaProgram:
    """A running class of the release's jars, or a Java file (a Path) that is compiled first.

    Its clients use `namesrv` unless they set another. It is killed on leaving the `with`, and what
    it wrote to its home or current folder is gone then.
    """

    def __init__(
        self,
        version: str,
        program: str | Path,
        args: Sequence[str] = (),
        *,
        namesrv: str | None = None,
        jvm_properties: Mapping[str, str] | None = None,
        full_speed: bool = False,
    ) -> None:
        self.program = str(program.resolve() if isinstance(program, Path) else program)
        self._folder = tempfile.TemporaryDirectory(prefix="rocketpipe-java-")
        folder = Path(self._folder.name)
        properties = dict(jvm_properties or {})
        environment = {}
        if namesrv is not None:
            properties["rocketmq.namesrv.addr"] = environment["NAMESRV_ADDR"] = namesrv
        command = [
            *java_command(version, folder, log_level="ERROR", full_speed=full_speed),
            *(f"-D{name}={value}" for name, value in properties.items()),
            "-Xmx256m",
            self.program,
            *args,
        ]
        self._output = folder / "output.txt"
        with self._output.open("wb") as output:
            self._process = launch(command, folder, output, environment)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def output(self) -> str:
        """What it has printed so far."""
        return self._output.read_text(errors="replace")

    def wait(self, timeout: float = 60) -> Finished:
        """Wait until it ends by itself."""
        try:
            return Finished(self._process.wait(timeout), self.output)
        except subprocess.TimeoutExpired:
            raise ProgramTimeout(self.program, timeout, self.output) from None

    def wait_for(self, text: str, timeout: float = 60) -> str:
        """Wait until it has printed a text; return all it has printed."""
        return self.wait_until(lambda output: text in output, repr(text), timeout)

    def wait_until(self, is_enough: Callable[[str], bool], what: str, timeout: float = 60) -> str:
        """Wait until what it has printed is enough, and return that."""
        deadline = time.monotonic() + timeout
        while not is_enough(self.output):
            has_ended = self._process.poll() is not None
            if time.monotonic() > deadline or (has_ended and not is_enough(self.output)):
                raise ProgramTimeout(f"{what} of {self.program}", timeout, self.output)
            time.sleep(0.05)
        return self.output

    def close(self) -> None:
        self._process.kill()  # does nothing to one that has ended
        self._process.wait()
        self._folder.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
