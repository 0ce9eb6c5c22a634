"""The senders' own books against the table: what audits do from records, once more without them."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Stored(NamedTuple):
    """A row of the table of messages."""

    topic: str
    message_id: str
    queue: str
    offset: int
    customer: str | None
    sequence: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Books:
    """What came of the comparison."""

    stored: int  # rows in the table
    lost: Sequence[str]  # ids that were acknowledged, and are not in it
    repeated: int  # messages that it has from more than one place
    out_of_order: Sequence[str]  # customers whose order events are


def close_books(acknowledged: Mapping[str, Iterable[str]], stored: Sequence[Stored]) -> Books:
    """`acknowledged` are the ids of messages, by topic."""
    places = {(row.topic, row.message_id, row.queue, row.offset) for row in stored}
    copies = Counter((topic, message_id) for topic, message_id, *_ in places)
    return Books(
        stored=len(stored),
        lost=[
            message_id
            for topic, ids in acknowledged.items()
            for message_id in ids
            if (topic, message_id) not in copies
        ],
        repeated=sum(count > 1 for count in copies.values()),
        out_of_order=out_of_order(stored),
    )


def out_of_order(stored: Iterable[Stored]) -> list[str]:
    """The customers of whom a reader of the queues would see an event before an earlier one.

    An event may be there again, since the shop sent it again: what counts is where it first is.
    """
    events: defaultdict[str, list[Stored]] = defaultdict(list)
    for row in stored:
        if row.customer is not None and row.sequence is not None:
            events[row.customer].append(row)
    return sorted(customer for customer, rows in events.items() if not _is_in_order(rows))


def _is_in_order(rows: Sequence[Stored]) -> bool:
    if len({row.queue for row in rows}) > 1:
        return False
    sequences = [row.sequence or 0 for row in sorted(rows, key=lambda row: row.offset)]
    first_seen = list(dict.fromkeys(sequences))
    return first_seen == sorted(first_seen)
