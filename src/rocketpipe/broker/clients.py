"""The clients of a broker: which producers and consumers are there, and on which connections."""

import logging
from collections.abc import Callable
from dataclasses import field

from rocketpipe.codes import LanguageCode
from rocketpipe.lazy_dataclass import dataclass
from rocketpipe.remoting.connection import Connection
from rocketpipe.wire.bodies.heartbeat import ConsumerData, SubscriptionData

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Client:
    """A client of one group, on one connection."""

    client_id: str
    connection: Connection
    language: LanguageCode
    version: int
    seen_at: float  # when its last heartbeat came, by the clock's monotonic time
    seen_at_ms: int  # the same for people


@dataclass(slots=True)
class ConsumerGroup:
    """The consumers of a group, and what they say they read; the last to say so is right."""

    data: ConsumerData
    subscriptions: dict[str, SubscriptionData] = field(default_factory=dict)  # by topic
    members: dict[Connection, Client] = field(default_factory=dict)


class Clients:
    """Who made himself known by a heartbeat; forgotten on request, in silence, or when gone."""

    def __init__(self, *, clients_max: int) -> None:
        self.producers: dict[str, dict[Connection, Client]] = {}  # by group
        self.consumers: dict[str, ConsumerGroup] = {}  # by group
        # Told the name of a consumer group whose members changed, or what they read.
        self.on_consumers_changed: list[Callable[[str], None]] = []
        self._connections: dict[str, Connection] = {}  # of producers, by client id
        self._clients_max = clients_max
        self._count = 0
        self._turn = 0

    def register_producer(self, group: str, client: Client) -> None:
        members = self.producers.get(group, {})
        known = members.get(client.connection)
        if known is None:
            if not self._has_room(client):
                return
            self._count += 1
            log.info("producer %s of group %s is here", client.client_id, group)
        self.producers.setdefault(group, members)[client.connection] = client
        self._connections[client.client_id] = client.connection

    def register_consumer(
        self, data: ConsumerData, client: Client, *, without_sub: bool = False
    ) -> bool:
        """Whether the group is not what it was before."""
        group = self.consumers.get(data.group_name)
        is_new = group is None or client.connection not in group.members
        if is_new:
            if not self._has_room(client):
                return False
            self._count += 1
            log.info("consumer %s of group %s is here", client.client_id, data.group_name)
        if group is None:
            group = self.consumers[data.group_name] = ConsumerGroup(data)
        group.members[client.connection] = client
        is_changed = is_new
        if not without_sub:
            is_changed |= _take_subscriptions(group, data)
        group.data = data
        if is_changed:
            self._tell(data.group_name)
        return is_changed

    def unregister_producer(self, group: str, connection: Connection) -> None:
        members = self.producers.get(group, {})
        client = members.pop(connection, None)
        if client is not None:
            self._count -= 1
            log.info("producer %s of group %s is gone", client.client_id, group)
            if self._connections.get(client.client_id) is connection:
                del self._connections[client.client_id]
            if not members:
                del self.producers[group]

    def unregister_consumer(self, group_name: str, connection: Connection) -> None:
        group = self.consumers.get(group_name)
        if group is not None and group.members.pop(connection, None) is not None:
            self._count -= 1
            log.info("a consumer of group %s is gone", group_name)
            if not group.members:
                del self.consumers[group_name]
            self._tell(group_name)

    def forget_connection(self, connection: Connection) -> None:
        """Forget whoever was on it."""
        for group in [group for group, members in self.producers.items() if connection in members]:
            self.unregister_producer(group, connection)
        for group in [name for name, each in self.consumers.items() if connection in each.members]:
            self.unregister_consumer(group, connection)

    def forget_silent(self, since: float) -> list[Connection]:
        """Forget those whose last heartbeat is older; their connections are of no more use."""
        tables = [*self.producers.values(), *(each.members for each in self.consumers.values())]
        silent = {
            connection: None  # a dict for its order
            for members in tables
            for connection, client in members.items()
            if client.seen_at < since
        }
        for connection in silent:
            self.forget_connection(connection)
        return list(silent)

    def next_producer(self, group: str) -> Client | None:
        """A producer of the group that can be asked something: each in turn."""
        usable = [
            client
            for connection, client in self.producers.get(group, {}).items()
            if connection.lost is None
        ]
        if not usable:
            return None
        self._turn += 1
        return usable[self._turn % len(usable)]

    def producer_connection(self, client_id: str) -> Connection | None:
        """Where the producer with this client id is: of several connections, the last heard."""
        return self._connections.get(client_id)

    def _has_room(self, client: Client) -> bool:
        if self._count >= self._clients_max:
            log.warning("no room for %s: there are %d clients", client.client_id, self._count)
            return False
        return True

    def _tell(self, group: str) -> None:
        for listener in self.on_consumers_changed:
            listener(group)


def _take_subscriptions(group: ConsumerGroup, data: ConsumerData) -> bool:
    """Whether topics came or went; a newer version of a subscription replaces the older."""
    before = set(group.subscriptions)
    fresh = {}
    for each in data.subscription_data_set:
        known = group.subscriptions.get(each.topic)
        is_newer = known is None or each.sub_version >= known.sub_version
        fresh[each.topic] = each if is_newer or known is None else known
    group.subscriptions = fresh
    return set(fresh) != before
