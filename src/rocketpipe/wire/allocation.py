"""The two rules of sharing out queues that brokers know too: for groups that ask them to do it.

Both lists come sorted: queues as `MessageQueue` sorts, client ids as text.
"""

from collections.abc import Callable, Sequence

from rocketpipe.message import MessageQueue

Allocation = Callable[[Sequence[MessageQueue], Sequence[str], str], list[MessageQueue]]


def allocate_averagely(
    queues: Sequence[MessageQueue], client_ids: Sequence[str], client_id: str
) -> list[MessageQueue]:
    """A run of neighbours each; the first members get one more (AllocateMessageQueueAveragely)."""
    place = client_ids.index(client_id)
    size, rest = divmod(len(queues), len(client_ids))
    start = place * size + min(place, rest)
    return list(queues[start : start + size + (place < rest)])


def allocate_by_circle(
    queues: Sequence[MessageQueue], client_ids: Sequence[str], client_id: str
) -> list[MessageQueue]:
    """One after the other, in turn (AllocateMessageQueueAveragelyByCircle)."""
    return list(queues[client_ids.index(client_id) :: len(client_ids)])


# By the names that Java's strategies give themselves.
STRATEGIES: dict[str, Allocation] = {
    "AVG": allocate_averagely,
    "AVG_BY_CIRCLE": allocate_by_circle,
}
