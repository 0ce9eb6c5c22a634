"""What goes into a message store and what comes out.

They are named tuples and not dataclasses: as frozen, and made in a fraction of the time, which
counts for what is made for every message.
"""

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple


class MessageDraft(NamedTuple):
    """A message to store, with all that the broker has decided about it."""

    topic: str
    queue_id: int
    body: bytes  # as it shall be stored: compressed if sys_flag says so; or a whole batch
    properties: str  # as they travel: `name 0x01 value 0x02` repeated
    born_timestamp_ms: int
    born_host: bytes  # as `pack_host` packs it
    store_host: bytes
    flag: int = 0
    sys_flag: int = 0  # its host bits are worked out from the hosts
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    wait_store_ok: bool = True  # False: done as soon as the log has it, also with sync flush


class PutStatus(Enum):
    """How a put ended (PutMessageStatus). With the first two, the message is in the log."""

    PUT_OK = "PUT_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    MESSAGE_ILLEGAL = "MESSAGE_ILLEGAL"
    OS_PAGE_CACHE_BUSY = "OS_PAGE_CACHE_BUSY"
    WHEEL_TIMER_MSG_ILLEGAL = "WHEEL_TIMER_MSG_ILLEGAL"  # a time that makes no sense, or too far
    WHEEL_TIMER_NOT_ENABLE = "WHEEL_TIMER_NOT_ENABLE"
    SERVICE_NOT_AVAILABLE = "SERVICE_NOT_AVAILABLE"  # the disk is full or failed, or we are closed


class PutResult(NamedTuple):
    """What became of a put, and where its messages are."""

    status: PutStatus
    physical_offsets: tuple[int, ...] = ()  # one for each message of a batch
    queue_offset: int = -1  # of the first message; those of a batch follow one another
    store_timestamp_ms: int = 0
    size: int = 0  # in the log, in bytes, all messages together
    reason: str = ""  # why it was refused

    @property
    def is_stored(self) -> bool:
        """Whether the messages are in the log and will be read."""
        return bool(self.physical_offsets)

    @property
    def end_offset(self) -> int:
        """How far a slave's log must reach to hold all of it; 0 when nothing was stored."""
        return self.physical_offsets[0] + self.size if self.physical_offsets else 0


Done = Callable[[PutResult], None]


class ReadStatus(Enum):
    """How a read of a queue ended (GetMessageStatus)."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"  # the filter dropped all; next_offset has advanced
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"  # no such queue
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"  # the log no longer has what the queue names
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"  # the offset is that of the next message to come
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"


class QueueRead(NamedTuple):
    """What a read of a queue found: whole records as a pull answers them, one after another."""

    status: ReadStatus
    next_offset: int  # where to read on
    min_offset: int
    max_offset: int
    records: bytes = b""
    sizes: tuple[int, ...] = ()  # of each record, in bytes


class KeyQuery(NamedTuple):
    """What a query by key found: records, the newest first, and how far the index reaches."""

    records: list[bytes]
    last_update_timestamp_ms: int
    last_update_physical_offset: int
