"""Topics for the tests of Spark: made, filled and read in a line."""

import asyncio
import time
from collections.abc import Iterable, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from rocketpipe import Admin, Message, MessageQueue, Producer, SendResult
from tests.interop.clusters import Cluster, Reader, new_topic

TIMEOUT = 120  # seconds; what is slow on a busy machine is not wrong


def make_topic(cluster: Cluster, about: str, *, queues: int = 2) -> str:
    """A topic with so many queues on each of the two brokers."""
    topic = new_topic(f"spark-{about}")

    async def create() -> None:
        async with Reader(cluster.namesrv) as reader:
            await reader.create_topic(topic, cluster.brokers, queues=queues)

    asyncio.run(create())
    return topic


def send(cluster: Cluster, messages: Iterable[Message], **settings: Any) -> list[SendResult]:
    """Send them all; each must be stored, and can be read then."""
    with Producer(
        "spark-tests", namesrv=cluster.namesrv, send_timeout=30.0, **settings
    ) as producer:
        outcomes = producer.send_many(list(messages))
    results = [each for each in outcomes if isinstance(each, SendResult)]
    assert len(results) == len(outcomes), outcomes
    _wait_until_readable(cluster, results)
    return results


def _wait_until_readable(cluster: Cluster, results: Iterable[SendResult]) -> None:
    """A queue follows the log: of what was stored just now, `latest` may not know yet."""
    ends: dict[MessageQueue, int] = {}
    for result in results:
        ends[result.queue] = max(ends.get(result.queue, 0), result.queue_offset + 1)
    deadline = time.monotonic() + TIMEOUT
    with Admin(namesrv=cluster.namesrv) as admin:
        while late := [queue for queue, end in ends.items() if admin.max_offset(queue) < end]:
            if time.monotonic() > deadline:
                raise TimeoutError(f"not all can be read: {late}")
            time.sleep(0.05)


def send_to(cluster: Cluster, queue: MessageQueue, bodies: Sequence[bytes]) -> None:
    """Send to one queue, in order."""
    with Producer("spark-tests", namesrv=cluster.namesrv, send_timeout=30.0) as producer:
        results = [producer.send(Message(queue.topic, body), queue=queue) for body in bodies]
    _wait_until_readable(cluster, results)


def numbered(topic: str, count: int, *, start: int = 0) -> list[Message]:
    return [Message(topic, b"%d" % number) for number in range(start, start + count)]


def read(
    spark: SparkSession, cluster: Cluster, schema: str | None = None, **options: Any
) -> DataFrame:
    reader = spark.read.format("rocketmq").option("namesrv", cluster.namesrv).options(**options)
    return (reader.schema(schema) if schema else reader).load()


def read_stream(
    spark: SparkSession, cluster: Cluster, schema: str | None = None, **options: Any
) -> DataFrame:
    reader = spark.readStream.format("rocketmq").option("namesrv", cluster.namesrv)
    reader = reader.options(**options)
    return (reader.schema(schema) if schema else reader).load()


def bodies(frame: DataFrame) -> list[bytes]:
    """What the bodies are, sorted."""
    return sorted(bytes(row.body) for row in frame.select("body").collect())


def admin(cluster: Cluster) -> Admin:
    return Admin(namesrv=cluster.namesrv)
