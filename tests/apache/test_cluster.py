"""Real clusters come up, can be hurt in every way, and come back."""

import socket
import ssl

import pytest

from tests.apache import cluster as module
from tests.apache.cluster import ApacheCluster, BrokerSpec, StartFailed
from tests.apache.test_launch import children, wait_gone


def only(version: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("apache_version", [version], indirect=True)


def test_a_cluster_has_its_two_brokers_registered(apache: ApacheCluster) -> None:
    known = apache.nameserver.known_brokers()
    for name in ("broker-a", "broker-b"):
        assert f'"{name}"' in known
        assert f'"{apache.broker(name).address}"' in known


@only("5.5.0")
def test_servers_listen_on_one_address_of_this_machine(apache: ApacheCluster) -> None:
    for server in (apache.nameserver, *apache.brokers):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.2", server.port), timeout=1)


def test_a_killed_broker_comes_back_where_it_was(apache: ApacheCluster) -> None:
    broker = apache.broker("broker-a")
    pid, address = broker.pid, broker.address
    broker.kill()
    wait_gone(pid)
    assert not broker.is_running
    assert not broker.is_ready()
    broker.start()
    assert broker.is_ready()
    assert broker.address == address
    assert broker.pid != pid


def test_a_frozen_broker_keeps_its_pid_and_answers_when_thawed(apache: ApacheCluster) -> None:
    broker = apache.broker("broker-b")
    pid = broker.pid
    with broker.frozen():
        assert broker.is_running
        assert not broker.is_ready()
        # The kernel still takes connections for it, as for a broker that hangs.
        socket.create_connection(("127.0.0.1", broker.port), timeout=1).close()
    assert broker.is_ready()
    assert broker.pid == pid


def test_a_test_may_leave_servers_dead_or_frozen(apache: ApacheCluster) -> None:
    apache.broker("broker-a").kill()
    apache.broker("broker-b").freeze()


def test_and_the_next_finds_all_of_them_well(apache: ApacheCluster) -> None:
    assert apache.nameserver.is_ready()
    assert all(broker.is_ready() for broker in apache.brokers)


@only("4.9.4")
def test_a_restarted_nameserver_is_ready_when_it_knows_the_brokers(apache: ApacheCluster) -> None:
    apache.nameserver.kill()
    assert apache.nameserver.known_brokers() == ""
    apache.nameserver.start()
    assert all(broker.is_ready() for broker in apache.brokers)


@only("4.9.4")
def test_a_stopped_broker_ends_the_proper_way(apache: ApacheCluster) -> None:
    broker = apache.broker("broker-a")
    broker.freeze()  # a frozen one would never see the signal
    broker.stop()
    assert not broker.is_running
    assert "Shutdown hook over" in broker.log_end()


@only("4.9.4")
def test_settings_go_to_the_brokers_they_are_meant_for(apache_version: str) -> None:
    slave = BrokerSpec("broker-a", id=1, settings={"brokerRole": "SLAVE"})
    with ApacheCluster(
        apache_version,
        brokers=[BrokerSpec("broker-a"), slave],
        settings={"defaultTopicQueueNums": "3"},
        broker_settings={"broker-a": {"maxTransferCountOnMessageInMemory": "99"}},
    ) as cluster:
        assert cluster.broker("broker-a").address != cluster.broker("broker-a", id=1).address
        assert all(broker.is_ready() for broker in cluster.brokers)
        for broker in cluster.brokers:
            log = broker.log.read_text()
            assert "defaultTopicQueueNums=3" in log
            assert "maxTransferCountOnMessageInMemory=99" in log
            assert ("brokerRole=SLAVE" in log) == (broker.id == 1)


@only("4.9.4")
def test_servers_that_insist_on_tls_are_asked_with_tls(apache_version: str) -> None:
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname = False
    trusting.verify_mode = ssl.CERT_NONE
    insisting = {"tls.server.mode": "enforcing"}
    with ApacheCluster(apache_version, 0, jvm_properties=insisting, tls=trusting) as cluster:
        assert cluster.nameserver.is_ready()
        cluster.tls = None
        assert not cluster.nameserver.is_ready()


def test_a_start_that_fails_shows_the_log_and_leaves_nothing(apache_version: str) -> None:
    before = children()
    with pytest.raises(StartFailed, match=r"(?s)broker-a ended.*Slave's brokerId must be > 0"):
        ApacheCluster(apache_version, brokers=1, settings={"brokerRole": "SLAVE"})
    assert children() == before


@only("4.9.4")
@pytest.mark.parametrize(("server", "taken"), [(0, 0), (1, -2), (1, 1)])
def test_a_server_moves_when_another_program_took_its_port(
    apache_version: str, server: int, taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the port is taken between our look at it and the start of the server."""
    chosen: list[int] = []

    class TakenPorts(module._Ports):
        def __init__(self) -> None:
            super().__init__()
            if len(chosen) == server:
                taker.bind(("", self.listen + taken))
                taker.listen()
            chosen.append(self.listen)

    monkeypatch.setattr(module, "_Ports", TakenPorts)
    with socket.socket() as taker, ApacheCluster(apache_version, brokers=1) as cluster:
        assert cluster.brokers[0].is_ready()
        assert len(chosen) == 3  # for two servers
        assert [cluster.nameserver, cluster.brokers[0]][server].port == chosen[server + 1]


def test_clusters_claim_different_ports() -> None:
    claims = [module._Ports() for _ in range(100)]
    assert len({claim.listen for claim in claims}) == 100
    with pytest.raises(OSError, match="in use"):
        module._bound(claims[0].listen - 1)
    for claim in claims:
        claim.close()
