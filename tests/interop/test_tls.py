"""TLS with real Apache RocketMQ, certificates checked on both sides."""

import asyncio
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives import serialization

from rocketpipe.errors import ConnectFailed, ConnectionLost, RemotingError
from rocketpipe.remoting.address import Address
from rocketpipe.remoting.connection import connect
from rocketpipe.remoting.network import AsyncioNetwork
from rocketpipe.remoting.tls import TlsSettings, client_context
from rocketpipe.wire.requests.nameserver import GetBrokerClusterInfo
from tests.apache.cluster import ApacheCluster

TIMEOUT = 10.0


class Certificates:
    """A CA, and what it gave to a server and to a client, as files."""

    def __init__(self, folder: Path) -> None:
        authority = trustme.CA()
        self.ca = str(folder / "ca.pem")
        authority.cert_pem.write_to_path(self.ca)
        self.server = self._issue(authority, folder / "server")
        self.client = self._issue(authority, folder / "client")

    def _issue(self, authority: trustme.CA, stem: Path) -> tuple[str, str]:
        issued = authority.issue_cert("127.0.0.1", "localhost")
        cert, key = stem.with_suffix(".pem"), stem.with_suffix(".key")
        cert.write_bytes(b"".join(part.bytes() for part in issued.cert_chain_pems))
        # Java reads private keys in PKCS #8 only.
        private = serialization.load_pem_private_key(issued.private_key_pem.bytes(), None)
        key.write_bytes(
            private.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return str(cert), str(key)

    def client_tls(self) -> ssl.SSLContext:
        cert, key = self.client
        return client_context(TlsSettings(ca_file=self.ca, cert_file=cert, key_file=key))


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


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
        apache_version, brokers=0, jvm_properties=properties, tls=certificates.client_tls()
    ) as cluster:
        yield cluster.namesrv, request.param


def ask(namesrv: str, tls: ssl.SSLContext | None) -> None:
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
    ask(namesrv, certificates.client_tls())


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
        ask(namesrv, client_context(TlsSettings(ca_file=certificates.ca)))


def test_a_server_that_we_do_not_trust_is_refused(tls_namesrv: tuple[str, str]) -> None:
    namesrv, _ = tls_namesrv
    with pytest.raises(ConnectFailed, match="the certificate is not trusted"):
        ask(namesrv, client_context(TlsSettings()))
