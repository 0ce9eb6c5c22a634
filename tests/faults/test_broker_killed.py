"""`rocketpipe serve` on a real disk, killed again and again while producers send to it.

The moments of the kills come from a seed; what a real machine makes of them does not. With sync
flush every acknowledged message is there after each restart: once where it was acknowledged, in
order, and no queue has a gap. A message may be there twice only if its sender had to try twice.
"""

import asyncio
import os
import random
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Self

import pytest

import rocketpipe
from rocketpipe import AsyncProducer, Message, SendResult, SendStatus
from rocketpipe.errors import MQError
from rocketpipe.message import MessageQueue, StoredMessage
from rocketpipe.remoting.address import Address
from rocketpipe.remoting.connection import Connection, connect
from rocketpipe.remoting.network import AsyncioNetwork
from rocketpipe.wire.record import decode_records
from rocketpipe.wire.requests.reading import PULL_SUBSCRIPTION, GetMaxOffset, PullMessage
from tests.cluster_process import free_ports

ROUNDS = 50
SENDERS = 5
QUEUES = 4
TOPIC = "orders"
HOST = "127.0.0.1"
SECONDS_MAX = 60.0  # for anything that is waited for, on however slow a machine
SETTINGS = {
    "flushDiskType": "SYNC_FLUSH",
    # Small, so that every life meets the ends of files.
    "mappedFileSizeCommitLog": "100000",
    "mappedFileSizeConsumeQueue": "2000",
    "maxHashSlotNum": "100",
    "flushIntervalCommitLog": "10",
    "defaultTopicQueueNums": str(QUEUES),
}


class BrokerProcess:
    """A cluster of one broker in a process, which is started again on its ports and its folder."""

    def __init__(self, folder: Path) -> None:
        port, namesrv_port = free_ports()
        self.address = Address(HOST, port)
        self.namesrv = f"{HOST}:{namesrv_port}"
        options = [f"--data {folder}", f"--port {port}", f"--namesrv-port {namesrv_port}"]
        options += [f"--set {name}={value}" for name, value in SETTINGS.items()]
        self._arguments = " ".join(options)
        self._process_id: int | None = None
        self._starter: asyncio.subprocess.Process

    async def __aenter__(self) -> Self:
        paths = [str(Path(rocketpipe.__file__).parents[1]), str(Path(__file__).parents[2])]
        self._starter = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.faults.serve_forked"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._process_id is not None:
            await self.kill()
        assert self._starter.stdin is not None
        self._starter.stdin.close()  # then it ends
        async with asyncio.timeout(SECONDS_MAX):
            assert await self._starter.wait() == 0

    async def launch(self) -> None:
        assert self._starter.stdin is not None
        self._starter.stdin.write(f"{self._arguments}\n".encode())
        self._process_id = int((await self._hear("started")).split()[1])

    async def wait_ready(self) -> None:
        await self._hear(self.namesrv)

    async def kill(self) -> None:
        assert self._process_id is not None
        os.kill(self._process_id, signal.SIGKILL)
        self._process_id = None
        assert await self._hear("ended") == f"ended {-signal.SIGKILL}"

    async def _hear(self, start: str) -> str:
        """The next line that begins like this."""
        assert self._starter.stdout is not None
        async with asyncio.timeout(SECONDS_MAX):
            while not (line := (await self._starter.stdout.readline()).decode()).startswith(start):
                assert not line.startswith("ended"), "the broker ended by itself"
                assert line, f"nobody says {start}"
        return line.strip()


class Senders:
    """Producers that send all the time, and what was acknowledged to them and where."""

    def __init__(self, seed: int) -> None:
        self.acknowledged: dict[tuple[int, int], tuple[str, bytes]] = {}  # by queue and offset
        self.failures = 0
        self.retried: set[bytes] = set()
        self._dice = random.Random(seed)
        self._one_more = asyncio.Event()
        self._is_over = False

    async def send(self, namesrv: str) -> None:
        async with AsyncProducer("killed", namesrv=namesrv) as producer:
            await asyncio.gather(*(self._send_in_turn(producer, each) for each in range(SENDERS)))

    async def wait_for_one_more(self) -> None:
        """Returns when one more message was acknowledged."""
        self._one_more.clear()
        async with asyncio.timeout(SECONDS_MAX):
            await self._one_more.wait()

    def stop(self) -> None:
        self._is_over = True

    async def _send_in_turn(self, producer: AsyncProducer, sender: int) -> None:
        number = 0
        last: Counter[MessageQueue] = Counter()
        while not self._is_over:
            count = 4 if sender == 0 else 1
            bodies = [b"%d-%d %s" % (sender, number + n, self._padding()) for n in range(count)]
            number += count
            messages = [Message(TOPIC, body) for body in bodies]
            try:
                if count > 1:
                    result = await producer.send_batch(messages)
                else:
                    result = await producer.send(messages[0])
            except MQError:
                self.failures += 1
                self.retried.update(bodies)
                await asyncio.sleep(0.05)
                continue
            if len(result.attempts) > 1:
                self.retried.update(bodies)
            if result.status is not SendStatus.SEND_OK:  # a disk that takes longer than 5 s
                continue
            assert result.queue_offset >= last[result.queue], "an older one is behind it"
            last[result.queue] = result.queue_offset + count
            self._remember(bodies, result)

    def _remember(self, bodies: list[bytes], result: SendResult) -> None:
        for n, (body, message_id) in enumerate(zip(bodies, result.message_ids, strict=True)):
            place = (result.queue.queue_id, result.queue_offset + n)
            assert place not in self.acknowledged, "a place was given twice"
            self.acknowledged[place] = (message_id, body)
        self._one_more.set()

    def _padding(self) -> bytes:
        return self._dice.randbytes(self._dice.choice([0, 10, 500]))


async def read_queue(connection: Connection, queue_id: int, start: int) -> list[StoredMessage]:
    """All that a queue holds from there on, without a gap."""
    end = (
        await connection.request(GetMaxOffset(topic=TOPIC, queue_id=queue_id), timeout=SECONDS_MAX)
    ).offset
    found: list[StoredMessage] = []
    while start + len(found) < end:
        pull = PullMessage(
            consumer_group="checker",
            topic=TOPIC,
            queue_id=queue_id,
            queue_offset=start + len(found),
            max_msg_nums=32,
            sys_flag=PULL_SUBSCRIPTION,
            commit_offset=0,
            suspend_timeout_millis=0,
            subscription="*",
            sub_version=0,
        )
        answer = await connection.invoke(pull.to_command(), timeout=SECONDS_MAX)
        assert answer.code == 0, answer
        found += decode_records(answer.body)
    assert [each.queue_offset for each in found] == list(range(start, start + len(found)))
    return found


class Reader:
    """What the queues hold, as far as they were read, which must never change again."""

    def __init__(self, address: Address) -> None:
        self.queues: list[list[StoredMessage]] = [[] for _ in range(QUEUES)]
        self._address = address

    async def read_on(self) -> None:
        await self._read([len(queue) for queue in self.queues])

    async def read_all_again(self) -> None:
        before, self.queues = self.queues, [[] for _ in range(QUEUES)]
        await self._read([0] * QUEUES)
        for old, new in zip(before, self.queues, strict=True):
            assert new[: len(old)] == old

    async def _read(self, starts: list[int]) -> None:
        connection = await connect(AsyncioNetwork(), self._address, timeout=SECONDS_MAX)
        try:
            for queue_id, start in enumerate(starts):
                self.queues[queue_id] += await read_queue(connection, queue_id, start)
        finally:
            await connection.close()

    def check(self, acknowledged: dict[tuple[int, int], tuple[str, bytes]]) -> None:
        for (queue_id, offset), promised in acknowledged.items():
            assert offset < len(self.queues[queue_id]), f"{promised} was acknowledged, and is lost"
            message = self.queues[queue_id][offset]
            assert (message.message_id, message.body) == promised, f"at {queue_id}, {offset}"

    def bodies(self) -> Counter[bytes]:
        return Counter(message.body for queue in self.queues for message in queue)


@pytest.mark.final
@pytest.mark.slow
@pytest.mark.parametrize("seed", [5])
def test_whatever_a_killed_broker_acknowledged_is_there_once_and_in_order(
    seed: int, tmp_path: Path
) -> None:
    senders = Senders(seed)
    asyncio.run(send_and_kill(tmp_path, senders, random.Random(seed)))
    if len(senders.acknowledged) <= 10 * ROUNDS or senders.failures == 0:
        pytest.fail("too little has happened to mean anything")


async def send_and_kill(folder: Path, senders: Senders, dice: random.Random) -> None:
    # A group, so that a sender that finds a mistake ends it all.
    async with BrokerProcess(folder) as broker, asyncio.TaskGroup() as group:
        await broker.launch()
        await broker.wait_ready()
        reader = Reader(broker.address)
        sending = group.create_task(senders.send(broker.namesrv))
        for _ in range(ROUNDS):
            await senders.wait_for_one_more()
            await asyncio.sleep(dice.uniform(0.0, 0.3))
            await broker.kill()
            promised = dict(senders.acknowledged)
            await broker.launch()
            if dice.random() < 0.2:  # most likely while it recovers
                await asyncio.sleep(dice.uniform(0.0, 0.05))
                await broker.kill()
                await broker.launch()
            await broker.wait_ready()
            await reader.read_on()
            reader.check(promised)
        senders.stop()
        await sending
        await reader.read_all_again()
        reader.check(senders.acknowledged)
        twice = {body for body, count in reader.bodies().items() if count > 1}
        assert twice <= senders.retried, "a message is there twice that was sent once"
