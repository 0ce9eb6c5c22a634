"""The harness itself: real clusters come up, can be hurt, and come back."""

from tests.apache.cluster import ApacheCluster


def test_a_cluster_has_its_two_brokers_registered(apache: ApacheCluster) -> None:
    known = apache.nameserver.known_brokers()
    for name in ("broker-a", "broker-b"):
        assert f'"{name}"' in known
        assert f'"{apache.broker(name).address}"' in known
