"""Opens a log and its indexes, whatever the last one to write them has left."""

import asyncio
import logging

from rocketpipe.broker.store.commit_log import CommitLog
from rocketpipe.broker.store.indexes import Indexes
from rocketpipe.broker.store.log_scan import Damage, LogScan
from rocketpipe.broker.store.replay import Replay

_log = logging.getLogger(__name__)

_RECORDS_PER_TURN = 1000  # that are read before others have a turn
_RECORDS_IN_MEMORY = 50_000  # whose entries wait there to be written


async def recover(log: CommitLog, indexes: Indexes, replay: Replay, *, is_copy: bool) -> None:
    """Have the indexes hold what the log holds, and the log nothing but what is whole.

    All of it is safe from a power loss when this returns. A copy of another log is cut before its
    first damage, and not only behind the last whole record: it will be given the rest again, but
    nobody would ever fill a hole.
    """
    log.open()
    indexes.restore(log.min_offset, log.max_offset)
    start = max(indexes.offset, log.min_offset)
    scan = LogScan(log, start)
    for count, found in enumerate(scan, 1):
        if is_copy and (isinstance(found, Damage) or found.is_damaged):
            scan.position = found.start if isinstance(found, Damage) else found.offset
            break
        replay.take(found)
        if not count % _RECORDS_PER_TURN:
            await asyncio.sleep(0)
        if not count % _RECORDS_IN_MEMORY:
            indexes.write_out()
    if scan.position < log.max_offset:
        _log.warning(
            "cutting the torn end of the log, %d bytes at %d",
            *(log.max_offset - scan.position, scan.position),
        )
        log.truncate(scan.position)
    elif scan.position > log.max_offset and not is_copy:
        # Killed after the filler was written. What came behind it, nobody would ever look at.
        log.stretch(scan.position)
    indexes.offset = log.max_offset
    log.distrust(start)
    await log.sync()
