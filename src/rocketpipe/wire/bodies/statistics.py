"""What brokers tell of themselves in numbers: traffic, progress of all groups, replication."""

from dataclasses import field

from rocketpipe.lazy_dataclass import dataclass
from rocketpipe.wire.bodies.codec import Body
from rocketpipe.wire.bodies.offsets import ConsumeStats


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerStatsItem(Body):
    """How often something happened in a span of time, and per second."""

    sum: int = 0
    tps: float = 0.0
    avgpt: float = 0.0  # of each time: messages or ms


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerStatsData(Body):
    """The answer to 315."""

    stats_minute: BrokerStatsItem = field(default_factory=BrokerStatsItem)
    stats_hour: BrokerStatsItem = field(default_factory=BrokerStatsItem)
    stats_day: BrokerStatsItem = field(default_factory=BrokerStatsItem)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeStatsList(Body):
    """The answer to 317: a table for each group, with its name and an entry for each topic."""

    broker_addr: str = ""
    consume_stats_list: tuple[dict[str, tuple[ConsumeStats, ...]], ...] = ()
    total_diff: int = 0
    total_inflight_diff: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class HaConnection(Body):
    """A slave, as its master sees it."""

    addr: str = ""
    slave_ack_offset: int = 0
    diff: int = 0
    in_sync: bool = False
    transferred_byte_in_second: int = 0
    transfer_from_where: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class HaClient(Body):
    """A slave, as it sees itself."""

    master_addr: str | None = None
    max_offset: int = 0
    last_read_timestamp: int = 0
    last_write_timestamp: int = 0
    transferred_byte_in_second: int = 0
    master_flush_offset: int = 0
    activated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HaRuntimeInfo(Body):
    """The answer to 907. Which members mean something depends on who answers."""

    master: bool
    master_commit_log_max_offset: int = 0
    in_sync_slave_nums: int = 0
    ha_connection_info: tuple[HaConnection, ...] = ()
    ha_client_runtime_info: HaClient = field(default_factory=HaClient)
