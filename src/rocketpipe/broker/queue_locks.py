"""Who of an orderly group may consume a queue: one client each, for as long as it says so."""

from collections.abc import Iterable

from rocketpipe.clock import Clock
from rocketpipe.lazy_dataclass import dataclass
from rocketpipe.message import MessageQueue

LOCK_SECONDS = 60.0  # without being renewed; a client renews every 20 s
LOCKS_MAX = 1_000_000  # of all groups


@dataclass(slots=True)
class _Lock:
    client_id: str
    renewed_at: float


class QueueLocks:
    """Locks by group and queue (RebalanceLockManager)."""

    def __init__(self, clock: Clock, *, locks_max: int = LOCKS_MAX) -> None:
        self._locks_max = locks_max
        self._clock = clock
        self._groups: dict[str, dict[MessageQueue, _Lock]] = {}

    def lock(
        self, group: str, queues: Iterable[MessageQueue], client_id: str
    ) -> frozenset[MessageQueue]:
        """Those of the queues that are now the client's, be they new or renewed."""
        now = self._clock.monotonic()
        locks = self._groups.get(group, {})
        room = self._locks_max - sum(map(len, self._groups.values()))
        locked = set()
        for queue in queues:
            held = locks.get(queue)
            if held is None:
                if room <= 0:
                    continue
                room -= 1
            if held is None or held.client_id == client_id or self._is_expired(held):
                locks[queue] = _Lock(client_id, now)
                locked.add(queue)
        if locks:
            self._groups[group] = locks
        return frozenset(locked)

    def unlock(self, group: str, queues: Iterable[MessageQueue], client_id: str) -> None:
        """Give back those of the queues that are the client's."""
        locks = self._groups.get(group, {})
        for queue in queues:
            held = locks.get(queue)
            if held is not None and held.client_id == client_id:
                del locks[queue]
        if not locks:
            self._groups.pop(group, None)

    def is_any_locked(self, group: str) -> bool:
        return any(not self._is_expired(held) for held in self._groups.get(group, {}).values())

    def forget_expired(self) -> None:
        """Drop the locks of those who are gone: to be called now and then."""
        for group, locks in list(self._groups.items()):
            for queue in [queue for queue, held in locks.items() if self._is_expired(held)]:
                del locks[queue]
            if not locks:
                del self._groups[group]

    def _is_expired(self, held: _Lock) -> bool:
        return self._clock.monotonic() - held.renewed_at > LOCK_SECONDS
