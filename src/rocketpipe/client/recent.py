"""Memory of names that come and go: topics and brokers that nobody uses any more are forgotten."""

from typing import Generic, Protocol, TypeVar

FORGET_AFTER = 600.0  # seconds; RocketMQ's longest isolation


class Used(Protocol):
    used: float  # when last, or until when it is needed


Entry = TypeVar("Entry", bound=Used)


class Recent(dict[str, Entry], Generic[Entry]):
    """A dict that forgets what was not used for ten minutes.

    It looks for such entries when it has doubled since the last look: adding stays cheap, and it
    never holds much more than twice what is in use.
    """

    def __init__(self) -> None:
        super().__init__()
        self._look_at = 16

    def add(self, name: str, entry: Entry, now: float) -> None:
        if len(self) >= self._look_at:
            self.forget(now)
            self._look_at = max(16, 2 * len(self))
        self[name] = entry

    def forget(self, now: float) -> None:
        for name in [name for name, entry in self.items() if now - entry.used > FORGET_AFTER]:
            del self[name]
