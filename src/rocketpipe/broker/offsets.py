"""How far consumer groups are: offsets by group, topic and queue, saved now and then."""

from collections.abc import Callable
from dataclasses import replace

from rocketpipe.broker.saving import SavedTable
from rocketpipe.broker.store.atomic_file import AtomicFile
from rocketpipe.clock import Clock
from rocketpipe.wire.bodies.offsets import ConsumerOffsetWrapper
from rocketpipe.wire.bodies.topics import DataVersion


class ConsumerOffsets:
    """Kept in config/consumerOffset.json, in Apache's form: by `topic@group`, then by queue id."""

    def __init__(self, file: AtomicFile, clock: Clock) -> None:
        self.table: dict[str, dict[int, int]] = {}  # to be read; changed here alone
        self.data_version = DataVersion(timestamp=clock.wall_ms())
        self.saved = SavedTable(file, lambda: self.wrapper().encode())
        self._pulled: dict[str, dict[int, int]] = {}  # how far they have pulled; not saved
        self._resets: dict[str, dict[int, int]] = {}  # which their consumers do not know of yet
        self._clock = clock
        self._is_changed = False

    def load(self) -> None:
        if saved := self.saved.load(ConsumerOffsetWrapper.decode):
            self.table = saved.offset_table
            self.data_version = saved.data_version or self.data_version

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """Where the group goes on reading the queue; -1 when it never said."""
        return self.table.get(f"{topic}@{group}", {}).get(queue_id, -1)

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        self.table.setdefault(f"{topic}@{group}", {})[queue_id] = offset
        self._is_changed = True

    def query_pulled(self, group: str, topic: str, queue_id: int) -> int:
        """How far the group has pulled, whatever it committed; -1 when it never did either."""
        pulled = self._pulled.get(f"{topic}@{group}", {}).get(queue_id)
        return pulled if pulled is not None else self.query(group, topic, queue_id)

    def note_pulled(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        key = f"{topic}@{group}"
        pulled = self._pulled.get(key)
        if pulled is None:
            pulled = self._pulled[key] = {}
        pulled[queue_id] = offset

    # Resets: as 5.x, which tells a consumer of one when it pulls next.

    def reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Make the group go on there; what its consumers commit until they know is not heard."""
        self.commit(group, topic, queue_id, offset)
        self._resets.setdefault(f"{topic}@{group}", {})[queue_id] = offset

    def is_reset(self, group: str, topic: str, queue_id: int) -> bool:
        return queue_id in self._resets.get(f"{topic}@{group}", ())

    @property
    def has_resets(self) -> bool:
        """Whether any consumer is to be told of one."""
        return bool(self._resets)

    def take_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """The offset a consumer of the group shall go on from, if there is one to be told."""
        if not self._resets:  # nearly always
            return None
        key = f"{topic}@{group}"
        pending = self._resets.get(key, {})
        offset = pending.pop(queue_id, None)
        if not pending:
            self._resets.pop(key, None)
        return offset

    # By topic, and by group.

    def topics_of(self, group: str) -> list[str]:
        """What the group has read."""
        return sorted(key[: -len(group) - 1] for key in self.table if key.endswith(f"@{group}"))

    def groups_of(self, topic: str) -> list[str]:
        """Who has read the topic."""
        return sorted(key[len(topic) + 1 :] for key in self.table if key.startswith(f"{topic}@"))

    def forget_topic(self, topic: str) -> None:
        self._forget(lambda key: key.startswith(f"{topic}@"))

    def forget_group(self, group: str) -> None:
        self._forget(lambda key: key.endswith(f"@{group}"))

    def copy(self, topic: str, *, of_group: str, to_group: str) -> None:
        """Make one group go on where another is."""
        if offsets := self.table.get(f"{topic}@{of_group}"):
            self.table[f"{topic}@{to_group}"] = dict(offsets)
            self._is_changed = True

    def _forget(self, is_gone: Callable[[str], bool]) -> None:
        for table in (self.table, self._pulled, self._resets):
            for key in filter(is_gone, list(table)):
                del table[key]
        self._is_changed = True

    def replace_all(self, copied: ConsumerOffsetWrapper) -> None:
        """Become the copy of another broker's: what a slave does."""
        if copied.offset_table != self.table:
            self.table = copied.offset_table
            self.data_version = copied.data_version or self.data_version
            self.saved.changed()

    def save_if_changed(self) -> None:
        """Save what was committed since last time: called now and then, and at the end."""
        if self._is_changed:
            self._is_changed = False
            self.data_version = replace(
                self.data_version,
                timestamp=self._clock.wall_ms(),
                counter=self.data_version.counter + 1,
            )
            self.saved.changed()

    def wrapper(self) -> ConsumerOffsetWrapper:
        """All offsets, as they are saved and told to slaves."""
        return ConsumerOffsetWrapper(offset_table=self.table, data_version=self.data_version)
