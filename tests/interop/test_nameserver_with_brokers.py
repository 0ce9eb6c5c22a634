"""Real brokers register with our NameServer, and Apache's own programs find them through it."""

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

from rocketpipe.errors import BrokerError
from rocketpipe.remoting.address import Address
from rocketpipe.remoting.connection import connect
from rocketpipe.remoting.network import AsyncioNetwork
from rocketpipe.wire.headers import Reply, Request
from rocketpipe.wire.requests.nameserver import GetBrokerClusterInfo, GetRouteinfoByTopic
from tests.apache.cluster import ApacheCluster, BrokerSpec
from tests.apache.programs import java_program, mqadmin_session
from tests.nameserver_process import NameServerProcess

R = TypeVar("R", bound=Reply)

TIMEOUT = 10.0
SLAVE = BrokerSpec("broker-a", id=1, settings={"brokerRole": "SLAVE"})


@pytest.fixture(scope="module")
def running(apache_version: str) -> Iterator[ApacheCluster]:
    """Apache's brokers under our NameServer."""
    with (
        NameServerProcess() as nameserver,
        ApacheCluster(
            apache_version, [BrokerSpec("broker-a"), SLAVE], namesrv=nameserver.address
        ) as cluster,
    ):
        yield cluster


@pytest.fixture
def cluster(running: ApacheCluster) -> ApacheCluster:
    running.heal()
    return running


only_5 = pytest.mark.parametrize("apache_version", ["5.5.0"], indirect=True)


def ask(cluster: ApacheCluster, request: Request[R]) -> R:
    async def main() -> R:
        namesrv = Address.parse(cluster.namesrv)
        connection = await connect(AsyncioNetwork(), namesrv, timeout=TIMEOUT)
        try:
            return await connection.request(request, timeout=TIMEOUT)
        finally:
            await connection.close()

    return asyncio.run(main())


def addresses(cluster: ApacheCluster) -> dict[int, str]:
    """The members of broker-a that the NameServer knows."""
    info = ask(cluster, GetBrokerClusterInfo())
    broker = info.broker_addr_table.get("broker-a")
    return broker.broker_addrs if broker is not None else {}


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_master_and_its_slave_are_known(cluster: ApacheCluster) -> None:
    master, slave = cluster.brokers
    assert addresses(cluster) == {0: master.address, 1: slave.address}
    route = ask(cluster, GetRouteinfoByTopic(topic="TBW102"))
    assert [queues.broker_name for queues in route.queue_datas] == ["broker-a"]


def test_a_slave_is_told_its_master(cluster: ApacheCluster) -> None:
    master, slave = cluster.brokers
    replication = f"127.0.0.1:{master.port + 1}"
    wait_until(lambda: f"address, OLD: null NEW: {replication}\n" in slave.log.read_text())


def test_a_java_producer_finds_the_broker(cluster: ApacheCluster) -> None:
    producer = "org.apache.rocketmq.example.quickstart.Producer"  # 4.9.4 comes without it
    finished = java_program("5.5.0", producer, namesrv=cluster.namesrv)
    assert finished.output.count("sendStatus=SEND_OK") == 1000, finished.output[-2000:]


def test_a_killed_broker_is_gone_at_once_and_comes_back(cluster: ApacheCluster) -> None:
    master, slave = cluster.brokers
    slave.kill()
    wait_until(lambda: addresses(cluster) == {0: master.address})
    master.kill()
    wait_until(lambda: addresses(cluster) == {})
    with pytest.raises(BrokerError, match="No topic route info in name server for the topic"):
        ask(cluster, GetRouteinfoByTopic(topic="TBW102"))
    cluster.heal()
    assert addresses(cluster) == {0: master.address, 1: slave.address}


@only_5
def test_mqadmin_does_its_daily_work(cluster: ApacheCluster) -> None:
    master, slave = cluster.brokers
    (
        brokers,
        created,
        topics,
        topics_by_cluster,
        route,
        wiped,
        wiped_route,
        added,
        added_route,
    ) = mqadmin_session(
        cluster.version,
        cluster.namesrv,
        "clusterList",
        "updateTopic -t T1 -c DefaultCluster -r 3 -w 2",
        "topicList",
        "topicList -c",
        "topicRoute -t T1",
        "wipeWritePerm -b broker-a",
        "topicRoute -t T1",
        "addWritePerm -b broker-a",
        "topicRoute -t T1",
    )
    lines = [line.split()[:4] for line in brokers.splitlines()]
    for broker in cluster.brokers:
        assert ["DefaultCluster", "broker-a", str(broker.id), broker.address] in lines, brokers
    assert f"create topic to {master.address} success." in created
    assert "T1" in topics.splitlines()
    assert ["DefaultCluster", "T1"] in [line.split() for line in topics_by_cluster.splitlines()]
    for text in (
        f'0:"{master.address}"',
        f'1:"{slave.address}"',
        '"brokerName":"broker-a"',
        '"perm":6',
        '"readQueueNums":3',
        '"writeQueueNums":2',
    ):
        assert text in route
    where = f"of broker[broker-a] in name server[{cluster.namesrv}] OK, "
    assert f"wipe write perm {where}" in wiped
    assert '"perm":4' in wiped_route
    assert f"add write perm {where}" in added
    assert '"perm":6' in added_route


@only_5
def test_mqadmin_orders_configures_and_deletes(cluster: ApacheCluster) -> None:
    (
        *_,
        enabled,
        put,
        got,
        ordered_route,
        forgotten,
        kept,
        dropped,
        shown,
        deleted,
        no_route,
    ) = mqadmin_session(
        cluster.version,
        cluster.namesrv,
        "updateTopic -t T2 -c DefaultCluster",
        "updateNamesrvConfig -k orderMessageEnable -v true",
        "updateOrderConf -t T2 -m put -v broker-a:2",
        "updateOrderConf -t T2 -m get",
        "topicRoute -t T2",
        "updateOrderConf -t T2 -m delete",
        "updateKvConfig -s some -k key -v value",
        "deleteKvConfig -s some -k key",
        "getNamesrvConfig",
        "deleteTopic -t T2 -c DefaultCluster",
        "topicRoute -t T2",
    )
    assert "update name server config success!" in enabled
    assert "update orderConf success. topic=[T2], orderConf=[broker-a:2]" in put
    assert "get orderConf success. topic=[T2], orderConf=[broker-a:2]" in got
    assert '"orderTopicConf":"broker-a:2"' in ordered_route
    assert "delete orderConf success. topic=[T2]" in forgotten
    assert "create or update kv config to namespace success." in kept
    assert "delete kv config from namespace success." in dropped
    settings = dict(line.split("  =  ") for line in shown.splitlines() if "  =  " in line)
    settings = {name.strip(): value for name, value in settings.items()}
    assert settings["orderMessageEnable"] == "true"
    assert settings["scanNotActiveBrokerInterval"] == "5000"
    assert settings["listenPort"] == cluster.namesrv.split(":")[1]
    assert "delete topic [T2] from NameServer success." in deleted
    assert "No topic route info in name server for the topic: T2" in no_route
