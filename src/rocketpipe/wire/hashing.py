"""Placeholder until the real hashing.py is merged: only String.hashCode, which heartbeats need."""

import struct


def java_string_hash(text: str) -> int:
    """Java's String.hashCode, as a signed 32-bit int."""
    value = 0
    for (unit,) in struct.iter_unpack("<H", text.encode("utf-16-le")):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value
