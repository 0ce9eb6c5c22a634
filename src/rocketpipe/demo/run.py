"""One run: a shop sends to a cluster that suffers, Spark reads along, and the books are closed."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rocketpipe.client.parquet_recorder import ParquetRecorder
from rocketpipe.client.producer import AsyncProducer
from rocketpipe.clock import Clock
from rocketpipe.demo.books import Books, Stored, close_books
from rocketpipe.demo.clusters import Subject
from rocketpipe.demo.interrupts import Interrupts
from rocketpipe.demo.load import Load
from rocketpipe.demo.orders import Shop
from rocketpipe.demo.pipeline import ATTEMPTS, MESSAGES, Pipeline
from rocketpipe.demo.scenario import Event, find_scenario, script
from rocketpipe.demo.settings import DemoSettings
from rocketpipe.demo.tally import Tally, Totals, Watch
from rocketpipe.demo.troubles import Played, play
from rocketpipe.demo.view import PipelineNow, Snapshot, View

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PRODUCERS = ("shop-web", "shop-app", "shop-partners")
FRAME_SECONDS = 0.25
RECORD_SECONDS = 1.0
POLL_NAME_SERVER_SECONDS = 2.0  # 30 by default: a run is too short to wait that long for a broker


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """What the senders know at the end."""

    started_ms: int
    topics: Mapping[str, Totals]
    errors: Mapping[str, int]
    events: Sequence[Event]
    played: Sequence[Played]
    left_out: Sequence[str]


class Run:
    """A run in its own folder, under one policy; its steps are called one after another."""

    def __init__(
        self,
        settings: DemoSettings,
        policy: str,
        folder: Path,
        subject: Subject,
        spark: "SparkSession",
        view: View,
        clock: Clock,
    ) -> None:
        self.settings, self.policy, self.folder = settings, policy, folder
        self.subject, self.spark = subject, spark
        self.recorded = folder / "recorded"
        self.tables = folder / "tables"
        self._view, self._clock = view, clock
        self.title = f"rocketpipe demo · {settings.scenario} · {policy} · {settings.rate:g} msg/s"
        self.pipeline = Pipeline(spark, subject.source, subject.topics, self.recorded, self.tables)
        self._shown = Snapshot(title=self.title, phase="", seconds=settings.seconds)

    def send(self, interrupts: Interrupts) -> Sent:
        """Start the queries, and send until the time is over and all sends have ended."""
        self._view.show(Snapshot(title=self.title, phase="starting the queries"))
        self.pipeline.start()
        return interrupts.run(self._send())

    def drain(self) -> None:
        """Wait until all is in the tables."""
        self.pipeline.drain()

    def close_books(self, sent: Sent) -> Books:
        """What the senders were told against what is in the table."""
        acknowledged = {topic: totals.message_ids for topic, totals in sent.topics.items()}
        return close_books(acknowledged, self._stored())

    def _stored(self) -> list[Stored]:
        columns = (
            *("topic", "messageId", "concat(brokerName, ':', queueId)", "queueOffset"),
            *("value.customer", "value.sequence"),
        )
        table = self.spark.read.parquet(str(self.pipeline.messages)).selectExpr(*columns)
        return [Stored(*row) for row in table.collect()]

    async def _send(self) -> Sent:
        settings, subject = self.settings, self.subject
        now = asyncio.get_running_loop().time
        tally = Tally(now)
        events, left_out = script(
            find_scenario(settings.scenario),
            settings.seconds,
            subject.brokers,
            subject.sufferer.able,
        )
        for each in left_out:
            self._view.say(f"left out: {each}")
        played: list[Played] = []
        async with AsyncExitStack() as stack:
            producers = [
                await stack.enter_async_context(self._producer(name, tally)) for name in PRODUCERS
            ]
            load = Load(
                producers,
                Shop(
                    seed=settings.seed,
                    orders_topic=subject.orders,
                    activity_topic=subject.activity,
                ),
                tally,
                queues=await producers[0].publish_queues(subject.orders),
                rate=settings.rate,
                wall_ms=self._clock.wall_ms,
            )
            started, started_ms = now(), self._clock.wall_ms()
            async with asyncio.TaskGroup() as tasks:
                watching = tasks.create_task(self._watch(tally, producers, events, started))
                async with asyncio.TaskGroup() as work:
                    work.create_task(load.run(settings.seconds))
                    work.create_task(play(events, subject.sufferer, started, played))
                watching.cancel()
        return Sent(
            started_ms=started_ms,
            topics=dict(tally.topics),
            errors=dict(tally.errors),
            events=events,
            played=played,
            left_out=left_out,
        )

    def _producer(self, name: str, tally: Tally) -> AsyncProducer:
        return AsyncProducer(
            name,
            **self.subject.client,
            policy=self.policy,
            poll_name_server_interval=POLL_NAME_SERVER_SECONDS,
            hooks=[Watch(tally), ParquetRecorder(self.recorded, interval=RECORD_SECONDS)],
        )

    async def _watch(
        self,
        tally: Tally,
        producers: Sequence[AsyncProducer],
        events: Sequence[Event],
        started: float,
    ) -> None:
        now = asyncio.get_running_loop().time
        while True:
            elapsed = now() - started
            isolated = Counter(broker for each in producers for broker in each.isolated())
            brokers = tally.brokers(self.subject.brokers, isolated, len(producers))
            orders, activity = (tally.topics[topic] for topic in self.subject.topics)
            acknowledged = orders.acknowledged + activity.acknowledged
            rows = self.pipeline.rows
            self._view.show(
                Snapshot(
                    title=self.title,
                    phase="sending"
                    if elapsed < self.settings.seconds
                    else "waiting for the last sends",
                    elapsed=elapsed,
                    seconds=self.settings.seconds,
                    brokers=brokers,
                    sends=orders.sends + activity.sends,
                    acknowledged=acknowledged,
                    failed=activity.failed,
                    retried=orders.retried + activity.retried,
                    on_their_way=orders.on_their_way + activity.on_their_way,
                    waiting=orders.waiting,
                    resent=orders.resent,
                    pipeline=PipelineNow(
                        messages=rows[MESSAGES],
                        behind=max(0, acknowledged - rows[MESSAGES]),
                        attempts=rows[ATTEMPTS],
                    ),
                    events=events,
                )
            )
            self.pipeline.check()
            await asyncio.sleep(FRAME_SECONDS)
