"""Who the brokers are and which topics they have: plain data, with Apache's rules for changing it.

The rules (RouteInfoManager in Java)
- A broker has members: a master, whose id is 0, and slaves. Each registers all its topics again and
  again; the master's count, or, without a master, those of the slave with the lowest id.
- Topics are taken over when the member is new, when its DataVersion is another than last time, or
  when they are missing here. So a permission that was wiped here stays so until the broker changes
  some topic of its own. A topic that the broker no longer names stays, unless a setting says so.
- A registration of exactly one topic adds that topic to a member that we know; from one that we do
  not know it is refused.
- Two members that claim one id: the later wins, unless its DataVersion has a lower stateVersion.
- A member goes when it says so, when its connection ends, or when it was not heard of for too long;
  the last one takes the broker and its topics with it.

Unlike Apache's, a registration that is refused changes nothing, and no member outlives its broker
or the other way round: Java keeps some forever when names, clusters and addresses are mixed up.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, Generic, TypeVar

from rocketpipe.codes import ResponseCode
from rocketpipe.lazy_dataclass import dataclass
from rocketpipe.nameserver.settings import NameServerSettings
from rocketpipe.remoting.dispatch import Refusal
from rocketpipe.wire.bodies.route import (
    BrokerData,
    BrokerMemberGroup,
    ClusterInfo,
    Perm,
    QueueData,
    TopicList,
    TopicQueueMappingInfo,
    TopicRouteData,
)
from rocketpipe.wire.bodies.topics import DataVersion, RegisterBrokerBody, TopicConfig
from rocketpipe.wire.requests.nameserver import RegisterBroker, RegisterBrokerReply

log = logging.getLogger(__name__)

MASTER_ID: Final = 0
HEARTBEAT_TIMEOUT: Final = 120.0  # seconds, for a member that does not say another
NAME_CHARS_MAX: Final = 1024  # of every name and address that is kept; RocketMQ's own are below 300
FILTER_SERVERS_MAX: Final = 64

UNIT: Final = 1  # bits of a topic's sys flag
UNIT_SUB: Final = 2

# Routes of these topics are asked for by brokers, who want to know their master and no stand-in.
_SYNC_BROKER_MEMBER_PREFIX: Final = "rmq_sys_SYNC_BROKER_MEMBER_"

C = TypeVar("C")  # a connection, of which nothing is asked but who it is


@dataclass(slots=True, kw_only=True)
class _Member(Generic[C]):
    """A master or a slave, as it last registered."""

    cluster: str
    data_version: DataVersion
    ha_server_addr: str
    filter_servers: tuple[str, ...]
    connection: C  # when this ends, so does the member
    heartbeat_timeout: float
    heard_at: float


class RouteTable(Generic[C]):
    """The brokers and their topics. Every time is seconds of one steadily growing clock."""

    def __init__(self, settings: NameServerSettings) -> None:
        self.settings = settings  # may be replaced at any time
        self._members: dict[tuple[str, str], _Member[C]] = {}  # by broker name and address
        self._brokers: dict[str, BrokerData] = {}  # by name; each has at least one address
        self._topics: dict[str, dict[str, QueueData]] = {}  # by topic and broker name
        self._topics_count = 0  # of topics on brokers
        # Of static topics, by topic and broker name.
        self._mappings: dict[tuple[str, str], TopicQueueMappingInfo] = {}

    # Brokers come, stay and go.

    def register(
        self,
        request: RegisterBroker,
        body: RegisterBrokerBody,
        *,
        zone_name: str | None = None,
        connection: C,
        now: float,
    ) -> RegisterBrokerReply:
        """Take in what a member says of itself, and tell a slave where its master is."""
        name, address, broker_id = request.broker_name, request.broker_addr, request.broker_id
        wrapper = body.topic_config_serialize_wrapper
        broker = self._brokers.get(name) or BrokerData(broker_name=name, broker_addrs={})
        # One address has one id: a slave that became the master is no slave any more.
        addresses = {
            number: known
            for number, known in broker.broker_addrs.items()
            if known != address or number == broker_id
        }
        rival = addresses.get(broker_id, address)
        if rival != address:
            newest = self._members[name, rival].data_version.state_version
            if newest > wrapper.data_version.state_version:
                log.warning("%s at %s is ignored: the one at %s is newer", name, address, rival)
                self._drop(name, address)
                return RegisterBrokerReply()
        is_new = broker_id not in addresses
        if is_new and len(wrapper.topic_config_table) == 1:
            raise _refusal("register broker failed")
        mappings = {
            topic: TopicQueueMappingInfo.from_json(mapping)
            for topic, mapping in wrapper.topic_queue_mapping_info_map.items()
        }
        topics = {config.topic_name: config for config in wrapper.topic_config_table.values()}
        self._check_member(request, body.filter_server_list, zone_name)
        self._check_topics(name, topics, mappings)

        # From here on nothing is refused any more.
        if rival != address:
            log.info("%s %d moves from %s to %s", name, broker_id, rival, address)
            del self._members[name, rival]
        known = self._members.get((name, address))
        if known is None:
            log.info("%s %d registered from %s", name, broker_id, address)
        timeout_ms = request.heartbeat_timeout_millis
        self._members[name, address] = _Member(
            cluster=request.cluster_name,
            data_version=wrapper.data_version,
            ha_server_addr=request.ha_server_addr,
            filter_servers=body.filter_server_list,
            connection=connection,
            heartbeat_timeout=HEARTBEAT_TIMEOUT if timeout_ms is None else timeout_ms / 1000,
            heard_at=now,
        )
        broker = self._brokers[name] = replace(
            broker,
            cluster=request.cluster_name,
            broker_addrs=dict(sorted({**addresses, broker_id: address}.items())),
            enable_acting_master=bool(request.enable_acting_master),
            zone_name=zone_name,
        )
        # Brokers before 5.0 do not say whether a slave may act as a master: none of theirs does.
        is_prime_slave = request.enable_acting_master is not None and broker_id == min(
            broker.broker_addrs
        )
        if broker_id == MASTER_ID or is_prime_slave:
            is_changed = is_new or known is None or known.data_version != wrapper.data_version
            may_write = broker_id == MASTER_ID or not broker.enable_acting_master
            self._take_topics(name, topics, mappings, is_changed=is_changed, may_write=may_write)
        return self._master_for(broker, broker_id)

    def unregister(self, cluster: str, name: str, address: str) -> None:
        """Forget a member that says goodbye."""
        if self._member(cluster, name, address) is not None:
            log.info("%s at %s unregistered", name, address)
            self._drop(name, address)

    def hear(self, cluster: str, name: str, address: str, *, now: float) -> DataVersion | None:
        """Note that a member is there; its DataVersion when it last registered, if it ever did."""
        member = self._member(cluster, name, address)
        if member is None:
            return None
        member.heard_at = now
        return member.data_version

    def lose(self, connection: C) -> None:
        """Forget the members that were on this connection."""
        lost = [key for key, member in self._members.items() if member.connection == connection]
        for name, address in lost:
            log.info("%s at %s is gone: its connection ended", name, address)
            self._drop(name, address)

    def expire(self, now: float) -> list[C]:
        """Forget the members that were not heard of for too long; return their connections."""
        expired = [
            (key, member.connection)
            for key, member in self._members.items()
            if member.heard_at + member.heartbeat_timeout < now
        ]
        for (name, address), _ in expired:
            log.warning("%s at %s is gone: no heartbeat in time", name, address)
            self._drop(name, address)
        return [connection for _, connection in expired]

    # Topics, without their brokers.

    def register_topic(self, topic: str, queue_datas: Iterable[QueueData]) -> None:
        """Add a topic to brokers; to none, if one of them is not known."""
        by_broker = {queue_data.broker_name: queue_data for queue_data in queue_datas}
        for name in by_broker:
            self._check_topics(name, [topic], {})
        if not by_broker.keys() <= self._brokers.keys():
            log.warning("%s was not registered: one of its brokers is unknown", topic)
            return
        for queue_data in by_broker.values():
            self._put_topic(topic, queue_data)

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Forget a topic, everywhere or on the brokers of one cluster."""
        names = self._clusters().get(cluster, set()) if cluster else self._brokers.keys()
        for name in names & self._topics.get(topic, {}).keys():
            self._remove_topic(topic, name)

    def wipe_write_perm(self, name: str) -> int:
        """Let nobody write to a broker's topics; return how many there are."""
        return self._change_perms(name, lambda perm: perm & ~Perm.WRITE)

    def add_write_perm(self, name: str) -> int:
        """Let everybody read and write a broker's topics; return how many there are."""
        return self._change_perms(name, lambda perm: Perm.READ | Perm.WRITE)

    # What people ask.

    def route(self, topic: str) -> TopicRouteData | None:
        """The brokers and queues of a topic, or None if it has none."""
        queue_datas = [queues for _, queues in sorted(self._topics.get(topic, {}).items())]
        if not queue_datas:
            return None
        may_stand_in = self.settings.support_acting_master and not topic.startswith(
            _SYNC_BROKER_MEMBER_PREFIX
        )
        brokers = tuple(
            _with_acting_master(self._brokers[queues.broker_name])
            if may_stand_in and not queues.perm & Perm.WRITE
            else self._brokers[queues.broker_name]
            for queues in queue_datas
        )
        mappings: dict[str, object] = {
            mapping.broker_name: mapping.to_json()
            for name in self._topics[topic]
            if (mapping := self._mappings.get((topic, name)))
        }
        return TopicRouteData(
            broker_datas=brokers,
            queue_datas=tuple(queue_datas),
            filter_server_table={
                address: servers
                for broker in brokers
                for address in broker.broker_addrs.values()
                if (servers := self._members[broker.broker_name, address].filter_servers)
            },
            topic_queue_mapping_by_broker=mappings or None,
        )

    def cluster_info(self) -> ClusterInfo:
        return ClusterInfo(
            broker_addr_table=dict(self._brokers),
            cluster_addr_table={name: frozenset(each) for name, each in self._clusters().items()},
        )

    def member_group(self, cluster: str, name: str) -> BrokerMemberGroup:
        """The members of a broker. The cluster is not looked at, as with Apache."""
        broker = self._brokers.get(name)
        return BrokerMemberGroup(
            cluster=cluster,
            broker_name=name,
            broker_addrs=broker.broker_addrs if broker is not None else {},
        )

    def all_topics(self) -> TopicList:
        return TopicList(topic_list=frozenset(self._topics))

    def topics_by_cluster(self, cluster: str) -> TopicList:
        names = self._clusters().get(cluster, set())
        found = (topic for topic, brokers in self._topics.items() if not names.isdisjoint(brokers))
        return TopicList(topic_list=frozenset(found))

    def system_topics(self) -> TopicList:
        """Every cluster and every broker is a topic too; and the address of any broker."""
        first = next(iter(self._brokers.values()), None)
        return TopicList(
            topic_list=frozenset(self._clusters()) | self._brokers.keys(),
            broker_addr=next(iter(first.broker_addrs.values())) if first is not None else None,
        )

    def topics_by_flag(self, mask: int, wanted: int) -> TopicList:
        """Topics whose sys flag, on the broker that had it first, has these bits of a mask."""
        return TopicList(
            topic_list=frozenset(
                topic
                for topic, brokers in self._topics.items()
                if next(iter(brokers.values())).topic_sys_flag & mask == wanted
            )
        )

    # How it is kept consistent.

    def _clusters(self) -> dict[str, set[str]]:
        """The names of the brokers in each cluster."""
        clusters: dict[str, set[str]] = {}
        for (name, _), member in self._members.items():
            clusters.setdefault(member.cluster, set()).add(name)
        return clusters

    def _member(self, cluster: str, name: str, address: str) -> _Member[C] | None:
        member = self._members.get((name, address))
        return member if member is not None and member.cluster == cluster else None

    def _master_for(self, broker: BrokerData, broker_id: int) -> RegisterBrokerReply:
        master = broker.broker_addrs.get(MASTER_ID)
        if broker_id == MASTER_ID or master is None:
            return RegisterBrokerReply()
        ha_server_addr = self._members[broker.broker_name, master].ha_server_addr
        return RegisterBrokerReply(ha_server_addr=ha_server_addr, master_addr=master)

    def _take_topics(
        self,
        name: str,
        topics: Mapping[str, TopicConfig],
        mappings: Mapping[str, TopicQueueMappingInfo],
        *,
        is_changed: bool,
        may_write: bool,
    ) -> None:
        if self.settings.delete_topic_with_broker_registration and not mappings:
            for topic in self._topics_of(name):
                if topic not in topics:
                    self._remove_topic(topic, name)
        for topic, config in topics.items():
            if is_changed or name not in self._topics.get(topic, ()):
                self._put_topic(topic, _queue_data(name, config, may_write=may_write))
                if topic in mappings:
                    self._mappings[topic, name] = mappings[topic]

    def _drop(self, name: str, address: str) -> None:
        if self._members.pop((name, address), None) is None:
            return
        broker = self._brokers[name]
        addresses = {number: a for number, a in broker.broker_addrs.items() if a != address}
        if addresses:
            self._brokers[name] = replace(broker, broker_addrs=addresses)
            if broker.enable_acting_master and min(addresses) > MASTER_ID:
                self.wipe_write_perm(name)  # who stands in for a master takes no messages
            return
        del self._brokers[name]
        for topic in self._topics_of(name):
            self._remove_topic(topic, name)

    def _topics_of(self, name: str) -> list[str]:
        return [topic for topic, brokers in self._topics.items() if name in brokers]

    def _put_topic(self, topic: str, queue_data: QueueData) -> None:
        brokers = self._topics.setdefault(topic, {})
        self._topics_count += queue_data.broker_name not in brokers
        brokers[queue_data.broker_name] = queue_data

    def _remove_topic(self, topic: str, name: str) -> None:
        del self._topics[topic][name]
        if not self._topics[topic]:
            del self._topics[topic]
        self._topics_count -= 1
        self._mappings.pop((topic, name), None)

    def _change_perms(self, name: str, change: Callable[[Perm], Perm]) -> int:
        topics = self._topics_of(name)
        for topic in topics:
            queue_data = self._topics[topic][name]
            self._topics[topic][name] = replace(queue_data, perm=change(queue_data.perm))
        return len(topics)

    # Limits: whoever may register may not fill our memory.

    def _check_member(
        self, request: RegisterBroker, filter_servers: Sequence[str], zone_name: str | None
    ) -> None:
        is_known = (request.broker_name, request.broker_addr) in self._members
        if not is_known and len(self._members) >= self.settings.brokers_max:
            raise _refusal(f"there are {len(self._members)} brokers already")
        if len(filter_servers) > FILTER_SERVERS_MAX:
            raise _refusal(f"more than {FILTER_SERVERS_MAX} filter servers")
        _check_names(
            (
                request.broker_name,
                request.broker_addr,
                request.cluster_name,
                request.ha_server_addr,
                zone_name or "",
                *filter_servers,
            )
        )

    def _check_topics(
        self, name: str, topics: Collection[str], mappings: Mapping[str, TopicQueueMappingInfo]
    ) -> None:
        added = sum(name not in self._topics.get(topic, ()) for topic in topics)
        if added and self._topics_count + added > self.settings.topics_max:
            raise _refusal(f"{added} topics are too many: {self._topics_count} are here")
        _check_names(topics)
        for mapping in mappings.values():
            _check_names((mapping.topic, mapping.broker_name, mapping.scope))
        if mappings:  # few have any, and these are counted when one comes
            kept = [each for (_, owner), each in self._mappings.items() if owner != name]
            queues = sum(len(each.curr_id_map) for each in (*kept, *mappings.values()))
            if queues > self.settings.topics_max:
                raise _refusal(f"{queues} queues of static topics are too many")


def _refusal(remark: str) -> Refusal:
    return Refusal(ResponseCode.SYSTEM_ERROR, remark)


def _check_names(names: Iterable[str]) -> None:
    for name in names:
        if len(name) > NAME_CHARS_MAX:
            raise _refusal(f"{name[:40]}... is longer than {NAME_CHARS_MAX} characters")


def _queue_data(name: str, config: TopicConfig, *, may_write: bool) -> QueueData:
    return QueueData(
        broker_name=name,
        read_queue_nums=config.read_queue_nums,
        write_queue_nums=config.write_queue_nums,
        perm=config.perm if may_write else config.perm & ~Perm.WRITE,
        topic_sys_flag=config.topic_sys_flag,
    )


def _with_acting_master(broker: BrokerData) -> BrokerData:
    """The broker as clients see it when its first slave stands in for the master it lost."""
    if not broker.enable_acting_master or MASTER_ID in broker.broker_addrs:
        return broker
    first = min(broker.broker_addrs)
    others = {number: each for number, each in broker.broker_addrs.items() if number != first}
    return replace(broker, broker_addrs={MASTER_ID: broker.broker_addrs[first], **others})
