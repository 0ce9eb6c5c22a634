"""Repeats: which copy counts is settled by offsets, and the index is asked as seldom as can be."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from rocketpipe.errors import BrokersFailed, NoRoute, NotFound, RequestTimeout
from rocketpipe.message import MessageQueue, StoredMessage
from rocketpipe.spark.planning import QueueRange
from rocketpipe.spark.read_options import ReadOptions
from rocketpipe.spark.repeats import Repeats
from rocketpipe.spark.row_ids import row_id, task_digits
from tests.stored_message import stored_message

A0, A1, B0 = (MessageQueue("orders", *place) for place in (("a", 0), ("a", 1), ("b", 0)))
TASK, OTHER = task_digits("one"), task_digits("two")
Place = tuple[MessageQueue, int]


class Index:
    """A cluster's key index, in place of the admin that asks it."""

    def __init__(self, messages: Iterable[tuple[Place, str]]) -> None:
        self._copies: dict[str, list[StoredMessage]] = {}
        for (queue, offset), message_id in messages:
            message = stored_message(
                topic=queue.topic,
                queue_id=queue.queue_id,
                queue_offset=offset,
                broker_name=queue.broker_name,
                properties={"UNIQ_KEY": message_id},
            )
            self._copies.setdefault(message_id, []).append(message)
        self.asked: Counter[str] = Counter()
        self.trouble: list[Exception] = []

    def copies(
        self, topic: str, message_ids: Iterable[str], *, brokers: Iterable[str] = ()
    ) -> dict[str, list[StoredMessage]]:
        if self.trouble:
            raise self.trouble.pop()
        self.asked.update(message_ids)
        return {each: self._copies.get(each, []) for each in message_ids}


def repeats(
    index: Index, queue: MessageQueue, spans: dict[MessageQueue, tuple[int, int]], **options: str
) -> Repeats:
    among = tuple(QueueRange(each, *span) for each, span in spans.items())
    given = {"namesrv": "n:9876", "topic": "orders", "pullTimeout": "50ms", **options}
    found = Repeats(ReadOptions.parse(given), QueueRange(queue, *spans[queue], among))
    found._admin = index  # type: ignore[assignment]
    return found


def find(
    repeats: Repeats,
    ids: Sequence[str | None],
    start: int = 0,
    said: Mapping[str, str] | None = None,
) -> list[int]:
    first_rows = pa.array([(said or {}).get(str(each)) for each in ids], pa.string())
    offsets = np.arange(start, start + len(ids))
    found: list[int] = repeats.find(pa.array(ids, pa.string()), first_rows, offsets).tolist()
    return found


def ids(task: str, rows: Iterable[int]) -> list[str]:
    return [row_id(task, row) for row in rows]


def test_a_task_that_sent_once_costs_one_question() -> None:
    rows = ids(TASK, range(1000)) + ids(OTHER, range(1000))
    index = Index([((A0, n), each) for n, each in enumerate(rows)])
    finding = repeats(index, A0, {A0: (0, 2000)})
    assert find(finding, rows[:1500]) == []
    assert find(finding, rows[1500:], 1500) == []
    assert index.asked == Counter([row_id(TASK, 0), row_id(OTHER, 0)])


def test_of_copies_that_are_read_together_the_first_counts() -> None:
    rows = ids(TASK, range(5))
    stored = [((queue, n), each) for queue in (A0, B0) for n, each in enumerate(rows)]
    stored += [((A0, n + 5), rows[n]) for n in (0, 3)]
    spans = {A0: (0, 9), B0: (0, 5)}
    index = Index(stored)
    assert find(repeats(index, A0, spans), [*rows, rows[0], None, None, rows[3]]) == [5, 8]
    assert find(repeats(index, B0, spans), rows) == [0, 1, 2, 3, 4]


def test_what_was_read_before_counts_and_what_is_not_read_does_not() -> None:
    rows = ids(TASK, range(3))
    index = Index(
        [
            *(((B0, 10 + n), each) for n, each in enumerate(rows)),
            ((A0, 4), rows[0]),  # read by an earlier batch
            ((A0, 7), rows[1]),  # of a later one
            ((A1, 0), rows[2]),  # of a queue that is not read
        ]
    )
    spans = {A0: (5, 6), B0: (10, 13)}
    index._copies[rows[0]].append(index._copies[rows[0]][0])
    assert find(repeats(index, B0, spans), rows, 10) == [0]
    # In the next batch, what is there counts.
    later = {A0: (6, 9), B0: (13, 13)}
    assert find(repeats(index, A0, later), [None, rows[1], None], 6) == [1]


def test_each_copy_is_read_once_whatever_the_batches_are() -> None:
    dice = np.random.default_rng(7)
    rows = ids(TASK, range(60))
    queues = [A0, A1, B0]
    ends = dict.fromkeys(queues, 0)
    log: list[tuple[Place, str]] = []
    for row in [0, *dice.integers(0, 60, 200).tolist(), 0]:
        queue = queues[int(dice.integers(3))]
        log.append(((queue, ends[queue]), rows[row]))
        ends[queue] += 1
    given: list[str] = []
    starts = dict.fromkeys(queues, 0)
    while starts != ends:
        to = {each: min(ends[each], starts[each] + int(dice.integers(0, 20))) for each in queues}
        spans = {each: (starts[each], to[each]) for each in queues}
        for queue in queues:
            of_queue = [each for (place, offset), each in log if place == queue]
            wanted = of_queue[slice(*spans[queue])]
            dropped = find(repeats(Index(log), queue, spans), wanted, starts[queue])
            given += [each for n, each in enumerate(wanted) if n not in dropped]
        starts = to
    assert sorted(given) == sorted({each for _, each in log})


def test_a_row_may_say_which_one_announces_it() -> None:
    rows = ids(TASK, range(4))
    index = Index([((A0, n), each) for n, each in enumerate(rows)] + [((A0, 4), rows[0])])
    said = {rows[2]: "2", rows[3]: "2", rows[1]: "no number"}
    assert find(repeats(index, A0, {A0: (0, 5)}), [*rows, rows[0]], said=said) == [4]
    assert index.asked[rows[2]] == 1
    assert rows[3] not in index.asked


def test_ids_of_other_producers_are_left_alone() -> None:
    theirs: list[str | None] = ["7F0000010D9318B4AAC2056B7D250007", "x", None, "7F" * 20]
    index = Index([])
    assert find(repeats(index, A0, {A0: (0, 4)}), theirs) == []
    assert not index.asked
    assert find(repeats(index, A0, {A0: (0, 4)}), []) == []


def test_an_index_without_what_was_read_is_waited_for_and_is_an_error() -> None:
    rows = ids(TASK, range(2))
    index = Index([])
    with pytest.raises(NotFound, match="messageIndexEnable=true"):
        find(repeats(index, A0, {A0: (0, 2)}), rows)
    assert index.asked[rows[1]] > 1


def test_a_broker_that_does_not_answer_is_asked_again() -> None:
    rows = ids(TASK, range(2))
    index = Index([((A0, n), each) for n, each in enumerate(rows)])
    late = RequestTimeout("a:10911", "look", 1.0)
    index.trouble = [BrokersFailed("look", (), ()), NoRoute("orders", (), "no"), late]
    assert find(repeats(index, A0, {A0: (0, 2)}, pullTimeout="30s"), rows) == []
    index.trouble = [NoRoute("orders", (), "y")] * 1000
    with pytest.raises(NoRoute):
        find(repeats(index, A0, {A0: (0, 2)}), rows)


def test_brokers_that_were_read_must_answer_unless_losses_are_allowed() -> None:
    asked: list[Any] = []

    class Asked(Index):
        def copies(self, topic: str, message_ids: Any, *, brokers: Any = ()) -> Any:
            asked.append(set(brokers))
            return super().copies(topic, message_ids, brokers=brokers)

    index = Asked([((A0, 0), row_id(TASK, 0))])
    spans = {A0: (0, 1), B0: (3, 3), MessageQueue("others", "c", 0): (0, 9)}
    find(repeats(index, A0, spans), ids(TASK, [0]))
    find(repeats(index, A0, spans, failOnDataLoss="false"), ids(TASK, [0]))
    assert asked == [{"a", "b"}, set()]
