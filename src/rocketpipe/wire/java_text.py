"""Plain values as Java writes them to text and reads them from it."""

import re

_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")


def read_integer(text: str, bits: int) -> int:
    """Integer.parseInt (32 bits) or Long.parseLong (64), or ValueError.

    Stricter than Python's int(), which takes blanks, underscores and any length.
    """
    if len(text) < 10 and text.isdigit() and text.isascii():
        return int(text)  # nearly all there are, and several times faster
    limit = 1 << (bits - 1)
    if _INTEGER.fullmatch(text) and -limit <= (value := int(text)) < limit:
        return value
    raise ValueError(f"{text[:40]!r}, not an integer of {bits} bits")


def read_bool(text: str) -> bool:
    """Boolean.parseBoolean: whatever is not `true` is false."""
    return text.lower() == "true"


def write_bool(value: bool) -> str:
    return "true" if value else "false"
