"""Plain values as Java writes them to text and reads them from it."""

import re

_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_DOUBLE = re.compile(
    r"([+-]?(?:NaN|Infinity))|([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?"
)
_HEX_DOUBLE = re.compile(
    r"([+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?"
)
TRIMMED = "".join(map(chr, range(0x21)))  # String.trim: all up to the space, no more


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


def read_double(text: str) -> float:
    """Double.parseDouble, or ValueError: no underscores, but blanks, `1d` and `0x1p3`."""
    text = text.strip(TRIMMED)
    if found := _DOUBLE.fullmatch(text):
        return float(found[1] or found[2])
    if found := _HEX_DOUBLE.fullmatch(text):
        try:
            return float.fromhex(found[1])
        except OverflowError:
            return float("-inf" if text[0] == "-" else "inf")
    raise ValueError(f"{text[:40]!r}, not a number")


def read_bool(text: str) -> bool:
    """Boolean.parseBoolean: whatever is not `true` is false."""
    return text.lower() == "true"


def write_bool(value: bool) -> str:
    return "true" if value else "false"
