"""What a store does now and then: sync the log, write out its indexes, delete what is old."""

import asyncio
import logging
from pathlib import Path

from rocketpipe.broker.store.commit_log import CommitLog
from rocketpipe.broker.store.disk import Disk
from rocketpipe.broker.store.indexes import Indexes
from rocketpipe.broker.store.log_writer import LogWriter
from rocketpipe.broker.store.retention import is_oldest_expired, is_over
from rocketpipe.broker.store.settings import StoreSettings
from rocketpipe.clock import Clock

_log = logging.getLogger(__name__)

_REMOVED_AT_ONCE_MAX = 10  # segments of the log, as in RocketMQ


class Housekeeping:
    """The work behind an open store, and what stops it from taking messages."""

    def __init__(
        self,
        folder: Path,
        log: CommitLog,
        indexes: Indexes,
        writer: LogWriter,
        settings: StoreSettings,
        *,
        disk: Disk,
        clock: Clock,
    ) -> None:
        self._folder = folder
        self._log = log
        self._indexes = indexes
        self._writer = writer
        self._settings = settings
        self._disk = disk
        self._clock = clock
        self._lock = asyncio.Lock()  # for one checkpoint or deletion at a time
        self._disk_trouble: str | None = None
        self._index_trouble: str | None = None
        self.trouble: str | None = None
        """Why no messages can be taken: the disk is too full, or the indexes can't be written."""
        self._clean()
        self._task = asyncio.create_task(self._run())

    async def checkpoint(self, *, is_closing: bool = False) -> None:
        """Bring the indexes' files up to where the log is now."""
        async with self._lock:
            await self._indexes.checkpoint(self._writer.sync, is_closing=is_closing)

    async def delete_topic(self, topic: str) -> None:
        """Drop the queues of a topic for good; nothing may be put to it meanwhile."""
        async with self._lock:
            self._writer.write_now()
            await self._indexes.delete_topic(topic, self._writer.sync, log_min=self._log.min_offset)

    async def cut_log(self, offset: int, suffix: str) -> None:
        """End the log there, where a record begins; what is behind gets names that end so.

        With 0 nothing of it remains, wherever it begins.
        """
        log, indexes = self._log, self._indexes
        async with self._lock:
            # The checkpoint first: one of what is cut off would pass for one of what comes to stand
            # there. A crash in between does no harm: the end of the log is read once more.
            await indexes.cut(offset)
            await indexes.checkpoint(self._writer.sync)
            await log.set_aside(offset, suffix)
            self._writer.start_over()
            await self._writer.sync()

    async def stop(self) -> None:
        """Do no more, and let what is being done come to an end."""
        self._task.cancel()
        await asyncio.wait([self._task])

    def kill(self) -> None:
        """Do no more."""
        self._task.cancel()

    async def _run(self) -> None:
        settings, indexes = self._settings, self._indexes
        checkpoint_at = clean_at = self._clock.monotonic()
        while True:
            await asyncio.sleep(settings.flush_interval)
            self._writer.flush_soon()
            now = self._clock.monotonic()
            behind = indexes.offset - indexes.checkpoint_offset
            is_time = behind and now - checkpoint_at >= settings.checkpoint_interval
            if is_time or behind >= settings.checkpoint_bytes or self._index_trouble:
                checkpoint_at = now
                await self._try_checkpoint()
            if now - clean_at >= settings.clean_interval:
                clean_at = now
                self._clean()
            self.trouble = self._disk_trouble or self._index_trouble

    async def _try_checkpoint(self) -> None:
        try:
            await self.checkpoint()
        except OSError as error:
            # What should be on disk stays in memory, which must not fill up.
            if self._index_trouble is None:
                _log.error("queues and key index can't be written: %s", error)
            self._index_trouble = f"queues and key index can't be written: {error}"
        else:
            self._index_trouble = None

    def _clean(self) -> None:
        """Delete what is too old, or the oldest there is when the disk is too full."""
        settings, log = self._settings, self._log
        try:
            removed = 0
            while len(log.segment_starts) > 1 and removed < _REMOVED_AT_ONCE_MAX:
                usage = self._disk.usage(self._folder)
                if not (
                    is_oldest_expired(log, settings, self._clock.wall_ms())
                    or is_over(usage, settings.disk_space_clean_forcibly_ratio, settings)
                ):
                    break
                _log.info("deleting the oldest segment of the log, %d", log.min_offset)
                log.remove_oldest()
                removed += 1
            if removed:
                self._indexes.remove_before(log.min_offset)
            usage = self._disk.usage(self._folder)
        except OSError as error:
            _log.error("cleaning %s failed: %s", self._folder, error)
            return
        trouble = None
        if is_over(usage, settings.disk_space_warning_ratio, settings):
            trouble = f"the disk is {usage.used_ratio:.0%} full"
        if (trouble is None) != (self._disk_trouble is None):
            _log.warning("%s: %s", self._folder, trouble or "the disk has room again")
        self._disk_trouble = trouble
        self.trouble = self._disk_trouble or self._index_trouble
