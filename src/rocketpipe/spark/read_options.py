"""The options of reading, checked and typed; everything here travels to tasks."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from rocketpipe.client.consumer.settings import PullConsumerSettings
from rocketpipe.client.consumer.subscriptions import Expression, Sql92, subscription
from rocketpipe.errors import InvalidSetting
from rocketpipe.message import MessageQueue
from rocketpipe.spark.options import ConnectionOptions, OptionParser, wrong
from rocketpipe.spark.positions import (
    EARLIEST,
    LATEST,
    Positions,
    parse_positions,
    parse_queues,
)

DEFAULT_GROUP = "rocketpipe-spark"

STREAM_ONLY = (
    *("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"),
    *("offsetsInterval", "discoveryInterval"),
)
BATCH_ONLY = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """What to read, from where to where, and how."""

    connection: ConnectionOptions
    topics: tuple[str, ...]
    topic_pattern: str | None
    assigned: tuple[MessageQueue, ...]
    starting: Positions | None
    ending: Positions | None
    no_offset_is_error: bool
    rows_per_trigger_max: int | None
    rows_per_trigger_min: int | None
    trigger_delay_max: float
    partitions_min: int
    records_per_partition_max: int | None
    fail_on_data_loss: bool
    tags: str | None
    sql: str | None
    group: str | None
    include_properties: bool
    drop_repeats: bool
    batch_bytes: int
    pull_batch_size: int
    pulls_in_flight: int
    pull_timeout: float
    retries: int
    offsets_interval: float
    discovery_interval: float
    given: tuple[str, ...]  # those of the options above that are not for every kind of query

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """InvalidSetting names the option that can't be used, and says what is allowed."""
        parser = OptionParser(options)
        parsed = cls.read(parser)
        parser.finish()
        if not (parsed.topics or parsed.topic_pattern or parsed.assigned):
            raise InvalidSetting("give one of the options topic, topicPattern and assign")
        return parsed

    @classmethod
    def read(cls, parser: OptionParser) -> Self:
        connection = ConnectionOptions.parse(parser)
        topics, pattern = parser.texts("topic"), parser.text("topicPattern")
        assign = parser.json_object("assign")
        _check_topics(parser, topics, pattern)
        starting, ending = parse_positions(parser, "starting"), parse_positions(parser, "ending")
        group = parser.group("group")
        for side, positions in (("startingOffsets", starting), ("endingOffsets", ending)):
            if positions is not None and positions.needs_group and group is None:
                raise InvalidSetting(f"option {side} is group, but option group is not given")
        strategy = parser.choice("startingOffsetsByTimestampStrategy", ("error", "latest"), "error")
        tags, sql = parser.text("tags"), parser.text("sql")
        parser.at_most_one("tags", "sql")
        rows_max = parser.maybe_count("maxOffsetsPerTrigger")
        rows_min = parser.maybe_count("minOffsetsPerTrigger")
        if rows_max is not None and rows_min is not None and rows_min > rows_max:
            raise InvalidSetting("option minOffsetsPerTrigger is more than maxOffsetsPerTrigger")
        return cls(
            connection=connection,
            topics=topics,
            topic_pattern=pattern,
            assigned=parse_queues("assign", assign) if assign is not None else (),
            starting=starting,
            ending=ending,
            no_offset_is_error=strategy == "error",
            rows_per_trigger_max=rows_max,
            rows_per_trigger_min=rows_min,
            trigger_delay_max=parser.seconds("maxTriggerDelay", 900.0),
            partitions_min=parser.count("minPartitions", 0),
            records_per_partition_max=parser.maybe_count("maxRecordsPerPartition"),
            fail_on_data_loss=parser.flag("failOnDataLoss", True),
            tags=tags,
            sql=sql,
            group=group,
            include_properties=parser.flag("includeProperties", True),
            drop_repeats=parser.flag("dropRepeats", False),
            batch_bytes=parser.count("batchBytes", 4 << 20, maximum=1 << 30),
            pull_batch_size=parser.count("pullBatchSize", 1024),
            pulls_in_flight=parser.count("pullsInFlight", PullConsumerSettings.pulls_in_flight_max),
            pull_timeout=parser.seconds("pullTimeout", 60.0),
            retries=parser.count("retries", 5, minimum=0),
            offsets_interval=parser.seconds("offsetsInterval", 0.2),
            discovery_interval=parser.seconds("discoveryInterval", 10.0),
            given=tuple(parser.given(*STREAM_ONLY, *BATCH_ONLY)),
        )

    def for_batch(self) -> Self:
        """These, if they make sense for a batch query."""
        self._refuse(STREAM_ONLY, "a streaming query")
        if self.starting is not None and self.starting.others.kind == LATEST:
            raise InvalidSetting(
                "option startingOffsets is latest: a batch query would read nothing"
            )
        if self.ending is not None and self.ending.others.kind == EARLIEST:
            raise InvalidSetting(
                "option endingOffsets is earliest: a batch query would read nothing"
            )
        return self

    def for_stream(self) -> Self:
        """These, if they make sense for a streaming query."""
        self._refuse(BATCH_ONLY, "a batch query")
        return self

    @property
    def expression(self) -> Expression:
        """The filter that brokers apply."""
        return Sql92(self.sql) if self.sql is not None else self.tags or "*"

    @property
    def tags_wanted(self) -> frozenset[str]:
        """The tags to compare with, as brokers compare hashes only; none for all."""
        if self.sql is not None:
            return frozenset()
        return frozenset(subscription("any", self.tags or "*", version=0).tags_set)

    def consumer_settings(self) -> dict[str, Any]:
        return {
            **self.connection.client_settings(),
            "consumer_group": self.group or DEFAULT_GROUP,
            "namespace": self.connection.namespace,
            "pull_batch_size": self.pull_batch_size,
            "pulls_in_flight_max": self.pulls_in_flight,
            "pull_timeout": self.pull_timeout,
            "suspend_timeout": self.pull_timeout / 2,
            "skip_gaps": not self.fail_on_data_loss,
        }

    def _refuse(self, names: tuple[str, ...], kind: str) -> None:
        for name in self.given:
            if name in names:
                raise InvalidSetting(f"option {name} is for {kind}")


def _check_topics(parser: OptionParser, topics: tuple[str, ...], pattern: str | None) -> None:
    parser.at_most_one("topic", "topicPattern", "assign")
    for topic in topics:
        try:
            subscription(topic, "*", version=0)
        except InvalidSetting as error:
            raise InvalidSetting(f"option topic: {error}") from None
    if parser.given("topic") and not topics:
        raise InvalidSetting("option topic names no topic")
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as error:
            raise wrong("topicPattern", pattern, f"a regular expression ({error})") from None
