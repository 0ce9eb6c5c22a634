"""The options of every command that talks to a cluster, and the settings they stand for."""

import argparse
import os
from pathlib import Path
from typing import Any

from rocketpipe.cli.texts import seconds
from rocketpipe.client.admin.admin import AsyncAdmin
from rocketpipe.client.settings import NAMESRV_VARIABLE
from rocketpipe.errors import InvalidSetting
from rocketpipe.remoting.tls import TlsSettings
from rocketpipe.wire.config_text import parse_config
from rocketpipe.wire.signature import Credentials

ACCESS_KEY_VARIABLE = "ROCKETMQ_ACCESS_KEY"
SECRET_KEY_VARIABLE = "ROCKETMQ_SECRET_KEY"
SECURITY_TOKEN_VARIABLE = "ROCKETMQ_SECURITY_TOKEN"
CREDENTIALS_VARIABLE = "ROCKETMQ_CREDENTIALS"


def common_options() -> argparse.ArgumentParser:
    """What each command has."""
    options = argparse.ArgumentParser(add_help=False)
    options.add_argument("--json", action="store_true", help="print JSON, one object a line")
    options.add_argument("--debug", action="store_true", help="log much, and show tracebacks")
    return options


def cluster_options() -> argparse.ArgumentParser:
    """What each command has that talks to a cluster."""
    options = argparse.ArgumentParser(add_help=False, parents=[common_options()])
    add = options.add_argument_group("the cluster").add_argument
    add("--namesrv", metavar="ADDRESS", help=f"host:port;...; by default ${NAMESRV_VARIABLE}")
    add(
        "--credentials",
        type=Path,
        metavar="FILE",
        help=f"with accessKey and secretKey, as mqadmin's tools.yml; or set "
        f"{ACCESS_KEY_VARIABLE} and {SECRET_KEY_VARIABLE}",
    )
    add("--tls", action="store_true", help="speak TLS")
    add("--tls-ca", metavar="FILE", help="speak TLS, and believe these certificates")
    add(
        "--timeout",
        type=seconds,
        default=5.0,
        metavar="TIME",
        help="how long each server may take to answer; 5s by default",
    )
    return options


def client_settings(args: argparse.Namespace) -> dict[str, Any]:
    """The settings of any client, by name."""
    namesrv = args.namesrv or os.environ.get(NAMESRV_VARIABLE)
    if not namesrv:
        raise InvalidSetting(
            f"no NameServer is known: give --namesrv HOST:PORT, or set {NAMESRV_VARIABLE}"
        )
    return {
        "namesrv": namesrv,
        "credentials": credentials(args.credentials),
        "tls": TlsSettings(ca_file=args.tls_ca) if args.tls or args.tls_ca else None,
        "request_timeout": args.timeout,
    }


def admin(args: argparse.Namespace) -> AsyncAdmin:
    return AsyncAdmin(**client_settings(args))


def credentials(file: Path | None) -> Credentials | None:
    """From a file or the environment: an argument would show in the list of processes."""
    if file is None and CREDENTIALS_VARIABLE in os.environ:
        file = Path(os.environ[CREDENTIALS_VARIABLE])
    if file is not None:
        told = {key.lower(): value for key, value in parse_config(file.read_bytes()).items()}
        names = ("accesskey", "secretkey", "securitytoken")
        access_key, secret_key, token = (told.get(name) for name in names)
        if not access_key or not secret_key:
            raise InvalidSetting(f"{file}: write accessKey=... and secretKey=..., a line each")
        return Credentials(access_key, secret_key, token or None)
    access_key = os.environ.get(ACCESS_KEY_VARIABLE)
    secret_key = os.environ.get(SECRET_KEY_VARIABLE)
    if not access_key and not secret_key:
        return None
    if not access_key or not secret_key:
        raise InvalidSetting(f"set both {ACCESS_KEY_VARIABLE} and {SECRET_KEY_VARIABLE}")
    return Credentials(access_key, secret_key, os.environ.get(SECURITY_TOKEN_VARIABLE) or None)
