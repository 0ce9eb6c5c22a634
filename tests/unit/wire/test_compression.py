import sys
import tracemalloc

import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from rocketpipe.errors import ClientError, MalformedRecord
from rocketpipe.wire.compression import compress, decompress
from rocketpipe.wire.sys_flag import COMPRESSION_LZ4, COMPRESSION_ZLIB, COMPRESSION_ZSTD

METHODS = {"unnamed": 0, "lz4": COMPRESSION_LZ4, "zstd": COMPRESSION_ZSTD, "zlib": COMPRESSION_ZLIB}
each_method = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
BODY = b"compress me, please; " * 50


@each_method
@given(body=st.binary() | st.binary(max_size=20).map(lambda part: part * 5000))
def test_any_body_survives_being_compressed(method: int, body: bytes) -> None:
    assert decompress(compress(body, method), method | 1) == body


@each_method
@given(data=st.binary())
def test_arbitrary_bytes_are_malformed(method: int, data: bytes) -> None:
    try:
        decompress(data, method)
    except MalformedRecord:
        pass


@each_method
def test_a_body_cut_off_anywhere_is_malformed(method: int) -> None:
    packed = compress(BODY, method)
    for size in range(len(packed)):
        with pytest.raises(MalformedRecord):
            decompress(packed[:size], method)


@each_method
@pytest.mark.parametrize("stray", [b"x", b"x" * 1000])
def test_stray_bytes_after_a_body_are_malformed(method: int, stray: bytes) -> None:
    with pytest.raises(MalformedRecord, match=f"{len(stray)} stray bytes"):
        decompress(compress(BODY, method) + stray, method)


@each_method
def test_a_flipped_byte_is_malformed_or_gives_some_body(method: int) -> None:
    packed = compress(BODY, method)
    for place in range(len(packed)):
        for bit in range(8):
            damaged = bytearray(packed)
            damaged[place] ^= 1 << bit
            try:
                decompress(bytes(damaged), method)
            except MalformedRecord:
                pass


@each_method
def test_a_body_may_be_as_large_as_the_limit_and_no_larger(method: int) -> None:
    packed = compress(BODY, method)
    assert decompress(packed, method, len(BODY)) == BODY
    for limit in (len(BODY) - 1, 1, 0):
        with pytest.raises(MalformedRecord, match=f"more than {limit} bytes"):
            decompress(packed, method, limit)
    assert decompress(compress(b"", method), method, 0) == b""


ZEROS = bytes(64 << 20)
BOMBS = {
    "zlib": (compress(ZEROS, COMPRESSION_ZLIB), COMPRESSION_ZLIB),
    "lz4": (compress(ZEROS, COMPRESSION_LZ4), COMPRESSION_LZ4),
    "lz4 of unknown size": (lz4.frame.compress(ZEROS, store_size=False), COMPRESSION_LZ4),
    "zstd": (compress(ZEROS, COMPRESSION_ZSTD), COMPRESSION_ZSTD),
    "zstd of unknown size": (
        zstandard.ZstdCompressor(write_content_size=False).compress(ZEROS),
        COMPRESSION_ZSTD,
    ),
}
del ZEROS


@pytest.mark.parametrize(("packed", "method"), BOMBS.values(), ids=BOMBS)
def test_a_bomb_takes_no_more_memory_than_the_limit_allows(packed: bytes, method: int) -> None:
    limit = 1 << 20
    tracemalloc.start()
    try:
        with pytest.raises(MalformedRecord, match="more than"):
            decompress(packed, method, limit)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 32 << 20


def test_an_unknown_compression_is_malformed_to_read_and_an_error_to_write() -> None:
    with pytest.raises(MalformedRecord, match="no known compression"):
        decompress(b"", 4 << 8)
    with pytest.raises(ValueError, match="0x400"):
        compress(b"", 4 << 8)


@pytest.mark.parametrize(
    ("library", "method"), [("lz4.frame", COMPRESSION_LZ4), ("zstandard", COMPRESSION_ZSTD)]
)
def test_a_missing_library_is_named_together_with_its_cure(
    library: str, method: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = compress(BODY, method)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ClientError, match=rf"{library} is missing.*rocketpipe\[compression\]"):
        decompress(packed, method)
    with pytest.raises(ClientError, match="is missing"):
        compress(BODY, method)


def test_lz4_blocks_are_independent_of_each_other() -> None:
    """Java reads no others: bit 5 of a frame's flags, after its four bytes of magic."""
    assert compress(b"x" * 200_000, COMPRESSION_LZ4)[4] & 1 << 5
