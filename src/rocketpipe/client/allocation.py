"""Which queues each member of a consumer group reads.

Every member works this out by itself from the same two lists, so all must follow the same rule,
Java members too. Both lists come sorted: queues as `MessageQueue` sorts, client ids as text.
"""

from bisect import bisect_left
from collections.abc import Collection, Sequence
from hashlib import md5

from rocketpipe.client.checks import RETRY_PREFIX
from rocketpipe.errors import InvalidSetting
from rocketpipe.message import MessageQueue
from rocketpipe.wire.allocation import Allocation, allocate_averagely, allocate_by_circle

VIRTUAL_NODES = 10  # of each member, as AllocateMessageQueueConsistentHash has by default


def allocate_by_consistent_hash(
    queues: Sequence[MessageQueue], client_ids: Sequence[str], client_id: str
) -> list[MessageQueue]:
    """Few queues change hands when a member comes or goes (AllocateMessageQueueConsistentHash)."""
    ring = {_hash(f"{each}-{node}"): each for each in client_ids for node in range(VIRTUAL_NODES)}
    places = sorted(ring)

    def owner(queue: MessageQueue) -> str:
        key = (
            f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, "
            f"queueId={queue.queue_id}]"
        )
        return ring[places[bisect_left(places, _hash(key)) % len(places)]]

    return [queue for queue in queues if owner(queue) == client_id]


def by_config(wanted: Collection[MessageQueue]) -> Allocation:
    """These very queues, whoever else is in the group (AllocateMessageQueueByConfig).

    The group's topic of retries, unless queues of it are among them, is shared averagely: in Java
    nobody reads it then, and what failed never comes again.
    """
    chosen = frozenset(wanted)
    topics = {queue.topic for queue in chosen}

    def allocate(
        queues: Sequence[MessageQueue], client_ids: Sequence[str], client_id: str
    ) -> list[MessageQueue]:
        topic = queues[0].topic if queues else ""
        if topic.startswith(RETRY_PREFIX) and topic not in topics:
            return allocate_averagely(queues, client_ids, client_id)
        return [queue for queue in queues if queue in chosen]

    return allocate


def by_machine_room(rooms: Collection[str]) -> Allocation:
    """Of brokers named `room@name` those in these rooms, shared averagely; what is left over goes
    to the first members, from the end (AllocateMessageQueueByMachineRoom)."""
    chosen = frozenset(rooms)

    def allocate(
        queues: Sequence[MessageQueue], client_ids: Sequence[str], client_id: str
    ) -> list[MessageQueue]:
        near = [
            queue
            for queue in queues
            for room, at, name in [queue.broker_name.partition("@")]
            if at and "@" not in name and room in chosen
        ]
        place = client_ids.index(client_id)
        size, rest = divmod(len(near), len(client_ids))
        mine = near[place * size : (place + 1) * size]
        return mine + ([near[place + size * len(client_ids)]] if place < rest else [])

    return allocate


ALLOCATIONS: dict[str, Allocation] = {
    "averagely": allocate_averagely,
    "circle": allocate_by_circle,
    "consistent-hash": allocate_by_consistent_hash,
}


def allocation_rule(allocation: object) -> Allocation:
    """The rule of this name, or the user's own."""
    if callable(allocation):
        return allocation
    rule = ALLOCATIONS.get(allocation) if isinstance(allocation, str) else None
    if rule is None:
        known = ", ".join(ALLOCATIONS)
        raise InvalidSetting(f"allocation is {allocation!r}: {known} exist, or give a function")
    return rule


def _hash(text: str) -> int:
    return int.from_bytes(md5(text.encode(), usedforsecurity=False).digest()[:4], "big")
