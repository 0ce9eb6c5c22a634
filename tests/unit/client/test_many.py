"""How many messages are cut into batches."""

from dataclasses import replace
from typing import Any, cast

import pytest

from rocketpipe.client.many import MEMBER_BYTES, Pack, packs
from rocketpipe.client.settings import ProducerSettings
from rocketpipe.message import Message

M = Message("orders", b"0123456789")


def pack(messages: list[Any], **settings: Any) -> list[list[Message]]:
    return [each.messages for each in cut(messages, **settings)]


def cut(messages: list[Any], **settings: Any) -> list[Pack]:
    return list(packs(messages, ProducerSettings("group", namesrv="n:9876", **settings)))


def test_neighbours_of_one_topic_go_together() -> None:
    other = replace(M, topic="other")
    assert pack([M, M, other, M]) == [[M, M], [other], [M]]
    assert pack([]) == []


def test_no_pack_has_more_messages_than_allowed() -> None:
    assert list(map(len, pack([M] * 7, batch_messages_max=3))) == [3, 3, 1]
    assert list(map(len, pack([M] * 3, batch_messages_max=1))) == [1, 1, 1]


def test_nor_more_bytes() -> None:
    two = 2 * (10 + MEMBER_BYTES)
    assert list(map(len, pack([M] * 5, batch_bytes_max=two))) == [2, 2, 1]
    assert list(map(len, pack([M] * 5, batch_bytes_max=two - 1))) == [1] * 5


def test_the_count_starts_anew_with_each_pack() -> None:
    large = replace(M, body=bytes(5000))
    two = 2 * (10 + MEMBER_BYTES)
    assert list(map(len, pack([M, M, large, M, M, M], batch_bytes_max=two))) == [2, 1, 2, 1]


@pytest.mark.parametrize(
    "alone",
    [
        replace(M, delay_level=1),
        replace(M, delay_seconds=1),
        replace(M, delay_ms=1),
        replace(M, deliver_at_ms=1),
        replace(M, topic="%RETRY%group"),
        replace(M, body=bytes(100)),  # it would be compressed, which a batch can't be
        replace(M, body=cast("bytes", None)),
        replace(M, body=cast("bytes", "text")),
        replace(M, topic=cast("str", 7)),
        cast("Message", "not a message"),
        cast("Message", None),
    ],
    ids=repr,
)
def test_some_go_alone(alone: Message) -> None:
    packed = pack([M, M, alone, alone, M], compress_body_bytes_min=100)
    assert packed == [[M, M], [alone], [alone], [M]]


def test_those_that_wait_for_the_store_do_not_go_with_those_that_do_not() -> None:
    hasty = replace(M, wait_store_ok=False)
    assert pack([M, hasty, hasty, M]) == [[M], [hasty, hasty], [M]]


def test_messages_are_taken_one_pack_at_a_time() -> None:
    taken = []

    def source() -> Any:
        for n in range(100):
            taken.append(n)
            yield M

    settings = ProducerSettings("group", namesrv="n:9876", batch_messages_max=10)
    next(packs(source(), settings))
    assert len(taken) == 11


OTHERS: dict[str, Any] = {
    "tags": "t",
    "keys": "k",
    "flag": 1,
    "properties": {"a": "1"},
    "sharding_key": "s",
}


@pytest.mark.parametrize("field", OTHERS)
def test_a_pack_tells_whether_only_bodies_differ(field: str) -> None:
    other = replace(M, **{field: OTHERS[field]})
    again, different = replace(other, body=b"1"), replace(M, body=b"2")
    assert [each.alike for each in cut([M, different])] == [True]
    assert [each.alike for each in cut([other, again, again])] == [True]
    assert [each.alike for each in cut([M, other])] == [False]
    assert [each.alike for each in cut([M, other, M, M], batch_messages_max=2)] == [False, True]
    assert [each.alike for each in cut([M, M, other, other], batch_messages_max=2)] == [True] * 2
