"""Sends 200-byte messages with our producers: HOW ADDRESS TOPIC SECONDS, after a warm-up.

HOW is `blocking` (one thread, one send after another), `awaited` (64 sends in flight) or `many`
(`send_many`). A fifth argument is the process id of a broker, whose CPU is then told as well.
"""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.measuring import Stopwatch
from rocketpipe import AsyncProducer, Message, Producer, SendResult

BODY = b"x" * 200
IN_FLIGHT = 64
WARM_UP_SECONDS = 3.0
FIRST_TIMEOUT = 30.0  # a cold broker on a busy machine may need it


def blocking(namesrv: str, topic: str, seconds: float, server_pid: int | None) -> None:
    with Producer("benchmark", namesrv=namesrv) as producer:
        producer.send(Message(topic, BODY), timeout=FIRST_TIMEOUT)
        for duration in (WARM_UP_SECONDS, seconds):
            watch, sent = Stopwatch(duration, server_pid), 0
            while not watch.is_over():
                producer.send(Message(topic, BODY))
                sent += 1
        print(watch.report(sent))


async def awaited(namesrv: str, topic: str, seconds: float, server_pid: int | None) -> None:
    async with AsyncProducer("benchmark", namesrv=namesrv) as producer:
        await producer.send(Message(topic, BODY), timeout=FIRST_TIMEOUT)

        async def send_on(watch: Stopwatch) -> int:
            sent = 0
            while not watch.is_over():
                await producer.send(Message(topic, BODY))
                sent += 1
            return sent

        for duration in (WARM_UP_SECONDS, seconds):
            watch = Stopwatch(duration, server_pid)
            sent = sum(await asyncio.gather(*(send_on(watch) for _ in range(IN_FLIGHT))))
        print(watch.report(sent))


async def many(namesrv: str, topic: str, seconds: float, server_pid: int | None) -> None:
    async with AsyncProducer("benchmark", namesrv=namesrv) as producer:
        await producer.send(Message(topic, BODY), timeout=FIRST_TIMEOUT)

        def messages(watch: Stopwatch) -> Iterator[Message]:
            while not watch.is_over():
                for _ in range(100):
                    yield Message(topic, BODY)

        for duration in (WARM_UP_SECONDS, seconds):
            watch = Stopwatch(duration, server_pid)
            results = await producer.send_many(messages(watch))
        report = watch.report(len(results))
        assert all(isinstance(result, SendResult) for result in results)
        print(report)


if __name__ == "__main__":
    how, namesrv, topic, seconds = sys.argv[1:5]
    server_pid = int(sys.argv[5]) if len(sys.argv) > 5 else None
    if how == "blocking":
        blocking(namesrv, topic, float(seconds), server_pid)
    else:
        send = awaited if how == "awaited" else many
        asyncio.run(send(namesrv, topic, float(seconds), server_pid))
