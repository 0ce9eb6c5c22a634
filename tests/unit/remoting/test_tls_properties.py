"""RocketMQ's properties of TLS mean what they mean there, and nonsense is refused."""

from pathlib import Path

import pytest

from rocketpipe.errors import InvalidSetting
from rocketpipe.remoting.tls import ClientAuth, ServerTls, TlsMode, TlsSettings
from rocketpipe.remoting.tls_properties import read_tls

CERT = {"tls.server.certPath": "server.pem", "tls.server.keyPath": "server.key"}


def test_without_a_word_servers_speak_both_with_a_certificate_of_their_own() -> None:
    assert read_tls({}) == ServerTls(
        mode=TlsMode.PERMISSIVE, server=TlsSettings(self_signed=True), client=None
    )


def test_tls_can_be_turned_off() -> None:
    assert read_tls({"tls.server.mode": "disabled"}) == ServerTls()


def test_where_tls_is_enforced_brokers_speak_it_too_unless_told_not_to() -> None:
    enforcing = {"tls.server.mode": "enforcing"}
    assert read_tls(enforcing).client == TlsSettings(verify=False)
    assert read_tls({**enforcing, "tls.enable": "false"}).client is None
    assert read_tls({"tls.enable": "true"}).client == TlsSettings(verify=False)


def test_every_property_has_its_setting() -> None:
    tls = read_tls(
        {
            **CERT,
            "tls.server.keyPassword": "sesame-1",
            "tls.server.trustCertPath": "ca.pem",
            "tls.server.need.client.auth": "Optional",
            "tls.server.authClient": "true",
            "tls.test.mode.enable": "false",
            "tls.enable": "TRUE",
            "tls.client.certPath": "client.pem",
            "tls.client.keyPath": "client.key",
            "tls.client.keyPassword": "sesame-2",
            "tls.client.trustCertPath": "ca-2.pem",
            "tls.client.authServer": "true",
        }
    )
    assert tls.server == TlsSettings(
        cert_file="server.pem",
        key_file="server.key",
        key_password="sesame-1",
        ca_file="ca.pem",
        client_auth=ClientAuth.OPTIONAL,
    )
    assert tls.client == TlsSettings(
        cert_file="client.pem",
        key_file="client.key",
        key_password="sesame-2",
        ca_file="ca-2.pem",
    )
    assert "sesame-1" not in repr(tls)
    assert "sesame-2" not in repr(tls)


def test_a_certificate_that_is_named_is_used_whatever_the_test_mode() -> None:
    server = read_tls({**CERT, "tls.test.mode.enable": "true"}).server
    assert server is not None
    assert server.cert_file == "server.pem"
    assert not server.self_signed


def test_a_file_may_hold_them_and_has_the_last_word_as_in_java(tmp_path: Path) -> None:
    file = tmp_path / "tls.properties"
    file.write_text("# secrets\ntls.server.certPath=mine.pem\ntls.server.keyPassword=secret\n")
    server = read_tls({**CERT, "tls.config.file": str(file)}).server
    assert server == TlsSettings(cert_file="mine.pem", key_file="server.key", key_password="secret")


@pytest.mark.parametrize(
    ("properties", "why"),
    [
        ({"tls.server.mode": "sometimes"}, "disabled, permissive, enforcing"),
        ({"tls.server.certpath": "x"}, "tls.server.certpath is not a setting of TLS"),
        ({"tls.enable": "yes"}, "tls.enable is 'yes': it must be true or false"),
        ({"tls.test.mode.enable": "false"}, "tls.server.certPath is missing"),
        ({"tls.server.need.client.auth": "require"}, "needs ca_file"),
        ({"tls.server.need.client.auth": "maybe"}, "none, optional, require"),
        (
            {
                **CERT,
                "tls.server.trustCertPath": "ca.pem",
                "tls.server.need.client.auth": "require",
                "tls.server.authClient": "false",
            },
            "is checked here",
        ),
        ({"tls.server.keyPath": "x"}, "key_file is of no use"),
        ({"tls.config.file": "/nowhere/tls.properties"}, "No such file"),
    ],
)
def test_what_can_not_be_meant_is_refused(properties: dict[str, str], why: str) -> None:
    with pytest.raises(InvalidSetting, match=why):
        read_tls(properties)
