"""Finds where a slave's log is no longer its master's, and ends it there."""

from rocketpipe.broker.store.commit_log import SET_ASIDE, CommitLog
from rocketpipe.broker.store.housekeeping import Housekeeping
from rocketpipe.broker.store.indexes import Indexes
from rocketpipe.clock import Clock
from rocketpipe.errors import StoreError


class LogCopy:
    """The log of a slave's store, to be compared with that of its master."""

    def __init__(
        self, log: CommitLog, indexes: Indexes, housekeeping: Housekeeping, clock: Clock
    ) -> None:
        self._log = log
        self._indexes = indexes
        self._housekeeping = housekeeping
        self._clock = clock

    def first_difference(self, offset: int, data: bytes) -> int | None:
        """Where in the log the master's bytes from this offset on are not ours; None if nowhere.

        What is behind our end, or from before our beginning, is no difference.
        """
        log = self._log
        position, end = max(offset, log.min_offset), min(offset + len(data), log.max_offset)
        try:
            while position < end:
                # Our segments may end elsewhere. A hole is copied as zeros.
                size = min(end, log.segment_end(position)) - position
                ours = log.read(position, size).ljust(size, b"\0")
                theirs = data[position - offset : position - offset + size]
                if ours != theirs:
                    pairs = enumerate(zip(ours, theirs, strict=True), position)
                    return next(place for place, (our, their) in pairs if our != their)
                position += size
        except OSError as error:
            raise StoreError(f"the log can't be read: {error}") from error
        return None

    def record_start(self, offset: int) -> int:
        """Where the record begins that holds this offset of the log.

        Only records that are in queues are known. Where there is none, as at the end of a segment,
        it is where the one before it ends, or the log begins.
        """
        start = self._log.min_offset
        for queue in self._indexes.queues.values():
            entry = queue.last_before(offset)
            if entry is not None:
                place, size, _ = entry
                start = max(start, place + size if place + size <= offset else place)
        return start

    def has_record(self, start: int, end: int) -> bool:
        """Whether a whole record, one that is in a queue, stands between these offsets."""
        for queue in self._indexes.queues.values():
            entry = queue.last_before(end)
            if entry is not None and entry[1] and start <= entry[0] and entry[0] + entry[1] <= end:
                return True
        return False

    async def cut(self, offset: int) -> str:
        """End the log at the start of a record; the answer says where the rest is now.

        With 0 nothing of it remains, and it may begin elsewhere.
        """
        # Not deleted: it may be all that is left of messages that the master has lost.
        suffix = f"{SET_ASIDE}{self._clock.wall_ms()}"
        try:
            await self._housekeeping.cut_log(offset, suffix)
        except OSError as error:
            raise StoreError(f"the log can't be cut at {offset}: {error}") from error
        return f"*{suffix}"
