"""The hashes of messages that come together are those that each has by itself."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rocketpipe.broker.store.key_hashes import KeyHashes
from rocketpipe.broker.store.record_facts import key_hashes

HEAD = "7F000001ABCD12345678000000FF"


def encoded(**properties: str) -> bytes:
    return "".join(f"{name}\x01{value}\x02" for name, value in properties.items()).encode()


def message(number: int, **more: str) -> bytes:
    return encoded(A="b", UNIQ_KEY=f"{HEAD}{number:04X}", WAIT="true", **more)


LAST = message(1)[:-6]  # the id at the end
ODD = [
    b"",
    b"UNIQ_KEY",
    b"UNIQ_KEY\x01",
    encoded(UNIQ_KEY="short"),
    encoded(UNIQ_KEY=HEAD + "00\x01F"),
    encoded(UNIQ_KEY=HEAD + "\u00e9\u00e9"),
    encoded(UNIQ_KEY=HEAD + "0001")[:-1],
    encoded(UNIQ_KEY=HEAD + "0002")[:-1],
    encoded(UNIQ_KEY=HEAD + "000")[:-1],
    encoded(XUNIQ_KEY=HEAD + "0001"),
    encoded(A="UNIQ_KEY\x01" + HEAD + "0001"),
    encoded(A="UNIQ_KEY\x01" + HEAD + "0001", UNIQ_KEY=HEAD + "0002"),
    encoded(UNIQ_KEY=HEAD + "0001") + encoded(UNIQ_KEY=HEAD + "0003"),
    encoded(UNIQ_KEY=HEAD + "0002") + encoded(UNIQ_KEY=HEAD + "0003"),
    encoded(UNIQ_KEY="UNIQ_KEY\x01" + HEAD[9:] + "0001"),
    message(1, KEYS="a b"),
    message(2, KEYS="a b"),
    message(2, KEYS="a c"),
    message(0x20),
    message(0x20).replace(b"0020", b"0 20"),
    message(0x20).replace(b"0020", b"0\x0220"),
]
messages = st.one_of(
    st.integers(0, 0xFFFF).map(message), st.sampled_from(ODD), st.binary(max_size=60)
)


@given(st.lists(messages, max_size=12), st.sampled_from(["orders", "\u0442\u0435\u043c\u0430"]))
@example([*ODD, *reversed(ODD)], "orders")
@example([each for odd in ODD for each in (message(7), odd, odd, message(8))], "orders")
def test_they_are_the_same_as_one_by_one(many: list[bytes], topic: str) -> None:
    keys = KeyHashes(topic, 0)
    assert [keys.of(each) for each in many] == [key_hashes(topic, each, 0) for each in many]


@pytest.mark.parametrize("last", range(0, 0x10000, 257))
def test_every_last_digit_counts(last: int) -> None:
    keys = KeyHashes("orders", 0)
    assert keys.of(message(0xFFFF)) == key_hashes("orders", message(0xFFFF), 0)
    assert keys.of(message(last)) == key_hashes("orders", message(last), 0)


def test_what_is_rolled_back_has_none() -> None:
    keys = KeyHashes("orders", 0xC)
    assert [keys.of(message(n)) for n in range(2)] == [[], []]
