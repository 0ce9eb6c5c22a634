"""Pulls that found nothing and wait: until a message comes that they want, or their time is up.

Who is woken asks the store once more, and is answered whatever it finds. A message that a pull does
not want moves its deadline to five seconds later at most: then it is told how far it got, so that a
group with a choosy filter does not seem to stand still.
"""

from collections.abc import Iterable
from functools import cache, partial

from rocketpipe.broker.held_requests import Held, HeldRequests
from rocketpipe.broker.message_filter import MessageFilter
from rocketpipe.broker.pull_checks import Pull
from rocketpipe.broker.settings import BrokerSettings
from rocketpipe.broker.store.indexes import Placed, messages_of
from rocketpipe.broker.store.message_store import MessageStore
from rocketpipe.codes import ResponseCode
from rocketpipe.remoting.connection import Connection
from rocketpipe.remoting.dispatch import Refusal
from rocketpipe.wire.frame import RemotingCommand

SKIPPED_SECONDS_MAX = 5.0  # Apache looks at every held pull so often


class HeldPull(Held):
    """A pull with all that is needed to answer it later."""

    __slots__ = ("filter", "pull")

    def __init__(
        self,
        connection: Connection,
        request: RemotingCommand,
        pull: Pull,
        wanted: MessageFilter,
    ) -> None:
        super().__init__(connection, request, (pull.topic, pull.queue_id))
        self.pull = pull
        self.filter = wanted


class HeldPulls(HeldRequests[HeldPull]):
    """Pulls that wait, by their queue."""

    def __init__(self, settings: BrokerSettings, store: MessageStore) -> None:
        super().__init__()
        self._settings = settings
        self._store = store

    def hold(self, held: HeldPull, seconds: float) -> None:
        """Keep it for so long, or refuse to when there are too many."""
        if len(self) >= self._settings.pull_thread_pool_queue_capacity:
            raise Refusal(
                ResponseCode.SYSTEM_BUSY, "[OVERLOAD]system busy, start flow control for a while"
            )
        super().hold(held, seconds)

    def arrived(self, topic: str, queue_id: int, arrivals: Iterable[Placed]) -> None:
        """Messages can be read: to be told by the store."""
        if (topic, queue_id) not in self._by_key:
            return
        for queue_offset, tags_code, physical_offset in messages_of(arrivals):
            properties = cache(partial(self._store.properties_at, physical_offset))
            for held in list(self._by_key.get((topic, queue_id), ())):
                if queue_offset < held.pull.offset:
                    continue  # on a slave that is behind
                if held.filter.wants(tags_code, properties):
                    self._wake(held)
                else:
                    self._move_deadline(held, SKIPPED_SECONDS_MAX)

    def wake_group(self, group: str, topic: str, queue_id: int) -> None:
        """There is something to tell to this group's consumers of the queue."""
        for held in list(self._by_key.get((topic, queue_id), ())):
            if held.pull.group == group:
                self._wake(held)
