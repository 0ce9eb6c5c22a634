"""How the servers of a cluster speak TLS, by the names of RocketMQ's system properties: `tls.*`.

As in RocketMQ, a server serves plain and TLS, with a certificate of its own making, unless told
otherwise. Two things differ: a certificate that is named is used, whatever `tls.test.mode.enable`
says, and one that a client shows is always checked.
"""

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Final, TypeVar

from rocketpipe.errors import InvalidSetting
from rocketpipe.remoting.tls import ClientAuth, ServerTls, TlsMode, TlsSettings
from rocketpipe.wire.config_text import parse_config

PREFIX: Final = "tls."
_FILE: Final = "tls.config.file"
NAMES: Final = frozenset(
    {
        _FILE,
        "tls.enable",
        "tls.test.mode.enable",
        "tls.server.mode",
        "tls.server.need.client.auth",
        "tls.server.authClient",
        "tls.server.certPath",
        "tls.server.keyPath",
        "tls.server.keyPassword",
        "tls.server.trustCertPath",
        "tls.client.authServer",
        "tls.client.certPath",
        "tls.client.keyPath",
        "tls.client.keyPassword",
        "tls.client.trustCertPath",
    }
)

E = TypeVar("E", bound=StrEnum)


def read_tls(properties: Mapping[str, str]) -> ServerTls:
    """What the properties that begin with `tls.` say; RocketMQ's defaults for those not there."""
    given = {name: text for name, text in properties.items() if name.startswith(PREFIX)}
    if _FILE in given:
        given = {**given, **_read_file(given[_FILE])}
    if unknown := sorted(given.keys() - NAMES):
        raise InvalidSetting(f"{unknown[0]} is not a setting of TLS")
    mode = _one_of(TlsMode, given, "tls.server.mode", TlsMode.PERMISSIVE)
    # As in RocketMQ: where servers speak nothing else, brokers have to.
    uses_tls = _flag(given, "tls.enable", default=mode is TlsMode.ENFORCING)
    return ServerTls(
        mode=mode,
        server=_server_settings(given) if mode is not TlsMode.DISABLED else None,
        client=_client_settings(given) if uses_tls else None,
    )


def _server_settings(given: Mapping[str, str]) -> TlsSettings:
    client_auth = _one_of(ClientAuth, given, "tls.server.need.client.auth", ClientAuth.NONE)
    if client_auth is not ClientAuth.NONE and not _flag(
        given, "tls.server.authClient", default=True
    ):
        raise InvalidSetting(
            "tls.server.authClient is false: a certificate that is asked for is checked here"
        )
    cert_file = given.get("tls.server.certPath") or None
    if cert_file is None and not _flag(given, "tls.test.mode.enable", default=True):
        raise InvalidSetting("tls.server.certPath is missing, and tls.test.mode.enable is false")
    return TlsSettings(
        cert_file=cert_file,
        key_file=given.get("tls.server.keyPath") or None,
        key_password=given.get("tls.server.keyPassword") or None,
        ca_file=given.get("tls.server.trustCertPath") or None,
        client_auth=client_auth,
        self_signed=cert_file is None,
    )


def _client_settings(given: Mapping[str, str]) -> TlsSettings:
    return TlsSettings(
        verify=_flag(given, "tls.client.authServer", default=False),
        cert_file=given.get("tls.client.certPath") or None,
        key_file=given.get("tls.client.keyPath") or None,
        key_password=given.get("tls.client.keyPassword") or None,
        ca_file=given.get("tls.client.trustCertPath") or None,
    )


def _read_file(path: str) -> dict[str, str]:
    """A file of such properties: the place for passwords, as others see a command line."""
    try:
        return parse_config(Path(path).read_bytes())
    except OSError as error:
        raise InvalidSetting(f"{_FILE} {path!r}: {error.strerror}") from error


def _flag(given: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = given.get(name, str(default)).strip().lower()
    if text not in ("true", "false"):
        raise InvalidSetting(f"{name} is {text!r}: it must be true or false")
    return text == "true"


def _one_of(kind: type[E], given: Mapping[str, str], name: str, default: E) -> E:
    text = given.get(name, default).strip().lower()
    if text not in list(kind):
        raise InvalidSetting(f"{name} is {text!r}: it must be one of {', '.join(kind)}")
    return kind(text)
