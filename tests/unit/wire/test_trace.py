import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketpipe.errors import InvalidMessage, MalformedRecord
from rocketpipe.wire.trace import (
    EndTransaction,
    Pub,
    Recall,
    SubAfter,
    SubBefore,
    Trace,
    decode_traces,
    encode_traces,
    trace_keys,
)

words = st.text(st.characters(exclude_characters="\x01\x02"))
optional = st.none() | words.filter(lambda word: word != "null")
numbers = st.integers(-(2**63), 2**63 - 1)
where = (numbers, optional, words)
what = (words, words, optional, optional, optional)
traces = st.one_of(
    st.builds(Pub, *where, *what, numbers, numbers, numbers, optional, st.booleans()),
    st.builds(SubBefore, *where, words, words, numbers, optional),
    st.builds(SubAfter, words, words, numbers, st.booleans(), optional, numbers, numbers, words),
    st.builds(SubAfter, words, words, numbers, st.booleans(), optional, numbers),
    st.builds(EndTransaction, *where, *what, numbers, optional, words, st.booleans()),
    st.builds(Recall, *where, words, words, st.booleans()),
)


@given(st.lists(traces))
def test_any_traces_survive_being_text(records: list[Trace]) -> None:
    # A group that is called "null" can't be told from none where it may be missing.
    records = [r for r in records if not (isinstance(r, SubAfter) and r.group in ("null", ""))]
    assert decode_traces(encode_traces(records)) == records


pieces = st.sampled_from(["Pub", "SubAfter", "Recall", "1", "x", "null", "\x01", "\x01", "\x02"])


@given(st.text() | st.lists(pieces).map("".join))
def test_arbitrary_text_is_traces_or_malformed(text: str) -> None:
    try:
        decode_traces(text)
    except MalformedRecord:
        pass


def line(*values: object) -> str:
    return "\x01".join(map(str, values)) + "\x02"


def test_a_send_by_an_old_client_has_no_offset_id_or_not_even_a_success() -> None:
    known = ("Pub", 1, "r", "g", "t", "id", "tag", "k", "h", 2, 3, 0)
    oldest, old = decode_traces(line(*known) + line(*known, "false"))
    assert isinstance(oldest, Pub)
    assert isinstance(old, Pub)
    assert (oldest.offset_message_id, oldest.is_success) == (None, True)
    assert (old.offset_message_id, old.is_success) == (None, False)


def test_what_a_newer_client_adds_is_not_looked_at() -> None:
    (trace,) = decode_traces(line("Recall", 1, "r", "g", "t", "id", "TRUE", "new"))
    assert trace == Recall(1, "r", "g", "t", "id", True)


def test_a_consume_by_an_old_client_has_no_code_time_or_group() -> None:
    (trace,) = decode_traces(line("SubAfter", "request", "id", 5, "true", "k"))
    assert trace == SubAfter("request", "id", 5, True, "k", 0, None, None)


@pytest.mark.parametrize(
    "text", ["Nope\x011\x02", "Pub\x02", "\x02", line("Recall", "x", "r", "g", "t", "id", "true")]
)
def test_a_trace_that_makes_no_sense_is_malformed(text: str) -> None:
    with pytest.raises(MalformedRecord, match="trace"):
        decode_traces(text)


@pytest.mark.parametrize("topic", ["a\x01b", "a\x02b"])
def test_what_would_be_read_as_another_field_is_not_written(topic: str) -> None:
    with pytest.raises(InvalidMessage, match="0x01 or 0x02"):
        encode_traces([Recall(1, "r", "g", topic, "id", True)])


def test_each_key_is_given_once() -> None:
    record = SubBefore(1, "r", "g", "request", "id", 0, "k1  k2 id")
    assert trace_keys([record, record]) == ("id", "k1", "k2")
