"""The senders' books against the table: what is missing, double or out of order is found."""

import pytest

from rocketpipe.demo.books import Stored, close_books, out_of_order


def row(
    message_id: str,
    *,
    topic: str = "orders",
    queue: str = "broker-a:0",
    offset: int = 0,
    sequence: int | None = None,
    customer: str = "c-1",
) -> Stored:
    return Stored(topic, message_id, queue, offset, customer, sequence)


def test_what_was_acknowledged_is_stored() -> None:
    books = close_books(
        {"orders": ["A"], "activity": ["B"]}, [row("A"), row("B", topic="activity")]
    )
    assert (books.stored, books.lost, books.repeated, books.out_of_order) == (2, [], 0, [])


def test_a_message_that_is_missing_is_lost_also_if_another_topic_has_its_id() -> None:
    books = close_books({"orders": ["A", "B"]}, [row("A"), row("B", topic="activity")])
    assert books.lost == ["B"]


def test_a_message_that_is_there_twice_is_repeated_and_what_nobody_acknowledged_is_stored() -> None:
    stored = [row("A"), row("A", queue="broker-b:1"), row("A", offset=9), row("never told")]
    books = close_books({"orders": ["A"]}, stored)
    assert (books.stored, books.lost, books.repeated) == (4, [], 1)


@pytest.mark.parametrize(
    ("sequences", "is_in_order"),
    [
        ([1, 2, 3], True),
        ([1, 2, 2, 3], True),  # sent again, since nobody answered
        ([1, 2, 1, 3], True),  # the second time says nothing new
        ([1, 3], True),  # given up, which is not our question here
        ([1, 3, 2], False),
        ([2, 1], False),
    ],
)
def test_the_first_of_each_event_must_be_in_order(sequences: list[int], is_in_order: bool) -> None:
    rows = [row(f"{n}", offset=n, sequence=each) for n, each in enumerate(sequences)]
    assert (out_of_order(reversed(rows)) == []) is is_in_order


def test_a_customer_in_two_queues_is_out_of_order() -> None:
    rows = [row("A", sequence=1), row("B", queue="broker-b:0", offset=1, sequence=2)]
    assert out_of_order(rows) == ["c-1"]


def test_events_without_a_number_have_no_order() -> None:
    assert out_of_order([row("A", queue="broker-a:0"), row("B", queue="broker-b:1")]) == []
