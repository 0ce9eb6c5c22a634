"""TLS settings say which file is wrong, and keep their password to themselves."""

import ssl
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from rocketpipe.errors import InvalidSetting
from rocketpipe.remoting.tls import ClientAuth, TlsSettings, client_context, server_context


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    for name in ("one", "two"):
        issued = authority.issue_cert(f"{name}.example")
        issued.cert_chain_pems[0].write_to_path(str(folder / f"{name}.pem"))
        issued.private_key_pem.write_to_path(str(folder / f"{name}.key"))
        issued.private_key_and_cert_chain_pem.write_to_path(str(folder / f"{name}-both.pem"))
    key = load_pem_private_key((folder / "one.key").read_bytes(), None)
    (folder / "locked.key").write_bytes(
        key.private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"open sesame")
        )
    )
    (folder / "text.pem").write_text("not a certificate")
    return folder


def settings(folder: Path, **names: Any) -> TlsSettings:
    for name, value in names.items():
        if name.endswith("_file"):
            names[name] = str(folder / value)
    return TlsSettings(**names)


def test_a_client_verifies_unless_told_not_to(folder: Path) -> None:
    context = client_context(TlsSettings())
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    trusting = client_context(TlsSettings(verify=False))
    assert trusting.verify_mode is ssl.CERT_NONE
    assert not trusting.check_hostname
    only_ours = client_context(settings(folder, ca_file="ca.pem"))
    assert len(only_ours.get_ca_certs()) == 1


@pytest.mark.parametrize(
    ("auth", "mode"),
    [
        (ClientAuth.NONE, ssl.CERT_NONE),
        (ClientAuth.OPTIONAL, ssl.CERT_OPTIONAL),
        (ClientAuth.REQUIRED, ssl.CERT_REQUIRED),
    ],
)
def test_a_server_asks_for_certificates_as_it_is_told(
    folder: Path, auth: ClientAuth, mode: ssl.VerifyMode
) -> None:
    context = server_context(
        settings(
            folder, cert_file="one.pem", key_file="one.key", ca_file="ca.pem", client_auth=auth
        )
    )
    assert context.verify_mode is mode


def test_certificate_and_key_may_share_a_file(folder: Path) -> None:
    server_context(settings(folder, cert_file="one-both.pem"))


def test_a_locked_key_opens_with_its_password(folder: Path) -> None:
    names = {"cert_file": "one.pem", "key_file": "locked.key"}
    server_context(settings(folder, **names, key_password="open sesame"))
    for password in ("wrong", None):
        with pytest.raises(InvalidSetting, match=r"locked\.key.*key_password"):
            server_context(settings(folder, **names, key_password=password))


def test_the_password_is_never_printed(folder: Path) -> None:
    locked = settings(folder, cert_file="two.pem", key_file="locked.key", key_password="wrong one")
    assert "wrong one" not in repr(locked)
    with pytest.raises(InvalidSetting) as caught:
        server_context(locked)
    assert "wrong one" not in str(caught.value)


@pytest.mark.parametrize(
    ("names", "why"),
    [
        ({"cert_file": "none.pem"}, r"cert_file '.*none\.pem': No such file"),
        ({"cert_file": "one.pem", "key_file": "none.key"}, r"key_file '.*none\.key': No such file"),
        ({"cert_file": "one-both.pem", "ca_file": "none"}, r"ca_file '.*none': No such file"),
        ({"cert_file": "."}, r"cert_file '.*': Is a directory"),
        ({"cert_file": "text.pem"}, r"cert_file '.*text\.pem'.*can't be read"),
        ({"cert_file": "one.pem"}, r"key_file '.*one\.pem' can't be read"),
        ({"cert_file": "one-both.pem", "ca_file": "text.pem"}, r"ca_file '.*text\.pem'"),
        ({"cert_file": "one.pem", "key_file": "two.key"}, r"key_file '.*two\.key' is not the key"),
        ({}, "a TLS server needs cert_file"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(folder: Path, names: dict[str, str], why: str) -> None:
    with pytest.raises(InvalidSetting, match=why):
        server_context(settings(folder, **names))


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"key_file": "k.pem"}, "key_file is of no use without cert_file"),
        ({"server_hostname": ""}, "server_hostname"),
        ({"server_hostname": "."}, "server_hostname"),
        ({"server_hostname": ".example"}, "server_hostname"),
        ({"client_auth": ClientAuth.REQUIRED}, "client_auth=require needs ca_file"),
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidSetting, match=why):
        TlsSettings(**wrong)


def test_every_setting_is_documented() -> None:
    docs = (Path(__file__).parents[3] / "docs" / "settings.md").read_text()
    section = docs.split("## TLS and keys\n")[1]
    assert all(f"`{each.name}`" in section for each in fields(TlsSettings))
