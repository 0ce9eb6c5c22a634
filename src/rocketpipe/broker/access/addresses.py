"""Addresses as ACL 1 writes them: `*`, `10.0.*.*`, `10.0.0.1-20`, `10.0.0.{1,2}`, `a,b`, IPv6."""

import ipaddress
from collections.abc import Callable
from typing import Final

from rocketpipe.errors import InvalidSetting

AddressFilter = Callable[[str], bool]

_ANY: Final = frozenset({"*", "*.*.*.*", "*:*:*:*:*:*:*:*"})
_Ranges = tuple[tuple[int, int], ...]


def address_filter(pattern: str) -> AddressFilter:
    """Whether an address is one of those; an empty pattern fits none."""
    pattern = pattern.strip()
    if pattern in _ANY:
        return lambda _: True
    wanted = [_ranges(each) for each in _each(pattern)]

    def fits(address: str) -> bool:
        try:
            packed = ipaddress.ip_address(address)
        except ValueError:
            return False
        is_v4 = packed.version == 4
        parts = [int(part, 10 if is_v4 else 16) for part in _parts_of(packed)]
        return any(
            len(ranges) == len(parts)
            and all(low <= part <= high for part, (low, high) in zip(parts, ranges, strict=True))
            for ranges in wanted
        )

    return fits


def _parts_of(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> list[str]:
    return address.exploded.split("." if address.version == 4 else ":")


def _each(pattern: str) -> list[str]:
    """What stands between braces or commas, each by itself."""
    if pattern.endswith("}"):
        head, brace, tail = pattern[:-1].partition("{")
        if not brace or head[-1:] not in (".", ":"):
            raise InvalidSetting("only the last part of an address can stand in braces")
        return [head + each.strip() for each in tail.split(",")]
    return [each.strip() for each in pattern.split(",") if each.strip()]


def _ranges(pattern: str) -> _Ranges:
    """The least and the greatest value of each part."""
    is_v6 = ":" in pattern
    if pattern.count("::") == 1:
        left, right = ([part for part in half.split(":") if part] for half in pattern.split("::"))
        parts = [*left, *["0"] * (8 - len(left) - len(right)), *right]
    else:
        parts = pattern.split(":" if is_v6 else ".")
    base, most = (16, 0xFFFF) if is_v6 else (10, 255)
    ranges = []
    for part in parts:
        low, _, high = part.partition("-")
        try:
            numbers = (0, most) if part == "*" else (int(low, base), int(high or low, base))
        except ValueError:
            numbers = (1, 0)
        if not 0 <= numbers[0] <= numbers[1] <= most:
            raise InvalidSetting("an address has a part that can't be read")
        ranges.append(numbers)
    if len(ranges) != (8 if is_v6 else 4):
        raise InvalidSetting("an address has not the right number of parts")
    return tuple(ranges)
