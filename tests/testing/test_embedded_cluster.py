"""The embedded cluster as its users meet it: real threads, sockets and files."""

import asyncio
import inspect
import logging
import os
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rocketpipe import Admin, AsyncProducer, Message, MessageQueue, Producer, SendStatus
from rocketpipe.codes import RequestCode, ResponseCode
from rocketpipe.errors import (
    ClientError,
    ConnectFailed,
    IllegalState,
    InvalidSetting,
    NoNameServer,
    RequestTimeout,
    SendFailed,
)
from rocketpipe.remoting.tls import TlsSettings
from rocketpipe.testing import (
    AsyncEmbeddedCluster,
    BrokerFaults,
    EmbeddedBroker,
    EmbeddedCluster,
    EmbeddedServer,
    Fault,
    FaultControl,
)
from rocketpipe.testing.async_embedded_cluster import AsyncEmbeddedServer
from rocketpipe.testing.cluster_settings import ClusterSettings
from tests.certificates import Certificates

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=[False, True], ids=["threads", "processes"])
def shared(request: pytest.FixtureRequest) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(2, processes=request.param) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared: EmbeddedCluster) -> EmbeddedCluster:
    shared.heal()
    return shared


def producer_at(cluster: EmbeddedCluster, **settings: float) -> Producer:
    options = {"send_timeout": 20.0, **settings}
    return Producer("embedded", namesrv=cluster.namesrv, **options)  # type: ignore[arg-type]


def wait_for(status: SendStatus, producer: Producer, topic: str) -> None:
    """Send until a send ends so."""
    seen = None
    for _ in range(200):
        seen = producer.send(Message(topic, b"x")).status
        if seen is status:
            return
        threading.Event().wait(0.05)
    pytest.fail(f"{seen}, and never {status}")


def wait_until(is_so: Callable[[], bool]) -> None:
    for _ in range(3000):
        if is_so():
            return
        threading.Event().wait(0.02)
    pytest.fail("it never came to be")


def test_messages_go_to_all_its_brokers(cluster: EmbeddedCluster) -> None:
    assert [broker.name for broker in cluster.brokers] == ["broker-a", "broker-b"]
    with producer_at(cluster) as producer:
        used = {producer.send(Message("both", b"x")).queue.broker_name for _ in range(16)}
    assert used == {"broker-a", "broker-b"}


def test_data_is_kept_in_a_folder_that_is_given(tmp_path: Path) -> None:
    offsets = []
    for _ in range(2):
        with EmbeddedCluster(folder=tmp_path) as cluster, producer_at(cluster) as producer:
            queue = MessageQueue("kept", "broker-a", 0)
            while (result := producer.send(Message("kept", b"x"))).queue != queue:
                pass  # the topic is made by the first, and then the queues take turns
            offsets.append(result.queue_offset)
    assert offsets[1] > offsets[0]


@pytest.mark.parametrize("end", [EmbeddedBroker.stop, EmbeddedBroker.kill])
def test_a_broker_comes_back_with_its_port_and_its_data(
    cluster: EmbeddedCluster, end: Callable[[EmbeddedBroker], None]
) -> None:
    broker = cluster.broker("broker-a")
    address = broker.address
    with producer_at(cluster) as producer:
        topic = f"back-{end.__name__}"
        first = None
        while first is None or first.queue.broker_name != "broker-a":
            first = producer.send(Message(topic, b"x"))
        end(broker)
        assert not broker.is_running
        assert producer.send(Message(topic, b"x")).queue.broker_name == "broker-b"
        broker.start()
        assert broker.address == address
        again = producer.send(Message(topic, b"x"), queue=first.queue)
        assert again.queue_offset == first.queue_offset + 1


def test_a_frozen_broker_is_passed_over_and_thaws_whole(cluster: EmbeddedCluster) -> None:
    with producer_at(cluster) as producer:
        sent = [producer.send(Message("frozen", b"x")) for _ in range(4)]
        assert {each.status for each in sent} == {SendStatus.SEND_OK}
        broker = cluster.broker("broker-b")
        with broker.frozen():
            assert broker.is_frozen
            for _ in range(4):
                result = producer.send(Message("frozen", b"x"), timeout=9.0)
                assert result.queue.broker_name == "broker-a"
        assert not broker.is_frozen
        broker.kill()
        queue = MessageQueue("frozen", "broker-b", 0)
        with pytest.raises(SendFailed):
            producer.send(Message("frozen", b"x"), queue=queue)
        with pytest.raises(IllegalState, match="is down"):
            broker.freeze()


def test_a_killed_one_may_have_been_frozen(cluster: EmbeddedCluster) -> None:
    broker = cluster.broker("broker-a")
    broker.freeze()
    broker.freeze()
    broker.kill()
    broker.kill()
    assert not broker.is_frozen
    assert not broker.is_running


def test_a_nameserver_that_comes_back_knows_all_brokers(cluster: EmbeddedCluster) -> None:
    address = cluster.namesrv
    cluster.nameserver.kill()
    cluster.nameserver.start()
    assert cluster.namesrv == address
    with producer_at(cluster) as producer:
        used = {producer.send(Message("known-again", b"x")).queue.broker_name for _ in range(16)}
    assert used == {"broker-a", "broker-b"}


def test_to_heal_is_to_bring_back_all(cluster: EmbeddedCluster) -> None:
    a, b = cluster.brokers
    a.faults.busy()
    b.kill()
    a.freeze()
    cluster.nameserver.kill()
    cluster.heal()
    assert [server.is_running for server in (a, b, cluster.nameserver)] == [True] * 3
    assert not a.faults.active()
    with producer_at(cluster) as producer:
        assert len(producer.send(Message("healed", b"x")).attempts) == 1


def test_faults_hold_also_after_a_restart(cluster: EmbeddedCluster) -> None:
    broker = cluster.broker("broker-a")
    broker.faults.refuse(ResponseCode.NO_PERMISSION, "not today", code=RequestCode.SEND_MESSAGE_V2)
    broker.stop()
    broker.start()
    with (
        producer_at(cluster, retry_times=0) as producer,
        pytest.raises(SendFailed, match="not today"),
    ):
        for _ in range(16):
            producer.send(Message("refused", b"x"))
    assert broker.faults.active()[0].hits == 1


def test_faults_hold_while_it_is_down_and_after_a_kill(cluster: EmbeddedCluster) -> None:
    broker = cluster.broker("broker-a")
    faults, queue = broker.faults, MessageQueue("held", "broker-a", 0)
    with producer_at(cluster) as producer:
        while producer.send(Message("held", b"x")).queue.broker_name != "broker-a":
            pass  # until the topic is there
        thrice = faults.delay(0.0, topic="held", times=3)
        gone = faults.cut(topic="other")
        producer.send(Message("held", b"x"), queue=queue)
        broker.kill()
        assert [each.hits for each in faults.active()] == [1, 0]
        faults.clear(gone)
        late = faults.drop_answers(topic="other", seconds=600)
        assert late.id > gone.id
        broker.start()
        assert faults.active() == [replace(thrice, hits=1), late]
        for _ in range(2):
            producer.send(Message("held", b"x"), queue=queue)
        assert faults.active() == [late]


def test_faults_come_from_elsewhere_too(cluster: EmbeddedCluster) -> None:
    faults = BrokerFaults(cluster.broker("broker-a").address, timeout=30.0)
    fault = faults.delay((0.1, 0.2), topic="slow", times=3)
    assert faults.active() == [fault]
    assert cluster.broker("broker-a").faults.active() == [fault]
    faults.clear(fault)
    assert faults.active() == []
    with pytest.raises(InvalidSetting, match="a function can't travel"):
        faults.delay(lambda: 1.0)


def test_a_whole_broker_may_be_told_from_elsewhere_to_stand_still(cluster: EmbeddedCluster) -> None:
    broker = cluster.broker("broker-a")
    queue = MessageQueue("still", "broker-a", 0)
    with producer_at(cluster) as producer:
        while producer.send(Message("still", b"x")).queue.broker_name != "broker-a":
            pass  # until the topic is there
        BrokerFaults(broker.address, timeout=30.0).stand_still(seconds=4.0)
        threading.Event().wait(0.5)  # it has answered, and goes on for a moment
        with pytest.raises(RequestTimeout):  # and no refusal to connect
            BrokerFaults(broker.address, timeout=0.5).active()
        with pytest.raises(SendFailed):
            producer.send(Message("still", b"x"), queue=queue, timeout=0.5)
        assert BrokerFaults(cluster.broker("broker-b").address, timeout=30.0).active() == []
        wait_until(lambda: not broker.faults.active())
        assert producer.send(Message("still", b"x"), queue=queue).status is SendStatus.SEND_OK


def test_one_that_stands_still_may_be_told_here_that_it_is_over() -> None:
    with EmbeddedCluster() as cluster, producer_at(cluster) as producer:
        producer.send(Message("still", b"x"))
        cluster.broker("broker-a").faults.stand_still(seconds=600.0)
        threading.Event().wait(0.5)
        cluster.heal()
        assert producer.send(Message("still", b"x")).status is SendStatus.SEND_OK


@pytest.mark.parametrize("end", [FaultControl.stop, FaultControl.kill])
def test_a_broker_that_a_fault_ends_is_back_when_that_is_over(
    cluster: EmbeddedCluster, end: Callable[..., Fault]
) -> None:
    """Whether it was for a time, is cleared, or somebody starts it; asked for from here, or not."""
    broker = cluster.broker("broker-a")
    address = broker.address
    fault = end(BrokerFaults(address, timeout=30.0), seconds=1.0)
    assert fault.seconds == 1.0
    wait_until(lambda: not broker.is_running)
    wait_until(lambda: broker.is_running)
    assert broker.faults.active() == []

    fault = end(broker.faults)
    wait_until(lambda: not broker.is_running)
    with pytest.raises(ConnectFailed, match="nobody listens"):
        BrokerFaults(address, timeout=30.0).active()
    assert [each.id for each in broker.faults.active()] == [fault.id]
    broker.faults.clear(fault)
    wait_until(lambda: broker.is_running)

    end(broker.faults)
    wait_until(lambda: not broker.is_running)
    broker.start()
    assert broker.faults.active() == []
    assert broker.address == address
    with producer_at(cluster) as producer:
        used = {producer.send(Message("again", b"x")).queue.broker_name for _ in range(16)}
    assert used == {"broker-a", "broker-b"}


def test_who_is_stopped_while_a_fault_keeps_it_down_stays_down(cluster: EmbeddedCluster) -> None:
    broker = cluster.broker("broker-a")
    broker.faults.kill(seconds=0.5)
    wait_until(lambda: not broker.is_running)
    broker.stop()
    threading.Event().wait(1.0)
    assert not broker.is_running


def test_a_detached_slave_comes_back() -> None:
    settings = {"brokerRole": "SYNC_MASTER", "slaveTimeout": 500}
    with EmbeddedCluster(slaves=1, settings=settings) as cluster, producer_at(cluster) as producer:
        wait_for(SendStatus.SEND_OK, producer, "copied")
        fault = cluster.broker("broker-a").faults.detach_slaves()
        wait_for(SendStatus.SLAVE_NOT_AVAILABLE, producer, "copied")
        cluster.broker("broker-a").faults.clear(fault)
        wait_for(SendStatus.SEND_OK, producer, "copied")
        cluster.broker("broker-a").faults.detach_slaves(seconds=1.0)
        wait_for(SendStatus.SLAVE_NOT_AVAILABLE, producer, "copied")
        wait_for(SendStatus.SEND_OK, producer, "copied")


@pytest.mark.parametrize("is_elsewhere", [False, True], ids=["here", "elsewhere"])
def test_who_asks_for_nothing_is_cut_off_too(cluster: EmbeddedCluster, is_elsewhere: bool) -> None:
    broker = cluster.broker("broker-a")
    host, port = broker.address.split(":")
    with socket.create_connection((host, int(port)), timeout=30.0) as idle:
        idle.send(b"\0")  # of a frame; before, it might be a TLS handshake that begins
        faults = BrokerFaults(broker.address, timeout=30.0) if is_elsewhere else broker.faults
        for _ in range(600):  # until the broker has read that
            faults.cut_connections()
            try:
                idle.settimeout(0.1)
                gone = idle.recv(1) == b""
            except TimeoutError:
                continue
            except ConnectionResetError:
                gone = True
            break
        assert gone
    assert faults.active() == []
    with producer_at(cluster) as producer:
        assert producer.send(Message("cut", b"x")).status is SendStatus.SEND_OK


def test_connections_can_be_cut(cluster: EmbeddedCluster) -> None:
    with producer_at(cluster) as producer:
        producer.send(Message("cut", b"x"))
        for broker in cluster.brokers:
            broker.cut_connections()
        assert producer.send(Message("cut", b"x")).status is SendStatus.SEND_OK


def test_settings_of_apaches_that_mean_nothing_here_are_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    settings = {
        "appendAckAsync": True,
        "autoCreateTopicEnable": False,
        "namesrv.clusterTest": True,
    }
    with (
        caplog.at_level(logging.WARNING, "rocketpipe.testing"),
        EmbeddedCluster(settings=settings) as cluster,
        producer_at(cluster) as producer,
        pytest.raises(ClientError, match="no route"),
    ):
        producer.send(Message("unheard-of", b"x"))
    assert "settings without effect here: appendAckAsync, namesrv.clusterTest" in caplog.text


def test_what_is_not_there_is_told(cluster: EmbeddedCluster) -> None:
    with pytest.raises(ClientError, match=r"no broker-x .* but broker-a, broker-b"):
        cluster.broker("broker-x")
    with pytest.raises(IllegalState, match="started before"):
        cluster.start()
    with pytest.raises(IllegalState, match="not started"):
        _ = EmbeddedCluster().namesrv


def planned(**settings: object) -> list[tuple[str, int, int]]:
    cluster = ClusterSettings(**settings)  # type: ignore[arg-type]
    cluster.check()
    return [
        (each.name, each.id, each.port) for each in cluster.broker_plans(Path(), "127.0.0.1:9876")
    ]


def test_ports_and_names_follow_from_the_first() -> None:
    assert planned(brokers=2, slaves=1, port=10911) == [
        ("broker-a", 0, 10911),
        ("broker-b", 0, 10921),
        ("broker-a", 1, 10931),
        ("broker-b", 1, 10941),
    ]
    settings = ClusterSettings(cluster_name="C", host="127.0.0.2")
    (plan,) = settings.broker_plans(Path(), "127.0.0.1:9876")
    own = plan.broker_settings()
    assert (own.broker_cluster_name, own.host) == ("C", "127.0.0.2")
    settings = ClusterSettings(settings={"brokerClusterName": "D"})
    (plan,) = settings.broker_plans(Path(), "127.0.0.1:9876")
    assert plan.broker_settings().broker_cluster_name == "D"


def test_some_may_have_slaves_and_others_not() -> None:
    assert planned(brokers=2, slaves={"broker-b": 2}) == [
        ("broker-a", 0, 0),
        ("broker-b", 0, 0),
        ("broker-b", 1, 0),
        ("broker-b", 2, 0),
    ]


def test_brokers_may_have_names_and_masters_elsewhere() -> None:
    assert planned(brokers=["x", "y"], settings={"brokerRole": "SLAVE"}, slaves={"y": 1}) == [
        ("x", 1, 0),
        ("y", 1, 0),
        ("y", 2, 0),
    ]


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"brokers": 0}, "brokers is 0: not from 1 to 26"),
        ({"brokers": 27}, "not from 1 to 26"),
        ({"brokers": True}, "brokers is True"),
        ({"brokers": "broker-a"}, "neither a number nor names"),
        ({"brokers": []}, "neither a number nor names"),
        ({"brokers": ["../a"]}, "'../a' can't be the name of a broker"),
        ({"brokers": ["namesrv"]}, "'namesrv' can't be the name"),
        ({"brokers": ["a", "a"]}, "each name only once"),
        ({"slaves": 9}, "slaves is 9: not from 0 to 8"),
        ({"slaves": {"broker-a": -1}}, "slaves is -1"),
        ({"slaves": {"broker-b": 1}}, "there is no such broker"),
        ({"port": -1}, "ports of brokers"),
        ({"port": 65535}, "ports of brokers up to 65536"),
        ({"port": 65500, "slaves": {"broker-a": 4}}, "ports of brokers up to 65541"),
        ({"namesrv_port": 65536}, "ports"),
        ({"join": ""}, "is not an address"),
        ({"join": "127.0.0.1:9876;nowhere"}, "'nowhere' is not an address"),
        ({"settings": {"nobodyKnows": 1}}, "nobodyKnows is not a setting of this broker"),
        ({"settings": {"namesrv.nobodyKnows": 1}}, "nobodyKnows is not a setting of this NameServ"),
        ({"settings": {"brokerName": "x"}}, "brokerName is not for settings: give brokers"),
        ({"settings": {"listenPort": 1}}, "listenPort is not for settings: give port"),
        ({"settings": {"namesrv.brokersMax": "x"}}, "brokersMax is"),
    ],
)
def test_what_makes_no_cluster_is_refused_at_once(wrong: dict[str, object], why: str) -> None:
    with pytest.raises(InvalidSetting, match=why):
        EmbeddedCluster(**wrong)  # type: ignore[arg-type]


def test_the_nameserver_has_settings_too() -> None:
    settings = {"namesrv.brokersMax": 1}
    with EmbeddedCluster(2, settings=settings) as cluster, Admin(namesrv=cluster.namesrv) as admin:
        assert len(admin.brokers()) == 1


@pytest.mark.parametrize("processes", [False, True], ids=["threads", "processes"])
def test_it_can_be_awaited(processes: bool) -> None:
    async def main() -> None:
        async with (
            AsyncEmbeddedCluster(2, processes=processes) as cluster,
            AsyncProducer("g", namesrv=cluster.namesrv, send_timeout=20.0) as producer,
        ):
            await producer.send(Message("awaited", b"x"))
            broker = cluster.broker("broker-b")
            assert [each.name for each in cluster.brokers] == ["broker-a", "broker-b"]
            assert (broker.process_id is not None) == processes
            async with broker.frozen():
                assert broker.is_frozen
                result = await producer.send(Message("awaited", b"x"))
                assert result.queue.broker_name == "broker-a"
            broker.faults.busy()
            await broker.cut_connections()
            await broker.stop()
            assert not broker.is_running
            await cluster.nameserver.kill()
            await cluster.heal()
            assert broker.faults.active() == []
            assert broker.address in {each.address for each in cluster.brokers}
            with pytest.raises(ClientError, match="not a broker"):
                _ = cluster.nameserver.faults
            await producer.send(Message("awaited", b"x"))

    asyncio.run(main())


@pytest.mark.parametrize(
    ("blocking", "awaited"),
    [(EmbeddedCluster, AsyncEmbeddedCluster), (EmbeddedServer, AsyncEmbeddedServer)],
)
def test_the_async_faces_have_the_same_methods(blocking: type, awaited: type) -> None:
    for name in ("__init__", "start", "stop", "close", "kill", "heal", "freeze", "thaw", "broker"):
        if hasattr(blocking, name) and (blocking, name) != (EmbeddedServer, "__init__"):
            ours = inspect.signature(getattr(blocking, name)).parameters
            assert inspect.signature(getattr(awaited, name)).parameters == ours


@pytest.mark.parametrize("processes", [False, True], ids=["threads", "processes"])
def test_a_forked_child_does_not_keep_its_ports(processes: bool) -> None:
    with EmbeddedCluster(processes=processes) as cluster:
        broker = cluster.broker("broker-a")
        done = os.pipe()
        child = os.fork()
        if child == 0:
            cluster.close()  # which is not for a child to do
            os.read(done[0], 1)
            os._exit(0)
        try:
            broker.stop()
            with pytest.raises(ConnectFailed, match="nobody listens"):
                BrokerFaults(broker.address).active()
            broker.start()
            assert BrokerFaults(broker.address, timeout=30.0).active() == []
        finally:
            os.write(done[1], b"x")
            os.waitpid(child, 0)
            for descriptor in done:
                os.close(descriptor)


def test_where_tls_is_enforced_every_link_of_the_cluster_speaks_it(
    certificates: Certificates, tmp_path: Path
) -> None:
    """Brokers with their NameServer, slaves with their master, restarts included."""
    cert, key = certificates.server
    file = tmp_path / "tls.properties"
    file.write_text(
        f"""tls.server.certPath={cert}
tls.server.keyPath={key}
tls.client.authServer=true
tls.client.trustCertPath={certificates.ca}
"""
    )
    settings = {
        "tls.server.mode": "enforcing",
        "tls.config.file": str(file),
        "brokerRole": "SYNC_MASTER",  # so a send that is well has reached the slave
        "slaveTimeout": 20_000,
    }
    tls = TlsSettings(ca_file=certificates.ca)
    with EmbeddedCluster(slaves=1, settings=settings) as cluster:
        with Producer("tls", namesrv=cluster.namesrv, tls=tls, send_timeout=20) as producer:
            wait_for(SendStatus.SEND_OK, producer, "tls")
            for server in (cluster.nameserver, cluster.broker("broker-a", 1)):
                server.kill()
                server.start()
            wait_for(SendStatus.SEND_OK, producer, "tls")
        with producer_at(cluster) as producer, pytest.raises(NoNameServer):
            producer.send(Message("tls", b"x"))


def test_without_tls_nobody_is_served_who_speaks_it() -> None:
    with (
        EmbeddedCluster(settings={"tls.server.mode": "disabled"}) as cluster,
        Producer("tls", namesrv=cluster.namesrv, tls=TlsSettings(verify=False)) as producer,
        pytest.raises(NoNameServer),
    ):
        producer.send(Message("tls", b"x"))


def test_settings_of_tls_that_can_not_be_used_are_refused() -> None:
    with pytest.raises(InvalidSetting, match="it must be one of disabled"):
        EmbeddedCluster(settings={"tls.server.mode": "always"})
    cluster = EmbeddedCluster(settings={"tls.server.certPath": "/nowhere/cert.pem"})
    with pytest.raises(InvalidSetting, match=r"cert_file '/nowhere/cert\.pem': No such file"):
        cluster.start()
