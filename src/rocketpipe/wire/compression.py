"""Compressed bodies: zlib, LZ4 frames and Zstandard frames, named by the bits of sysFlag.

A few bytes can unfold to gigabytes, so decompressing takes a limit and stops there.
"""

import zlib
from enum import StrEnum
from importlib import import_module
from typing import Any, NamedTuple

from rocketpipe.errors import ClientError, MalformedRecord
from rocketpipe.wire.sys_flag import (
    COMPRESSION_LZ4,
    COMPRESSION_MASK,
    COMPRESSION_ZLIB,
    COMPRESSION_ZSTD,
)

LEVEL = 5  # RocketMQ's default

# Java producers check a body's size before they compress it (4 MiB unless raised), and what is
# larger than a whole remoting frame, 16 MiB, could not have travelled plain.
BODY_BYTES_MAX = 16 << 20


class Compression(StrEnum):
    """The ways to compress a body."""

    ZLIB = "zlib"
    LZ4 = "lz4"  # this and the next with rocketpipe[compression]
    ZSTD = "zstd"

    @property
    def sys_flag(self) -> int:
        """The bits that name it."""
        return _BITS[self]

    def require_library(self) -> None:
        """ClientError when the library it needs is not installed."""
        if self is not Compression.ZLIB:
            _library(_LIBRARIES[self])


def compress(body: bytes, compression: int, level: int = LEVEL) -> bytes:
    """The body compressed in the way the bits of sysFlag in `compression` name; none is zlib."""
    match _METHODS.get(compression):
        case "zlib":
            return zlib.compress(body, level)
        case "lz4":
            # Java's LZ4FrameInputStream reads no blocks that refer to earlier ones.
            lz4 = _library(_LIBRARIES["lz4"])
            packed: bytes = lz4.compress(body, compression_level=level, block_linked=False)
        case "zstd":
            packed = _library(_LIBRARIES["zstd"]).ZstdCompressor(level=level).compress(body)
        case _:
            raise ValueError(f"no compression has the sysFlag bits {compression:#x}")
    return packed


def decompress(body: bytes, sys_flag: int, body_bytes_max: int = BODY_BYTES_MAX) -> bytes:
    """The plain body; MalformedRecord if it is damaged, cut off, or larger than the limit."""
    method = _METHODS.get(sys_flag & COMPRESSION_MASK)
    if method is None:
        raise MalformedRecord(f"sysFlag {sys_flag:#x} names no known compression")
    plain, is_whole, rest = _UNFOLD[method](body, body_bytes_max + 1)
    if len(plain) > body_bytes_max:
        raise MalformedRecord(f"a {method} body unfolds to more than {body_bytes_max} bytes")
    if not is_whole:
        raise MalformedRecord(f"a {method} body is cut off")
    if rest:
        raise MalformedRecord(f"{len(rest)} stray bytes follow a {method} body")
    return plain


class _Unfolded(NamedTuple):
    plain: bytes
    is_whole: bool
    rest: bytes | None


def _unfold_zlib(body: bytes, size: int) -> _Unfolded:
    unpacker = zlib.decompressobj()
    try:
        plain = unpacker.decompress(body, size)
    except zlib.error as error:
        raise MalformedRecord(f"not a zlib body: {error}") from error
    return _Unfolded(plain, unpacker.eof, unpacker.unused_data)


def _unfold_lz4(body: bytes, size: int) -> _Unfolded:
    unpacker = _library(_LIBRARIES["lz4"]).LZ4FrameDecompressor()
    try:
        plain = unpacker.decompress(body, max_length=size)
    except RuntimeError as error:
        raise MalformedRecord(f"not an LZ4 frame: {error}") from error
    return _Unfolded(plain, unpacker.eof, unpacker.unused_data)


def _unfold_zstd(body: bytes, size: int) -> _Unfolded:
    # Java's frames do not say how much they hold, and this library takes a limit only where they
    # do. So we feed it little by little: 4 bytes become at most one block of 128 KiB.
    zstandard = _library(_LIBRARIES["zstd"])
    unpacker = zstandard.ZstdDecompressor().decompressobj()
    parts: list[bytes] = []
    start = 0
    try:
        while start < len(body) and size > 0 and not unpacker.eof:
            parts.append(unpacker.decompress(body[start : start + 256]))
            size -= len(parts[-1])
            start += 256
    except zstandard.ZstdError as error:
        raise MalformedRecord(f"not a Zstandard frame: {error}") from error
    return _Unfolded(b"".join(parts), unpacker.eof, unpacker.unused_data + body[start:])


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise ClientError(f"{name} is missing: pip install 'rocketpipe[compression]'") from error


_LIBRARIES = {"lz4": "lz4.frame", "zstd": "zstandard"}
_BITS = {
    Compression.ZLIB: COMPRESSION_ZLIB,
    Compression.LZ4: COMPRESSION_LZ4,
    Compression.ZSTD: COMPRESSION_ZSTD,
}
_METHODS = {
    0: "zlib",  # old producers do not say how they compressed
    COMPRESSION_LZ4: "lz4",
    COMPRESSION_ZSTD: "zstd",
    COMPRESSION_ZLIB: "zlib",
}
_UNFOLD = {"zlib": _unfold_zlib, "lz4": _unfold_lz4, "zstd": _unfold_zstd}
