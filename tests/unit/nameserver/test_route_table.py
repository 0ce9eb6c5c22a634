"""Brokers come, stay and go, and routes follow. (That it equals Apache's is in tests/interop.)"""

import random
from dataclasses import replace

import pytest

from rocketpipe.codes import ResponseCode
from rocketpipe.errors import MalformedBody
from rocketpipe.nameserver.route_table import (
    FILTER_SERVERS_MAX,
    NAME_CHARS_MAX,
    UNIT,
    UNIT_SUB,
    RouteTable,
)
from rocketpipe.nameserver.settings import NameServerSettings
from rocketpipe.remoting.dispatch import Refusal
from rocketpipe.wire.bodies.route import Perm, QueueData, TopicRouteData
from rocketpipe.wire.bodies.topics import DataVersion, RegisterBrokerBody
from rocketpipe.wire.requests.nameserver import RegisterBroker, RegisterBrokerReply
from tests.unit.nameserver.registrations import broker, topics

TWO = topics("T1", "T2")
SLAVE = broker(address="a:2", broker_id=1)


class Table(RouteTable[str]):
    """With the time and the connection in the background, where most tests have them."""

    def __init__(self, **settings: object) -> None:
        super().__init__(NameServerSettings(**settings))  # type: ignore[arg-type]

    def take(
        self,
        request: RegisterBroker,
        body: RegisterBrokerBody = TWO,
        *,
        on: str = "",
        now: float = 0.0,
        zone_name: str | None = None,
    ) -> RegisterBrokerReply:
        on = on or request.broker_addr
        return self.register(request, body, connection=on, now=now, zone_name=zone_name)

    def found(self, topic: str) -> TopicRouteData:
        route = self.route(topic)
        assert route is not None
        return route

    def perm(self, topic: str) -> Perm:
        (queues,) = self.found(topic).queue_datas
        return queues.perm

    @property
    def topics(self) -> set[str]:
        return set(self.all_topics().topic_list)

    def addresses(self, name: str = "broker-a") -> dict[int, str]:
        return self.member_group("C", name).broker_addrs

    @property
    def is_empty(self) -> bool:
        left = (self._members, self._brokers, self._topics, self._mappings)
        return not any(left) and self._topics_count == 0


def test_a_route_has_the_brokers_of_its_topic_in_the_order_of_their_names() -> None:
    table = Table()
    table.take(broker("broker-b", "b:1"), topics("T1", "T2"))
    table.take(broker("broker-a", "a:1"), topics("T2", "T3"))
    route = table.found("T2")
    assert [each.broker_name for each in route.broker_datas] == ["broker-a", "broker-b"]
    assert [each.broker_name for each in route.queue_datas] == ["broker-a", "broker-b"]
    assert [each.broker_name for each in table.found("T3").broker_datas] == ["broker-a"]
    assert table.route("T4") is None
    assert table.system_topics().topic_list == {"C", "broker-a", "broker-b"}
    assert table.system_topics().broker_addr == "b:1"


def test_a_member_that_is_not_heard_of_expires() -> None:
    table = Table()
    table.take(broker(), now=10.0)
    table.take(broker("broker-b", "b:1", heartbeat_timeout_millis=3000), now=10.0)
    assert table.expire(13.0) == []  # to the moment it is not too late
    assert table.expire(13.1) == ["b:1"]
    assert table.hear("C", "broker-a", "a:1", now=100.0) == DataVersion(counter=1)
    assert table.expire(220.0) == []
    assert table.addresses() == {0: "a:1"}
    assert table.expire(220.1) == ["a:1"]
    assert table.is_empty


def test_a_registration_is_a_heartbeat_too() -> None:
    table = Table()
    table.take(broker(), now=0.0)
    table.take(broker(), now=100.0)
    assert table.expire(219.0) == []


@pytest.mark.parametrize(
    ("cluster", "name", "address"),
    [("other", "broker-a", "a:1"), ("C", "other", "a:1"), ("C", "broker-a", "other")],
)
def test_one_that_never_registered_is_neither_heard_nor_dropped(
    cluster: str, name: str, address: str
) -> None:
    table = Table()
    table.take(broker(), now=0.0)
    assert table.hear(cluster, name, address, now=50.0) is None
    table.unregister(cluster, name, address)
    assert table.addresses() == {0: "a:1"}
    assert table.expire(120.1) == ["a:1"]


def test_with_its_connection_go_all_members_that_were_on_it() -> None:
    table = Table()
    table.take(broker(), on="shared")
    table.take(broker("broker-b", "b:1"), on="shared")
    table.take(broker("broker-c", "c:1"), on="other")
    table.lose("shared")
    assert set(table.cluster_info().broker_addr_table) == {"broker-c"}
    table.lose("shared")
    table.lose("other")
    assert table.is_empty


def test_the_end_of_an_old_connection_harms_no_one_who_came_back() -> None:
    table = Table()
    table.take(broker(), on="old")
    table.take(broker(), on="new")
    table.lose("old")
    assert table.addresses() == {0: "a:1"}


def test_a_refused_registration_leaves_nothing_behind() -> None:
    table = Table()
    with pytest.raises(Refusal) as refused:
        table.take(broker(), topics("T1"))
    assert refused.value.code == ResponseCode.SYSTEM_ERROR
    assert refused.value.remark == "register broker failed"
    assert table.is_empty


def test_one_topic_is_added_to_a_member_that_is_known() -> None:
    table = Table()
    table.take(broker())
    table.take(broker(), topics("T3", counter=2))
    assert table.topics == {"T1", "T2", "T3"}
    assert table.hear("C", "broker-a", "a:1", now=0.0) == DataVersion(counter=2)


def test_none_at_all_is_a_registration_too() -> None:
    table = Table()
    table.take(broker(), topics())
    assert table.addresses() == {0: "a:1"}
    assert table.topics == set()


def test_wiped_permissions_stay_until_the_broker_changes_a_topic() -> None:
    table = Table()
    table.take(broker())
    assert table.wipe_write_perm("broker-a") == 2
    table.take(broker())
    assert table.perm("T1") == Perm.READ
    table.take(broker(), topics("T1", "T2", counter=2))
    assert table.perm("T1") == Perm.READ | Perm.WRITE
    assert table.wipe_write_perm("nobody") == 0


def test_giving_write_permission_gives_read_and_nothing_else() -> None:
    table = Table()
    table.take(broker(), topics("T1", "T2", perm=Perm.INHERIT | Perm.WRITE))
    assert table.wipe_write_perm("broker-a") == 2
    assert table.perm("T1") == Perm.INHERIT
    assert table.add_write_perm("broker-a") == 2
    assert table.perm("T1") == Perm.READ | Perm.WRITE


def test_a_slave_is_told_its_master_and_a_master_nothing() -> None:
    table = Table()
    assert table.take(SLAVE) == RegisterBrokerReply()
    assert table.take(broker()) == RegisterBrokerReply()
    master = RegisterBrokerReply(ha_server_addr="ha-of-a:1", master_addr="a:1")
    assert table.take(SLAVE) == master
    assert list(table.addresses()) == [0, 1]
    assert table.system_topics().broker_addr == "a:1"


def test_a_slaves_topics_count_only_without_a_lower_id() -> None:
    table = Table()
    table.take(broker(address="a:3", broker_id=2), topics("T1", "T2"))
    table.take(SLAVE, topics("T3", "T4"))
    table.take(broker(address="a:3", broker_id=2), topics("T5", "T6", counter=2))
    assert table.topics == {"T1", "T2", "T3", "T4"}


def test_slaves_of_4_9_never_count() -> None:
    table = Table()
    table.take(replace(SLAVE, enable_acting_master=None))
    assert table.topics == set()


def test_when_the_master_goes_its_slave_may_act_for_it_without_writing() -> None:
    table = Table(support_acting_master=True)
    table.take(broker(enable_acting_master=True))
    table.take(broker(address="a:2", broker_id=1, enable_acting_master=True))
    table.take(broker(address="a:3", broker_id=2, enable_acting_master=True))
    assert table.perm("T1") == Perm.READ | Perm.WRITE
    table.lose("a:1")
    assert table.perm("T1") == Perm.READ
    assert table.found("T1").broker_datas[0].broker_addrs == {0: "a:2", 2: "a:3"}
    assert table.addresses() == {1: "a:2", 2: "a:3"}  # between themselves they know better
    table.settings = NameServerSettings()
    assert table.found("T1").broker_datas[0].broker_addrs == {1: "a:2", 2: "a:3"}


def test_a_slave_that_becomes_the_master_brings_back_the_right_to_write() -> None:
    table = Table(support_acting_master=True)
    slave = broker(address="a:2", broker_id=1, enable_acting_master=True)
    table.take(slave)
    assert table.perm("T1") == Perm.READ
    table.take(replace(slave, broker_id=0))
    assert table.perm("T1") == Perm.READ | Perm.WRITE


def test_who_may_write_to_a_slave_is_told_that_it_is_one() -> None:
    table = Table(support_acting_master=True)
    table.take(broker(address="a:2", broker_id=1, enable_acting_master=True))
    table.add_write_perm("broker-a")
    assert table.found("T1").broker_datas[0].broker_addrs == {1: "a:2"}


def test_no_one_acts_for_a_master_who_did_not_say_so() -> None:
    table = Table(support_acting_master=True)
    table.take(broker())
    table.take(SLAVE)
    table.lose("a:1")
    table.wipe_write_perm("broker-a")
    assert table.found("T1").broker_datas[0].broker_addrs == {1: "a:2"}


def test_a_newer_member_takes_an_id_and_an_older_one_does_not() -> None:
    table = Table()
    table.take(broker(), topics("T1", "T2", state_version=2))
    assert table.take(broker(address="old:1"), topics("T3", "T4", state_version=1)) == (
        RegisterBrokerReply()
    )
    assert table.addresses() == {0: "a:1"}
    assert table.topics == {"T1", "T2"}
    table.take(broker(address="new:1"), topics("T1", "T2", state_version=2))
    assert table.addresses() == {0: "new:1"}
    assert table.hear("C", "broker-a", "a:1", now=0.0) is None
    table.lose("a:1")
    assert table.addresses() == {0: "new:1"}
    table.lose("new:1")
    assert table.is_empty


def test_a_slave_that_claims_the_masters_id_in_vain_is_no_slave_any_more() -> None:
    table = Table()
    table.take(broker(), topics("T1", "T2", state_version=2))
    table.take(SLAVE)
    table.take(replace(SLAVE, broker_id=0), topics("T1", "T2", state_version=1))
    assert table.addresses() == {0: "a:1"}


def test_a_slave_that_became_the_master_is_no_slave_any_more() -> None:
    table = Table()
    table.take(SLAVE)
    table.take(replace(SLAVE, broker_id=0))
    assert table.addresses() == {0: "a:2"}


def test_topics_a_broker_no_longer_names_stay_unless_told_otherwise() -> None:
    table = Table()
    table.take(broker("broker-b", "b:1"), topics("T2", "T9"))
    table.take(broker(), topics("T1", "T2"))
    table.take(broker(), topics("T1", "T3", counter=2))
    assert table.topics == {"T1", "T2", "T3", "T9"}
    table.settings = NameServerSettings(delete_topic_with_broker_registration=True)
    table.take(broker(), topics("T3", "T4", counter=2))
    assert table.topics == {"T2", "T3", "T4", "T9"}
    table.take(broker(), topics("T1", counter=3, mappings={"T1": mapping()}))
    assert table.topics == {"T1", "T2", "T3", "T4", "T9"}  # not beside static topics
    assert [each.broker_name for each in table.found("T2").queue_datas] == ["broker-b"]


def test_a_deleted_topic_comes_back_if_its_broker_still_has_it() -> None:
    table = Table()
    table.take(broker())
    table.delete_topic("T1")
    table.delete_topic("T1")
    assert table.topics == {"T2"}
    table.take(broker())
    assert table.topics == {"T1", "T2"}


def test_a_topic_is_deleted_in_one_cluster() -> None:
    table = Table()
    table.take(broker())
    table.take(broker("broker-d", "d:1", cluster="D"))
    table.delete_topic("T1", "D")
    table.delete_topic("T1", "nowhere")
    assert [each.broker_name for each in table.found("T1").queue_datas] == ["broker-a"]
    assert table.topics_by_cluster("D").topic_list == {"T2"}
    assert table.topics_by_cluster("nowhere").topic_list == frozenset()


def test_a_topic_is_registered_at_all_its_brokers_or_none() -> None:
    table = Table()
    table.take(broker())

    def queues(name: str) -> QueueData:
        return QueueData(broker_name=name, read_queue_nums=1, write_queue_nums=2, perm=Perm.READ)

    table.register_topic("T3", [queues("broker-a"), queues("nobody")])
    assert table.route("T3") is None
    table.register_topic("T3", [queues("broker-a")])
    assert table.found("T3").queue_datas == (queues("broker-a"),)
    table.register_topic("T3", [])
    assert table.found("T3").queue_datas == (queues("broker-a"),)


def test_a_broker_is_in_the_cluster_that_it_named_last() -> None:
    table = Table()
    table.take(broker())
    table.take(broker(cluster="D"))
    assert table.cluster_info().cluster_addr_table == {"D": {"broker-a"}}
    assert table.cluster_info().broker_addr_table["broker-a"].cluster == "D"
    table.unregister("C", "broker-a", "a:1")
    assert table.addresses() == {0: "a:1"}


def test_the_queues_of_static_topics_are_counted_over_all_brokers() -> None:
    table = Table(topics_max=5)
    static = topics("T1", "T2", mappings={"T1": mapping(3)})
    table.take(broker(), static)
    table.take(broker(), static)
    with pytest.raises(Refusal, match="6 queues of static topics"):
        table.take(broker("broker-b", "b:1"), static)


def test_units_are_told_by_the_sys_flag() -> None:
    table = Table()
    for name, flag in (("none", 0), ("unit", 1), ("sub", 2), ("both", 3)):
        table.take(broker(name, name), topics(name, f"{name}2", sys_flag=flag))
    assert table.topics_by_flag(UNIT, UNIT).topic_list == {"unit", "unit2", "both", "both2"}
    assert table.topics_by_flag(UNIT | UNIT_SUB, UNIT_SUB).topic_list == {"sub", "sub2"}


def mapping(queues: int = 1) -> dict[str, object]:
    return {"bname": "broker-a", "topic": "T1", "currIdMap": {i: i for i in range(queues)}}


def test_a_static_topics_queues_go_with_the_topic() -> None:
    table = Table()
    table.take(broker(), topics("T1", "T2", mappings={"T1": mapping()}))
    by_broker = table.found("T1").topic_queue_mapping_by_broker
    assert by_broker is not None
    assert by_broker.keys() == {"broker-a"}
    assert table.found("T2").topic_queue_mapping_by_broker is None
    table.delete_topic("T1")
    table.take(broker(), topics("T1", counter=2))
    assert table.found("T1").topic_queue_mapping_by_broker is None


@pytest.mark.parametrize("bad", [[], {"topic": "T1"}, {"bname": "a", "topic": 1}])
def test_queues_of_a_static_topic_that_make_no_sense_are_refused(bad: object) -> None:
    table = Table()
    with pytest.raises(MalformedBody):
        table.take(broker(), topics("T1", "T2", mappings={"T1": bad}))
    assert table.is_empty


LONG = "x" * (NAME_CHARS_MAX + 1)


@pytest.mark.parametrize(
    ("request_", "body", "remark"),
    [
        (broker(LONG), TWO, "longer than"),
        (broker(address=LONG), TWO, "longer than"),
        (broker(cluster=LONG), TWO, "longer than"),
        (replace(broker(), ha_server_addr=LONG), TWO, "longer than"),
        (broker(), topics("T1", LONG), "longer than"),
        (broker(), topics("T1", "T2", filter_servers=(LONG,)), "longer than"),
        (broker(), topics("T1", "T2", mappings={"T1": {**mapping(), "scope": LONG}}), "longer"),
        (broker(), topics("T1", "T2", "T3", "T4"), "too many"),
        (
            broker(),
            topics("T1", "T2", filter_servers=("f",) * (FILTER_SERVERS_MAX + 1)),
            "filter servers",
        ),
        (
            broker(),
            topics("T1", "T2", mappings={"T1": mapping(2), "T2": mapping(2)}),
            "4 queues of static topics",
        ),
    ],
)
def test_what_goes_beyond_a_limit_is_refused_and_changes_nothing(
    request_: RegisterBroker, body: RegisterBrokerBody, remark: str
) -> None:
    table = Table(topics_max=3)
    with pytest.raises(Refusal, match=remark):
        table.take(request_, body)
    assert table.is_empty


def test_as_many_brokers_and_topics_as_may_be_go_on_registering() -> None:
    table = Table(brokers_max=2, topics_max=4)
    table.take(broker())
    table.take(broker("broker-b", "b:1"))
    with pytest.raises(Refusal, match="2 brokers already"):
        table.take(broker("broker-c", "c:1"), topics())
    table.take(broker(), topics("T1", "T2", counter=2))
    queues = QueueData(broker_name="broker-a", read_queue_nums=1, write_queue_nums=1, perm=Perm(6))
    with pytest.raises(Refusal, match="too many"):
        table.register_topic("T3", [queues])
    table.register_topic("T2", [queues])
    table.settings = replace(table.settings, topics_max=1)
    table.take(broker(), topics("T1", "T2", counter=3))  # nobody who is there is turned out
    table.settings = replace(table.settings, topics_max=4)
    table.lose("b:1")
    table.register_topic("T3", [queues])
    table.take(broker("broker-c", "c:1"), topics())


def test_zones_are_part_of_a_route() -> None:
    table = Table()
    table.take(broker(), zone_name="north")
    assert table.found("T1").broker_datas[0].zone_name == "north"
    table.take(broker())
    assert table.found("T1").broker_datas[0].zone_name is None
    with pytest.raises(Refusal, match="longer than"):
        table.take(broker(), zone_name=LONG)


@pytest.mark.parametrize("seed", range(100))
def test_whatever_happens_no_part_of_the_table_outlives_the_others(seed: int) -> None:
    dice = random.Random(seed)
    table = Table(brokers_max=6, topics_max=20, support_acting_master=True)
    for now in range(60):
        name, address = dice.choice("AB"), dice.choice("123")
        match dice.randrange(8):
            case 0:
                table.lose(dice.choice("xyz"))
            case 1:
                table.expire(now)
            case 2:
                table.unregister(dice.choice("CD"), name, address)
            case 3:
                table.delete_topic(dice.choice("TUV"), dice.choice([None, "C"]))
            case 4:
                queues = QueueData(
                    broker_name=name, read_queue_nums=1, write_queue_nums=1, perm=Perm(6)
                )
                table.register_topic(dice.choice("TUV"), [queues])
            case _:
                request = broker(
                    name,
                    address,
                    dice.randrange(3),
                    cluster=dice.choice("CD"),
                    heartbeat_timeout_millis=dice.choice([None, 5000]),
                    enable_acting_master=dice.choice([None, False, True]),
                )
                static: dict[str, object] = {"T": {"bname": name, "topic": "T"}}
                body = topics(
                    *dice.sample("TUVW", dice.randrange(5)),
                    counter=dice.randrange(3),
                    state_version=dice.randrange(2),
                    mappings=dice.choice([None, static]),
                )
                try:
                    table.take(request, body, on=dice.choice("xyz"), now=now)
                except Refusal:
                    pass
        check_consistent(table)
    for connection in "xyz":
        table.lose(connection)
    assert table.is_empty


def check_consistent(table: Table) -> None:
    info = table.cluster_info()
    members = {
        (name, address)
        for name, each in info.broker_addr_table.items()
        for address in each.broker_addrs.values()
    }
    assert members == set(table._members)
    assert all(each.broker_addrs for each in info.broker_addr_table.values())
    names = set().union(*info.cluster_addr_table.values())
    assert names == set(info.broker_addr_table)
    pairs = {(topic, name) for topic, brokers in table._topics.items() for name in brokers}
    assert {name for _, name in pairs} <= names
    assert set(table._mappings) <= pairs
    assert table._topics_count == len(pairs)
    for topic in table.topics:
        assert len(table.found(topic).broker_datas) == len(table.found(topic).queue_datas) > 0
