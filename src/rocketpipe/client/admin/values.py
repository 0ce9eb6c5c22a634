"""What an administrator is told: plain values, of which none ever changes."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from rocketpipe.message import MessageQueue
from rocketpipe.wire.bodies.heartbeat import ConsumeFromWhere, ConsumeType, MessageModel

MASTER_ID = 0


class BrokerInfo(NamedTuple):
    """A broker as the NameServer knows it: a master and its slaves, under one name."""

    name: str
    cluster: str | None
    addresses: Mapping[int, str]  # by broker id; the master's is 0

    @property
    def master(self) -> str | None:
        """Where its master is; None if it has none now."""
        return self.addresses.get(MASTER_ID)

    @property
    def reader(self) -> str | None:
        """Who can be asked what is stored: the master, or else a slave."""
        return self.addresses[min(self.addresses)] if self.addresses else None


@dataclass(frozen=True, slots=True)
class BrokerRuntime:
    """How a broker is doing. `table` has all that it tells, by RocketMQ's own names."""

    table: Mapping[str, str] = field(hash=False)

    @property
    def version(self) -> str:
        """Such as `5.5.0`."""
        return self.table.get("brokerVersionDesc", "").removeprefix("V").replace("_", ".")

    @property
    def release(self) -> tuple[int, ...]:
        """The version to compare with: (5, 5, 0)."""
        numbers = itertools.takewhile(str.isdigit, self.version.split("."))
        return tuple(map(int, numbers))

    @property
    def boot_timestamp_ms(self) -> int:
        """When it was started."""
        return int(_number(self.table.get("bootTimestamp")))

    @property
    def put_tps(self) -> float:
        """Messages stored per second, over the last ten seconds."""
        return _number(self.table.get("putTps"))

    @property
    def get_tps(self) -> float:
        """Messages read per second, over the last ten seconds."""
        return _number(self.table.get("getTransferredTps"))

    @property
    def put_today(self) -> int:
        """Messages stored since midnight."""
        now = _number(self.table.get("msgPutTotalTodayNow"))
        return int(now - _number(self.table.get("msgPutTotalTodayMorning")))

    @property
    def get_today(self) -> int:
        """Messages read since midnight."""
        now = _number(self.table.get("msgGetTotalTodayNow"))
        return int(now - _number(self.table.get("msgGetTotalTodayMorning")))

    @property
    def disk_used_ratio(self) -> float:
        """Of the disk that holds the commit log; 1.0 is full."""
        return _number(self.table.get("commitLogDiskRatio"))

    @property
    def earliest_message_ms(self) -> int | None:
        """When the oldest message was stored, if there is one."""
        time_ms = int(_number(self.table.get("earliestMessageTimeStamp")))
        return time_ms if time_ms > 0 else None


class QueueRange(NamedTuple):
    """What a queue holds: offsets from `min_offset` up to, and without, `max_offset`."""

    min_offset: int
    max_offset: int
    last_update_ms: int | None  # when the last message came, if one did

    @property
    def message_count(self) -> int:
        """How many messages it holds."""
        return self.max_offset - self.min_offset


@dataclass(frozen=True, slots=True)
class TopicStats:
    """What the queues of a topic hold."""

    topic: str
    queues: Mapping[MessageQueue, QueueRange] = field(hash=False)

    @property
    def message_count(self) -> int:
        """How many messages all queues hold."""
        return sum(queue.message_count for queue in self.queues.values())


class QueueProgress(NamedTuple):
    """How far a group is with a queue."""

    broker_offset: int  # of the next message to come
    consumer_offset: int  # of the next message to be consumed; -1: none was yet
    last_consumed_ms: int | None  # when the last consumed message was stored

    @property
    def lag(self) -> int:
        """How many messages the group has yet to consume."""
        return self.broker_offset - max(0, self.consumer_offset)


@dataclass(frozen=True, slots=True)
class GroupProgress:
    """How far a group is with all that it reads."""

    group: str
    queues: Mapping[MessageQueue, QueueProgress] = field(hash=False)
    consume_tps: float

    @property
    def lag(self) -> int:
        """How many messages of all queues the group has yet to consume."""
        return sum(queue.lag for queue in self.queues.values())


class ConnectedClient(NamedTuple):
    """A client of a consumer or producer group, as the brokers see it."""

    client_id: str
    address: str
    language: str
    version_ordinal: int


@dataclass(frozen=True, slots=True)
class GroupConnections:
    """Who of a consumer group is connected, and what they read. Nobody: there are no members."""

    group: str
    members: tuple[ConnectedClient, ...] = ()
    consume_type: ConsumeType | None = None
    message_model: MessageModel | None = None
    consume_from_where: ConsumeFromWhere | None = None
    subscriptions: Mapping[str, str] = field(default_factory=dict, hash=False)
    """The filter expression by topic."""


def _number(text: str | None) -> float:
    """The first number of what a broker says; 0 where it says nothing. Rates come as `1.0 2.0`."""
    try:
        return float((text or "").split()[0])
    except (IndexError, ValueError):
        return 0.0
