"""TLS with real Apache RocketMQ, certificates checked on both sides."""

import asyncio
from collections.abc import Iterator

import pytest

from rocketpipe.errors import ConnectFailed, ConnectionLost, RemotingError
from rocketpipe.remoting.address import Address
from rocketpipe.remoting.connection import connect
from rocketpipe.remoting.network import AsyncioNetwork
from rocketpipe.remoting.tls import TlsSettings, client_context
from rocketpipe.wire.requests.nameserver import GetBrokerClusterInfo
from tests.apache.cluster import ApacheCluster
from tests.certificates import Certificates

TIMEOUT = 10.0


def client_tls(certificates: Certificates) -> TlsSettings:
    cert, key = certificates.client
    return TlsSettings(ca_file=certificates.ca, cert_file=cert, key_file=key)


@pytest.fixture(scope="module", params=["permissive", "enforcing"])
def tls_namesrv(
    request: pytest.FixtureRequest,
    apache_version: str,
    certificates: Certificates,
) -> Iterator[tuple[str, str]]:
    """A NameServer that asks its TLS clients for a certificate; its address and mode."""
    cert, key = certificates.server
    properties = {
        "tls.server.mode": request.param,
        "tls.test.mode.enable": "false",
        "tls.server.certPath": cert,
        "tls.server.keyPath": key,
        "tls.server.trustCertPath": certificates.ca,
        "tls.server.need.client.auth": "require",
        "tls.server.authClient": "true",
    }
    with ApacheCluster(
        apache_version,
        brokers=0,
        jvm_properties=properties,
        tls=client_context(client_tls(certificates)),
    ) as cluster:
        yield cluster.namesrv, request.param


def ask(namesrv: str, tls: TlsSettings | None) -> None:
    async def main() -> None:
        connection = await connect(
            AsyncioNetwork(), Address.parse(namesrv), timeout=TIMEOUT, tls=tls
        )
        try:
            await connection.request(GetBrokerClusterInfo(), timeout=TIMEOUT)
        finally:
            await connection.close()

    asyncio.run(main())


def test_both_sides_may_check_certificates(
    tls_namesrv: tuple[str, str], certificates: Certificates
) -> None:
    namesrv, _ = tls_namesrv
    ask(namesrv, client_tls(certificates))


def test_plain_is_served_beside_tls_unless_tls_is_enforced(tls_namesrv: tuple[str, str]) -> None:
    namesrv, mode = tls_namesrv
    if mode == "permissive":
        ask(namesrv, None)
    else:
        with pytest.raises(ConnectionLost):
            ask(namesrv, None)


def test_a_client_without_a_certificate_is_refused(
    tls_namesrv: tuple[str, str], certificates: Certificates
) -> None:
    namesrv, _ = tls_namesrv
    # With TLS 1.3 the server's no comes after the handshake.
    with pytest.raises(RemotingError):
        ask(namesrv, TlsSettings(ca_file=certificates.ca))


def test_a_server_that_we_do_not_trust_is_refused(tls_namesrv: tuple[str, str]) -> None:
    namesrv, _ = tls_namesrv
    with pytest.raises(ConnectFailed, match="the certificate is not trusted"):
        ask(namesrv, TlsSettings())
