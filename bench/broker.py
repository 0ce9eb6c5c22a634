"""Measures the embedded broker beside Apache's, under the same load from our own client.

Each is a process of its own, on an empty folder, with asynchronous flush; ours holds the NameServer
as well. The client is a process too. Rounds alternate, and the median of them counts.
"""

import asyncio
import compileall
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import IO, NamedTuple, Protocol, Self

import rocketpipe
from bench.measuring import (
    ROUNDS,
    SECONDS,
    TOPIC,
    VERSION,
    Figures,
    Rounds,
    in_turns,
    our_script,
    say,
)
from rocketpipe import AsyncProducer, Message, SendResult
from tests.apache.cluster import ApacheCluster

MESSAGES = 1_000_000
BODY = b"x" * 200
STOP_SECONDS_MAX = 60.0
SEND_TIMEOUT = 30.0

# Apache's own defaults, where our tests have it use less.
APACHE_SETTINGS = {
    "flushDiskType": "ASYNC_FLUSH",
    "mappedFileSizeCommitLog": str(1 << 30),
    "mappedFileSizeConsumeQueue": str(20 * 300_000),
    "maxHashSlotNum": "5000000",
    "maxIndexNum": "20000000",
}


class Start(NamedTuple):
    seconds: float


class Cluster(Protocol):
    """A NameServer and one broker, which runs from its making on."""

    @property
    def namesrv(self) -> str: ...

    @property
    def broker_pid(self) -> int: ...

    def close(self) -> None: ...


class OurCluster:
    """`rocketpipe serve` on a folder; it can be stopped or killed, and started again."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="rocketpipe-bench-"))
        self.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def start(self) -> None:
        """Start; return when clients can use it."""
        command = [sys.executable, "-m", "rocketpipe", "serve", "--namesrv-port", "0"]
        command += ["--port", "0", "--data", str(self._folder), "--json"]
        command += ["--set", "flushDiskType=ASYNC_FLUSH"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        ready: IO[str] | None = self._process.stdout
        assert ready is not None
        self.namesrv: str = json.loads(ready.readline())["namesrv"]

    @property
    def broker_pid(self) -> int:
        return self._process.pid

    def end(self, number: signal.Signals) -> None:
        """End it, in order or not, and keep its data."""
        self._process.send_signal(number)
        self._process.wait(STOP_SECONDS_MAX)
        if self._process.stdout is not None:
            self._process.stdout.close()

    def close(self) -> None:
        self.end(signal.SIGKILL)
        shutil.rmtree(self._folder)


class TheirCluster(ApacheCluster):
    """Apache's NameServer and broker."""

    def __init__(self) -> None:
        super().__init__(VERSION, brokers=1, settings=APACHE_SETTINGS, full_speed=True)

    @property
    def broker_pid(self) -> int:
        return self.broker("broker-a").pid


# What is measured.


def sends(how: str, cluster: Cluster) -> Figures:
    where = (cluster.namesrv, TOPIC, str(SECONDS), str(cluster.broker_pid))
    return our_script("sends.py", how, *where)


def pulls(cluster: Cluster) -> Figures:
    return our_script("pulls.py", cluster.namesrv, "million", str(cluster.broker_pid))


def seconds_to_first_send(start: Callable[[], Cluster]) -> tuple[float, Cluster]:
    """How long after its start a message was acknowledged, and what was started."""
    began = time.perf_counter()
    cluster = start()
    asyncio.run(send_all(cluster.namesrv, "first", 1))
    return time.perf_counter() - began, cluster


async def send_all(namesrv: str, topic: str, count: int) -> None:
    async with AsyncProducer("benchmark", namesrv=namesrv, send_timeout=SEND_TIMEOUT) as producer:
        await producer.send(Message(topic, BODY))
        left = count - 1
        while left:
            part = min(left, 100_000)
            results = await producer.send_many(Message(topic, BODY) for _ in range(part))
            stored = sum(isinstance(result, SendResult) for result in results)
            if stored < part:  # a busy broker refuses some
                say(str(next(each for each in results if not isinstance(each, SendResult))))
            assert stored, "nothing could be sent"
            left -= stored


def memory_mb(cluster: Cluster, field: str = "VmRSS") -> float:
    """Of the broker's process; `RssAnon` leaves out what it has mapped of files."""
    status = Path(f"/proc/{cluster.broker_pid}/status").read_text()
    found = re.search(rf"{field}:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) / 1024


def rounds(
    name: str, measure: Callable[[Cluster], Figures], clusters: Sequence[Cluster]
) -> list[Rounds[Figures]]:
    """What each cluster does. The first round does not count: Java has to warm up."""
    measures = {f"{name} {type(each).__name__}": partial(measure, each) for each in clusters}
    return list(in_turns(measures).values())


# The table.


def main() -> None:
    lines: list[str] = []

    def rate_row(
        name: str, work: str, our_rounds: Rounds[Figures], their_rounds: Rounds[Figures]
    ) -> None:
        ours, theirs = our_rounds.median, their_rounds.median
        lines.append(
            f"| {name} | {work} | {ours.rate:,.0f}/s | {theirs.rate:,.0f}/s "
            f"| **{our_rounds.ratio(their_rounds):.2f}x** | at least 1.0x "
            f"| {ours.server_cpu:.1f} and {theirs.server_cpu:.1f} "
            f"| {ours.cpu:.1f} and {theirs.cpu:.1f} |"
        )

    def plain_row(name: str, work: str, ours: str, theirs: str, ratio: str, wanted: str) -> None:
        lines.append(f"| {name} | {work} | {ours} | {theirs} | {ratio} | {wanted} | | |")

    our_starts, their_starts = time_starts()
    our_seconds, their_seconds = our_starts.median.seconds, their_starts.median.seconds
    plain_row(
        "start",
        "from nothing to the first acknowledged send",
        f"{our_seconds:.2f} s",
        f"{their_seconds:.2f} s",
        f"**{their_starts.ratio(our_starts):.0f}x faster**",
        "20x faster",
    )
    with OurCluster() as ours, TheirCluster() as theirs:
        both: list[Cluster] = [ours, theirs]
        for cluster in both:
            say(f"a million messages to {type(cluster).__name__}")
            asyncio.run(send_all(cluster.namesrv, "million", MESSAGES))
        memory = [memory_mb(cluster) for cluster in both]
        own = [memory_mb(cluster, "RssAnon") for cluster in both]
        plain_row(
            "memory",
            "resident after a million messages; without mapped files",
            f"{memory[0]:.0f} MB; {own[0]:.0f} MB",
            f"{memory[1]:.0f} MB; {own[1]:.0f} MB",
            f"**1/{memory[1] / memory[0]:.1f}**; 1/{own[1] / own[0]:.1f}",
            "at most 1/8",
        )
        rate_row("pull", "pulling a million messages", *rounds("pull", pulls, both))
        early: Rounds[Figures] = Rounds()

        def single_sends(cluster: Cluster) -> Figures:
            if cluster is ours:
                with OurCluster() as empty:
                    early.append(sends("awaited", empty))
            return sends("awaited", cluster)

        late, javas = rounds("send", single_sends, both)
        del early[0]  # as of the others, to warm up
        early_cpu, late_cpu = early.median.server_cpu, late.median.server_cpu
        rate_row("send", "awaited `send`, 64 in flight", late, javas)
        many = rounds("many", lambda cluster: sends("many", cluster), both)
        rate_row("many", "`send_many`", *many)
        plain_row(
            "growth",
            "CPU of our broker for a send, when empty and when full",
            f"{early_cpu:.1f} µs and {late_cpu:.1f} µs",
            "",
            f"**{late.ratio(early, Figures._fields.index('server_cpu')):.2f}x**",
            "1.0x",
        )
        restarts = [seconds_to_restart(ours, how) for how in (signal.SIGTERM, signal.SIGKILL)]
        plain_row(
            "restart",
            "with over a million messages, stopped and killed, to the first send",
            " and ".join(f"{seconds:.2f} s" for seconds in restarts),
            "",
            "",
            "under 3 s",
        )
    print(f"\nThe embedded broker beside Apache RocketMQ {VERSION}'s, median of {ROUNDS} rounds;")
    print("CPU in µs a message, ours and then beside Apache's:\n")
    print("| row | work | ours | Apache's | ratio | wanted | broker's CPU | client's CPU |")
    print("|---|---|---|---|---|---|---|---|")
    print("\n".join(lines))


def time_starts() -> tuple[Rounds[Start], Rounds[Start]]:
    """How long ours and Apache's take."""
    compileall.compile_dir(Path(rocketpipe.__file__).parent, quiet=1)  # as pip does

    def timed(start: Callable[[], Cluster]) -> Start:
        seconds, cluster = seconds_to_first_send(start)
        cluster.close()
        return Start(seconds)

    starts: list[Callable[[], Cluster]] = [OurCluster, TheirCluster]
    measures = {f"start {start.__name__}": partial(timed, start) for start in starts}
    ours, theirs = in_turns(measures, warm_up_rounds=0).values()
    return ours, theirs


def seconds_to_restart(cluster: OurCluster, how: signal.Signals) -> float:
    cluster.end(how)
    os.sync()  # what was written before is not the restart's to pay for

    def start() -> Cluster:
        cluster.start()
        return cluster

    seconds, _ = seconds_to_first_send(start)
    say(f"restarted after {how.name} in {seconds:.2f} s")
    return seconds
