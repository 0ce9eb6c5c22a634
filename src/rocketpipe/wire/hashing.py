"""Java's and RocketMQ's hashes, where every language has to come to the same number."""

import sys
import zlib
from functools import lru_cache

_UTF16 = "utf-16-le" if sys.byteorder == "little" else "utf-16-be"


def java_string_hash(text: str) -> int:
    """Java's String.hashCode: h = 31 * h + unit over UTF-16 units, as a signed 32-bit int."""
    value = 0
    if text.isascii():
        value = _hash_ascii(text.encode("ascii"))
    else:
        # Java strings may hold half of a surrogate pair, and hash it like any other unit.
        for unit in memoryview(text.encode(_UTF16, "surrogatepass")).cast("H"):
            value = (31 * value + unit) & 0xFFFFFFFF
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


def _hash_ascii(data: bytes) -> int:
    value = 0
    while len(data) > 32:
        value = (value * _POWERS[32] + _hash_32(data[:32])) & 0xFFFFFFFF
        data = data[32:]
    return value * _POWERS[len(data)] + _hash_32(data)


# A producer may choose a queue by a hash for every message, so 32 bytes are done at once, as the
# digits of one number: neighbours are joined, left times a power of 31 plus right, until one is
# left. Bytes that are missing on the left are zeros, which change nothing.
_POWERS = [pow(31, exponent, 1 << 32) for exponent in range(33)]
_LANES_8, _LANES_16, _LANES_32, _LANES_64, _LANES_128 = (
    int.from_bytes((bytes(width) + b"\xff" * width) * (16 // width), "big")
    for width in (1, 2, 4, 8, 16)
)


def _hash_32(data: bytes) -> int:
    value = int.from_bytes(data, "big")
    value = (value >> 8 & _LANES_8) * 31 + (value & _LANES_8)
    value = (value >> 16 & _LANES_16) * 961 + (value & _LANES_16)
    value = (value >> 32 & _LANES_32) * 923521 + (value & _LANES_32)
    value = (value >> 64 & _LANES_64) * _POWERS[8] + (value & _LANES_64)
    return (value >> 128 & _LANES_128) * _POWERS[16] + (value & _LANES_128)


def tags_code(tags: str | None) -> int:
    """What a consume queue keeps of a tag, and a broker filters by; 0 without a tag."""
    if not tags:
        return 0
    return _remembered_hash(tags) if len(tags) <= _REMEMBERED_MAX else java_string_hash(tags)


# Tags are few, and every message has one. But anybody may ask for tags as long as a frame.
_remembered_hash = lru_cache(maxsize=4096)(java_string_hash)
_REMEMBERED_MAX = 256


def index_key_hash(index_key: str) -> int:
    """The hash of `topic#key` in Apache's index files (IndexFile.indexKeyHashMethod)."""
    value = abs(java_string_hash(index_key))
    return 0 if value == 1 << 31 else value  # Math.abs(Integer.MIN_VALUE) stays negative in Java


def body_crc(body: bytes | bytearray | memoryview) -> int:
    """CRC-32 of a body as stored, its top bit cleared (UtilAll.crc32)."""
    return zlib.crc32(body) & 0x7FFFFFFF
