"""Who reads which queues, for groups that leave that to brokers, and whether they pull or pop.

QueryAssignmentProcessor and MessageRequestModeManager; a group that pops shares all queues, or
those of some members that follow it.
"""

from collections.abc import Sequence
from dataclasses import replace

from rocketpipe.broker.saving import SavedTable
from rocketpipe.broker.settings import BrokerSettings
from rocketpipe.broker.store.atomic_file import AtomicFile
from rocketpipe.message import MessageQueue
from rocketpipe.wire.allocation import Allocation
from rocketpipe.wire.bodies.groups import GroupRequestMode, MessageRequestMode, RequestModeTable
from rocketpipe.wire.pop_receipt import RETRY_PREFIX

ANY_QUEUE = -1


class RequestModes:
    """How groups read topics; kept in config/messageRequestMode.json, in Apache's form."""

    def __init__(self, settings: BrokerSettings, file: AtomicFile) -> None:
        self.saved = SavedTable(file, self._encode)
        self._table: dict[str, dict[str, GroupRequestMode]] = {}
        self._settings = settings

    def load(self) -> None:
        if saved := self.saved.load(RequestModeTable.decode):
            self._table = saved.message_request_mode_map

    def set(self, mode: GroupRequestMode) -> None:
        self._table.setdefault(mode.topic, {})[mode.consumer_group] = mode
        self.saved.changed()

    def get(self, topic: str, group: str) -> GroupRequestMode:
        """What was set, or what this broker has for all."""
        known = self._table.get(topic, {}).get(group)
        if known is not None:
            return known
        # Retries of pulls are pulled; those of pops are not subscribed to.
        is_retry = topic.startswith(RETRY_PREFIX)
        mode = MessageRequestMode.PULL if is_retry else self._settings.default_message_request_mode
        is_pop = mode is MessageRequestMode.POP
        shared = self._settings.default_pop_share_queue_num if is_pop else 0
        return GroupRequestMode(
            topic=topic, consumer_group=group, mode=mode, pop_share_queue_num=shared
        )

    def forget(self, *, topic: str | None = None, group: str | None = None) -> None:
        """Forget those of a topic or a group that is deleted."""
        for name, groups in list(self._table.items()):
            if name == topic or groups.pop(group or "", None) is not None:
                self.saved.changed()
            if name == topic or not groups:
                del self._table[name]

    def _encode(self) -> bytes:
        return RequestModeTable(message_request_mode_map=self._table).encode()


def share_queues(
    allocate: Allocation,
    mode: GroupRequestMode,
    queues: Sequence[MessageQueue],
    client_ids: Sequence[str],
    client_id: str,
) -> list[MessageQueue]:
    """The queues this member shall read, of which -1 is all of a broker. Both lists are sorted."""
    if client_id not in client_ids or not queues:
        return []
    if mode.mode is MessageRequestMode.PULL:
        return allocate(queues, client_ids, client_id)
    shared = mode.pop_share_queue_num
    if shared <= 0 or shared >= len(client_ids) - 1:
        return sorted({replace(queue, queue_id=ANY_QUEUE) for queue in queues})
    place = client_ids.index(client_id)
    if len(client_ids) > len(queues):
        return [queues[place % len(queues)]]
    return [
        queue
        for follower in range(shared + 1)
        for queue in allocate(queues, client_ids, client_ids[(place + follower) % len(client_ids)])
    ]
