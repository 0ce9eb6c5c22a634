"""A recorder of attempts: where each send went and how it ended, written down for later analysis.

    async with AsyncProducer("order-service", hooks=[JsonLinesRecorder("attempts.jsonl")]) as ...

Writing happens in a thread, from time to time. It never fails a send, and while the disk takes
nothing, records wait; when too many do, new ones are dropped and counted.
"""

import asyncio
import contextlib
import json
import logging
import os
from collections.abc import Mapping, Sequence
from io import FileIO
from pathlib import Path
from typing import Any, Protocol

from rocketpipe.client.checks import is_delayed
from rocketpipe.client.hooks import SendContext, SendHook
from rocketpipe.client.setting_checks import require_count, require_positive
from rocketpipe.client.threads import Threads
from rocketpipe.errors import BrokerError

log = logging.getLogger(__name__)

CLOSE_TIMEOUT = 5.0
_STEP_BYTES = 64 * 1024

Record = Mapping[str, Any]


class AttemptSink(Protocol):
    """Where records go."""

    def write(self, records: Sequence[Record]) -> None:
        """Keep them all; may block. After an OSError none may be kept: they are offered again."""


class AttemptRecorder(SendHook):
    """Gives a record of every attempt to a sink. It serves one producer, and closes with it.

    Records are written each `interval` seconds; at most `records_max` wait.
    """

    def __init__(
        self,
        sink: AttemptSink,
        *,
        interval: float = 1.0,
        records_max: int = 100_000,
        threads: Threads | None = None,
    ) -> None:
        self.interval = interval
        self.records_max = records_max
        require_positive(self, "interval")
        require_count(self, "records_max")
        self.dropped = 0  # records that were not written, and will not be
        self._sink = sink
        self._threads = threads or Threads("rocketpipe-recorder", 1)
        self._waiting: list[Record] = []
        self._task: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()
        self._is_failing = False

    def after(self, context: SendContext) -> None:
        self._add(context, is_late=False)

    def answered_late(self, context: SendContext) -> None:
        self._add(context, is_late=True)

    def _add(self, context: SendContext, *, is_late: bool) -> None:
        if len(self._waiting) >= self.records_max or self._closing.is_set():
            self.dropped += 1
            return
        self._waiting.append(attempt_record(context, is_late=is_late))
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Write what waits, if that can be done in time."""
        self._closing.set()
        if self._task is not None:
            await asyncio.wait([self._task], timeout=CLOSE_TIMEOUT)
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._threads.close()
        self.dropped += len(self._waiting)
        self._waiting.clear()
        if self.dropped:
            log.warning("%d records of attempts were lost", self.dropped)

    async def _run(self) -> None:
        is_over = False
        while not is_over:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.interval):
                    await self._closing.wait()
            is_over = self._closing.is_set()
            if self._waiting:
                await self._write()

    async def _write(self) -> None:
        records, self._waiting = self._waiting, []
        try:
            await self._threads.call(self._sink.write, records)
            self._is_failing = False
        except OSError as error:
            if not self._is_failing:  # once, not each second
                log.warning("records of attempts can't be written now: %s", error)
            self._is_failing = True
            kept = records[: self.records_max - len(self._waiting)]
            self.dropped += len(records) - len(kept)
            self._waiting = kept + self._waiting
        except Exception:
            self.dropped += len(records)
            log.exception("%r failed", self._sink)
        except asyncio.CancelledError:
            self.dropped += len(records)  # as far as we know
            raise


class JsonLinesRecorder(AttemptRecorder):
    """Appends a JSON object in a line of its own for every attempt to a file.

    There are whole lines only in it, even after a disk was full, or a crash before. No other
    recorder may write to the same file.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, interval: float = 1.0, records_max: int = 100_000
    ) -> None:
        super().__init__(JsonLinesSink(path), interval=interval, records_max=records_max)


class JsonLinesSink:
    """A file of JSON objects, one to a line."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)

    def write(self, records: Sequence[Record]) -> None:
        lines = [json.dumps(record, separators=(",", ":")) + "\n" for record in records]
        rest = memoryview("".join(lines).encode())
        with self._open() as file:  # each time, so that it begins anew where it was moved away
            end = _cut_torn_line(file)
            try:
                while rest:
                    rest = rest[file.write(rest) :]
            except OSError:
                with contextlib.suppress(OSError):
                    file.truncate(end)
                raise

    def _open(self) -> FileIO:
        return self._path.open("a+b", buffering=0)


def attempt_record(context: SendContext, *, is_late: bool = False) -> Record:
    """What is written of an attempt; plain values only.

    An attempt that was answered late has two records: how it ended for the send, and, `is_late`,
    what its broker said in the end.
    """
    attempt = context.attempt
    assert attempt is not None
    queue, error = attempt.queue, attempt.error
    refusal = error if isinstance(error, BrokerError) else None
    return {
        "started_ms": attempt.started_ms,
        "elapsed_ms": round(attempt.elapsed * 1000, 3),
        "producer_group": context.producer_group,
        "topic": queue.topic,
        "message_ids": context.message_id.split(","),
        "messages": len(context.messages),
        "body_bytes": context.body_bytes,
        "is_oneway": context.is_oneway,
        "is_transaction": context.is_transaction,
        "is_delayed": any(map(is_delayed, context.messages)),
        "policy": context.policy,
        "attempt": context.attempt_number,
        "is_late": is_late,
        "broker": queue.broker_name,
        "queue_id": queue.queue_id,
        "address": attempt.address,
        "status": attempt.status.name if attempt.status is not None else None,
        # Of the first message of a batch; of a delayed one, or half of one, where it waits.
        "queue_offset": context.result.queue_offset if context.result and not error else None,
        "error": type(error).__name__ if error is not None else None,
        "code": refusal.code if refusal is not None else None,
        "remark": refusal.remark if refusal is not None else str(error) if error else None,
        "reason": attempt.reason,
        "passed_over": dict(attempt.passed_over),
    }


def _cut_torn_line(file: FileIO) -> int:
    """Cut what stands after the last whole line; return where that ends."""
    start = end = file.seek(0, os.SEEK_END)
    while start > 0:
        start = max(0, start - _STEP_BYTES)
        file.seek(start)
        last = file.read(_STEP_BYTES).rfind(b"\n")
        if last >= 0:
            whole = start + last + 1
            break
    else:
        whole = 0
    if whole < end:
        file.truncate(whole)
    return whole
