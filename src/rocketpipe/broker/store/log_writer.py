"""Puts records into the log: those of one turn of the loop in one write, many in one fsync.

What is appended waits until the loop comes round, and leaves in one call. Then it is in the hands
of the kernel, survives the death of this process, and can be read. A kernel with too much in hand
lets us wait: then another thread does, until the disk is quick again. With sync flush its callers
hear of it after an fsync that began later; while one runs, those who come wait for the next, which
serves them all.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from rocketpipe.broker.store.commit_log import CommitLog
from rocketpipe.broker.store.indexes import Placed
from rocketpipe.broker.store.settings import StoreSettings
from rocketpipe.broker.store.values import Done, PutResult, PutStatus
from rocketpipe.clock import Clock

_log = logging.getLogger(__name__)

FILLER_BYTES = 8
_SLOW_SECONDS = 0.01  # a write that takes as long has others made by another thread
PENDING_BYTES_MAX = 64 * 1024 * 1024  # of records that a stuck disk lets wait


class _Waiter(NamedTuple):
    result: PutResult
    done: Done
    end_offset: int
    deadline: float


class _Run:
    """Records that follow one another in one segment."""

    __slots__ = ("callers", "is_new_segment", "placed", "records", "since")

    def __init__(self, *, is_new_segment: bool, since: float) -> None:
        self.is_new_segment = is_new_segment
        self.since = since
        self.records: list[bytes] = []
        self.placed: list[Placed] = []
        self.callers: list[tuple[PutResult, Done, bool]] = []


class LogWriter:
    """The only one who appends to the log of a master."""

    def __init__(
        self,
        log: CommitLog,
        settings: StoreSettings,
        *,
        clock: Clock,
        written: Callable[[list[Placed]], None],
        refused: Callable[[list[Placed]], None],
        synced: Callable[[], None],
    ) -> None:
        self._log = log
        self._settings = settings
        self._clock = clock
        self._written = written
        self._refused = refused
        self._synced = synced
        self._loop = asyncio.get_running_loop()
        self._is_sync = settings.flush_disk_type == "sync"
        self._runs: deque[_Run] = deque()
        self._pending_bytes = 0
        self._write_handle: asyncio.Handle | None = None
        self._waiters: deque[_Waiter] = deque()
        self._timeout_handle: asyncio.TimerHandle | None = None
        self._sync_task: asyncio.Task[None] | None = None
        self._aside: asyncio.Task[None] | None = None  # writes while the disk is slow
        self._is_slow = False
        self._run: _Run | None = None  # the newest of them, while it takes more
        self.next_offset = 0
        """Where the next record goes, unless `make_room` says otherwise."""
        self._segment_end = 0
        self.failure: str | None = None
        """Why nothing can be written any more."""
        self.start_over()

    # What a put does

    def make_room(self, size: int) -> int:
        """Where in the log the next so many bytes go. Their records are to be added at once."""
        is_new_segment = self.next_offset + size + FILLER_BYTES > self._segment_end
        if is_new_segment:
            self.next_offset = self._segment_end
            self._segment_end += self._settings.commit_log_segment_bytes
        if is_new_segment or self._run is None:
            self._run = _Run(is_new_segment=is_new_segment, since=self._clock.monotonic())
            self._runs.append(self._run)
            if self._write_handle is None:
                self._write_handle = self._loop.call_soon(self._write_out)
        return self.next_offset

    def add(
        self, records: bytes, placed: Placed, result: PutResult, done: Done, *, waits: bool
    ) -> None:
        """Add records at next_offset, and let who put them know when they are safe."""
        assert self._run is not None
        self._run.records.append(records)
        self._run.placed.append(placed)
        self._run.callers.append((result, done, waits))
        self.next_offset += result.size
        self._pending_bytes += result.size

    def add_many(
        self, records: list[bytes], placed: list[Placed], result: PutResult, done: Done
    ) -> None:
        """Add records of one caller, each with its place: they fit into `room_left`."""
        start = self.make_room(result.size)
        assert start == result.physical_offsets[0]
        assert self._run is not None
        self._run.records += records
        self._run.placed += placed
        self._run.callers.append((result, done, True))
        self.next_offset += result.size
        self._pending_bytes += result.size

    @property
    def room_left(self) -> int:
        """How many bytes of records the segment still takes."""
        return self._segment_end - FILLER_BYTES - self.next_offset

    @property
    def is_full(self) -> bool:
        """Whether as much waits for the disk as there may be, or has waited for too long."""
        if self._pending_bytes >= PENDING_BYTES_MAX:
            return True
        # A long turn of the loop is no slow disk.
        waits = self._aside is not None
        return waits and self.busy_seconds() > self._settings.os_page_cache_busy_timeout

    def busy_seconds(self) -> float:
        """How long the oldest record has waited to be written."""
        return self._clock.monotonic() - self._runs[0].since if self._runs else 0.0

    # Writing

    def write_now(self) -> None:
        """Write what was added, without waiting for the loop; but not while the disk is slow."""
        if self._write_handle is not None:
            self._write_handle.cancel()
            self._write_out()

    def _write_out(self) -> None:
        self._write_handle = None
        while self._runs and not self._is_slow:
            began, run = self._clock.monotonic(), self._next_run()
            try:
                if run.is_new_segment:
                    self._log.close_segment()
                    run.is_new_segment = False
                self._log.write(b"".join(run.records))
            except BlockingIOError:
                self._is_slow = True
            except OSError as error:
                self._refuse_pending(f"the log can't be written: {error}")
            else:
                self._took_next(began)
        if self._runs and self._aside is None:
            self._aside = self._loop.create_task(self._write_aside())

    async def _write_aside(self) -> None:
        while self._runs and self._is_slow:
            began, run = self._clock.monotonic(), self._next_run()
            try:
                if run.is_new_segment:
                    await self._log.close_segment_aside()
                    run.is_new_segment = False
                await self._log.write_aside(b"".join(run.records))
            except OSError as error:
                self._refuse_pending(f"the log can't be written: {error}")
            else:
                self._took_next(began)
        self._aside = None
        self._write_out()

    def _next_run(self) -> _Run:
        """The oldest run, which takes no more records."""
        run = self._runs[0]
        if run is self._run:
            self._run = None
        return run

    def _took_next(self, began: float) -> None:
        """Tell of the oldest run, which is written since just now."""
        self._is_slow = self._clock.monotonic() - began >= _SLOW_SECONDS
        run = self._runs.popleft()
        self._pending_bytes -= sum(map(len, run.records))
        self._written(run.placed)
        self._tell(run)

    def _tell(self, run: _Run) -> None:
        deadline = None
        for result, done, waits in run.callers:
            if waits and self._is_sync:
                if deadline is None:
                    deadline = self._loop.time() + self._settings.sync_flush_timeout
                self._waiters.append(_Waiter(result, done, result.end_offset, deadline))
            else:
                _call(done, result)
        if self._waiters:
            if self._timeout_handle is None:
                self._timeout_handle = self._loop.call_at(self._waiters[0].deadline, self._expire)
            self.flush_soon()

    def _refuse_pending(self, reason: str) -> None:
        runs = list(self._runs)
        self._runs.clear()
        self._run = None
        self._pending_bytes = 0
        self.start_over()
        for run in runs:
            self._refused(run.placed)
        refusal = PutResult(PutStatus.SERVICE_NOT_AVAILABLE, reason=reason)
        for run in runs:
            for _, done, _ in run.callers:
                _call(done, refusal)

    def start_over(self) -> None:
        """Go on at the end of the log, wherever that is now; nothing may be pending."""
        self.next_offset = self._log.max_offset
        self._segment_end = self._log.segment_end(self.next_offset)

    # Syncing

    def flush_soon(self) -> None:
        """Begin to make safe what was written, if nobody is at it already."""
        if self._sync_task is None and self._log.max_offset > self._log.flushed_offset:
            self._sync_task = self._loop.create_task(self._sync_while_awaited())

    async def sync(self) -> None:
        """Make all that was written before this call safe; OSError when that fails."""
        try:
            await self._log.sync()
        except OSError as error:
            # The kernel forgets what it could not write, and would say next time that all is well.
            if self.failure is None:
                self.failure = f"fsync of the log failed: {error}"
                _log.error("%s; no more messages are taken", self.failure)
            self._tell_waiters(lambda _: PutStatus.FLUSH_DISK_TIMEOUT)
            raise
        flushed = self._log.flushed_offset
        self._synced()
        self._tell_waiters(
            lambda waiter: PutStatus.PUT_OK if waiter.end_offset <= flushed else None
        )

    async def _sync_while_awaited(self) -> None:
        try:
            await self.sync()
            while self._waiters:
                await self.sync()
        except OSError:
            pass  # said by sync()
        finally:
            self._sync_task = None

    def _expire(self) -> None:
        self._timeout_handle = None
        now = self._loop.time()
        self._tell_waiters(
            lambda waiter: PutStatus.FLUSH_DISK_TIMEOUT if waiter.deadline <= now else None
        )
        if self._waiters:
            self._timeout_handle = self._loop.call_at(self._waiters[0].deadline, self._expire)

    def _tell_waiters(self, status_of: Callable[[_Waiter], PutStatus | None]) -> None:
        while self._waiters and (status := status_of(self._waiters[0])) is not None:
            waiter = self._waiters.popleft()
            _call(waiter.done, waiter.result._replace(status=status))

    # The end

    async def close(self) -> None:
        """Write and sync what was put; what the disk won't take soon is refused."""
        self.write_now()
        if self._aside is not None:
            timeout = self._settings.os_page_cache_busy_timeout
            await asyncio.wait([self._aside], timeout=timeout)
        if self._runs:
            if self._aside is not None:
                self._aside.cancel()
            self._refuse_pending("the store is closing")
            self._log.truncate(self._log.max_offset)  # what is written by now all the same
        try:
            await self.sync()
        finally:
            self.kill()

    def kill(self) -> None:
        """Stop at once, with nobody told."""
        for handle in (self._write_handle, self._timeout_handle):
            if handle is not None:
                handle.cancel()
        for task in (self._sync_task, self._aside):
            if task is not None:
                task.cancel()


def _call(done: Done, result: PutResult) -> None:
    try:
        done(result)
    except Exception:
        _log.exception("a callback of a put failed")
