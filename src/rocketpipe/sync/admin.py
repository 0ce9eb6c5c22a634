"""The blocking administrator's client."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from rocketpipe.client.admin.admin import AsyncAdmin
from rocketpipe.client.admin.offsets import Boundary
from rocketpipe.client.admin.topics import READ_WRITE
from rocketpipe.client.admin.values import (
    BrokerInfo,
    BrokerRuntime,
    ConnectedClient,
    GroupConnections,
    GroupProgress,
    TopicStats,
)
from rocketpipe.client.environment import Environment
from rocketpipe.client.route import TopicRoute
from rocketpipe.client.settings import ClientSettings
from rocketpipe.message import MessageQueue, StoredMessage
from rocketpipe.sync.client import BlockingClient
from rocketpipe.wire.bodies.groups import SubscriptionGroupConfig
from rocketpipe.wire.bodies.route import Perm
from rocketpipe.wire.bodies.topics import TopicConfig


class Admin(BlockingClient):
    """Looks after a cluster. Every method is AsyncAdmin's of the same name, and blocks.

    with Admin(namesrv="127.0.0.1:9876") as admin:
        admin.create_topic("orders", queues=8)
        stats = admin.topic_stats("orders")

    Settings are those of ClientSettings, by name or as such an object.
    """

    def __init__(
        self,
        settings: ClientSettings | None = None,
        *,
        environment: Environment | None = None,
        **others: Any,
    ) -> None:
        self._async = AsyncAdmin(settings, environment=environment, **others)
        super().__init__(self._async)
        self.settings = self._async.settings

    def create_topic(
        self,
        topic: str,
        *,
        queues: int = 8,
        read_queues: int | None = None,
        write_queues: int | None = None,
        perm: Perm = READ_WRITE,
        order: bool = False,
        message_type: str | None = None,
        attributes: Mapping[str, str] | None = None,
        cluster: str | None = None,
        brokers: Iterable[str] | None = None,
        exist_ok: bool = False,
    ) -> None:
        """Make a topic on some brokers, on those of a cluster, or on all, and wait for its route.

        One that is there already is an error, or with `exist_ok` left as it is. `message_type` is
        NORMAL, FIFO, DELAY, TRANSACTION or MIXED; brokers before 5.0 have no such attributes.
        """
        self._call(
            self._async.create_topic(
                topic,
                queues=queues,
                read_queues=read_queues,
                write_queues=write_queues,
                perm=perm,
                order=order,
                message_type=message_type,
                attributes=attributes,
                cluster=cluster,
                brokers=brokers,
                exist_ok=exist_ok,
            )
        )

    def alter_topic(
        self,
        topic: str,
        *,
        read_queues: int | None = None,
        write_queues: int | None = None,
        perm: Perm | None = None,
        order: bool | None = None,
        message_type: str | None = None,
        attributes: Mapping[str, str | None] | None = None,
        brokers: Iterable[str] | None = None,
    ) -> None:
        """Change a topic on some brokers, or wherever it is; what is not given stays as it is.

        An attribute of None is taken away. It is ordered on all its brokers or on none.
        """
        self._call(
            self._async.alter_topic(
                topic,
                read_queues=read_queues,
                write_queues=write_queues,
                perm=perm,
                order=order,
                message_type=message_type,
                attributes=attributes,
                brokers=brokers,
            )
        )

    def delete_topic(
        self, topic: str, *, cluster: str | None = None, missing_ok: bool = False
    ) -> None:
        """Delete a topic and what it holds, from one cluster or from all brokers."""
        self._call(self._async.delete_topic(topic, cluster=cluster, missing_ok=missing_ok))

    def topics(self, *, cluster: str | None = None) -> tuple[str, ...]:
        """The names of all topics, those of the system included, or of those of a cluster."""
        return self._call(self._async.topics(cluster=cluster))

    def system_topics(self) -> frozenset[str]:
        """The topics that brokers have for themselves."""
        return self._call(self._async.system_topics())

    def topic_config(self, topic: str) -> dict[str, TopicConfig]:
        """A topic's settings on each of its brokers, by broker name."""
        return self._call(self._async.topic_config(topic))

    def topic_stats(self, topic: str) -> TopicStats:
        """What each queue of a topic holds."""
        return self._call(self._async.topic_stats(topic))

    def topic_groups(self, topic: str) -> tuple[str, ...]:
        """The consumer groups that read a topic, or once did."""
        return self._call(self._async.topic_groups(topic))

    def route(self, topic: str) -> TopicRoute:
        """Which queues a topic has on which brokers, and where these are; NoRoute without any."""
        return self._call(self._async.route(topic))

    def publish_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues that can be written to."""
        return self._call(self._async.publish_queues(topic))

    def subscribe_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues that can be read."""
        return self._call(self._async.subscribe_queues(topic))

    def create_group(
        self,
        group: str,
        *,
        retry_max_times: int = 16,
        retry_queues: int = 1,
        consume_enable: bool = True,
        broadcast_enable: bool = True,
        orderly: bool = False,
        consume_timeout_minutes: int = 15,
        cluster: str | None = None,
        brokers: Iterable[str] | None = None,
    ) -> None:
        """Make a group, or change it to this, on some brokers, on those of a cluster, or on all."""
        self._call(
            self._async.create_group(
                group,
                retry_max_times=retry_max_times,
                retry_queues=retry_queues,
                consume_enable=consume_enable,
                broadcast_enable=broadcast_enable,
                orderly=orderly,
                consume_timeout_minutes=consume_timeout_minutes,
                cluster=cluster,
                brokers=brokers,
            )
        )

    def delete_group(self, group: str, *, keep_offsets: bool = False) -> None:
        """Delete a group, its retry and dead letter topics, and how far it was.

        With `keep_offsets`, a 5.5 broker of Apache's that makes groups by itself makes this one
        anew at once, with the settings it has for new ones.
        """
        self._call(self._async.delete_group(group, keep_offsets=keep_offsets))

    def groups(self) -> tuple[str, ...]:
        """The names of all consumer groups, those of the system included."""
        return self._call(self._async.groups())

    def group_config(self, group: str) -> dict[str, SubscriptionGroupConfig]:
        """A group's settings on each of its brokers, by broker name; NotFound without any."""
        return self._call(self._async.group_config(group))

    def connections(self, group: str) -> GroupConnections:
        """Which consumers of a group are connected, and what they read."""
        return self._call(self._async.connections(group))

    def producer_connections(self, producer_group: str) -> tuple[ConnectedClient, ...]:
        """Which producers of a group are connected; there may be none."""
        return self._call(self._async.producer_connections(producer_group))

    def progress(self, group: str, *, topic: str | None = None) -> GroupProgress:
        """How far a group is with each queue of all that it reads, or of one topic."""
        return self._call(self._async.progress(group, topic=topic))

    def reset_offsets(self, group: str, topic: str, timestamp_ms: int) -> dict[MessageQueue, int]:
        """Let a group go on with what was stored at that time and later; the offsets, by queue.

        0 is the beginning of the topic, and LATEST_MS its end. Consumers that run hear of it.
        """
        return self._call(self._async.reset_offsets(group, topic, timestamp_ms))

    def reset_offset(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Let a group go on with a queue at this offset.

        A broker before 5.1 can do so only while no consumer of the group is connected.
        """
        self._call(self._async.reset_offset(group, queue, offset))

    def message(self, message_id: str, *, topic: str | None = None) -> StoredMessage:
        """The message of this id, or NotFound.

        The id of its place (`offset_message_id`) is enough; the one that its producer gave it
        (`message_id`) is looked for in a topic. They look alike, and the second is tried first.
        """
        return self._call(self._async.message(message_id, topic=topic))

    def query(
        self, topic: str, key: str, *, begin_ms: int = 0, end_ms: int | None = None, limit: int = 32
    ) -> list[StoredMessage]:
        """The newest messages with this key that were stored in that time, oldest first.

        A broker gives no more than 64.
        """
        return self._call(
            self._async.query(topic, key, begin_ms=begin_ms, end_ms=end_ms, limit=limit)
        )

    def copies(
        self, topic: str, message_ids: Iterable[str], *, brokers: Collection[str] = ()
    ) -> dict[str, list[StoredMessage]]:
        """All messages of a topic that have these ids from their producers, oldest first: whatever
        was sent again is there several times. Of one id a broker gives no more than 64.

        NoRoute if one of these brokers, whose answers are needed, has none of the topic now.
        """
        return self._call(self._async.copies(topic, message_ids, brokers=brokers))

    def message_at(self, queue: MessageQueue, offset: int) -> StoredMessage:
        """The message at an offset of a queue, or NotFound."""
        return self._call(self._async.message_at(queue, offset))

    def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the oldest message that the queue still has."""
        return self._call(self._async.min_offset(queue))

    def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the queue's next message will get."""
        return self._call(self._async.max_offset(queue))

    def search_offset(
        self, queue: MessageQueue, timestamp_ms: int, *, boundary: Boundary = "lower"
    ) -> int:
        """The first message stored at that time or later; `upper`: the last one at it or before.

        Where there is none, it is the end of the queue or its first message. Brokers before 5.1
        know no upper boundary, and take the message nearest in time for the lower one.
        """
        return self._call(self._async.search_offset(queue, timestamp_ms, boundary=boundary))

    def earliest_store_time(self, queue: MessageQueue) -> int | None:
        """When the oldest message of the queue was stored, in ms; None if there is none."""
        return self._call(self._async.earliest_store_time(queue))

    def consumer_offset(self, group: str, queue: MessageQueue) -> int | None:
        """How far a group is with a queue; None if it never said (0, says a broker of 4.x)."""
        return self._call(self._async.consumer_offset(group, queue))

    def brokers(self, *, cluster: str | None = None) -> tuple[BrokerInfo, ...]:
        """Every broker that the NameServer knows, or those of one cluster."""
        return self._call(self._async.brokers(cluster=cluster))

    def broker_runtime(self, broker: str) -> BrokerRuntime:
        """How it is doing."""
        return self._call(self._async.broker_runtime(broker))

    def broker_config(self, broker: str) -> dict[str, str]:
        """All its settings, by RocketMQ's own names."""
        return self._call(self._async.broker_config(broker))

    def change_broker_config(self, broker: str, changes: Mapping[str, str]) -> None:
        """Change some of its settings. An Apache broker writes them into its own file."""
        self._call(self._async.change_broker_config(broker, changes))

    def wipe_write_permission(self, broker: str) -> int:
        """Let no producer find a broker any more, by its name; how many topics that concerns.

        The NameServers forget it when the broker registers anew after a change of its topics.
        """
        return self._call(self._async.wipe_write_permission(broker))

    def restore_write_permission(self, broker: str) -> int:
        """Undo `wipe_write_permission`; how many topics that concerns."""
        return self._call(self._async.restore_write_permission(broker))

    def put_kv(self, namespace: str, key: str, value: str) -> None:
        """Let every NameServer know it."""
        self._call(self._async.put_kv(namespace, key, value))

    def kv(self, namespace: str, key: str) -> str | None:
        """The value, or None."""
        return self._call(self._async.kv(namespace, key))

    def kv_list(self, namespace: str) -> dict[str, str]:
        """All that is in a namespace; there may be nothing."""
        return self._call(self._async.kv_list(namespace))

    def delete_kv(self, namespace: str, key: str) -> None:
        """Let every NameServer forget it; that it never knew it is no error."""
        self._call(self._async.delete_kv(namespace, key))
