"""What `send_many` tells of each message, though brokers answer for batches."""

import pytest

from rocketpipe.client.outcomes import Outcome, SendOutcomes, split_result
from rocketpipe.errors import MQError
from rocketpipe.message import MessageQueue, SendResult, SendStatus

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


def outcomes() -> SendOutcomes:
    """Of a batch of three, an error for two, and one by itself; settled in another order."""
    many = SendOutcomes()
    batch, failed, single = many.expect(3), many.expect(2), many.expect(1)
    many.settle(single, [ALONE])
    many.settle(failed, [ERROR] * 2)
    many.settle(batch, RESULT)
    return many


ALONE = RESULT._replace(message_id="Z")
ERROR = MQError("no")
ALL: list[Outcome] = [*split_result(RESULT, 3), ERROR, ERROR, ALONE]


def test_they_are_a_sequence_of_one_for_each_message() -> None:
    many = outcomes()
    assert len(many) == 6
    assert list(many) == ALL == many
    assert [many[index] for index in range(6)] == ALL
    assert [many[index] for index in range(-6, 0)] == ALL
    assert many[1:4] == ALL[1:4]
    assert list(reversed(many)) == ALL[::-1]
    assert many != ALL[:-1]
    assert many == outcomes()
    for index in (6, -7):
        with pytest.raises(IndexError):
            many[index]
    assert repr(many) == f"SendOutcomes({ALL!r})"


def test_more_are_added_in_order() -> None:
    many = outcomes()
    many.extend(outcomes())
    many.extend(SendOutcomes())
    assert list(many) == ALL * 2
    assert [many[index] for index in range(12)] == ALL * 2
    assert SendOutcomes() == []
