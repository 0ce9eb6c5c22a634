"""What the benchmarks share: figures, what they count in, and the scripts that give them."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
VERSION = "5.5.0"
ROUNDS = 3
SECONDS = 5.0
TOPIC = "benchmark"


class Figures(NamedTuple):
    rate: float  # per second
    cpu: float  # microseconds each, of the client's process
    server_cpu: float = 0.0  # of the server's, when its process was named


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
    command = [sys.executable, str(HERE / script), *arguments]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=300)
    return figures(finished.stdout + finished.stderr)


def figures(output: str) -> Figures:
    match = re.search(r"rate and CPU: (.+)", output)
    if match is None:
        sys.exit(f"a benchmark failed:\n{output}")
    return Figures(*map(float, match[1].split()))


def cpu_seconds(pid: int, *, with_ended_children: bool = False) -> float:
    """What a process has used so far, user and system time, all its threads."""
    # Fields 14 to 17 of proc(5). The name before them may hold blanks.
    after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    fields = after_name[11:15] if with_ended_children else after_name[11:13]
    return sum(map(int, fields)) / os.sysconf("SC_CLK_TCK")
