"""What of a log is old enough to go, and when a disk is too full."""

from rocketpipe.broker.store.commit_log import CommitLog
from rocketpipe.broker.store.disk import DiskUsage
from rocketpipe.broker.store.log_scan import LogScan, ScannedRecord
from rocketpipe.broker.store.settings import StoreSettings


def is_oldest_expired(log: CommitLog, settings: StoreSettings, now_ms: int) -> bool:
    """Whether every message of the oldest segment was stored longer ago than messages are kept.

    The first one of the next segment tells: it was stored after all of them. The first one of the
    oldest segment has to agree, for a damaged time is no reason to delete anything.
    """
    starts = log.segment_starts[:2]
    kept_since_ms = now_ms - settings.file_reserved_time * 1000
    return len(starts) == 2 and all(
        (stored_ms := _first_store_time(log, start)) is not None and stored_ms < kept_since_ms
        for start in starts
    )


def _first_store_time(log: CommitLog, start: int) -> int | None:
    for found in LogScan(log, start):
        if isinstance(found, ScannedRecord) and not found.is_damaged:
            return found.parts.store_timestamp_ms
    return None


def is_over(usage: DiskUsage, ratio: float, settings: StoreSettings) -> bool:
    """Whether the disk is fuller than that, and has not much room left either."""
    return usage.used_ratio > ratio and usage.free < settings.disk_free_bytes_enough
