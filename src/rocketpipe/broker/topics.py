"""A broker's topics: built in, created by themselves on a first send, or by an administrator."""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from rocketpipe.broker.names import (
    AUTO_CREATE_TOPIC,
    BENCHMARK_TOPIC,
    HALF_TOPIC,
    OFFSET_MOVED_EVENT,
    OP_HALF_TOPIC,
    SCHEDULE_TOPIC,
    SELF_TEST_TOPIC,
    SYSTEM_TOPIC_PREFIX,
    SYSTEM_TOPICS,
    TIMER_TOPIC,
    reply_topic,
)
from rocketpipe.broker.saving import SavedTable
from rocketpipe.broker.settings import BrokerSettings
from rocketpipe.broker.store.atomic_file import AtomicFile
from rocketpipe.clock import Clock
from rocketpipe.wire.bodies.route import Perm
from rocketpipe.wire.bodies.topics import DataVersion, TopicConfig, TopicConfigSerializeWrapper

log = logging.getLogger(__name__)

UNIT = 1  # bits of a topic's sys flag
UNIT_SUB = 2

_READ_WRITE = Perm.READ | Perm.WRITE

# Told of the topics that were created or changed; of one that was deleted, nobody is.
TopicsListener = Callable[[list[TopicConfig]], None]


class TopicConfigs:
    """What topics there are and how; kept in config/topics.json, in Apache's own form."""

    def __init__(self, settings: BrokerSettings, file: AtomicFile, clock: Clock) -> None:
        self.table: dict[str, TopicConfig] = {}  # to be read; changed here alone
        self.data_version = DataVersion(timestamp=clock.wall_ms())
        self.on_changed: list[TopicsListener] = []
        self.saved = SavedTable(file, lambda: self.wrapper().encode())
        self._settings = settings
        self._clock = clock
        self._built_in = frozenset(config.topic_name for config in _built_in_topics(settings))

    def load(self) -> None:
        """Take what was saved, and add what every broker has."""
        self.table.update((each.topic_name, each) for each in _built_in_topics(self._settings))
        if saved := self.saved.load(TopicConfigSerializeWrapper.decode):
            self.table.update(saved.topic_config_table)
            self.data_version = saved.data_version

    def get(self, topic: str) -> TopicConfig | None:
        return self.table.get(topic)

    def is_order(self, topic: str) -> bool:
        config = self.table.get(topic)
        return config is not None and config.order

    def is_system(self, topic: str) -> bool:
        """Whether it belongs to RocketMQ, and nobody may create or delete it."""
        return (
            topic in self._built_in
            or topic in SYSTEM_TOPICS
            or topic.startswith(SYSTEM_TOPIC_PREFIX)
        )

    def system_topics(self) -> frozenset[str]:
        """The names of those that are built in, and of those that are reserved."""
        return self._built_in | SYSTEM_TOPICS

    def create_for_send(
        self, topic: str, default_topic: str, queue_nums: int, *, topic_sys_flag: int = 0
    ) -> TopicConfig | None:
        """The topic, created after the default topic if that allows it; None when it may not be."""
        config = self.table.get(topic)
        if config is not None:
            return config
        template = self.table.get(default_topic)
        if default_topic == AUTO_CREATE_TOPIC and not self._settings.auto_create_topic_enable:
            return None  # though one may be left from a run that allowed it
        if template is None or Perm.INHERIT not in template.perm:
            return None
        queues = max(0, min(queue_nums, template.write_queue_nums))
        return self.create_if_absent(
            TopicConfig(
                topic_name=topic,
                read_queue_nums=queues,
                write_queue_nums=queues,
                perm=template.perm & ~Perm.INHERIT,
                topic_sys_flag=topic_sys_flag,
                topic_filter_type=template.topic_filter_type,
            )
        )

    def create_inner(
        self, topic: str, queue_nums: int = 1, *, order: bool = False, topic_sys_flag: int = 0
    ) -> TopicConfig | None:
        """The topic, created if absent, of those a broker makes for itself: retry, dead letters."""
        config = TopicConfig(
            topic_name=topic,
            read_queue_nums=queue_nums,
            write_queue_nums=queue_nums,
            perm=_READ_WRITE,
            order=order,
            topic_sys_flag=topic_sys_flag,
        )
        existing = self.create_if_absent(config)
        if existing is not None and existing.order != order:
            existing = replace(existing, order=order)
            self.put([existing])
        return existing

    def create_if_absent(self, config: TopicConfig) -> TopicConfig | None:
        """The topic of this name, created so if there is none; None when there are too many."""
        existing = self.table.get(config.topic_name)
        if existing is not None:
            return existing
        if len(self.table) >= self._settings.topics_max:
            log.warning("no topic %s: there are %d already", config.topic_name, len(self.table))
            return None
        self.put([config])
        return config

    def put(self, configs: list[TopicConfig]) -> None:
        """Create or change these."""
        for config in configs:
            log.info("topic %s is now %s", config.topic_name, describe(config))
            self.table[config.topic_name] = config
        self._bump()
        for listener in self.on_changed:
            listener(configs)

    def delete(self, topic: str) -> bool:
        """Whether there was one to delete."""
        if self.table.pop(topic, None) is None:
            return False
        log.info("topic %s is deleted", topic)
        self._bump()
        return True

    def mark_ordered(self, topics: Iterable[str]) -> None:
        """These are ordered, a NameServer's table says; as in RocketMQ, others may be too."""
        changed = [
            replace(config, order=True)
            for topic in topics
            if (config := self.table.get(topic)) is not None and not config.order
        ]
        if changed:
            self.put(changed)

    def replace_all(self, table: Mapping[str, TopicConfig], data_version: DataVersion) -> None:
        """Become the copy of another broker's: what a slave does."""
        self.table = dict(table)
        self.data_version = data_version
        self.saved.changed()
        for listener in self.on_changed:
            listener(list(table.values()))

    def wrapper(self, topics: Iterable[str] | None = None) -> TopicConfigSerializeWrapper:
        """All topics, or those of these that exist, as they are registered and saved."""
        table = self.table
        if topics is not None:
            table = {topic: table[topic] for topic in topics if topic in table}
        return TopicConfigSerializeWrapper(topic_config_table=table, data_version=self.data_version)

    def touch(self) -> None:
        """Make NameServers take all of them anew."""
        self._bump()

    def _bump(self) -> None:
        self.data_version = replace(
            self.data_version,
            timestamp=self._clock.wall_ms(),
            counter=self.data_version.counter + 1,
        )
        self.saved.changed()


def describe(config: TopicConfig) -> str:
    """As Java prints it (TopicConfig.toString), for remarks."""
    perm = "".join(
        letter if bit in config.perm else "-"
        for letter, bit in (("R", Perm.READ), ("W", Perm.WRITE), ("X", Perm.INHERIT))
    )
    attributes = ", ".join(f"{name}={value}" for name, value in config.attributes.items())
    return (
        f"TopicConfig [topicName={config.topic_name}, readQueueNums={config.read_queue_nums}, "
        f"writeQueueNums={config.write_queue_nums}, perm={perm}, "
        f"topicFilterType={config.topic_filter_type}, topicSysFlag={config.topic_sys_flag}, "
        f"order={str(config.order).lower()}, attributes={{{attributes}}}]"
    )


def _built_in_topics(settings: BrokerSettings) -> list[TopicConfig]:
    """What every broker of 5.5.0 has (TopicConfigManager.init)."""
    cluster, broker = settings.broker_cluster_name, settings.broker_name

    def named_topic_perm(is_enabled: bool) -> Perm:
        return Perm.INHERIT | (_READ_WRITE if is_enabled else Perm(0))

    def topic(name: str, queues: int, perm: Perm = _READ_WRITE) -> TopicConfig:
        return TopicConfig(
            topic_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=perm
        )

    topics = [
        topic(SELF_TEST_TOPIC, 1),
        topic(BENCHMARK_TOPIC, 1024),
        topic(cluster, 16, named_topic_perm(settings.cluster_topic_enable)),
        topic(broker, 1, named_topic_perm(settings.broker_topic_enable)),
        topic(OFFSET_MOVED_EVENT, 1),
        topic(SCHEDULE_TOPIC, max(18, len(settings.store.delay_levels))),
        topic(reply_topic(cluster), 1),
        topic(f"{SYSTEM_TOPIC_PREFIX}REVIVE_LOG_{cluster}", 8),
        topic(f"{SYSTEM_TOPIC_PREFIX}SYNC_BROKER_MEMBER_{broker}", 1, Perm.INHERIT),
        topic(HALF_TOPIC, 1),
        topic(OP_HALF_TOPIC, 1),
    ]
    if settings.auto_create_topic_enable:
        queues = settings.default_topic_queue_nums
        topics.append(topic(AUTO_CREATE_TOPIC, queues, Perm.INHERIT | _READ_WRITE))
    if settings.timer_wheel_enable:
        topics.append(topic(TIMER_TOPIC, 1))
    if settings.trace_topic_enable:
        topics.append(topic(settings.msg_trace_topic_name, 1))
    return topics
