"""Nothing that the harness starts outlives the Python that started it."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.apache.launch import launch

_CHILD = """
import time
from tests.apache.cluster import ApacheCluster
cluster = ApacheCluster("{version}", brokers=0)
print(cluster.nameserver.pid, cluster.folder, flush=True)
time.sleep(60)
"""


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"  # a zombie has ended; whoever inherited it has yet to look


def children() -> set[int]:
    """Our own child processes that have not ended."""
    tasks = Path("/proc/self/task").iterdir()
    pids = {int(pid) for task in tasks for pid in (task / "children").read_text().split()}
    return {pid for pid in pids if is_alive(pid)}


def wait_gone(pid: int, seconds: float = 5) -> None:
    deadline = time.monotonic() + seconds
    while is_alive(pid):
        assert time.monotonic() < deadline, f"process {pid} is still there after {seconds} s"
        time.sleep(0.02)


@pytest.mark.parametrize("apache_version", ["4.9.4"], indirect=True)
@pytest.mark.parametrize("end", ["SIGKILL", "SIGTERM", "SIGINT"])
def test_servers_end_with_the_python_that_started_them(apache_version: str, end: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _CHILD.format(version=apache_version)],
        env={**os.environ, "PYTHONPATH": str(Path.cwd())},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as child:
        assert child.stdout is not None
        pid, folder = child.stdout.readline().split()
        assert is_alive(int(pid))
        child.send_signal(signal.Signals[end])
    wait_gone(int(pid))
    # Ctrl-C leaves Python time to tidy up, the others do not.
    assert Path(folder).exists() == (end != "SIGINT")
    shutil.rmtree(folder, ignore_errors=True)


def test_a_server_outlives_the_thread_that_asked_for_it(tmp_path: Path) -> None:
    started: list[subprocess.Popen[bytes]] = []

    def start() -> None:
        with (tmp_path / "output").open("wb") as output:
            process = launch(["/bin/sleep", "60"], tmp_path, output)
        started.append(process)
        while Path(f"/proc/{process.pid}/comm").read_text() != "sleep\n":
            time.sleep(0.01)  # only from here on is it tied to its parent

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    (process,) = started
    time.sleep(0.2)
    assert process.poll() is None
    process.kill()
    process.wait()
