import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketpipe.errors import InvalidMessage, MalformedRecord
from rocketpipe.wire.batch import BatchMember, decode_batch, encode_batch

names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"), min_size=1)
members = st.builds(
    BatchMember,
    body=st.binary(),
    properties=st.dictionaries(names, names, max_size=4),
    flag=st.integers(-(2**31), 2**31 - 1),
)
BATCH = encode_batch([BatchMember(b"one", {"a": "b"}, 1), BatchMember(b"", {}), BatchMember(b"3")])


@given(st.lists(members))
def test_any_batch_is_read_as_it_was_written(batch: list[BatchMember]) -> None:
    assert decode_batch(encode_batch(batch)) == batch


@given(st.binary())
def test_arbitrary_bytes_are_a_batch_or_malformed(data: bytes) -> None:
    try:
        decode_batch(data)
    except MalformedRecord:
        pass


def test_a_torn_batch_is_malformed_unless_torn_between_members() -> None:
    whole = {
        0,
        len(encode_batch(decode_batch(BATCH)[:1])),
        len(encode_batch(decode_batch(BATCH)[:2])),
    }
    for size in set(range(len(BATCH))) - whole:
        with pytest.raises(MalformedRecord):
            decode_batch(BATCH[:size])


def test_a_flipped_byte_is_read_or_malformed_but_nothing_else() -> None:
    for place in range(len(BATCH)):
        for bit in range(8):
            damaged = bytearray(BATCH)
            damaged[place] ^= 1 << bit
            try:
                decode_batch(bytes(damaged))
            except MalformedRecord:
                pass


@pytest.mark.parametrize("flag", [2**31, -(2**31) - 1])
def test_a_flag_over_32_bits_is_not_written(flag: int) -> None:
    with pytest.raises(InvalidMessage, match="32 bits"):
        encode_batch([BatchMember(b"", flag=flag)])
