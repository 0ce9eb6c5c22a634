"""Clusters that speak TLS and ask for certificates, all by the same settings of RocketMQ's."""

from collections.abc import Iterator
from contextlib import contextmanager

from rocketpipe.remoting.tls import TlsSettings, client_context
from rocketpipe.testing import EmbeddedCluster
from tests.apache.cluster import ApacheCluster
from tests.apache.require import require
from tests.certificates import Certificates
from tests.interop.clusters import EMBEDDED


def client_tls(certificates: Certificates) -> TlsSettings:
    cert, key = certificates.client
    return TlsSettings(ca_file=certificates.ca, cert_file=cert, key_file=key)


@contextmanager
def tls_cluster_of(kind: str, certificates: Certificates, mode: str) -> Iterator[str]:
    """Servers that ask their TLS clients for a certificate; the NameServer's address."""
    cert, key = certificates.server
    client_cert, client_key = certificates.client
    properties = {
        "tls.server.mode": mode,
        "tls.test.mode.enable": "false",
        "tls.server.certPath": cert,
        "tls.server.keyPath": key,
        "tls.server.trustCertPath": certificates.ca,
        "tls.server.need.client.auth": "require",
        "tls.server.authClient": "true",
        # As its NameServer's client a broker has to show one as well.
        "tls.enable": "true",
        "tls.client.authServer": "true",
        "tls.client.trustCertPath": certificates.ca,
        "tls.client.certPath": client_cert,
        "tls.client.keyPath": client_key,
    }
    if kind == EMBEDDED:
        with EmbeddedCluster(1, settings=properties) as embedded:
            yield embedded.namesrv
        return
    require(kind)
    with ApacheCluster(
        kind,
        brokers=1,
        settings={"autoCreateTopicEnable": "true"},
        jvm_properties=properties,
        tls=client_context(client_tls(certificates)),
    ) as cluster:
        yield cluster.namesrv
