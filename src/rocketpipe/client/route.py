"""A topic's route: which queues it has, on which brokers, and at which addresses."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import islice
from operator import attrgetter

from rocketpipe.errors import InvalidSetting
from rocketpipe.message import MessageQueue
from rocketpipe.remoting.address import Address
from rocketpipe.wire.bodies.route import BrokerData, Perm, TopicRouteData

log = logging.getLogger(__name__)

MASTER_ID = 0
QUEUES_MAX = 1 << 16  # a route that speaks of more is damaged


@dataclass(frozen=True, slots=True)
class TopicRoute:
    """What a client makes of a NameServer's answer."""

    topic: str
    data: TopicRouteData  # what it was made of
    publish_queues: tuple[MessageQueue, ...]
    publish_brokers: frozenset[str]  # that have any of these queues
    brokers: Mapping[str, Mapping[int, Address]]  # the addresses by broker name and id
    clusters: Mapping[str, str | None]  # by broker name

    def master(self, broker_name: str) -> Address | None:
        """Where the master of that broker is; None if it has none now."""
        return self.brokers.get(broker_name, {}).get(MASTER_ID)


def topic_route(topic: str, data: TopicRouteData) -> TopicRoute:
    """The route of a topic. An address in it that makes no sense is left out."""
    queues = publish_queues(topic, data)
    return TopicRoute(
        topic,
        data,
        queues,
        frozenset(queue.broker_name for queue in queues),
        {broker.broker_name: _addresses(broker) for broker in data.broker_datas},
        {broker.broker_name: broker.cluster for broker in data.broker_datas},
    )


def in_order(data: TopicRouteData) -> TopicRouteData:
    """The same route, sorted: a NameServer may give equal ones in any order."""
    by_name = attrgetter("broker_name")
    return replace(
        data,
        broker_datas=tuple(sorted(data.broker_datas, key=by_name)),
        queue_datas=tuple(sorted(data.queue_datas, key=by_name)),
    )


def publish_queues(topic: str, data: TopicRouteData) -> tuple[MessageQueue, ...]:
    """The queues a producer may write to, in an order every client agrees on.

    Java's MQClientInstance.topicRouteData2TopicPublishInfo: an ordered topic's own configuration
    rules, whether or not its brokers are there now.
    """
    conf = data.order_topic_conf
    queues = (
        MessageQueue(topic, broker_name, queue_id)
        for broker_name, queue_nums in (ordered_queues(conf) if conf else _writable_queues(data))
        for queue_id in range(queue_nums)
    )
    return tuple(islice(queues, QUEUES_MAX))


def subscribe_queues(route: TopicRoute) -> list[MessageQueue]:
    """The queues a consumer may read, sorted; whether their master is there or not."""
    queues = (
        MessageQueue(route.topic, queues.broker_name, queue_id)
        for queues in route.data.queue_datas
        if queues.perm & Perm.READ
        for queue_id in range(queues.read_queue_nums)
    )
    return sorted(islice(queues, QUEUES_MAX))


def ordered_queues(order_topic_conf: str) -> list[tuple[str, int]]:
    """What `broker-a:4;broker-b:4` says; a part that makes no sense says nothing."""
    queues = []
    for part in order_topic_conf.split(";"):
        broker_name, _, number = part.strip().rpartition(":")
        if broker_name and number.isascii() and number.isdigit() and len(number) < 10:
            queues.append((broker_name, int(number)))
    return queues


def _writable_queues(data: TopicRouteData) -> list[tuple[str, int]]:
    with_master = {
        broker.broker_name for broker in data.broker_datas if MASTER_ID in _addresses(broker)
    }
    return [
        (queues.broker_name, queues.write_queue_nums)
        for queues in sorted(data.queue_datas, key=attrgetter("broker_name"))
        if queues.perm & Perm.WRITE and queues.broker_name in with_master
    ]


def _addresses(broker: BrokerData) -> dict[int, Address]:
    addresses = {}
    for broker_id, text in sorted(broker.broker_addrs.items()):
        try:
            addresses[broker_id] = Address.parse(text)
        except InvalidSetting as error:
            log.warning("broker %s in a route: %s", broker.broker_name, error)
    return addresses


def template_route(data: TopicRouteData, queue_nums_max: int) -> TopicRouteData:
    """The route that a topic will have once a broker has made it after this one, the template."""

    def cut(read_queue_nums: int) -> int:
        return min(queue_nums_max, read_queue_nums)

    return replace(
        data,
        order_topic_conf=None,
        queue_datas=tuple(
            replace(
                queues,
                read_queue_nums=cut(queues.read_queue_nums),
                write_queue_nums=cut(queues.read_queue_nums),
            )
            for queues in data.queue_datas
        ),
    )
