"""Sixteen senders for each policy while a server of the cluster is hurt, and what came of it.

All policies meet the same fault at the same time, each with a producer and connections of its own.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import chain
from statistics import quantiles
from typing import NamedTuple

from rocketpipe import AsyncProducer, Attempt, Message, MessageQueue, SendResult
from rocketpipe.client.queue_choice import POLICIES, Java5Settings
from rocketpipe.clock import SystemClock
from rocketpipe.codes import ResponseCode
from rocketpipe.errors import BrokerError, MQError, RemotingError, SendFailed
from tests.interop.clusters import Cluster, Reader, mqadmin, new_topic, until

SICK, HEALTHY = "broker-a", "broker-b"
SENDERS = 16
PAUSE = 0.1  # of each sender between two sends
FROZEN_SECONDS = 10.0
# What one failed attempt costs a broker: this is the isolation time.
ISOLATION_MS = 1000 * Java5Settings().latency_table.isolation(Java5Settings().failure_latency)

_wall_ms = SystemClock().wall_ms


class Sent(NamedTuple):
    """One send, from its start to its end."""

    started_ms: int
    seconds: float
    attempts: Sequence[Attempt]
    outcome: SendResult | MQError


@dataclass
class Run:
    """What was sent while one fault came and went."""

    sent: Mapping[str, list[Sent]]  # by policy
    broken_ms: int = 0
    mended_ms: int = 0
    stall: float = 0.0  # the longest that a healthy server let a bystander wait, in seconds
    lost: list[SendResult] = field(default_factory=list)  # acknowledged, but not there

    def figures(self, policy: str) -> "Figures":
        sent = self.sent[policy]
        unanswered = [
            attempt.started_ms + 1000 * attempt.elapsed
            for send in sent
            for attempt in send.attempts
            if isinstance(attempt.error, RemotingError) and attempt.queue.broker_name == SICK
        ]
        noticed = min((ms for ms in unanswered if ms > self.broken_ms), default=self.mended_ms)
        until_ms = min(noticed + ISOLATION_MS, self.mended_ms)
        warned = [send for send in sent if noticed < send.started_ms < until_ms]
        milliseconds = [1000 * send.seconds for send in sent]
        percentiles = quantiles(milliseconds, n=100)
        return Figures(
            policy=policy,
            sends=len(sent),
            failures=sum(isinstance(send.outcome, MQError) for send in sent),
            retries=sum(len(send.attempts) - 1 for send in sent if send.attempts),
            warned=len(warned),
            sick_first=sum(send.attempts[0].queue.broker_name == SICK for send in warned),
            p50=percentiles[49],
            p99=percentiles[98],
            longest=max(milliseconds),
        )

    def failures(self) -> list[str]:
        """What every send says that failed."""
        return [
            str(send.outcome)
            for send in chain.from_iterable(self.sent.values())
            if isinstance(send.outcome, MQError)
        ]

    def table(self) -> str:
        """The figures of every policy."""
        return "\n".join([HEAD, *(self.figures(policy).row() for policy in self.sent)])

    def latest(self, policy: str, count: int) -> list[str]:
        """The brokers that took the latest messages."""
        results = (send.outcome for send in self.sent[policy][-count:])
        return [each.queue.broker_name for each in results if isinstance(each, SendResult)]


HEAD = (
    "| policy | sends | failed | retries | sick broker first, once known | p50 | p99 | max ms |\n"
    "|---|---|---|---|---|---|---|---|"
)


class Figures(NamedTuple):
    policy: str
    sends: int
    failures: int
    retries: int
    warned: int  # sends since the first failed attempt, for as long as one isolates a broker
    sick_first: int  # and those of them that went to the sick broker first
    p50: float  # milliseconds of a whole send
    p99: float
    longest: float

    @property
    def sick_share(self) -> float:
        return self.sick_first / self.warned if self.warned else 0.0

    def row(self) -> str:
        return (
            f"| {self.policy} | {self.sends} | {self.failures} | {self.retries} "
            f"| {self.sick_first} of {self.warned} = {self.sick_share:.1%} "
            f"| {self.p50:.1f} | {self.p99:.0f} | {self.longest:.0f} |"
        )


Fault = Callable[[Cluster, Run], Awaitable[None]]


async def freeze(cluster: Cluster, run: Run) -> None:
    """A broker hangs: connections stay open, and nothing is answered."""
    with cluster.broker(SICK).frozen():
        await asyncio.sleep(FROZEN_SECONDS)


async def kill(cluster: Cluster, run: Run) -> None:
    """A broker crashes and starts again."""
    broker = cluster.broker(SICK)
    await asyncio.to_thread(broker.kill)
    await asyncio.sleep(3)
    await asyncio.to_thread(broker.start)


async def wipe_write_permission(cluster: Cluster, run: Run) -> None:
    """An administrator takes a broker out of all routes, waits until it is quiet, and back."""
    output = await asyncio.to_thread(mqadmin, cluster, "wipeWritePerm", "-b", SICK)
    assert f"broker[{SICK}]" in output, output

    async def is_quiet() -> bool | None:
        return all(run.latest(policy, 50) == [HEALTHY] * 50 for policy in run.sent) or None

    try:
        await until(is_quiet)
    finally:
        output = await asyncio.to_thread(mqadmin, cluster, "addWritePerm", "-b", SICK)
        assert f"broker[{SICK}]" in output, output


async def kill_nameserver(cluster: Cluster, run: Run) -> None:
    """The NameServer crashes and starts again."""
    await asyncio.to_thread(cluster.nameserver.kill)
    await asyncio.sleep(3)
    await asyncio.to_thread(cluster.nameserver.start)


FAULTS: Mapping[str, Fault] = {
    "frozen": freeze,
    "killed": kill,
    "write permission wiped": wipe_write_permission,
    "NameServer killed": kill_nameserver,
}


async def run_fault(cluster: Cluster, fault: Fault) -> Run:
    """Send all the while, break and mend, and look for every acknowledged message."""
    run = Run({policy: [] for policy in POLICIES})
    async with Reader(cluster.namesrv) as reader:
        topic = new_topic("faults")
        await reader.create_topic(topic, cluster.brokers)
        async with asyncio.TaskGroup() as tasks, _senders(cluster, topic, run):
            witness = tasks.create_task(_witness(cluster, run))
            await asyncio.sleep(1)
            run.broken_ms = _wall_ms()
            await fault(cluster, run)
            run.mended_ms = _wall_ms()
            witness.cancel()

            async def is_back() -> bool | None:
                # Round-robin holds no grudge. (4.x's table would, for ten minutes.)
                return SICK in run.latest("round-robin", SENDERS) or None

            await until(is_back)
        run.lost = await _missing(reader, run)
    return run


@asynccontextmanager
async def _senders(cluster: Cluster, topic: str, run: Run) -> AsyncIterator[None]:
    producers = {
        policy: AsyncProducer(
            f"faults-{policy}",
            namesrv=cluster.namesrv,
            instance_name=policy,
            policy=policy,
        )
        for policy in run.sent
    }
    done = asyncio.Event()

    async def send(producer: AsyncProducer, sent: list[Sent]) -> None:
        loop = asyncio.get_running_loop()
        while not done.is_set():
            started_ms, started = _wall_ms(), loop.time()
            outcome: SendResult | MQError
            attempts: Sequence[Attempt] = ()
            try:
                outcome = await producer.send(Message(topic, b"x" * 200))
                attempts = outcome.attempts
            except MQError as error:
                outcome = error
                attempts = error.attempts if isinstance(error, SendFailed) else ()
            sent.append(Sent(started_ms, loop.time() - started, attempts, outcome))
            await asyncio.sleep(PAUSE)

    async with asyncio.TaskGroup() as tasks:
        for policy, producer in producers.items():
            await producer.start()
            for _ in range(SENDERS):
                tasks.create_task(send(producer, run.sent[policy]))
        try:
            yield
        finally:
            done.set()
    for producer in producers.values():
        await producer.close()


async def _witness(cluster: Cluster, run: Run) -> None:
    """Sends to the broker that is well, with nothing of the client, to see how busy all are."""
    loop = asyncio.get_running_loop()
    topic = new_topic("faults-witness")
    async with Reader(cluster.namesrv) as reader:
        while True:
            begun = loop.time()
            try:
                await reader.send_unchecked(cluster.broker(HEALTHY).address, topic)
            except BrokerError as error:
                # It waited in the broker for 200 ms, of which the rest of us had their share.
                assert error.code == ResponseCode.SYSTEM_BUSY
            run.stall = max(run.stall, loop.time() - begun)
            await asyncio.sleep(0.05)


async def _missing(reader: Reader, run: Run) -> list[SendResult]:
    """The acknowledged messages that are not where their acknowledgement says.

    A broker that was killed has them even though it flushes now and then only: what it wrote to
    its mapped files is the kernel's to keep. Only a machine that stops would lose it.
    """
    results = [
        send.outcome
        for send in chain.from_iterable(run.sent.values())
        if isinstance(send.outcome, SendResult)
    ]
    ends: dict[MessageQueue, int] = {}
    for result in results:
        ends[result.queue] = max(ends.get(result.queue, 0), result.queue_offset + 1)
    there = {
        (queue, message.queue_offset): message.message_id
        for queue, end in ends.items()
        for message in await reader.read(queue, end)
    }
    return [
        result
        for result in results
        if there.get((result.queue, result.queue_offset)) != result.message_id
    ]
