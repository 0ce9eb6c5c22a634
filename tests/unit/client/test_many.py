"""How many messages are cut into batches, and what a batch's result says of each."""

from dataclasses import replace
from typing import Any, cast

import pytest

from rocketpipe.client.many import MEMBER_BYTES, packs, split_result
from rocketpipe.client.settings import ProducerSettings
from rocketpipe.message import Message, MessageQueue, SendResult, SendStatus

M = Message("orders", b"0123456789")


def pack(messages: list[Any], **settings: Any) -> list[list[Message]]:
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
    cut = packs(source(), settings)
    next(cut)
    assert len(taken) == 11


RESULT = SendResult(
    SendStatus.SEND_OK,
    "A,B,C",
    "1,2,3",
    MessageQueue("orders", "broker-a", 1),
    40,
    None,
    None,
    "DefaultRegion",
    True,
    (),
)


def test_each_message_of_a_batch_has_its_own_ids_and_offset() -> None:
    results = [each for each in split_result(RESULT, 3) if isinstance(each, SendResult)]
    assert [each.message_id for each in results] == ["A", "B", "C"]
    assert [each.offset_message_id for each in results] == ["1", "2", "3"]
    assert [each.queue_offset for each in results] == [40, 41, 42]
    assert {each.queue for each in results} == {RESULT.queue}


def test_a_batch_that_is_one_message_to_the_broker_has_one_place() -> None:
    results = split_result(RESULT._replace(offset_message_id="1"), 3)
    assert [each.offset_message_id for each in results if isinstance(each, SendResult)] == ["1"] * 3
