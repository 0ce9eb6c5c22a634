"""Addresses are read strictly and written as they were read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketpipe.errors import InvalidSetting
from rocketpipe.remoting.address import Address


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:9876", "127.0.0.1", 9876),
        ("localhost:0", "localhost", 0),
        ("broker-a.example:65535", "broker-a.example", 65535),
        ("[::1]:9876", "::1", 9876),
        ("[fe80::1%eth0]:10911", "fe80::1%eth0", 10911),
        ("bücher.example:1", "bücher.example", 1),
        ("under_score:1", "under_score", 1),
    ],
)
def test_an_address_is_read_and_written_back(text: str, host: str, port: int) -> None:
    address = Address.parse(text)
    assert address == (host, port)
    assert str(address) == text


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "write host:port"),
        ("localhost", "write host:port"),
        ("localhost:", "write host:port"),
        ("localhost:http", "write host:port"),
        ("localhost:-1", "write host:port"),
        ("localhost:+1", "write host:port"),
        ("localhost: 1", "write host:port"),
        ("localhost:1\n", "write host:port"),
        ("localhost:٣", "write host:port"),
        ("localhost:" + "9" * 5000, "write host:port"),
        ("localhost:65536", "greater than 65535"),
        (":9876", "the host is missing"),
        ("::1:9876", "in brackets"),
        ("[::1]", "write host:port"),
        ("[]:9876", "not an IPv6 address"),
        ("[localhost]:9876", "not an IPv6 address"),
        ("[127.0.0.1]:9876", "not an IPv6 address"),
        ("http://localhost:9876", "in brackets|write host:port"),
        ("//localhost:9876", "not a name"),
        ("a b:9876", "not a name"),
        ("a,b:9876", "not a name"),
        (" localhost:9876", "not a name"),
        ("a\0b:9876", "not a name"),
        (".example:9876", "not a name"),
        ("a:1;b:2", "in brackets|write host:port"),
    ],
)
def test_what_is_not_an_address_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(InvalidSetting, match=why):
        Address.parse(text)


@given(st.ip_addresses(), st.integers(0, 65535))
def test_every_ip_address_survives_the_round_trip(ip: object, port: int) -> None:
    address = Address(str(ip), port)
    assert Address.parse(str(address)) == address


@given(st.text())
def test_any_text_is_an_address_or_refused(text: str) -> None:
    try:
        address = Address.parse(text)
    except InvalidSetting:
        return
    assert Address.parse(str(address)) == address


def test_addresses_serve_as_keys() -> None:
    assert {Address("a", 1): "x"}[Address.parse("a:1")] == "x"
