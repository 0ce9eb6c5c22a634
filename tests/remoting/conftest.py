"""Fixtures of the tests with real sockets."""

import logging
import ssl
from collections.abc import Iterator

import pytest

from rocketpipe.remoting.tls import (
    TlsSettings,
    client_context,
    server_context,
)
from tests.certificates import Certificates


@pytest.fixture
def server_tls(certificates: Certificates) -> ssl.SSLContext:
    cert, key = certificates.server
    return server_context(TlsSettings(cert_file=cert, key_file=key))


@pytest.fixture
def client_tls(certificates: Certificates) -> ssl.SSLContext:
    return client_context(TlsSettings(ca_file=certificates.ca))


@pytest.fixture(autouse=True)
def asyncio_says_nothing(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    yield
    loud = [record for record in caplog.get_records("call") if record.levelno >= logging.WARNING]
    assert [record.getMessage() for record in loud if record.name == "asyncio"] == []
