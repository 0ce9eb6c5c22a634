"""The address patterns of ACL 1."""

import pytest

from rocketpipe.broker.access.addresses import address_filter
from rocketpipe.errors import InvalidSetting


@pytest.mark.parametrize(
    ("pattern", "fitting", "others"),
    [
        ("", [], ["127.0.0.1", "::1", "?"]),
        ("*", ["127.0.0.1", "::1", "?"], []),
        ("*.*.*.*", ["127.0.0.1"], []),
        ("10.0.0.1", ["10.0.0.1"], ["10.0.0.11", "10.0.0.2", "::1"]),
        ("10.0.0.1, 10.0.0.3", ["10.0.0.1", "10.0.0.3"], ["10.0.0.2"]),
        ("10.0.0.{1,3}", ["10.0.0.1", "10.0.0.3"], ["10.0.0.2", "10.0.1.1"]),
        ("10.0.*.*", ["10.0.0.1", "10.0.255.255"], ["10.1.0.0", "11.0.0.1"]),
        ("10.0.1-20.*", ["10.0.1.0", "10.0.20.9"], ["10.0.21.0", "10.0.0.0"]),
        ("2001:db8::1", ["2001:db8::1", "2001:0DB8:0::1"], ["2001:db8::2", "10.0.0.1"]),
        ("2001:db8::*", ["2001:db8::1", "2001:db8::ffff"], ["2001:db8::1:0"]),
        ("2001:db8::1-2ff:*", ["2001:db8::1:0", "2001:db8::2ff:7"], ["2001:db8::300:0"]),
        ("2001:db8::{1,a}", ["2001:db8::a"], ["2001:db8::b"]),
    ],
)
def test_a_pattern_fits(pattern: str, fitting: list[str], others: list[str]) -> None:
    fits = address_filter(pattern)
    assert all(map(fits, fitting))
    assert not any(map(fits, others))


BROKEN = [
    "10.0.0",
    "10.0.0.256",
    "10.0.0.9-3",
    "10.0.0.-3",
    "ten",
    "1,2}",
    "{1,2}",
    "1::2::3",
    "1:2",
]


@pytest.mark.parametrize("pattern", BROKEN)
def test_what_is_no_address_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidSetting):
        address_filter(pattern)
