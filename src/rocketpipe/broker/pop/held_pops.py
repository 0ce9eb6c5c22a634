"""Pops, and questions whether there is something to pop, that wait for messages.

Each waits in a task of its own, which looks once more when it is woken, and goes with its
connection. A message wakes one pop of each group, as only one can have it; who finds more than it
takes wakes the next. Pops of any queue and those of the message's own queue are woken; the first of
a group speaks for the others when it does not want the message, since a group has one filter.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Hashable, Iterable
from functools import cache, partial

from rocketpipe.broker.held_requests import Held, HeldRequests
from rocketpipe.broker.message_filter import MessageFilter
from rocketpipe.broker.settings import BrokerSettings
from rocketpipe.broker.store.indexes import Placed, messages_of
from rocketpipe.broker.store.message_store import MessageStore
from rocketpipe.remoting.connection import Connection
from rocketpipe.wire.frame import RemotingCommand

ANY_QUEUE = -1


class HeldPop(Held):
    """One that waits: `woken` is done when there may be something, or its time is up."""

    __slots__ = ("filter", "group", "queue_id", "topic", "woken")

    def __init__(
        self,
        connection: Connection,
        request: RemotingCommand,
        topic: str,
        group: str,
        queue_id: int,
        wanted: MessageFilter,
    ) -> None:
        super().__init__(connection, request, (topic, group, queue_id))
        self.topic = topic
        self.group = group
        self.queue_id = queue_id
        self.filter = wanted
        self.woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class HeldPops(HeldRequests[HeldPop]):
    """Those that wait, by topic, group and queue."""

    def __init__(self, settings: BrokerSettings, store: MessageStore) -> None:
        super().__init__()
        self.resume = _end_waiting
        self._settings = settings
        self._store = store
        # Which queues are waited for, and how often, by topic and group.
        self._waited: dict[str, dict[str, Counter[int]]] = {}

    def is_full(self, topic: str, group: str, queue_id: int) -> bool:
        """Whether no more can be held there."""
        settings = self._settings
        return (
            len(self) >= settings.max_pop_polling_size
            or self.count(topic, group, queue_id) > settings.pop_polling_size
        )

    def count(self, topic: str, group: str, queue_id: int) -> int:
        """How many wait for this queue, or for any."""
        return len(self._by_key.get((topic, group, queue_id), ()))

    def hold(self, held: HeldPop, seconds: float) -> None:
        super().hold(held, seconds)
        groups = self._waited.setdefault(held.topic, {})
        groups.setdefault(held.group, Counter())[held.queue_id] += 1

    def arrived(self, topic: str, queue_id: int, arrivals: Iterable[Placed]) -> None:
        """Messages can be read: to be told by the store."""
        if topic not in self._waited:
            return
        for _, tags_code, physical_offset in messages_of(arrivals):
            properties = cache(partial(self._store.properties_at, physical_offset))
            for group in list(self._waited.get(topic, ())):
                for key in ((topic, group, ANY_QUEUE), (topic, group, queue_id)):
                    held = self._first(key)
                    if held is not None and held.filter.wants(tags_code, properties):
                        self._wake(held)

    def wake_one(self, topic: str, group: str, queue_id: int) -> None:
        """There is something for a pop of this very kind: of this queue, or of any."""
        held = self._first((topic, group, queue_id))
        if held is not None:
            self._wake(held)

    def wake_each_queue(self, topic: str, group: str) -> None:
        """There is something for the group that any of its pops may have: one of a queue each."""
        for queue_id in list(self._waited.get(topic, {}).get(group, ())):
            self.wake_one(topic, group, queue_id)

    def _first(self, key: Hashable) -> HeldPop | None:
        return next(iter(self._by_key.get(key, ())), None)

    def _remove(self, held: HeldPop) -> None:
        super()._remove(held)
        groups = self._waited[held.topic]
        queues = groups[held.group]
        queues[held.queue_id] -= 1
        if not queues[held.queue_id]:
            del queues[held.queue_id]
        if not queues:
            del groups[held.group]
        if not groups:
            del self._waited[held.topic]


def _end_waiting(held: HeldPop) -> None:
    if not held.woken.done():
        held.woken.set_result(None)
