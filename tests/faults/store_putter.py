"""A process that puts messages into a store and prints each one it was promised, until killed."""

import asyncio
import os
import sys
from pathlib import Path

from rocketpipe.broker.store.disk import RealDisk
from rocketpipe.broker.store.message_store import MessageStore
from rocketpipe.broker.store.settings import StoreSettings
from rocketpipe.broker.store.values import PutResult, PutStatus
from rocketpipe.clock import SystemClock
from tests.stores import draft

SETTINGS = StoreSettings(
    flush_disk_type="sync",
    commit_log_segment_bytes=100_000,
    checkpoint_bytes=50_000,
    flush_interval=0.01,
    consume_queue_segment_entries=100,
    index_slots=100,
    disk_free_bytes_enough=0,
)


def new_store(folder: Path) -> MessageStore:
    return MessageStore(folder, SETTINGS, disk=RealDisk(), clock=SystemClock())


async def put_for_ever(folder: Path, life: int) -> None:
    store = new_store(folder)
    await store.open()
    for number in range(1_000_000_000):
        body = b"%d-%d" % (life, number)
        queue_id = number % 4

        def done(result: PutResult, body: bytes = body, queue_id: int = queue_id) -> None:
            if result.status is not PutStatus.PUT_OK:
                os._exit(1)
            # One write per line: a kill may stop us between lines, not within one.
            os.write(1, b"%d %d %s\n" % (queue_id, result.queue_offset, body))

        store.put(draft(body, queue_id=queue_id), done)
        if not number % 20:
            await asyncio.sleep(0)


if __name__ == "__main__":
    asyncio.run(put_for_ever(Path(sys.argv[1]), int(sys.argv[2])))
