"""A hundred thousand messages for consumers that are killed, of brokers that are killed.

All of them are processes, and SIGKILL ends them: our own brokers, and Apache's. The moments come
from a seed; what a real machine makes of them does not. No message is lost. One may come again only
to who begins to read its queue anew: because the queue moved, or because a member or a broker died
before it had stored how far it was. So none comes more often than its queue is begun.
"""

import itertools
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

import rocketpipe
from rocketpipe import Admin, Message, Producer, SendResult
from rocketpipe.testing.embedded_cluster import EmbeddedCluster
from tests.apache.cluster import ApacheCluster
from tests.apache.jars import VERSIONS
from tests.apache.require import require
from tests.faults.consume_to_file import TOPIC
from tests.interop.clusters import Cluster

pytestmark = pytest.mark.slow

MESSAGES = 100_000
PACK = 2_000
PAUSE = 0.2  # after each pack, so that there is sending all the time
MEMBERS = 3
SEED = 1
KILLED_MEMBERS, KILLED_BROKERS = 5, 3
KINDS = ("embedded", *(pytest.param(version, marks=pytest.mark.apache) for version in VERSIONS))
SECONDS_MAX = 300.0  # for anything that is waited for, on however slow a machine

Place = tuple[str, int, int]  # broker, queue and offset


class Members:
    """The processes of the group, and what all of them wrote down, the dead ones too."""

    def __init__(self, namesrv: str, folder: Path) -> None:
        self.begun: list[Place] = []
        self.consumed: Counter[Place] = Counter()
        self.bodies: set[str] = set()
        self._namesrv = namesrv
        self._folder = folder
        self._read_to: dict[Path, int] = {}
        self._running: list[subprocess.Popen[bytes]] = []
        self._files: dict[subprocess.Popen[bytes], Path] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for process in self._running:
            process.kill()
            process.wait()

    def start(self) -> None:
        file = self._folder / f"member-{len(self._read_to)}"
        file.touch()
        self._read_to[file] = 0
        paths = [str(Path(rocketpipe.__file__).parents[1]), str(Path(__file__).parents[2])]
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.consume_to_file", self._namesrv, str(file)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        )
        self._running.append(process)
        self._files[process] = file

    def kill(self, number: int) -> None:
        process = self._running.pop(number)
        assert process.poll() is None, "a member ended by itself"
        process.kill()
        process.wait()

    def end(self) -> None:
        # One that was started last may not have come so far that it could end in order.
        deadline = time.monotonic() + SECONDS_MAX
        while not all(self._files[process].stat().st_size for process in self._running):
            if time.monotonic() > deadline:
                raise TimeoutError("a member does not begin to read")
            time.sleep(0.1)
        for process in self._running:
            process.send_signal(signal.SIGTERM)
        for process in self._running:
            assert process.wait(SECONDS_MAX) == 0
        self.read()

    def read(self) -> None:
        """What was written down since the last time; the line at which one was killed is left."""
        for file, start in self._read_to.items():
            with file.open("rb") as journal:
                journal.seek(start)
                whole, newline, _ = journal.read().rpartition(b"\n")
            self._read_to[file] += len(whole) + len(newline)
            for line in whole.decode().splitlines():
                what, broker, queue, offset, *body = line.split(" ")
                place = broker, int(queue), int(offset)
                if what == "reads":
                    self.begun.append(place)
                else:
                    self.consumed[place] += 1
                    self.bodies.add(body[0])


def send_all(producer: Producer) -> None:
    """Until brokers have taken each of them."""
    deadline = time.monotonic() + SECONDS_MAX
    for start in range(0, MESSAGES, PACK):
        left = [Message(TOPIC, b"%d" % number) for number in range(start, start + PACK)]
        while left and time.monotonic() < deadline:
            outcomes = zip(left, producer.send_many(left), strict=True)
            left = [each for each, outcome in outcomes if not isinstance(outcome, SendResult)]
            time.sleep(PAUSE)


def cluster_of(kind: str) -> EmbeddedCluster | ApacheCluster:
    settings = {"flushDiskType": "SYNC_FLUSH"}
    if kind == "embedded":
        return EmbeddedCluster(2, settings=settings, processes=True)
    require(kind)
    return ApacheCluster(kind, brokers=2, settings=settings)


def make_trouble(cluster: Cluster, members: Members, dice: random.Random) -> None:
    troubles = ["member"] * KILLED_MEMBERS + ["broker"] * KILLED_BROKERS
    dice.shuffle(troubles)
    brokers = itertools.cycle(cluster.brokers)
    for trouble in troubles:
        time.sleep(dice.uniform(0.1, 2.0))
        if trouble == "member":
            members.kill(dice.randrange(MEMBERS))
            members.start()
        else:
            broker = next(brokers)
            broker.kill()
            time.sleep(dice.uniform(0.0, 1.0))
            broker.start()


@pytest.mark.final
@pytest.mark.parametrize("kind", KINDS)
def test_none_of_a_hundred_thousand_messages_is_lost_or_doubled_without_reason(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sent = {str(number) for number in range(MESSAGES)}
    with (
        cluster_of(kind) as cluster,
        Admin(namesrv=cluster.namesrv, request_timeout=30.0) as admin,
        Producer("senders", namesrv=cluster.namesrv, send_timeout=60.0) as producer,
        Members(cluster.namesrv, tmp_path) as members,
    ):
        admin.create_topic(TOPIC, queues=4)
        for _ in range(MEMBERS):
            members.start()
        sending = threading.Thread(target=send_all, args=(producer,))
        sending.start()
        make_trouble(cluster, members, random.Random(SEED))
        sending.join()
        deadline = time.monotonic() + SECONDS_MAX
        while not sent <= members.bodies and time.monotonic() < deadline:
            time.sleep(0.2)
            members.read()
        members.end()

    lost = sent - members.bodies
    doubled = Counter({place: times - 1 for place, times in members.consumed.items() if times > 1})
    with capsys.disabled():
        figures = f"{len(sent)} sent, {len(lost)} lost, {doubled.total()} doubled"
        sys.stdout.write(f"\n{kind}: {figures}; queues were begun {len(members.begun)} times\n")
    assert not lost
    for (broker, queue, offset), times in doubled.items():
        begun = [start for *place, start in members.begun if place == [broker, queue]]
        assert times + 1 <= sum(start <= offset for start in begun), (
            f"{broker}:{queue} at {offset} came {times + 1} times, the queue was begun at {begun}"
        )
