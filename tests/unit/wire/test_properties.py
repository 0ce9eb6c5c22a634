import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketpipe.errors import InvalidMessage
from rocketpipe.message import Message
from rocketpipe.wire.properties import (
    PROPERTIES_BYTES_MAX,
    RESERVED_NAMES,
    decode_properties,
    encode_properties,
    encode_properties_bytes,
    message_properties,
)

text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"), min_size=1)
values = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x02"), min_size=1)


@given(st.dictionaries(text, values))
def test_properties_survive_being_text(properties: dict[str, str]) -> None:
    assert decode_properties(encode_properties(properties)) == properties
    assert list(decode_properties(encode_properties(properties))) == list(properties)


@given(st.text(st.sampled_from("ab\x01\x02名")))
def test_any_text_has_properties_and_none_of_them_is_empty(any_text: str) -> None:
    for name, value in decode_properties(any_text).items():
        assert name
        assert value


@pytest.mark.parametrize(
    "properties", [{"a\x01b": "c"}, {"a\x02b": "c"}, {"a": "b\x02"}, {"": "b"}, {"\x01": "\x02"}]
)
def test_what_would_be_read_as_something_else_is_not_written(properties: dict[str, str]) -> None:
    with pytest.raises(InvalidMessage, match="property"):
        encode_properties(properties)


def test_properties_too_long_for_their_length_field_are_not_written() -> None:
    value = "x" * (PROPERTIES_BYTES_MAX - 3)
    assert len(encode_properties_bytes({"a": value})) == PROPERTIES_BYTES_MAX
    with pytest.raises(InvalidMessage, match="32768 bytes"):
        encode_properties_bytes({"a": value + "x"})


def test_half_a_surrogate_pair_is_not_written() -> None:
    with pytest.raises(InvalidMessage, match="not text"):
        encode_properties_bytes({"a": "\ud800"})


def test_every_field_of_a_message_has_its_property() -> None:
    message = Message(
        "t",
        b"",
        tags="paid",
        keys=["a", "b"],
        properties={"mine": "1"},
        delay_level=3,
        delay_seconds=4,
        delay_ms=5,
        deliver_at_ms=6,
        sharding_key="s",
        wait_store_ok=False,
    )
    assert message_properties(message) == {
        "mine": "1",
        "TAGS": "paid",
        "KEYS": "a b",
        "DELAY": "3",
        "TIMER_DELAY_SEC": "4",
        "TIMER_DELAY_MS": "5",
        "TIMER_DELIVER_MS": "6",
        "__SHARDINGKEY": "s",
        "WAIT": "false",
    }


def test_a_plain_message_travels_with_nothing_but_its_wish_to_be_stored() -> None:
    message = Message("t", b"")
    assert message_properties(message) == {"WAIT": "true"}
    assert message.properties == {}


def test_users_may_not_set_what_rocketmq_sets() -> None:
    assert {"KEYS", "TAGS", "UNIQ_KEY", "TRAN_MSG", "__CRC32#"} <= RESERVED_NAMES
    assert "INNER_MULTI_DISPATCH" not in RESERVED_NAMES
    assert len(RESERVED_NAMES) == 51
