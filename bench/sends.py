"""Sends 200-byte messages with our producers: HOW ADDRESS TOPIC SECONDS, after a warm-up.

HOW is `blocking` (one thread, one send after another), `awaited` (64 sends in flight) or `many`
(`send_many`).
"""

import asyncio
import sys
import time
from collections.abc import Iterator

from rocketpipe import AsyncProducer, Message, Producer, SendResult

BODY = b"x" * 200
IN_FLIGHT = 64
WARM_UP_SECONDS = 3.0
FIRST_TIMEOUT = 30.0  # a cold broker on a busy machine may need it


class Stopwatch:
    """Measures from its making; `is_over` after so many seconds."""

    def __init__(self, seconds: float) -> None:
        self._cpu, self._began = time.process_time(), time.perf_counter()
        self._end = self._began + seconds

    def is_over(self) -> bool:
        return time.perf_counter() >= self._end

    def report(self, sent: int) -> str:
        took, cpu = time.perf_counter() - self._began, time.process_time() - self._cpu
        return f"rate and CPU: {sent / took} {cpu * 1e6 / sent}"


def blocking(namesrv: str, topic: str, seconds: float) -> None:
    with Producer("benchmark", namesrv=namesrv) as producer:
        producer.send(Message(topic, BODY), timeout=FIRST_TIMEOUT)
        for duration in (WARM_UP_SECONDS, seconds):
            watch, sent = Stopwatch(duration), 0
            while not watch.is_over():
                producer.send(Message(topic, BODY))
                sent += 1
        print(watch.report(sent))


async def awaited(namesrv: str, topic: str, seconds: float) -> None:
    async with AsyncProducer("benchmark", namesrv=namesrv) as producer:
        await producer.send(Message(topic, BODY), timeout=FIRST_TIMEOUT)

        async def send_on(watch: Stopwatch) -> int:
            sent = 0
            while not watch.is_over():
                await producer.send(Message(topic, BODY))
                sent += 1
            return sent

        for duration in (WARM_UP_SECONDS, seconds):
            watch = Stopwatch(duration)
            sent = sum(await asyncio.gather(*(send_on(watch) for _ in range(IN_FLIGHT))))
        print(watch.report(sent))


async def many(namesrv: str, topic: str, seconds: float) -> None:
    async with AsyncProducer("benchmark", namesrv=namesrv) as producer:
        await producer.send(Message(topic, BODY), timeout=FIRST_TIMEOUT)

        def messages(watch: Stopwatch) -> Iterator[Message]:
            while not watch.is_over():
                for _ in range(100):
                    yield Message(topic, BODY)

        for duration in (WARM_UP_SECONDS, seconds):
            watch = Stopwatch(duration)
            results = await producer.send_many(messages(watch))
        report = watch.report(len(results))
        assert all(isinstance(result, SendResult) for result in results)
        print(report)


if __name__ == "__main__":
    how, namesrv, topic, seconds = sys.argv[1:]
    if how == "blocking":
        blocking(namesrv, topic, float(seconds))
    else:
        asyncio.run((awaited if how == "awaited" else many)(namesrv, topic, float(seconds)))
