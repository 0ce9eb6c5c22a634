"""Measures the Spark data source beside Spark's own Kafka connector, in one run, alternating.

    bench/run.py spark                  every row
    bench/spark.py write write-apache   these rows, and what they are compared with
    bench/spark.py --messages 200000    a quick look, whose figures mean little

One local Spark of two threads reads and writes all of them: a Kafka broker, an Apache RocketMQ
broker and the embedded cluster, each a process of its own on the same machine. Each round measures
everything once, in turns; the first round warms up, and the median of the others counts.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

from pyspark.cloudpickle import register_pickle_by_value
from pyspark.sql import DataFrame, SparkSession

from bench import ready_source
from bench.broker import Cluster, OurCluster, TheirCluster
from bench.kafka import KafkaBroker, connector_jars
from bench.measuring import VERSION, cpu_seconds, in_turns, our_script, say, touched_memory
from bench.spark_codec import record
from rocketpipe import Admin
from rocketpipe.spark.jobs.session import ARROW_ENVIRONMENT

MESSAGES = 2_000_000
QUEUES = 4
BODY_BYTES = 200
BATCHES = 3  # of the stream: each costs Spark about 0.2 s, however large it is
SETTLE_SECONDS_MAX = 30.0
FILLED = "filled"  # the topic that is read,
HALF = "filled-half"  # and one with half as many messages

# What a stock Apache broker hands out in one answer, and what a broker for bulk readers should.
STOCK_LIMITS = {
    "maxTransferCountOnMessageInMemory": "32",
    "maxTransferBytesOnMessageInMemory": str(256 * 1024),
}
RAISED_LIMITS = {
    "maxTransferCountOnMessageInMemory": "4096",
    "maxTransferBytesOnMessageInMemory": str(4 * 1024 * 1024),
}


class Sample(NamedTuple):
    rate: float  # rows per second
    spark_cpu: float  # microseconds a row, of the JVM and all Python workers
    broker_cpu: float

    def __str__(self) -> str:
        return f"{self.rate:,.0f}/s, CPU {self.spark_cpu:.1f} + {self.broker_cpu:.1f} us"


class Row(NamedTuple):
    name: str
    work: str
    ours: str  # names of measures
    theirs: str
    wanted: str


ROWS = (
    Row("read", "batch read, all columns, embedded cluster", "read", "kafka-read", "1.0x"),
    Row("read-apache", "the same, Apache's, limits raised", "read-apache", "kafka-read", "0.8x"),
    Row("read-stock", "the same, a stock Apache's", "read-stock", "kafka-read", "0.3x"),
    Row("read-pulls", "the same; theirs: bare pulls from it", "read-stock", "pulls", "0.9x"),
    Row("read-body", '`.schema("body binary")`; theirs: ours, all', "read-body", "read", "1.3x"),
    Row("ceiling", "the same, ready batches, no broker", "ready", "kafka-read", "nothing"),
    Row("write-apache", "write, Apache's", "write-apache", "kafka-write", "0.8x"),
    Row("write", "the same, embedded cluster", "write", "kafka-write", "0.8x"),
    Row("stream", "stream, steady batches; theirs: ours, batch read", "stream", "read", "0.7x"),
    # Twice the messages may cost 2.1 times the time.
    Row("growth-read", "read; theirs: half as many messages", "read", "read-half", "0.95x"),
    Row("growth-write", "write, Apache's; theirs: half", "write-apache", "write-half", "0.95x"),
)


class Bench:
    """All that takes part, and what can be measured with it."""

    def __init__(self, messages: int, needed: Iterable[str], ending: ExitStack) -> None:
        self._messages = messages
        self.spark = start_spark(ending)
        self.kafka = ending.enter_context(KafkaBroker(QUEUES))
        self.apache = ending.enter_context(TheirCluster())
        self.ours = ending.enter_context(OurCluster())
        # The pid of the JVM; its workers are its children.
        self._spark_pid: int = self.spark.sparkContext._gateway.proc.pid  # type: ignore[union-attr]
        self._written = 0
        text = f"cast(rpad(cast(id as string), {BODY_BYTES}, 'x') as binary) as body"
        self.rows = self.spark.range(0, messages, 1, QUEUES).selectExpr(text).cache()
        self.half = self.spark.range(0, messages // 2, 1, QUEUES).selectExpr(text).cache()
        say(f"{self.rows.count() + self.half.count():,} rows cached")
        self.fill(needed)

    def measures(self) -> Mapping[str, Callable[[], Sample]]:
        apache, ours, kafka = self.apache, self.ours, self.kafka
        timed = partial(partial, self.time)
        return {
            "kafka-read": timed(kafka.pid, self.read_kafka),
            "read": timed(ours.broker_pid, partial(self.read, ours)),
            "read-body": timed(ours.broker_pid, partial(self.read, ours, "body")),
            "read-half": timed(ours.broker_pid, partial(self.read, ours, topic=HALF), part=0.5),
            "read-apache": timed(apache.broker_pid, partial(self.read, apache)),
            "read-stock": self.read_stock,
            "pulls": self.pulls,
            "ready": timed(os.getpid(), self.read_ready),
            "stream": self.stream,
            "kafka-write": timed(kafka.pid, self.write_kafka),
            "write-apache": timed(apache.broker_pid, partial(self.write, apache)),
            "write": timed(ours.broker_pid, partial(self.write, ours)),
            "write-half": timed(
                apache.broker_pid, partial(self.write, apache, half=True), part=0.5
            ),
        }

    def fill(self, needed: Iterable[str]) -> None:
        """Put there what is going to be read."""
        if "kafka-read" in needed:
            self.write_kafka(FILLED)
        if {"read-apache", "read-stock", "pulls"} & set(needed):
            self.write(self.apache, FILLED)
            self.limit(RAISED_LIMITS)
        if {"read", "read-body", "stream"} & set(needed):
            self.write(self.ours, FILLED)
        if "read-half" in needed:
            self.write(self.ours, HALF, half=True)

    def settle(self) -> None:
        """Wait until nobody is busy with what came before: brokers index after they answer."""
        pids = (self._spark_pid, self.kafka.pid, self.apache.broker_pid, self.ours.broker_pid)
        deadline = time.perf_counter() + SETTLE_SECONDS_MAX
        while time.perf_counter() < deadline:
            busy = sum(map(cpu_seconds, pids))
            time.sleep(0.5)
            if sum(map(cpu_seconds, pids)) - busy < 0.1:
                return

    def time(self, broker_pid: int, work: Callable[[], object], *, part: float = 1.0) -> Sample:
        self.settle()
        count = self._messages * part
        spark_cpu, broker_cpu = tree_cpu_seconds(self._spark_pid), cpu_seconds(broker_pid)
        began = time.perf_counter()
        work()
        took = time.perf_counter() - began
        spark_cpu = tree_cpu_seconds(self._spark_pid) - spark_cpu
        broker_cpu = cpu_seconds(broker_pid) - broker_cpu
        return Sample(count / took, spark_cpu * 1e6 / count, broker_cpu * 1e6 / count)

    # Kafka.

    def read_kafka(self) -> None:
        reader = self.spark.read.format("kafka").option("subscribe", FILLED)
        noop(reader.option("kafka.bootstrap.servers", self.kafka.address).load())

    def write_kafka(self, topic: str | None = None) -> None:
        writer = self.rows.selectExpr("body as value").write.format("kafka")
        writer = writer.option("kafka.bootstrap.servers", self.kafka.address)
        writer.option("topic", topic or self.new_topic()).mode("append").save()

    # RocketMQ.

    def read(self, cluster: Cluster, columns: str = "all", topic: str = FILLED) -> None:
        reader = self.spark.read.format("rocketmq").option("namesrv", cluster.namesrv)
        if columns == "body":
            reader = reader.schema("body binary")
        noop(reader.option("topic", topic).load())

    def read_stock(self) -> Sample:
        self.limit(STOCK_LIMITS)
        sample = self.time(self.apache.broker_pid, partial(self.read, self.apache))
        self.limit(RAISED_LIMITS)
        return sample

    def pulls(self) -> Sample:
        self.limit(STOCK_LIMITS)
        pid = self.apache.broker_pid
        figures = our_script("pulls.py", self.apache.namesrv, FILLED, str(pid))
        self.limit(RAISED_LIMITS)
        return Sample(*figures)

    def read_ready(self) -> None:
        reader = self.spark.read.format("ready").option("rows", self._messages)
        noop(reader.option("tasks", QUEUES).load())

    def write(self, cluster: Cluster, topic: str | None = None, *, half: bool = False) -> None:
        topic = topic or self.new_topic()
        with Admin(namesrv=cluster.namesrv) as admin:
            admin.create_topic(topic, queues=QUEUES)
        writer = (self.half if half else self.rows).write.format("rocketmq")
        writer.option("namesrv", cluster.namesrv).option("topic", topic).mode("append").save()

    def stream(self) -> Sample:
        """Whole batches alone count: what comes before the first is a query's start."""
        rates: list[float] = []

        def run() -> None:
            reader = self.spark.readStream.format("rocketmq").option("topic", FILLED)
            reader = reader.option("startingOffsets", "earliest")
            reader = reader.option("maxOffsetsPerTrigger", self._messages // BATCHES)
            stream = reader.option("namesrv", self.ours.namesrv).load()
            with tempfile.TemporaryDirectory(prefix="rocketpipe-bench-") as folder:
                query = (
                    stream.writeStream.format("noop")
                    .option("checkpointLocation", folder)
                    .trigger(availableNow=True)
                    .start()
                )
                query.awaitTermination()
                for progress in query.recentProgress[1:]:
                    if progress["numInputRows"]:
                        took = progress["durationMs"]["triggerExecution"] / 1000
                        rates.append(progress["numInputRows"] / took)

        sample = self.time(self.ours.broker_pid, run)
        return sample._replace(rate=median(rates))

    def new_topic(self) -> str:
        self._written += 1
        return f"written-{self._written}"

    def limit(self, limits: Mapping[str, str]) -> None:
        with Admin(namesrv=self.apache.namesrv) as admin:
            admin.change_broker_config("broker-a", limits)


def start_spark(ending: ExitStack) -> SparkSession:
    folder = Path(ending.enter_context(tempfile.TemporaryDirectory(prefix="rocketpipe-spark-")))
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    for variable, value in ARROW_ENVIRONMENT.items():
        os.environ.setdefault(variable, value)
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "3g",
        "spark.jars": ",".join(map(str, connector_jars())),
        "spark.log.level": "OFF",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master("local[2]").appName("rocketpipe benchmark")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    ending.callback(spark.stop)
    # Workers can't import this folder.
    register_pickle_by_value(ready_source)  # type: ignore[no-untyped-call]
    ready_source.ReadySource.answer = b"".join(record(number, {}) for number in range(10_000))
    spark.dataSource.register(ready_source.ReadySource)
    return spark


def noop(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def tree_cpu_seconds(pid: int) -> float:
    """Of a process, of those that it and they have started, and of those of them that ended."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue  # it has just ended
            children.setdefault(parent, []).append(int(folder.name))
    total, waiting = 0.0, [pid]
    while waiting:
        each = waiting.pop()
        waiting += children.get(each, [])
        try:
            total += cpu_seconds(each, with_ended_children=True)
        except OSError:
            continue
    return total


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--messages", type=int, default=MESSAGES)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=", ".join(row.name for row in ROWS))
    arguments = parser.parse_args()
    messages, names = arguments.messages, arguments.rows
    if unknown := set(names) - {row.name for row in ROWS}:
        parser.error(f"no row {', '.join(unknown)}")
    rows = [row for row in ROWS if not names or row.name in names]
    needed = {name for row in rows for name in (row.ours, row.theirs)}
    with ExitStack() as ending:
        ending.enter_context(touched_memory())
        bench = Bench(messages, needed, ending)
        measures = {name: each for name, each in bench.measures().items() if name in needed}
        measured = in_turns(measures)
    print(f"\nSpark: {messages:,} messages of {BODY_BYTES} bytes in {QUEUES} queues, `local[2]`;")
    print(f"theirs is Spark's Kafka connector, but where it says otherwise; Apache's is {VERSION}.")
    print("CPU is in µs a row, Spark's and the broker's.\n")
    print("| row | work | ours/s | theirs/s | ratio | wanted | CPU: ours | theirs |")
    print("|---|---|---|---|---|---|---|---|")
    for row in rows:
        ours, theirs = measured[row.ours].median, measured[row.theirs].median
        print(
            f"| {row.name} | {row.work} | {ours.rate:,.0f} | {theirs.rate:,.0f} "
            f"| **{measured[row.ours].ratio(measured[row.theirs]):.2f}x** | at least {row.wanted} "
            f"| {ours.spark_cpu:.1f} + {ours.broker_cpu:.1f} "
            f"| {theirs.spark_cpu:.1f} + {theirs.broker_cpu:.1f} |"
        )


if __name__ == "__main__":
    main()
