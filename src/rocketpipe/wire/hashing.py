"""Java's and RocketMQ's hashes, where every language has to come to the same number."""

import sys
import zlib
from collections.abc import Iterable
from functools import lru_cache

_UTF16 = "utf-16-le" if sys.byteorder == "little" else "utf-16-be"


def java_string_hash(text: str) -> int:
    """Java's String.hashCode: h = 31 * h + unit over UTF-16 units, as a signed 32-bit int."""
    units: Iterable[int]
    if text.isascii():
        units = text.encode("ascii")
    else:
        # Java strings may hold half of a surrogate pair, and hash it like any other unit.
        units = memoryview(text.encode(_UTF16, "surrogatepass")).cast("H")
    value = 0
    for unit in units:
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


@lru_cache(maxsize=4096)  # tags are few, and every message has one
def tags_code(tags: str | None) -> int:
    """What a consume queue keeps of a tag, and a broker filters by; 0 without a tag."""
    return java_string_hash(tags) if tags else 0


def index_key_hash(index_key: str) -> int:
    """The hash of `topic#key` in an index file (IndexFile.indexKeyHashMethod)."""
    value = abs(java_string_hash(index_key))
    return 0 if value == 1 << 31 else value  # Math.abs(Integer.MIN_VALUE) stays negative in Java


def body_crc(body: bytes | bytearray | memoryview) -> int:
    """CRC-32 of a body as stored, its top bit cleared (UtilAll.crc32)."""
    return zlib.crc32(body) & 0x7FFFFFFF
