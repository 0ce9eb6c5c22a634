"""Options as Spark hands them over, texts by name, and those that reading and writing share.

A wrong option fails where the query is planned, by its name and with what is allowed.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Self

from rocketpipe.client.settings import ClientSettings, check_group
from rocketpipe.errors import InvalidSetting
from rocketpipe.remoting.tls import TlsSettings
from rocketpipe.wire.signature import Credentials

_SECRETS = frozenset({"secretKey", "securityToken", "tlsKeyPassword"})
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)")


class OptionParser:
    """Reads options by name, in any case, and knows at the end which of them nobody asked for.

    parser = OptionParser(options)
    count = parser.count("pullBatchSize", 1024)
    parser.finish()
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self._given = {name.lower(): (name, str(value)) for name, value in options.items()}
        self.known: list[str] = []  # each option that was asked for, as it is spelled in the docs

    def text(self, name: str, default: str | None = None) -> str | None:
        """What was given, without the space around it; an empty text is an error."""
        self.known.append(name)
        if name.lower() not in self._given:
            return default
        value = self._given[name.lower()][1].strip()
        if not value:
            raise InvalidSetting(f"option {name} is empty: leave it out, or give it a value")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """What was given, with commas in between; nothing if nothing was."""
        parts = (self.text(name) or "").split(",")
        return tuple(dict.fromkeys(part.strip() for part in parts if part.strip()))

    def flag(self, name: str, default: bool) -> bool:
        value = self.text(name)
        if value is None:
            return default
        if value.lower() not in ("true", "false"):
            raise wrong(name, value, "true or false")
        return value.lower() == "true"

    def count(
        self, name: str, default: int, *, minimum: int = 1, maximum: int | None = None
    ) -> int:
        value = self.maybe_count(name, minimum=minimum)
        if value is None:
            return default
        if maximum is not None and value > maximum:
            raise wrong(name, str(value), f"a whole number from {minimum} to {maximum}")
        return value

    def maybe_count(self, name: str, *, minimum: int = 1) -> int | None:
        value = self.text(name)
        if value is None:
            return None
        if not re.fullmatch(r"[0-9]{1,18}", value) or int(value) < minimum:
            raise wrong(name, value, f"a whole number from {minimum}")
        return int(value)

    def seconds(self, name: str, default: float) -> float:
        """A duration with its unit: 500ms, 5s, 15m, 1h."""
        value = self.text(name)
        if value is None:
            return default
        match = _DURATION.fullmatch(value.lower())
        if match is None or match[2] not in _UNITS or not float(match[1]):
            raise wrong(name, value, "a time with its unit, such as 500ms, 5s, 15m or 1h")
        return float(match[1]) * _UNITS[match[2]]

    def choice(self, name: str, allowed: tuple[str, ...], default: str) -> str:
        """One of these words, which are in lower case."""
        value = self.text(name)
        if value is None:
            return default
        if value.lower() not in allowed:
            raise wrong(name, value, f"one of {', '.join(allowed)}")
        return value.lower()

    def json_object(self, name: str) -> dict[str, Any] | None:
        value = self.text(name)
        return None if value is None else parse_object(name, value)

    def given(self, *names: str) -> list[str]:
        """Those of these options that are there."""
        return [name for name in names if name.lower() in self._given]

    def at_most_one(self, *names: str) -> None:
        """InvalidSetting when several are given that contradict one another."""
        given = self.given(*names)
        if len(given) > 1:
            raise InvalidSetting(f"options {' and '.join(given)} contradict: give one of them")

    def group(self, name: str, default: str | None = None) -> str | None:
        """The name of a consumer or producer group, or of a namespace."""
        value = self.text(name, default)
        if value is not None:
            check_group(f"option {name}", value)
        return value

    def rest(self, prefix: str) -> dict[str, str]:
        """What was given under names that begin so, by what follows in lower case."""
        return {
            name[len(prefix) :]: value
            for name, (_, value) in self._given.items()
            if name.startswith(prefix.lower())
        }

    def finish(self, *ignored: str) -> None:
        """InvalidSetting for an option that nothing has asked for; these are Spark's own."""
        known = {name.lower(): name for name in (*self.known, *ignored)}
        for lower, (name, _) in self._given.items():
            if lower not in known:
                near = get_close_matches(lower, known, n=1)
                hint = f": did you mean {known[near[0]]}?" if near else ""
                raise InvalidSetting(f"there is no option {name}{hint}")


def wrong(name: str, value: str, allowed: str) -> InvalidSetting:
    """The error that says so; a secret is not repeated in it."""
    shown = "not right" if name in _SECRETS else repr(value[:200])
    return InvalidSetting(f"option {name} is {shown}: it must be {allowed}")


def parse_object(name: str, value: str) -> dict[str, Any]:
    """A JSON object in which no name stands twice."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) < len(pairs):
            raise ValueError("a name stands there twice")
        return made

    try:
        parsed = json.loads(value, object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        raise wrong(name, value, f"a JSON object ({error})") from None
    if not isinstance(parsed, dict):
        raise wrong(name, value, "a JSON object")
    return parsed


@dataclass(frozen=True, kw_only=True)
class ConnectionOptions:
    """How to find a cluster and be known there. It travels to every task, so it can be pickled."""

    namesrv: str
    namespace: str | None = None
    credentials: Credentials | None = field(default=None, repr=False)
    tls: TlsSettings | None = None
    request_timeout: float = 5.0

    @classmethod
    def parse(cls, parser: OptionParser) -> Self:
        namesrv = parser.text("namesrv")
        try:
            # What is in the environment is settled here: tasks have one of their own.
            address = ClientSettings(namesrv=namesrv).namesrv
        except InvalidSetting as error:
            raise InvalidSetting(f"option namesrv: {error}") from None
        assert isinstance(address, str)
        return cls(
            namesrv=address,
            namespace=parser.group("namespace"),
            credentials=_credentials(parser),
            tls=_tls(parser),
            request_timeout=parser.seconds("requestTimeout", 5.0),
        )

    def client_settings(self) -> dict[str, Any]:
        """The settings of any client, by name; consumers and producers take `namespace` too."""
        return {
            "namesrv": self.namesrv,
            "credentials": self.credentials,
            "tls": self.tls,
            "request_timeout": self.request_timeout,
        }


def _credentials(parser: OptionParser) -> Credentials | None:
    access_key, secret_key = parser.text("accessKey"), parser.text("secretKey")
    token = parser.text("securityToken")
    if access_key is None and secret_key is None and token is None:
        return None
    if access_key is None or secret_key is None:
        missing = "accessKey" if access_key is None else "secretKey"
        raise InvalidSetting(f"option {missing} is missing: accessKey and secretKey go together")
    return Credentials(access_key, secret_key, token)


def _tls(parser: OptionParser) -> TlsSettings | None:
    is_wanted = parser.flag("tls", bool(parser.given(*_TLS_DETAILS)))
    settings: dict[str, Any] = {
        "ca_file": parser.text("tlsCaFile"),
        "cert_file": parser.text("tlsCertFile"),
        "key_file": parser.text("tlsKeyFile"),
        "key_password": parser.text("tlsKeyPassword"),
        "server_hostname": parser.text("tlsServerName"),
        "verify": parser.flag("tlsVerify", True),
    }
    if not is_wanted:
        if given := parser.given(*_TLS_DETAILS):
            raise InvalidSetting(f"options tls=false and {given[0]} contradict")
        return None
    try:
        return TlsSettings(**settings)
    except InvalidSetting as error:
        raise InvalidSetting(f"option tls: {error}") from None


_TLS_DETAILS = (
    *("tlsCaFile", "tlsCertFile", "tlsKeyFile", "tlsKeyPassword", "tlsServerName", "tlsVerify"),
)
