"""Where topics live: routes, clusters, and the lists and tables a NameServer keeps."""

from dataclasses import field
from enum import IntFlag
from typing import Annotated

from rocketpipe.lazy_dataclass import dataclass
from rocketpipe.wire.bodies.codec import Body


class Perm(IntFlag):
    """What may be done with a topic's queues on a broker."""

    INHERIT = 1  # topics that are created by themselves may take after this one
    WRITE = 2
    READ = 4
    PRIORITY = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueData(Body):
    """A topic's queues on one broker."""

    broker_name: str
    read_queue_nums: int
    write_queue_nums: int
    perm: Perm
    topic_sys_flag: int = 0  # bit 0: unit, bit 1: unit subscription


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerData(Body):
    """A broker: a master, whose id is 0, and its slaves."""

    cluster: str | None = None
    broker_name: str
    broker_addrs: dict[int, str]  # by broker id
    enable_acting_master: bool = False
    zone_name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicQueueMappingInfo(Body):
    """Which queues of a static topic a broker has: its own queue id for each logical one."""

    broker_name: Annotated[str, "bname"]
    topic: str
    scope: str = "__global__"
    total_queues: int = 0
    epoch: int = 0
    dirty: bool = False
    curr_id_map: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRouteData(Body):
    """The answer to 105, and the body of 217."""

    broker_datas: tuple[BrokerData, ...] = ()
    queue_datas: tuple[QueueData, ...] = ()
    order_topic_conf: str | None = None  # "broker-a:4;broker-b:4"
    filter_server_table: dict[str, tuple[str, ...]] = field(default_factory=dict)
    # Of static topics: TopicQueueMappingInfo by broker name.
    topic_queue_mapping_by_broker: dict[str, object] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterInfo(Body):
    """The answer to 106."""

    broker_addr_table: dict[str, BrokerData] = field(default_factory=dict)  # by broker name
    cluster_addr_table: dict[str, frozenset[str]] = field(default_factory=dict)  # broker names


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerMemberGroup(Body):
    """The members of one broker."""

    cluster: str | None = None
    broker_name: str
    broker_addrs: dict[int, str]  # by broker id


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerMemberGroupAnswer(Body):
    """The answer to 901; a broker that does not exist has no addresses. 4.9 never answers."""

    broker_member_group: BrokerMemberGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicList(Body):
    """The answer to 206, 224, 311 to 313, and 304, which alone gives an address."""

    topic_list: frozenset[str] = frozenset()
    broker_addr: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KVTable(Body):
    """The answer to 219 and 103, and a broker's runtime info (28)."""

    table: dict[str, str] = field(default_factory=dict)
