"""Which queues each member of a consumer group reads.

Every member works this out by itself from the same two lists, so all must follow the same rule,
Java members too. Both lists come sorted: queues as `MessageQueue` sorts, client ids as text.
"""

from collections.abc import Sequence

from rocketpipe.message import MessageQueue


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
