"""Our brokers register with Apache's NameServer, and Java's programs find and use them there."""

import time
from collections.abc import Callable, Iterator

import pytest

from rocketpipe import Admin, Message, MessageQueue, Producer, PullConsumer
from rocketpipe.errors import NoNameServer
from rocketpipe.nameserver.settings import WITHOUT_EFFECT, NameServerSettings
from rocketpipe.testing import EmbeddedBroker, EmbeddedCluster
from tests.apache.cluster import ApacheCluster
from tests.apache.programs import java_program, mqadmin_session

SETTINGS = {"registerNameServerPeriod": 1000}  # a NameServer that comes back waits for this
SECONDS_MAX = 60.0


@pytest.fixture(scope="module")
def apache(apache_version: str) -> Iterator[ApacheCluster]:
    """Apache's NameServer, and no broker of theirs."""
    with ApacheCluster(apache_version, 0) as nameserver:
        yield nameserver


@pytest.fixture(scope="module")
def running(apache: ApacheCluster) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(
        2, slaves={"broker-a": 1}, processes=True, join=apache.namesrv, settings=SETTINGS
    ) as cluster:
        yield cluster


@pytest.fixture
def cluster(running: EmbeddedCluster, apache: ApacheCluster) -> EmbeddedCluster:
    apache.heal()
    running.heal()
    wait_until(lambda: known(running) == expected(running))
    return running


def expected(cluster: EmbeddedCluster) -> dict[tuple[str, int], str]:
    return {(broker.name, broker.id): broker.address for broker in cluster.brokers}


def known(cluster: EmbeddedCluster) -> dict[tuple[str, int], str]:
    """The brokers that the NameServer tells of."""
    with Admin(namesrv=cluster.namesrv, instance_name="known") as admin:
        return {
            (broker.name, id): address
            for broker in admin.brokers()
            for id, address in broker.addresses.items()
        }


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_its_routes_are_those_of_our_brokers(cluster: EmbeddedCluster) -> None:
    with Admin(namesrv=cluster.namesrv) as admin:
        admin.create_topic("routed", queues=3)
        queues = admin.publish_queues("routed")
    assert {(each.broker_name, each.queue_id) for each in queues} == {
        (name, id) for name in ("broker-a", "broker-b") for id in range(3)
    }


def test_javas_producer_sends_to_them(cluster: EmbeddedCluster) -> None:
    producer = "org.apache.rocketmq.example.quickstart.Producer"  # 4.9.4 comes without it
    finished = java_program("5.5.0", producer, namesrv=cluster.namesrv, timeout=180)
    assert finished.output.count("sendStatus=SEND_OK") == 1000, finished.output[-2000:]
    with Admin(namesrv=cluster.namesrv) as admin:
        stats = admin.topic_stats("TopicTest")
    assert stats.message_count == 1000
    assert {queue.broker_name for queue in stats.queues} == {"broker-a", "broker-b"}


@pytest.mark.parametrize("apache_version", ["5.5.0"], indirect=True)
def test_mqadmin_sees_and_uses_them(cluster: EmbeddedCluster) -> None:
    master = cluster.broker("broker-a")
    brokers, created, route, sent, status = mqadmin_session(
        "5.5.0",
        cluster.namesrv,
        "clusterList",
        "updateTopic -t seen -c DefaultCluster -r 2 -w 2",
        "topicRoute -t seen",
        "sendMessage -t seen -p hello -b broker-a -i 1",
        "topicStatus -t seen",
    )
    lines = [line.split()[:4] for line in brokers.splitlines()]
    for (name, id), address in expected(cluster).items():
        assert ["DefaultCluster", name, str(id), address] in lines, brokers
    assert f"create topic to {master.address} success." in created
    assert f'0:"{master.address}"' in route
    assert "SEND_OK" in sent
    assert ["broker-a", "1", "0", "1"] in [line.split()[:4] for line in status.splitlines()]


@pytest.mark.parametrize("end", [EmbeddedBroker.stop, EmbeddedBroker.kill])
def test_one_that_goes_is_forgotten_and_known_again_when_it_is_back(
    cluster: EmbeddedCluster, end: Callable[[EmbeddedBroker], None]
) -> None:
    everybody = expected(cluster)
    queue = MessageQueue(f"going-{end.__name__}", "broker-a", 0)
    with Producer("p", namesrv=cluster.namesrv, send_timeout=30.0) as producer:
        while producer.send(Message(queue.topic, b"before")).queue != queue:
            pass
        for broker in (cluster.broker("broker-a", 1), cluster.broker("broker-a")):
            end(broker)
            gone = (broker.name, broker.id)
            del everybody[gone]
            wait_until(lambda: known(cluster) == everybody)
            assert producer.send(Message("others", b"x")).queue.broker_name in {
                name for name, id in everybody if id == 0
            }
        cluster.heal()
        wait_until(lambda: known(cluster) == expected(cluster))
        producer.send(Message(queue.topic, b"after"), queue=queue)
    with PullConsumer("c", namesrv=cluster.namesrv) as consumer:
        consumer.assign([queue])
        consumer.seek_to_begin(queue)
        read = [next(consumer).body for _ in range(2)]
    assert read == [b"before", b"after"]


def test_a_nameserver_that_comes_back_knows_them_again(
    cluster: EmbeddedCluster, apache: ApacheCluster
) -> None:
    apache.nameserver.kill()
    with pytest.raises(NoNameServer):
        known(cluster)
    apache.nameserver.start()
    wait_until(lambda: known(cluster) == expected(cluster))


@pytest.mark.parametrize("apache_version", ["5.5.0"], indirect=True)
def test_we_know_all_settings_of_theirs(apache: ApacheCluster) -> None:
    (shown,) = mqadmin_session("5.5.0", apache.namesrv, "getNamesrvConfig")
    theirs = {line.split("=")[0].strip() for line in shown.splitlines() if "  =  " in line}
    ours = NameServerSettings().to_config().keys() | {"kvConfigPath"}
    not_theirs = {"brokersMax", "topicsMax", "kvConfigBytesMax"}
    assert ours - not_theirs <= theirs
    assert set(WITHOUT_EFFECT) <= theirs
