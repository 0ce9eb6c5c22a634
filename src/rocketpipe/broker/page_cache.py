"""Which messages the kernel can be thought to have in memory: as in RocketMQ, the youngest."""

import os

from rocketpipe.broker.settings import BrokerSettings
from rocketpipe.broker.store.message_store import MessageStore

MEMORY_BYTES = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def is_in_memory(store: MessageStore, settings: BrokerSettings, physical_offset: int) -> bool:
    """Whether what stands there in the log is recent enough (estimateInMemByCommitOffset)."""
    behind = store.max_physical_offset - physical_offset
    return behind <= MEMORY_BYTES * settings.access_message_in_memory_max_ratio
