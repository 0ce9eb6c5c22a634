"""TLS, with certificates checked on both sides."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from rocketpipe import (
    AsyncProducer,
    AsyncPullConsumer,
    AsyncPushConsumer,
    Message,
    Retry,
    StoredMessage,
)
from rocketpipe.errors import ConnectFailed, ConnectionLost, NoNameServer, RemotingError
from rocketpipe.remoting.address import Address
from rocketpipe.remoting.connection import connect
from rocketpipe.remoting.network import AsyncioNetwork
from rocketpipe.remoting.tls import TlsSettings
from rocketpipe.testing import EmbeddedCluster
from rocketpipe.wire.requests.nameserver import GetBrokerClusterInfo
from tests.apache import programs
from tests.apache.require import require
from tests.certificates import Certificates
from tests.interop.clusters import EMBEDDED, JAVA, Reader, new_topic
from tests.interop.consuming import until
from tests.interop.tls_clusters import client_tls, tls_cluster_of

TIMEOUT = 10.0


@pytest.fixture(scope="module", params=["permissive", "enforcing"])
def tls_cluster(
    request: pytest.FixtureRequest,
    cluster_name: str,
    certificates: Certificates,
) -> Iterator[tuple[str, str]]:
    """Servers that ask their TLS clients for a certificate; the NameServer's address, the mode."""
    with tls_cluster_of(cluster_name, certificates, request.param) as namesrv:
        yield namesrv, request.param


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
    tls_cluster: tuple[str, str], certificates: Certificates
) -> None:
    namesrv, _ = tls_cluster
    ask(namesrv, client_tls(certificates))


def test_plain_is_served_beside_tls_unless_tls_is_enforced(tls_cluster: tuple[str, str]) -> None:
    namesrv, mode = tls_cluster
    if mode == "permissive":
        ask(namesrv, None)
    else:
        with pytest.raises(ConnectionLost):
            ask(namesrv, None)


def test_a_client_without_a_certificate_is_refused(
    tls_cluster: tuple[str, str], certificates: Certificates
) -> None:
    namesrv, _ = tls_cluster
    # With TLS 1.3 the server's no comes after the handshake.
    with pytest.raises(RemotingError):
        ask(namesrv, TlsSettings(ca_file=certificates.ca))


def test_a_server_that_we_do_not_trust_is_refused(tls_cluster: tuple[str, str]) -> None:
    namesrv, _ = tls_cluster
    with pytest.raises(ConnectFailed, match="the certificate is not trusted"):
        ask(namesrv, TlsSettings())


def test_a_producer_sends_over_tls(
    tls_cluster: tuple[str, str], certificates: Certificates
) -> None:
    namesrv, _ = tls_cluster
    tls = client_tls(certificates)

    async def main() -> None:
        async with (
            AsyncProducer("interop-tls", namesrv=namesrv, tls=tls, send_timeout=20) as producer,
            Reader(namesrv, tls=tls) as reader,
        ):
            topic = new_topic("tls")
            large = bytes(range(256)) * 8192  # many of TLS's records
            for body in (b"secret", large):
                result = await producer.send(Message(topic, body))
                assert (await reader.stored(result)).body == body
            results = await producer.send_many(Message(topic, b"%d" % n) for n in range(500))
            assert {type(each).__name__ for each in results} == {"SendResult"}

    asyncio.run(main())


def test_consumers_read_over_tls_and_what_fails_comes_again(
    tls_cluster: tuple[str, str], certificates: Certificates
) -> None:
    namesrv, mode = tls_cluster
    settings: dict[str, Any] = {
        "namesrv": namesrv,
        "tls": client_tls(certificates),
        "request_timeout": TIMEOUT,
        "consume_from": "first",
    }
    given: list[tuple[bytes, int]] = []

    async def listen(messages: list[StoredMessage]) -> Retry | None:
        given.extend((message.body, message.reconsume_times) for message in messages)
        return None if messages[0].reconsume_times else Retry(delay_level=1)

    async def main() -> None:
        topic = new_topic(f"tls-{mode}")
        async with (
            AsyncProducer(
                "interop-tls", namesrv=namesrv, tls=settings["tls"], send_timeout=20
            ) as producer,
            AsyncPullConsumer(f"{topic}-pull", **settings) as pull,
        ):
            large = bytes(range(256)) * 2048  # many of TLS's records
            for body in (b"secret", large):
                await producer.send(Message(topic, body))
            async with AsyncPushConsumer(
                f"{topic}-push", listen, subscriptions={topic: "*"}, **settings
            ):
                await until(lambda: len(given) >= 4, "all came, and came again")
            await pull.subscribe(topic)
            found: list[bytes] = []

            async def all_came() -> bool:
                found.extend(message.body for message in await pull.poll(timeout=1.0))
                return len(found) >= 2

            await until(all_came, "all were polled")
            assert sorted(found) == sorted([large, b"secret"])
        assert {each for each, times in given if times == 0} == {b"secret", large}
        assert {each for each, times in given if times == 1} == {b"secret", large}

    asyncio.run(main())


def test_a_producer_without_tls_is_served_unless_tls_is_enforced(
    tls_cluster: tuple[str, str],
) -> None:
    namesrv, mode = tls_cluster

    async def main() -> None:
        async with AsyncProducer("interop-plain", namesrv=namesrv, send_timeout=20) as producer:
            if mode == "permissive":
                await producer.send(Message(new_topic("plain"), b"no secret"))
            else:
                with pytest.raises(NoNameServer, match=namesrv):
                    await producer.send(Message(new_topic("plain"), b"no secret"))

    asyncio.run(main())


def test_a_producer_says_whom_it_does_not_trust(tls_cluster: tuple[str, str]) -> None:
    namesrv, _ = tls_cluster

    async def main() -> None:
        async with AsyncProducer("interop-wary", namesrv=namesrv, tls=TlsSettings()) as producer:
            with pytest.raises(NoNameServer, match="the certificate is not trusted"):
                await producer.send(Message(new_topic("wary"), b"x"))

    asyncio.run(main())


@pytest.mark.apache
@pytest.mark.slow
def test_javas_clients_are_served_over_tls_and_plain_on_one_port(
    embedded_cluster: EmbeddedCluster,
) -> None:
    """Without any files: our servers show certificates of their own making."""
    version = embedded_cluster.version
    require(version)
    topic = new_topic("tls-java")
    for tls_enable in ("true", "false"):
        sent = programs.java_program(
            version,
            JAVA / "Produce.java",
            [topic, "key"],
            namesrv=embedded_cluster.namesrv,
            jvm_properties={"tls.enable": tls_enable},
            timeout=120,
        )
        assert sent.exit_code == 0, sent.output
        assert sent.output.count("sent\t") == 4
    read = programs.java_program(
        version,
        JAVA / "Consume.java",
        [topic, "8"],
        namesrv=embedded_cluster.namesrv,
        jvm_properties={"tls.enable": "true"},
        timeout=120,
    )
    assert read.exit_code == 0, read.output


def test_javas_clients_show_their_certificate(
    tls_cluster: tuple[str, str], cluster_name: str, certificates: Certificates
) -> None:
    namesrv, _ = tls_cluster
    version = EmbeddedCluster.version if cluster_name == EMBEDDED else cluster_name
    require(version)
    cert, key = certificates.client
    properties = {
        "tls.enable": "true",
        "tls.test.mode.enable": "false",
        "tls.client.authServer": "true",
        "tls.client.trustCertPath": certificates.ca,
    }
    own = {"tls.client.certPath": cert, "tls.client.keyPath": key}
    for extra, is_served in ((own, True), ({}, False)):
        finished = programs.java_program(
            version,
            JAVA / "Produce.java",
            [new_topic("tls-java"), "key"],
            namesrv=namesrv,
            jvm_properties={**properties, **extra},
            timeout=120,
        )
        assert (finished.exit_code == 0) == is_served, finished.output
