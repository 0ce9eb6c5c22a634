"""TLS on the real network: who may talk, and whom to believe."""

import asyncio
import socket
import ssl

import pytest

from rocketpipe.errors import ConnectFailed
from rocketpipe.remoting.address import Address
from rocketpipe.remoting.network import AsyncioNetwork
from rocketpipe.remoting.tls import (
    ClientAuth,
    TlsMode,
    TlsSettings,
    client_context,
    server_context,
)
from tests.certificates import Certificates
from tests.remoting.echo_server import EchoServer, echo, run
from tests.remoting.recorder import Recorder


@pytest.fixture(scope="session")
def other_certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("other"), "elsewhere.example")


@pytest.mark.parametrize(
    ("mode", "speaks_plain", "speaks_tls"),
    [
        (TlsMode.DISABLED, True, False),
        (TlsMode.PERMISSIVE, True, True),
        (TlsMode.ENFORCING, False, True),
    ],
)
def test_a_mode_says_who_may_talk(
    mode: TlsMode,
    speaks_plain: bool,
    speaks_tls: bool,
    server_tls: ssl.SSLContext,
    client_tls: ssl.SSLContext,
) -> None:
    async def main() -> None:
        server = EchoServer()
        listener = await server.start(server_tls, mode)
        if speaks_plain:
            await echo(listener.address, None)
        else:
            client = await server.network.connect(listener.address, Recorder, timeout=5.0)
            client.transport.write(b"\0\0\0\x10plain")
            await client.until_event("lost")
            assert client.data == b"" or client.data[0] == 0x15  # a TLS alert
        if speaks_tls:
            await echo(listener.address, client_tls)
        else:
            with pytest.raises(ConnectFailed, match="TLS handshake failed: unexpected message"):
                await server.network.connect(
                    listener.address, Recorder, timeout=5.0, tls=client_tls
                )
        for accepted in server.accepted:
            if accepted.events:
                await accepted.until_event("lost")
        await listener.close()

    run(main())


def test_many_of_both_kinds_on_one_port(
    server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    async def main() -> None:
        server = EchoServer()
        listener = await server.start(server_tls, TlsMode.PERMISSIVE)
        await asyncio.gather(
            *(echo(listener.address, client_tls if n % 2 else None) for n in range(40))
        )
        for accepted in server.accepted:
            await accepted.until_event("lost")
        await listener.close()

    run(main())


@pytest.mark.parametrize("mode", TlsMode)
def test_small_writes_leave_at_once(mode: TlsMode, server_tls: ssl.SSLContext) -> None:
    async def main() -> None:
        server = EchoServer()
        listener = await server.start(server_tls, mode)
        tls = client_context(TlsSettings(verify=False)) if mode is TlsMode.ENFORCING else None
        client = await server.network.connect(listener.address, Recorder, timeout=5.0, tls=tls)
        client.transport.write(b"x")
        await client.until_bytes(1)
        for end in (client, server.accepted[0]):
            sock = end.transport.get_extra_info("socket")
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        client.transport.close()
        await server.accepted[0].until_event("lost")
        await listener.close()

    run(main())


def test_a_server_of_another_authority_is_not_trusted(
    server_tls: ssl.SSLContext, other_certificates: Certificates
) -> None:
    async def main() -> None:
        server = EchoServer()
        listener = await server.start(server_tls, TlsMode.PERMISSIVE)
        stranger = client_context(TlsSettings(ca_file=other_certificates.ca))
        with pytest.raises(ConnectFailed, match="the certificate is not trusted") as caught:
            await server.network.connect(listener.address, Recorder, timeout=5.0, tls=stranger)
        assert isinstance(caught.value.__cause__, ssl.SSLCertVerificationError)
        # And unless told otherwise, we trust those this machine trusts.
        machine = client_context(TlsSettings())
        with pytest.raises(ConnectFailed, match="the certificate is not trusted"):
            await server.network.connect(listener.address, Recorder, timeout=5.0, tls=machine)
        await echo(listener.address, client_context(TlsSettings(verify=False)))
        await listener.close()

    run(main())


def test_a_server_of_another_name_is_not_trusted_unless_that_name_is_asked_for(
    other_certificates: Certificates,
) -> None:
    cert, key = other_certificates.server
    tls = server_context(TlsSettings(cert_file=cert, key_file=key))
    client_tls = client_context(TlsSettings(ca_file=other_certificates.ca))

    async def main() -> None:
        server = EchoServer()
        listener = await server.start(tls, TlsMode.ENFORCING)
        with pytest.raises(ConnectFailed, match=r"not trusted: .*127\.0\.0\.1"):
            await server.network.connect(listener.address, Recorder, timeout=5.0, tls=client_tls)
        await echo(listener.address, client_tls, "elsewhere.example")
        await listener.close()

    run(main())


@pytest.mark.parametrize("auth", [ClientAuth.REQUIRED, ClientAuth.OPTIONAL])
def test_a_client_shows_its_certificate(
    auth: ClientAuth, certificates: Certificates, other_certificates: Certificates
) -> None:
    def client(given: Certificates | None) -> ssl.SSLContext:
        cert, key = given.client if given else (None, None)
        return client_context(TlsSettings(ca_file=certificates.ca, cert_file=cert, key_file=key))

    async def is_welcome(address: Address, tls: ssl.SSLContext) -> bool:
        """With TLS 1.3, whether a server likes our certificate shows only when it answers."""
        try:
            client = await AsyncioNetwork().connect(address, Recorder, timeout=5.0, tls=tls)
        except ConnectFailed:
            return False
        client.transport.write(b"hello")
        await client.until(lambda it: bool(it.data) or "lost" in it.events)
        client.transport.close()
        await client.until_event("lost")
        return client.data == b"hello"

    async def main() -> None:
        cert, key = certificates.server
        settings = TlsSettings(
            cert_file=cert, key_file=key, ca_file=certificates.ca, client_auth=auth
        )
        server = EchoServer()
        listener = await server.start(server_context(settings), TlsMode.PERMISSIVE)
        assert await is_welcome(listener.address, client(certificates))
        peer = server.accepted[0].transport.get_extra_info("peercert")
        assert peer["subjectAltName"] == (("DNS", "client.example"),)
        assert await is_welcome(listener.address, client(None)) == (auth is ClientAuth.OPTIONAL)
        assert not await is_welcome(listener.address, client(other_certificates))
        await listener.close()

    run(main())
