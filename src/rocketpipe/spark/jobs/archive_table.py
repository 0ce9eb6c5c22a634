"""The table of an archive: every message once, in Parquet files of a good size, through any kill.

A micro-batch makes a small file for each task, topic and date. Joining them later, in place, would
show a reader who lists the folder some rows twice or not at all for a moment. So here a file is
only put into the table when it is final: small files wait in a folder of their own (`open`) until
those of one partition are large or old enough, are joined there, and the result appears in the
table by a single rename. No file of the table is ever changed or removed again, so each reader of
Parquet sees each row once or not yet, at any moment.

    table/topic=orders/date=2026-11-17/b00000012-3.parquet     what readers see
    table/_quarantine/topic=orders/date=2026-11-17/...         bodies that can't be read
    table/_rocketpipe/checkpoint/                              Spark's, of the query
    table/_rocketpipe/open/                                    files that wait, and drafts
    table/_rocketpipe/state-00000042.json                      what is true: the highest number

All decisions are in the state, and each takes effect by the rename that gives the next state its
name. Two kinds of change:

- a batch: its files are written to `open`, then a state lists them, with the batch's number. Spark
  runs a batch again that it does not know to be done: then the state has its number already, and
  nothing is written. Files in `open` that no state lists are drafts of a run that was killed; they
  are deleted at the next start.
- a roll: joined files are written to `open`, then a state lists them to be moved, in place of what
  they were made of. Moves that a kill left undone are done at the next start. For a table of Delta
  (`archive_delta.py`) the moved files are then added to its log, under the state's number.

Limits: it needs renames that are atomic (a local disk, NFS, HDFS), not an object store. It
survives kills of its processes; of a loss of power what the file system survives. On a local disk a
lock keeps a second archive out; elsewhere the second fails at its first change.
"""

import fcntl
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from threading import RLock
from typing import IO, Any

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as fn

from rocketpipe.clock import Clock, SystemClock
from rocketpipe.errors import JobError
from rocketpipe.spark.jobs.archive_delta import add_to_log
from rocketpipe.spark.jobs.archive_state import Merge, OpenFile, State, plan_merges
from rocketpipe.spark.jobs.bodies import REASON
from rocketpipe.spark.jobs.folders import Folder

HOME = "_rocketpipe"
CHECKPOINT = f"{HOME}/checkpoint"
OPEN = f"{HOME}/open"
QUARANTINE = "_quarantine"
STATES_KEPT = 2

# What a body would have become, and what is in the name of a folder.
_NOT_QUARANTINED = frozenset({"value", "text", "topic", "date"})
_STATE = re.compile(r"state-(\d+)\.json")
_LOCKS: dict[str, IO[str]] = {}  # a lock is its process's, and ends with it


@dataclass
class ArchiveTable:
    """A table that one archive at a time writes to."""

    spark: SparkSession
    path: str
    file_bytes: int
    file_age: float  # seconds
    is_delta: bool = False
    clock: Clock = field(default_factory=SystemClock)

    def __post_init__(self) -> None:
        self.folder = Folder(self.spark, self.path)
        self.state: State | None = None
        # Spark adds batches in a thread of its own, which may still be at it when a query is over.
        self._changing = RLock()

    @property
    def checkpoint(self) -> str:
        return self.folder.child(CHECKPOINT)

    def open(self, settings: dict[str, Any]) -> State:
        """Take it over as the last run left it; JobError if it is not an archive of these
        settings. `settings` is what a new table is made for."""
        if self.read_state() is None and (self.folder.names(CHECKPOINT) or self._holds_files()):
            raise JobError(
                f"{self.path} holds files, but is no archive of ours: choose another folder"
            )
        self._lock()
        state = self.read_state()  # again, as nobody else changes it now
        if state is None:
            self.folder.make(OPEN)
            state = State(number=0, settings=settings)
            self.folder.write_json(_name(0), asdict(state))
        elif state.query is not None and state.query != self._query():
            raise JobError(
                f"the checkpoint of {self.path} was removed or replaced: archive into a new folder"
            )
        self.state = state
        self._finish_moves()
        self._delete_drafts()
        return self.state

    def discard(self) -> None:
        """Leave nothing behind of a table that holds nothing: its first run failed."""
        if self.state is not None and self.state.batch < 0:
            self.folder.delete(HOME)
            self.state = None
            if lock := _LOCKS.pop(self._lock_path, None):
                lock.close()

    def read_state(self) -> State | None:
        numbers = [
            int(found[1]) for each in self.folder.names(HOME) if (found := _STATE.fullmatch(each))
        ]
        if not numbers:
            return None
        told = self.folder.read_json(_name(max(numbers)))
        assert told is not None
        try:
            return State.from_json(told)
        except (TypeError, KeyError, ValueError):
            raise JobError(f"{self.folder.child(_name(max(numbers)))} is damaged") from None

    def add_batch(self, frame: DataFrame, batch: int, columns: Sequence[str]) -> None:
        """Keep a micro-batch: rows of `frame` without a reason, with these columns; all others go
        to quarantine. Once only, however often Spark runs the batch."""
        with self._changing:
            self._add_batch(frame, batch, columns)

    def _add_batch(self, frame: DataFrame, batch: int, columns: Sequence[str]) -> None:
        state = self._state
        if batch <= state.batch:
            return
        try:
            good, bad_expected, archived = self._write_rows(
                frame, f"b{batch:08d}", fn.col(REASON).isNull(), columns
            )
            bad: list[OpenFile] = []
            if bad_expected:
                kept = [each for each in frame.columns if each not in _NOT_QUARANTINED]
                bad, quarantined, _ = self._write_rows(
                    frame, f"q{batch:08d}", fn.col(REASON).isNotNull(), kept, below=f"{QUARANTINE}/"
                )
                if quarantined != bad_expected:
                    raise JobError(
                        f"batch {batch}: {bad_expected} bodies could not be read, but then there "
                        f"were {quarantined}: messages were deleted meanwhile"
                    )
            self._advance(
                query=self._query(),
                batch=batch,
                archived=state.archived + archived,
                quarantined=state.quarantined + bad_expected,
                waiting=(*state.waiting, *good, *bad),
            )
        except Exception:
            self._delete_drafts()  # a full disk needs the room
            raise

    def roll(self, *, everything: bool = False) -> int:
        """Publish what waits and is large or old enough, or all of it; how many files that made."""
        with self._changing:
            return self._roll(everything)

    def roll_if_idle(self) -> None:
        """The same unless a batch is being added: what waits gets old while nothing comes."""
        if self._changing.acquire(blocking=False):
            try:
                self._roll(everything=False)
            finally:
                self._changing.release()

    def _roll(self, everything: bool) -> int:
        state = self._state
        until = None if everything else self.clock.wall_ms() - round(self.file_age * 1000)
        merges = plan_merges(state.waiting, file_bytes=self.file_bytes, until_ms=until)
        if not merges:
            return 0
        number = state.number + 1
        try:
            moves = self._join([each for each in merges if len(each.files) > 1], number)
        except Exception:
            self._delete_drafts()
            raise
        moves += [
            (each.files[0].name, f"{each.partition}/{each.files[0].name}")
            for each in merges
            if len(each.files) == 1
        ]
        done = {one.name for each in merges for one in each.files}
        self._advance(
            waiting=tuple(each for each in state.waiting if each.name not in done),
            moves=tuple(moves),
            obsolete=tuple(sorted(done - {name for name, _ in moves})),
            published=state.published + len(moves),
        )
        self._finish_moves()
        return len(moves)

    @property
    def _state(self) -> State:
        assert self.state is not None, "a table is opened first"
        return self.state

    def _write_rows(
        self, frame: DataFrame, name: str, which: Any, columns: Sequence[str], below: str = ""
    ) -> tuple[list[OpenFile], int, int]:
        """Write the rows that `which` chooses. Their files, and how many rows had a reason and how
        many had none, of all that were read."""
        draft = f"{OPEN}/{name}.draft"
        self.folder.delete(draft)
        counts = Observation()
        seen = frame.observe(
            counts,
            fn.count(fn.when(fn.col(REASON).isNotNull(), 1)).alias("bad"),
            fn.count(fn.when(fn.col(REASON).isNull(), 1)).alias("good"),
        )
        chosen = seen.where(which).select(*columns, "topic", "date")
        chosen.write.partitionBy("topic", "date").parquet(self.folder.child(draft))
        found = counts.get
        files = []
        now = self.clock.wall_ms()
        for number, (path, size) in enumerate(sorted(self.folder.files(draft))):
            if not path.endswith(".parquet"):
                continue
            flat = f"{name}-{number}.parquet"
            partition = path.removeprefix(f"{draft}/").rpartition("/")[0]
            self.folder.move(path, f"{OPEN}/{flat}")
            files.append(OpenFile(flat, below + partition, size, now))
        self.folder.delete(draft)
        return files, int(found["bad"]), int(found["good"])

    def _join(self, merges: Sequence[Merge], number: int) -> list[tuple[str, str]]:
        """Join the files of each merge into one; the moves that publish them."""
        moves: list[tuple[str, str]] = []
        for prefix in ("", QUARANTINE):
            some = [
                each for each in merges if each.partition.startswith(QUARANTINE) == bool(prefix)
            ]
            if not some:
                continue
            draft = f"{OPEN}/r{number:08d}{'q' if prefix else ''}.draft"
            self.folder.delete(draft)
            members = [(one.name, n) for n, each in enumerate(some) for one in each.files]
            paths = [self.folder.child(f"{OPEN}/{name}") for name, _ in members]
            numbers = self.spark.createDataFrame(members, "file string, merge int")
            (
                self.spark.read.parquet(*paths)
                .withColumn("file", fn.col("_metadata.file_name"))
                .join(fn.broadcast(numbers), "file")
                .drop("file")
                .repartition(len(some), "merge")
                .sortWithinPartitions("merge", "brokerName", "queueId", "queueOffset")
                .write.partitionBy("merge")
                .parquet(self.folder.child(draft))
            )
            for path, _ in sorted(self.folder.files(draft)):
                found = re.search(r"/merge=(\d+)/[^/]+\.parquet$", path)
                if found:
                    flat = f"r{number:08d}{'q' if prefix else ''}-{len(moves)}.parquet"
                    self.folder.move(path, f"{OPEN}/{flat}")
                    moves.append((flat, f"{some[int(found[1])].partition}/{flat}"))
            self.folder.delete(draft)
        return moves

    def _advance(self, **changes: Any) -> None:
        state = replace(self._state, number=self._state.number + 1, **changes)
        self.folder.write_json(_name(state.number), asdict(state))
        self.state = state
        self.folder.delete(_name(state.number - STATES_KEPT))

    def _finish_moves(self) -> None:
        state = self._state
        if not state.moves and not state.obsolete:
            return
        for name, target in state.moves:
            self.folder.move(f"{OPEN}/{name}", target)
        if self.is_delta:
            for below in ("", f"{QUARANTINE}/"):
                files = [
                    target.removeprefix(below)
                    for _, target in state.moves
                    if target.startswith(QUARANTINE) == bool(below)
                ]
                if files:
                    add_to_log(self.folder.child(below), files, state.number, self.clock)
        for name in state.obsolete:
            self.folder.delete(f"{OPEN}/{name}")
        self._advance(moves=(), obsolete=())

    def _delete_drafts(self) -> None:
        """Delete what nobody lists. What is true stands on the disk: an error may have come just
        after a change."""
        self.state = self.read_state()
        known = {each.name for each in self._state.waiting}
        known |= {name for name, _ in self._state.moves} | set(self._state.obsolete)
        for name in self.folder.names(OPEN):
            if name not in known:
                self.folder.delete(f"{OPEN}/{name}")

    def _query(self) -> str | None:
        told = self.folder.read_json(f"{CHECKPOINT}/metadata")
        return None if told is None else str(told["id"])

    def _holds_files(self) -> bool:
        return any(not each.startswith(HOME) for each in self.folder.names())

    @property
    def _lock_path(self) -> str:
        return self.folder.child(f"{HOME}/lock")

    def _lock(self) -> None:
        self.folder.make(HOME)
        path = self._lock_path
        if not path.startswith("file:") or path in _LOCKS:
            return
        file = Path(path.removeprefix("file:")).open("w")  # noqa: SIM115 - kept while we live
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            raise JobError(f"another archive is writing to {self.path}") from None
        _LOCKS[path] = file


def _name(number: int) -> str:
    return f"{HOME}/state-{number:08d}.json"
