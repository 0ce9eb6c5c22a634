"""Measures us beside Apache's own Java programs, in one run, alternating; prints ratios.

    bench/run.py            every row
    bench/run.py send many  these rows
    bench/run.py broker     those of the embedded broker: see broker.py
    bench/run.py consumer   those of the consumers: see consumer.py
    bench/run.py spark      those of the Spark data source: see spark.py
    bench/run.py parts      what the compiled part earns: see parts.py

Figures that are worth keeping go to RESULTS.md, with the machine they came from.
"""

import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench import broker, consumer, parts
from bench.measuring import (
    HERE,
    ROUNDS,
    SECONDS,
    TOPIC,
    VERSION,
    Figures,
    Rounds,
    cpu_seconds,
    figures,
    in_turns,
    our_script,
)
from tests.apache.cluster import ApacheCluster
from tests.apache.programs import JavaProgram, java_program

BODY_BYTES = 200
BATCH_MESSAGES = 256  # what send_many packs by default,
BATCHES_IN_FLIGHT = 16  # and how many of these it has on their way


def compare_spark() -> None:
    # In processes of their own, as Spark takes over much of the one that starts it.
    for script in ("spark.py", "spark_codec.py"):
        subprocess.run([sys.executable, str(HERE / script)], check=True)


# The rows that are measured elsewhere, by one name for all of a kind.
OTHERS = {
    "broker": broker.main,
    "consumer": consumer.main,
    "parts": parts.main,
    "spark": compare_spark,
}

# Java's programs print averages of their last 9 seconds, for the first time when these are over.
# That is the warm-up; so long after it nothing of it is left in the averages.
JAVA_WINDOW_SECONDS = 10.0


Measure = Callable[[str], Figures]  # given the NameServer's address


class Row(NamedTuple):
    name: str
    work: str
    ours: str  # a name in MEASURES
    javas: str
    wanted: str
    is_about_cpu: bool = False


def java_routes(at_once: int, namesrv: str) -> Figures:
    program = HERE / "java" / "RouteRequests.java"
    arguments = [namesrv, str(at_once), str(SECONDS)]
    return figures(java_program(VERSION, program, arguments, full_speed=True).output)


def java_sends(program: str, rate_name: str, *options: str, namesrv: str) -> Figures:
    """Figures of a program that sends until it is stopped, and prints its rate every second."""
    main_class = f"org.apache.rocketmq.example.benchmark.{program}"
    where = ["-n", namesrv, "-t", TOPIC, "-s", str(BODY_BYTES), "-ri", "1000"]
    with JavaProgram(VERSION, main_class, [*where, *options], full_speed=True) as running:
        running.wait_for(f"{rate_name}: ")  # ten seconds after it began
        failed = failures(running.output)  # a cold Java on a busy machine may miss a deadline
        cpu, began = cpu_seconds(running.pid), time.perf_counter()
        time.sleep(JAVA_WINDOW_SECONDS)
        cpu, took = cpu_seconds(running.pid) - cpu, time.perf_counter() - began
        rates = re.findall(rf"{rate_name}: (\d+)", running.output)
        if rates[-1] == "0" or failures(running.output) > failed:
            sys.exit(f"{program} failed:\n{running.output[-3000:]}")
    rate = float(rates[-1])
    return Figures(rate, cpu * 1e6 / (rate * took))


def failures(output: str) -> int:
    """How many sends failed, by the last line it printed."""
    return int([0, *re.findall(r"Send Failed: (\d+)", output)][-1])


def our_sends(how: str) -> Measure:
    return lambda namesrv: our_script("sends.py", how, namesrv, TOPIC, str(SECONDS))


def our_routes(at_once: int) -> Measure:
    return lambda namesrv: our_script("route_requests.py", namesrv, str(at_once), str(SECONDS))


def java_producer(threads: int) -> Measure:
    return lambda namesrv: java_sends("Producer", "Send TPS", "-w", str(threads), namesrv=namesrv)


def java_batches(namesrv: str) -> Figures:
    options = ("-w", str(BATCHES_IN_FLIGHT), "-b", str(BATCH_MESSAGES))
    return java_sends("BatchProducer", "Send MPS", *options, namesrv=namesrv)


MEASURES: Mapping[str, Measure] = {
    "route-1": our_routes(1),
    "java-route-1": partial(java_routes, 1),
    "route-64": our_routes(64),
    "java-route-64": partial(java_routes, 64),
    "blocking": our_sends("blocking"),
    "java-1": java_producer(1),
    "awaited": our_sends("awaited"),
    "java-64": java_producer(64),
    "many": our_sends("many"),
    "java-batch": java_batches,
}

ROWS = (
    Row("route", "route request, one in flight", "route-1", "java-route-1", "1.0x"),
    Row("routes", "route requests, 64 in flight", "route-64", "java-route-64", "1.0x"),
    Row("blocking", "blocking `send`, one thread; Java: 1 thread", "blocking", "java-1", "1.0x"),
    Row("send", "awaited `send`, 64 in flight; Java: 64 threads", "awaited", "java-64", "1.0x"),
    Row("many", "`send_many`; Java: 64 threads, unbatched", "many", "java-64", "8x"),
    Row("batch", "`send_many`; Java: batches of the same size", "many", "java-batch", "1.0x"),
    Row("cpu", "CPU of awaited `send`; Java: 64 threads", "awaited", "java-64", "1.0x", True),
)


def measure(rows: list[Row], namesrv: str) -> dict[str, Rounds[Figures]]:
    """What the rows need. The first round does not count: brokers have to warm up as well."""
    needed = [name for name in MEASURES if any(name in (row.ours, row.javas) for row in rows)]
    return in_turns({name: partial(MEASURES[name], namesrv) for name in needed})


def line(row: Row, our_rounds: Rounds[Figures], javas_rounds: Rounds[Figures]) -> str:
    rate = f"{our_rounds.ratio(javas_rounds):.2f}x"
    cpu = f"{our_rounds.ratio(javas_rounds, Figures._fields.index('cpu')):.2f}x"
    ours, javas = our_rounds.median, javas_rounds.median
    wanted = f"CPU at most {row.wanted}" if row.is_about_cpu else f"at least {row.wanted}"
    return (
        f"| {row.name} | {row.work} | {ours.rate:,.0f} | {javas.rate:,.0f} | **{rate}** "
        f"| {ours.cpu:.1f} | {javas.cpu:.1f} | **{cpu}** | {wanted} |"
    )


def main(names: list[str]) -> None:
    known = [*(row.name for row in ROWS), *OTHERS]
    if unknown := set(names) - set(known):
        sys.exit(f"no row {', '.join(unknown)}; there are {', '.join(known)}")
    print(f"{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    if rows := [row for row in ROWS if not names or row.name in names]:
        compare_producers(rows)
    for name, others in OTHERS.items():
        if not names or name in names:
            others()


def compare_producers(rows: list[Row]) -> None:
    with ApacheCluster(VERSION, brokers=1, full_speed=True) as cluster:
        measured = measure(rows, cluster.namesrv)
    print(f"Beside Java's on one Apache RocketMQ {VERSION} broker, medians of {ROUNDS} rounds:\n")
    print(
        "| row | work | ours/s | Java's/s | ratio | our CPU µs | Java's CPU µs | ratio | wanted |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for row in rows:
        print(line(row, measured[row.ours], measured[row.javas]))


if __name__ == "__main__":
    main(sys.argv[1:])
