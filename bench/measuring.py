"""What the benchmarks share: figures, what they count in, and the scripts that give them."""

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import NamedTuple, TypeVar

HERE = Path(__file__).parent
VERSION = "5.5.0"
ROUNDS = 5
SECONDS = 5.0
TOPIC = "benchmark"


class Figures(NamedTuple):
    rate: float  # per second
    cpu: float  # microseconds each, of the client's process
    server_cpu: float = 0.0  # of the server's, when its process was named

    def __str__(self) -> str:
        server = f", of the server {self.server_cpu:.1f} us" if self.server_cpu else ""
        return f"{self.rate:,.0f}/s, CPU {self.cpu:.1f} us{server}"


class Latency(NamedTuple):
    p50: float  # in microseconds
    p99: float

    def __str__(self) -> str:
        return f"p50 {self.p50:,.0f} us, p99 {self.p99:,.0f} us"


F = TypeVar("F", bound=tuple[float, ...])


class Rounds(list[F]):
    """What was measured in each round, by one of those that took turns."""

    @property
    def median(self) -> F:
        """That of each figure."""
        return type(self[0])(*(median(column) for column in zip(*self, strict=True)))

    def ratio(self, other: "Rounds[F]", figure: int = 0) -> float:
        """The median of the rounds' ratios. The machine is faster in one round than in the next,
        and in each the two came one after the other: their medians may be of different rounds."""
        pairs = zip(self, other, strict=True)
        return median(mine[figure] / theirs[figure] for mine, theirs in pairs)


def in_turns(
    measures: Mapping[str, Callable[[], F]], *, warm_up_rounds: int = 1
) -> dict[str, Rounds[F]]:
    """All measures take turns."""
    seen: dict[str, Rounds[F]] = {name: Rounds() for name in measures}
    for number in range(1 - warm_up_rounds, ROUNDS + 1):
        for name, measure in measures.items():
            measured = measure()
            say(f"round {number}: {name} {measured}")
            if number > 0:
                seen[name].append(measured)
    return seen


@contextmanager
def touched_memory() -> Iterator[None]:
    """With the free memory of the machine used for once, and kept, by the cache of a file of zeros.

    A virtual machine gets its memory from the host page by page when it first writes there, at up
    to 25 µs each, and may give back what is free: who writes files would pay for it, now one and
    now the other. Pages of this cache are taken over by whoever needs some.
    """
    meminfo = Path("/proc/meminfo").read_text()
    size = int(re.findall(r"MemFree: +(\d+)", meminfo)[0]) * 1024
    say(f"touching {size >> 30} GB of memory")
    with tempfile.TemporaryFile(buffering=0) as file:
        file.truncate(size)
        part = bytearray(1 << 24)
        while file.readinto(part):
            pass
        yield


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class Stopwatch:
    """Measures from its making; `is_over` after so many seconds."""

    def __init__(self, seconds: float = 0.0, server_pid: int | None = None) -> None:
        self._server_pid = server_pid
        self._server_cpu = self._server_cpu_seconds()
        self._cpu, self._began = time.process_time(), time.perf_counter()
        self._end = self._began + seconds

    def is_over(self) -> bool:
        return time.perf_counter() >= self._end

    def report(self, count: int) -> str:
        """A line that `figures` reads."""
        took, cpu = time.perf_counter() - self._began, time.process_time() - self._cpu
        server_cpu = self._server_cpu_seconds() - self._server_cpu
        return f"rate and CPU: {count / took} {cpu * 1e6 / count} {server_cpu * 1e6 / count}"

    def _server_cpu_seconds(self) -> float:
        return 0.0 if self._server_pid is None else cpu_seconds(self._server_pid)


def our_script(script: str, *arguments: str) -> Figures:
    """What a script of ours measures, in a process of its own."""
    return figures(our_output(script, *arguments))


def our_output(script: str, *arguments: str) -> str:
    command = [sys.executable, str(HERE / script), *arguments]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=300)
    return finished.stdout + finished.stderr


def figures(output: str) -> Figures:
    return Figures(*_numbers("rate and CPU", output))


def latency(output: str) -> Latency:
    return Latency(*_numbers("p50 and p99", output))


def _numbers(title: str, output: str) -> list[float]:
    match = re.search(rf"{title}: (.+)", output)
    if match is None:
        sys.exit(f"a benchmark failed:\n{output}")
    return list(map(float, match[1].split()))


def cpu_seconds(pid: int, *, with_ended_children: bool = False) -> float:
    """What a process has used so far, user and system time, all its threads."""
    # Fields 14 to 17 of proc(5). The name before them may hold blanks.
    after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    fields = after_name[11:15] if with_ended_children else after_name[11:13]
    return sum(map(int, fields)) / os.sysconf("SC_CLK_TCK")
