"""The ids of rows: the same for the same row, and such as RocketMQ's tools can read."""

from itertools import product

from rocketpipe.spark.row_ids import ids_with_commas, row_of, task_digits
from rocketpipe.wire.message_id import parse_unique_id


def ids(first_row: int, count: int) -> list[str]:
    lines = ids_with_commas(task_digits("job", "j", 0), first_row, count)
    return lines.tobytes().decode().split(",")[:-1]


def test_the_same_task_has_the_same_digits_in_any_process() -> None:
    assert task_digits("stream", "query", "7", 3) == "DB98AF4AC917FAF743F1"


def test_every_task_has_digits_of_its_own() -> None:
    names = list(product(("job", "stream"), ("1", "11", '1", "1'), ("1", "11"), range(3)))
    assert len({task_digits(*each) for each in names}) == len(names)


def test_rows_are_counted_at_the_end() -> None:
    for first in (0, 250, 65_530, (1 << 32) - 5, (1 << 48) - 10):
        assert [row_of(each) for each in ids(first, 10)] == list(range(first, first + 10))
    assert {len(each) for each in ids(0, 1000)} == {32}


def test_tools_take_it_for_an_id_from_the_beginning_of_the_month() -> None:
    # MessageClientIDSetter.getNearlyTimeFromID, from which on mqadmin looks for a message.
    assert parse_unique_id(ids(10_000_000, 1)[0]).month_ms < 1000
