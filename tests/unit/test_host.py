import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketpipe.errors import InvalidMessage, MalformedRecord
from rocketpipe.host import pack_host, unpack_host

packed_hosts = st.builds(
    lambda ip, port: ip + port.to_bytes(4, "big"),
    st.binary(min_size=4, max_size=4) | st.binary(min_size=16, max_size=16),
    st.integers(0, 65535),
)


@given(packed_hosts)
def test_any_host_survives_being_text(packed: bytes) -> None:
    assert pack_host(unpack_host(packed)) == packed


def test_an_ipv6_address_stands_in_brackets_and_loses_its_scope() -> None:
    assert unpack_host(pack_host("[fe80::1%eth0]:80")) == "[fe80::1]:80"


@pytest.mark.parametrize(
    "host",
    [
        *("", "1.2.3.4", "1.2.3.4:", "1.2.3.4:x", "1.2.3.4:65536", "1.2.3.4:-1", "1.2.3.4:²"),
        *("::1:80", "[1.2.3.4]:80", "[]:80", "localhost:80", ":80", "1.2.3:80"),
    ],
)
def test_what_is_no_ip_and_port_cannot_be_packed(host: str) -> None:
    with pytest.raises(InvalidMessage, match="host"):
        pack_host(host)


@pytest.mark.parametrize("packed", [b"", bytes(7), bytes(12), b"\0\0\0\0\0\1\0\0", b"\xff" * 20])
def test_a_host_of_odd_size_or_port_is_malformed(packed: bytes) -> None:
    with pytest.raises(MalformedRecord):
        unpack_host(packed)
