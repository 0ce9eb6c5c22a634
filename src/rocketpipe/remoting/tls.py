"""TLS: which certificates to show, and which to believe."""

import ssl
from dataclasses import field
from enum import StrEnum
from pathlib import Path
from typing import Any

from rocketpipe.errors import InvalidSetting
from rocketpipe.lazy_dataclass import dataclass


class TlsMode(StrEnum):
    """What a server speaks on its port; the words are those of RocketMQ's `tls.server.mode`."""

    DISABLED = "disabled"
    """Plain only."""
    PERMISSIVE = "permissive"
    """Both: the first byte of a connection tells which."""
    ENFORCING = "enforcing"
    """TLS only."""


class ClientAuth(StrEnum):
    """Whether a server asks its clients for a certificate (`tls.server.need.client.auth`)."""

    NONE = "none"
    OPTIONAL = "optional"
    REQUIRED = "require"


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """The TLS settings of a client or a server.

    Unlike Java's client (`tls.client.authServer`, false), ours checks the server's certificate
    unless `verify` is turned off.
    """

    ca_file: str | None = None
    """Whose certificates to believe; by default a client takes this machine's list."""
    cert_file: str | None = None
    """Our own certificate, with its chain: a server must have one, a client may."""
    key_file: str | None = None
    """The private key of `cert_file`; by default it is in `cert_file` itself."""
    key_password: str | None = field(default=None, repr=False)
    verify: bool = True
    """Whether a client checks the server's certificate and its host name."""
    server_hostname: str | None = None
    """The name a client expects in the server's certificate; by default the host it connects to."""
    client_auth: ClientAuth = ClientAuth.NONE
    self_signed: bool = False
    """Whether a server without `cert_file` shows a certificate of its own making: for tests."""

    def __post_init__(self) -> None:
        if self.key_file is not None and self.cert_file is None:
            raise InvalidSetting("key_file is of no use without cert_file")
        if self.server_hostname is not None and self.server_hostname[:1] in {"", "."}:
            raise InvalidSetting(f"server_hostname {self.server_hostname!r} is not a host name")
        if self.client_auth is not ClientAuth.NONE and self.ca_file is None:
            raise InvalidSetting(f"client_auth={self.client_auth} needs ca_file: whom to believe?")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTls:
    """What a server speaks on its ports, and with the servers that it asks itself."""

    mode: TlsMode = TlsMode.DISABLED
    server: TlsSettings | None = None
    client: TlsSettings | None = None
    """For what a broker asks NameServers and its master; None: plain."""

    def __post_init__(self) -> None:
        if self.mode is not TlsMode.DISABLED and self.server is None:
            raise InvalidSetting(f"TLS mode {self.mode} needs a certificate")


def client_context(settings: TlsSettings) -> ssl.SSLContext:
    """What a client needs to speak TLS; InvalidSetting names a file that can't be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if not settings.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif settings.ca_file is None:
        context.load_default_certs()
    _load_files(context, settings)
    return context


def server_context(settings: TlsSettings) -> ssl.SSLContext:
    """What a server needs to speak TLS; InvalidSetting names a file that can't be used."""
    if settings.cert_file is None and not settings.self_signed:
        raise InvalidSetting("a TLS server needs cert_file")
    kind = ssl.SSLContext if settings.cert_file is not None else _SelfSigned
    context = kind(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = {
        ClientAuth.NONE: ssl.CERT_NONE,
        ClientAuth.OPTIONAL: ssl.CERT_OPTIONAL,
        ClientAuth.REQUIRED: ssl.CERT_REQUIRED,
    }[settings.client_auth]
    _load_files(context, settings)
    return context


class _SelfSigned(ssl.SSLContext):
    """Makes its certificate when the first peer speaks TLS, as it takes long and few do."""

    _has_certificate = False

    def wrap_bio(self, *args: Any, **options: Any) -> ssl.SSLObject:
        if not self._has_certificate:
            from rocketpipe.remoting.self_signed import load_self_signed

            load_self_signed(self)
            self._has_certificate = True
        return super().wrap_bio(*args, **options)


def _load_files(context: ssl.SSLContext, settings: TlsSettings) -> None:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # The ssl module does not say which of its files is missing, so we look first.
    for name in ("ca_file", "cert_file", "key_file"):
        path = getattr(settings, name)
        if path is not None:
            try:
                with Path(path).open("rb"):
                    pass
            except OSError as error:
                raise InvalidSetting(f"{name} {path!r}: {error.strerror}") from error
    if settings.ca_file is not None:
        try:
            context.load_verify_locations(settings.ca_file)
        except ssl.SSLError as error:
            raise InvalidSetting(
                f"ca_file {settings.ca_file!r} holds no certificate that can be read"
            ) from error
    if settings.cert_file is not None:
        try:
            # Without a password, OpenSSL would ask the terminal for one.
            context.load_cert_chain(
                settings.cert_file, settings.key_file, settings.key_password or ""
            )
        except ssl.SSLError as error:
            key_file = settings.key_file or settings.cert_file
            if error.reason == "KEY_VALUES_MISMATCH":
                why = f"key_file {key_file!r} is not the key of cert_file {settings.cert_file!r}"
            else:
                why = (
                    f"cert_file {settings.cert_file!r} with key_file {key_file!r} can't be read:"
                    " not PEM, or not the right key_password"
                )
            raise InvalidSetting(why) from error
