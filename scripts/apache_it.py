"""Apache's own integration tests against our cluster, each class in a Java of its own.

    scripts/apache_it.py              what tests/apache_it/classes.txt lists
    scripts/apache_it.py smoke delay  of those, the classes of these packages, or of these names

They spend most of their time waiting, so several run at a time. The tests have limits in seconds,
which a busy machine can exceed without any fault of the cluster: a class that failed runs once
more, alone, and the last lines of the output name it. The exit code is 0 when every class has
passed.
"""

import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Self

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.apache.jars import Unavailable, cache_folder, ensure_jars, fetch_with_maven
from tests.cluster_process import ClusterProcess

VERSION = "5.5.0"  # of the pom
SUITE = Path(__file__).parents[1] / "tests" / "apache_it"
AT_A_TIME = 3
CLASS_SECONDS_MAX = 180


def main(filters: Sequence[str]) -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # and so end what was started
    classes = chosen_classes(filters)
    if not classes:
        print(f"nothing to run for {' '.join(filters)}")
        return 2
    folder = Path(tempfile.mkdtemp(prefix="rocketpipe-apache-it-"))
    retried: list[str] = []
    failed: list[str] = []
    try:
        prepare(folder)
        retried, failed = run(classes, folder)
    except Unavailable as error:
        print(f"Apache's tests can't run here: {error}")
        return 2
    finally:
        if not failed:  # else its logs are of use
            shutil.rmtree(folder, ignore_errors=True)
    if late := [name for name in retried if name not in failed]:
        print(f"{len(late)} failed at first, and passed when they ran again:", *late)
    print(f"{len(classes) - len(failed)} classes passed, {len(failed)} failed", *failed)
    return 1 if failed else 0


def chosen_classes(filters: Sequence[str]) -> list[str]:
    """Those of the list that a filter fits, the longest first: so that none is left at the end."""
    rows = [line.split("\t") for line in (SUITE / "reference.txt").read_text().splitlines()]
    seconds = {row[0]: int(row[3]) for row in rows if not row[0].startswith("#")}
    names = [
        name
        for name in (SUITE / "classes.txt").read_text().split()
        if not filters
        or any(name.startswith(f"{each}.") or name.endswith(f".{each}") for each in filters)
    ]
    return sorted(names, key=lambda name: -seconds[name])


def prepare(folder: Path) -> None:
    """Put the jars and the compiled classes where run.sh looks for them."""
    pom = SUITE / "pom.xml"
    digest = hashlib.sha256(pom.read_bytes()).hexdigest()[:12]
    jars = ensure_jars(pom, cache_folder() / "apache" / f"it-{digest}", fetch_with_maven)
    (jars / ".complete").touch()  # build.sh fetches again where this is older than the pom
    (folder / f"libs-{VERSION}").symlink_to(jars)
    build = 'HERE=$1 CACHE=$2; . "$HERE/build.sh"'
    done = subprocess.run(
        ["bash", "-euc", build, "build", SUITE, folder], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise Unavailable(f"they can't be compiled:\n{done.stdout}{done.stderr}")


def run(classes: list[str], folder: Path) -> tuple[list[str], list[str]]:
    """Run them against a new cluster; the answer is those that failed, and those that did twice."""
    settings = read_settings(SUITE / "broker.conf")
    for name in ("brokerId", "brokerIP1"):  # of one broker; ours follow from the cluster
        del settings[name]
    with (
        ClusterProcess(settings, brokers="3") as cluster,
        Runner(cluster.address, folder) as runner,
    ):
        failed = runner.failed_of(classes)
        if failed:
            print(
                "once more, one at a time, what a busy machine may have failed:",
                *failed,
                flush=True,
            )
        return failed, [name for name in failed if not runner.passes(name)]


def read_settings(path: Path) -> dict[str, str]:
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


class Runner:
    """Runs classes through run.sh, and ends those that still run on leaving the `with`."""

    def __init__(self, namesrv: str, folder: Path) -> None:
        self._namesrv = namesrv
        self._environment = {
            **os.environ,
            "IT_CACHE": str(folder),
            "IT_TIMEOUT": str(CLASS_SECONDS_MAX),
        }
        self._pool = ThreadPoolExecutor(AT_A_TIME)
        self._running: set[subprocess.Popen[str]] = set()
        self._starting = Lock()

    def failed_of(self, classes: list[str]) -> list[str]:
        passed = self._pool.map(self.passes, classes)
        return [name for name, has_passed in zip(classes, passed, strict=True) if not has_passed]

    def passes(self, name: str) -> bool:
        """Run one class, and print how it did."""
        with self._starting:
            process = subprocess.Popen(
                [SUITE / "run.sh", self._namesrv, name],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,  # so that its Java can be ended with it
            )
            self._running.add(process)
        output, _ = process.communicate()  # run.sh ends a class that takes too long
        self._running.remove(process)
        verdict = re.search(r"^PASS .*", output, re.MULTILINE)
        has_passed = process.returncode == 0 and verdict is not None
        print(verdict[0] if has_passed and verdict else output.rstrip(), flush=True)
        return has_passed

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        with self._starting:  # none is missed that has just begun
            for process in self._running.copy():
                with suppress(ProcessLookupError):  # it has just ended
                    os.killpg(process.pid, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
