"""Measures us beside Apache's own Java programs, in one run, alternating; prints ratios.

Figures that are worth keeping go to RESULTS.md, with the machine they came from.
"""

import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.apache.cluster import ApacheCluster
from tests.apache.programs import java_program

HERE = Path(__file__).parent
ROUNDS = 3
SECONDS = 3.0
VERSION = "5.5.0"

Figures = tuple[float, float]  # requests per second, CPU microseconds per request


def ours(namesrv: str, at_once: int) -> Figures:
    script = str(HERE / "route_requests.py")
    command = [sys.executable, script, namesrv, str(at_once), str(SECONDS)]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return figures(finished.stdout)


def javas(namesrv: str, at_once: int) -> Figures:
    program = HERE / "java" / "RouteRequests.java"
    arguments = [namesrv, str(at_once), str(SECONDS)]
    return figures(java_program(VERSION, program, arguments, full_speed=True).output)


def figures(output: str) -> Figures:
    match = re.search(r"rate and CPU: (\S+) (\S+)", output)
    if match is None:
        sys.exit(f"a benchmark failed:\n{output}")
    return float(match[1]), float(match[2])


def compare(namesrv: str, at_once: int) -> str:
    results: dict[Callable[[str, int], Figures], list[Figures]] = {ours: [], javas: []}
    for _ in range(ROUNDS):
        for measure, seen in results.items():
            seen.append(measure(namesrv, at_once))
    rate, cpu = (median(column) for column in zip(*results[ours], strict=True))
    java_rate, java_cpu = (median(column) for column in zip(*results[javas], strict=True))
    return (
        f"| {at_once} | {rate:,.0f} | {java_rate:,.0f} | **{rate / java_rate:.2f}x** "
        f"| {cpu:.0f} | {java_cpu:.0f} | **{cpu / java_cpu:.2f}x** |"
    )


def main() -> None:
    print(f"{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    print(f"Route requests to an Apache RocketMQ {VERSION} NameServer, median of {ROUNDS}:\n")
    print("| in flight | ours/s | Java's/s | ratio | our CPU us | Java's CPU us | ratio |")
    print("|---|---|---|---|---|---|---|")
    with ApacheCluster(VERSION, brokers=1, full_speed=True) as cluster:
        for at_once in (1, 64):
            print(compare(cluster.namesrv, at_once), flush=True)


if __name__ == "__main__":
    main()
