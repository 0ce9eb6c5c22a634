"""What a client that wants to stay in its zone gets of a route."""

from rocketpipe.nameserver.zones import in_zone
from rocketpipe.wire.bodies.route import BrokerData, Perm, QueueData, TopicRouteData


def broker(name: str, zone_name: str | None, broker_id: int = 0) -> BrokerData:
    return BrokerData(broker_name=name, broker_addrs={broker_id: name}, zone_name=zone_name)


def queues(name: str) -> QueueData:
    return QueueData(broker_name=name, read_queue_nums=1, write_queue_nums=1, perm=Perm.READ)


ROUTE = TopicRouteData(
    broker_datas=(
        broker("n", "North"),
        broker("s", "south"),
        broker("none", None),
        broker("slave", "south", broker_id=1),
    ),
    queue_datas=tuple(map(queues, ("n", "s", "none", "slave"))),
    filter_server_table={"n": ("f1",), "s": ("f2",)},
)


def test_a_zone_has_its_own_brokers_and_those_that_lost_their_master() -> None:
    route = in_zone(ROUTE, "NORTH")
    assert [each.broker_name for each in route.broker_datas] == ["n", "slave"]
    assert [each.broker_name for each in route.queue_datas] == ["n", "slave"]
    assert route.filter_server_table == {"n": ("f1",)}
