"""What the compiled part earns: CPU of the broker and of the client's codecs, with and without it.

Without sockets, the best of many. `bench/parts.py measure` tells what this very process does.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.measuring import ROUNDS
from rocketpipe import Message
from rocketpipe.broker.broker import Broker
from rocketpipe.broker.settings import BrokerSettings
from rocketpipe.client.many import packs
from rocketpipe.client.outgoing import Outgoing, Packer
from rocketpipe.client.settings import ProducerSettings
from rocketpipe.compiled import compiled
from rocketpipe.message import MessageQueue
from rocketpipe.remoting.connection import Connection
from rocketpipe.remoting.settings import RemotingSettings
from rocketpipe.wire.frame import FrameDecoder
from rocketpipe.wire.message_id import UniqueIdGenerator
from rocketpipe.wire.record import decode_records
from rocketpipe.wire.requests.reading import PULL_SUBSCRIPTION, PullMessage
from rocketpipe.wire.requests.sending import SendMessageReply

TOPIC = "parts"
BODY = b"x" * 200
BATCH = 256
PULLED = 32
AT_ONCE = 16  # requests that come together
TIMES = 300  # that often is each part measured


class Sink(asyncio.Transport):
    """Takes what is written, and forgets all but the last."""

    last = b""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.last = bytes(data)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def get_extra_info(self, name: str, default: object = None) -> object:
        return ("127.0.0.1", 40000) if name == "peername" else default

    def close(self) -> None:
        pass

    def abort(self) -> None:
        pass


class Served:
    """A broker, and a connection to it without a socket."""

    def __init__(self, broker: Broker) -> None:
        self.sink = Sink()
        self._connection = Connection(
            broker._handle, RemotingSettings(), takes_plain=broker._take_plain
        )
        self._connection.connection_made(self.sink)

    async def ask(self, frames: bytes) -> None:
        self._connection.data_received(frames)
        for _ in range(6):  # the turns in which it is read, stored and answered
            await asyncio.sleep(0)


def best(work: Callable[[], object], each: int) -> float:
    """Microseconds of CPU for each of so many."""
    times = []
    for _ in range(TIMES):
        began = time.process_time_ns()
        work()
        times.append(time.process_time_ns() - began)
    return min(times) / each / 1000


async def best_asked(served: Served, frames: Iterator[bytes], each: int) -> float:
    times = []
    for _ in range(TIMES):
        asked = next(frames)
        began = time.process_time_ns()
        await served.ask(asked)
        times.append(time.process_time_ns() - began)
    return min(times) / each / 1000


def tell(what: str, microseconds: float) -> None:
    print(f"{what}: {microseconds}")


def main() -> None:
    found: dict[str, dict[str, float]] = {"1": {}, "0": {}}  # by ROCKETPIPE_PURE
    for _ in range(ROUNDS):
        for pure, least in found.items():
            command = [sys.executable, __file__, "measure"]
            environment = {**os.environ, "ROCKETPIPE_PURE": pure}
            told = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
            for line in told.stdout.decode().splitlines():
                what, _, microseconds = line.rpartition(": ")
                least[what] = min(float(microseconds), least.get(what, 1e9))
    if compiled is None:
        print("The compiled part was not built here: both columns are without it.")
    print(f"CPU in µs without sockets, best of {ROUNDS * TIMES}, in turns:\n")
    print("| part | without the compiled part | with it | |\n|---|---|---|---|")
    for what, without in found["1"].items():
        ratio = without / found["0"][what]
        print(f"| {what} | {without:.2f} | {found['0'][what]:.2f} | {ratio:.1f}x |")


async def measure() -> None:
    settings = ProducerSettings("parts", namesrv="127.0.0.1:1")
    packer = Packer(settings, UniqueIdGenerator(bytes(4), 1, 2, now_ms), now_ms)
    one, many = Message(TOPIC, BODY), [Message(TOPIC, BODY)] * BATCH
    opaques = count(1)

    def frame(outgoing: Outgoing) -> bytes:
        queue = MessageQueue(TOPIC, "broker-a", 0)
        command = outgoing.command(queue)
        command.opaque = next(opaques)
        return command.encode()

    def pull(offset: int) -> bytes:
        request = PullMessage(
            consumer_group="parts",
            topic=TOPIC,
            queue_id=0,
            queue_offset=offset,
            max_msg_nums=PULLED,
            sys_flag=PULL_SUBSCRIPTION,
            commit_offset=0,
            suspend_timeout_millis=0,
            subscription="*",
            sub_version=0,
        )
        command = request.to_command()
        command.opaque = next(opaques)
        return command.encode()

    def singles() -> Iterator[bytes]:
        while True:
            yield b"".join([frame(packer.pack(one)) for _ in range(AT_ONCE)])

    def batches() -> Iterator[bytes]:
        while True:
            yield frame(packer.pack_batch(many, alike=True))

    def pulls() -> Iterator[bytes]:
        while True:
            for start in range(0, BATCH * 40, PULLED * AT_ONCE):
                yield b"".join([pull(start + PULLED * each) for each in range(AT_ONCE)])

    def answered(data: bytes) -> SendMessageReply:
        decoder = FrameDecoder()
        decoder.feed(data)
        command = decoder.next_command()
        assert command is not None
        return SendMessageReply.from_answer(command)

    with tempfile.TemporaryDirectory(prefix="rocketpipe-parts-") as folder:
        broker = Broker(BrokerSettings(listen_port=0), Path(folder))
        await broker.start()
        served = Served(broker)
        await served.ask(next(singles()))
        tell("broker: a send", await best_asked(served, singles(), AT_ONCE))
        answer = served.sink.last
        tell("broker: a message of a batch", await best_asked(served, batches(), BATCH))
        tell("broker: a pull of 32", await best_asked(served, pulls(), AT_ONCE))
        tell("client: a send packed and encoded", best(lambda: frame(packer.pack(one)), 1))
        tell("client: its answer read", best(lambda: answered(answer), 1))

        def pack_many() -> None:
            for pack in packs(many, settings):
                frame(packer.pack_batch(pack.messages, alike=pack.alike))

        tell("client: a message of a batch packed and encoded", best(pack_many, BATCH))
        records = broker.store.read(TOPIC, 0, 0, count_max=PULLED, bytes_max=1 << 20).records
        tell("client: a stored message decoded", best(lambda: decode_records(records), PULLED))
        await broker.close()


def now_ms() -> int:
    return time.time_ns() // 1_000_000


if __name__ == "__main__":
    if sys.argv[1:] == ["measure"]:
        asyncio.run(measure())
    else:
        main()
