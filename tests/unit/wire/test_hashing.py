from hypothesis import given
from hypothesis import strategies as st

from rocketpipe.wire import hashing
from rocketpipe.wire.hashing import body_crc, index_key_hash, java_string_hash, tags_code


@given(st.text(st.characters()))
def test_the_hash_is_javas_sum_over_utf16_units(text: str) -> None:
    data = text.encode("utf-16-be", "surrogatepass")
    units = [data[i] << 8 | data[i + 1] for i in range(0, len(data), 2)]
    total = sum(unit * 31 ** (len(units) - 1 - place) for place, unit in enumerate(units))
    assert (java_string_hash(text) - total) % 2**32 == 0
    assert -(2**31) <= java_string_hash(text) < 2**31


def test_no_tag_has_the_code_0() -> None:
    assert tags_code(None) == tags_code("") == 0


def test_what_is_too_long_for_a_tag_is_not_remembered() -> None:
    remembered = hashing._remembered_hash.cache_info().currsize
    assert tags_code("x" * 100_000) == java_string_hash("x" * 100_000)
    assert hashing._remembered_hash.cache_info().currsize == remembered


def test_an_index_hash_is_never_negative() -> None:
    assert java_string_hash("polygenelubricants") == -(2**31)
    assert index_key_hash("polygenelubricants") == 0
    assert index_key_hash("🚀rocket") == 1579737481


@given(st.binary())
def test_a_crc_is_never_negative_in_java(body: bytes) -> None:
    assert 0 <= body_crc(body) < 2**31


@given(st.text(st.characters()) | st.text("ab\x00\x7f", max_size=200))
def test_a_hash_is_what_java_works_out_unit_by_unit(text: str) -> None:
    units = memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H")
    value = 0
    for unit in units:
        value = (31 * value + unit) & 0xFFFFFFFF
    assert java_string_hash(text) & 0xFFFFFFFF == value
