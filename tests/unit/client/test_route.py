"""What a client makes of a NameServer's answer."""

from typing import Any

import pytest

from rocketpipe.client.route import (
    in_order,
    ordered_queues,
    publish_queues,
    template_route,
    topic_route,
)
from rocketpipe.message import MessageQueue
from rocketpipe.remoting.address import Address
from rocketpipe.wire.bodies.route import BrokerData, Perm, QueueData, TopicRouteData

READ_WRITE = Perm.READ | Perm.WRITE


def broker(name: str, **addresses: str) -> BrokerData:
    by_id = {int(key[1:]): address for key, address in addresses.items()}
    return BrokerData(cluster="c", broker_name=name, broker_addrs=by_id or {0: f"{name}:10911"})


def queues(name: str, read: int = 2, write: int = 2, perm: Perm = READ_WRITE) -> QueueData:
    return QueueData(broker_name=name, read_queue_nums=read, write_queue_nums=write, perm=perm)


def route(*parts: BrokerData | QueueData, order: str | None = None) -> TopicRouteData:
    return TopicRouteData(
        broker_datas=tuple(part for part in parts if isinstance(part, BrokerData)),
        queue_datas=tuple(part for part in parts if isinstance(part, QueueData)),
        order_topic_conf=order,
    )


def ids(data: TopicRouteData) -> list[tuple[str, int]]:
    return [(queue.broker_name, queue.queue_id) for queue in publish_queues("t", data)]


def test_the_queues_to_write_to_are_in_an_order_every_client_agrees_on() -> None:
    data = route(broker("b"), queues("b", write=1), broker("a"), queues("a", read=9, write=2))
    assert publish_queues("t", data) == (
        MessageQueue("t", "a", 0),
        MessageQueue("t", "a", 1),
        MessageQueue("t", "b", 0),
    )


@pytest.mark.parametrize(
    "unfit",
    [
        (broker("b"), queues("b", perm=Perm.READ)),
        (broker("b", _1="b:10911"), queues("b")),  # a slave alone
        (queues("b"),),  # nobody says where it is
        (broker("b", _0="nonsense"), queues("b")),
        (broker("b", _0="b:99999"), queues("b")),
        (broker("b"), queues("b", write=0)),
        (broker("b"), queues("b", write=-3)),
    ],
)
def test_queues_that_nobody_can_write_to_are_left_out(unfit: Any) -> None:
    assert ids(route(broker("a"), queues("a"), *unfit)) == [("a", 0), ("a", 1)]
    assert ids(route(*unfit)) == []


def test_more_rights_than_writing_do_no_harm() -> None:
    everything = Perm.READ | Perm.WRITE | Perm.INHERIT | Perm.PRIORITY
    assert ids(route(broker("a"), queues("a", write=1, perm=everything))) == [("a", 0)]


def test_an_ordered_topic_goes_by_its_own_configuration_alone() -> None:
    data = route(broker("a"), queues("a", write=9), order="b:2;a:1")
    assert ids(data) == [("b", 0), ("b", 1), ("a", 0)]


@pytest.mark.parametrize(
    ("conf", "expected"),
    [
        ("a:4", [("a", 4)]),
        (" a:4 ; b:2;", [("a", 4), ("b", 2)]),
        ("a:x;b:2", [("b", 2)]),
        ("a;:3;b:-1;b:²;b:" + "9" * 5000, []),
        ("with:colon:3", [("with:colon", 3)]),
    ],
)
def test_a_part_of_it_that_makes_no_sense_says_nothing(
    conf: str, expected: list[tuple[str, int]]
) -> None:
    assert ordered_queues(conf) == expected


@pytest.mark.parametrize("order", [None, "a:999999999"])
def test_there_is_an_end_to_what_a_damaged_route_can_ask_for(
    order: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rocketpipe.client.route.QUEUES_MAX", 100)
    data = route(broker("a"), queues("a", write=(1 << 31) - 1), order=order)
    assert len(publish_queues("t", data)) == 100


def test_a_route_knows_where_its_brokers_are() -> None:
    found = topic_route("t", route(broker("a", _0="a:1", _2="a2:2"), broker("b", _1="b1:3")))
    assert found.master("a") == Address("a", 1)
    assert found.master("b") is None
    assert found.master("c") is None
    assert found.brokers == {"a": {0: ("a", 1), 2: ("a2", 2)}, "b": {1: ("b1", 3)}}
    assert found.clusters == {"a": "c", "b": "c"}


def test_a_bad_address_costs_its_own_broker_and_no_other() -> None:
    found = topic_route("t", route(broker("a", _0="a b:1"), broker("b"), queues("a"), queues("b")))
    assert found.master("a") is None
    assert found.master("b") == Address("b", 10911)
    assert found.publish_brokers == {"b"}


def test_routes_that_differ_only_in_order_are_equal_once_sorted() -> None:
    one = route(broker("a"), broker("b"), queues("a"), queues("b"))
    other = route(broker("b"), broker("a"), queues("b"), queues("a"))
    assert one != other
    assert in_order(one) == in_order(other)


def test_a_template_gives_as_many_queues_as_it_can_be_read_from_but_not_too_many() -> None:
    data = route(broker("a"), queues("a", read=8, write=16), queues("b", read=2, write=1))
    cut = template_route(data, 4)
    assert [(each.read_queue_nums, each.write_queue_nums) for each in cut.queue_datas] == [
        (4, 4),
        (2, 2),
    ]
    assert cut.broker_datas == data.broker_datas
    assert template_route(route(order="a:4"), 4).order_topic_conf is None
