"""What the queues and the key index keep of a record: the code of its tag, the hashes of its keys.

Worked out in the same way from a message that is put and from a record that is found in the log.
"""

from functools import lru_cache
from zlib import crc32

from rocketpipe.broker.names import SCHEDULE_TOPIC, TIMER_TOPIC
from rocketpipe.broker.store.settings import StoreSettings
from rocketpipe.wire.hashing import tags_code
from rocketpipe.wire.properties import (
    DELAY,
    KEYS,
    TAGS,
    TIMER_DEL_UNIQKEY,
    TIMER_OUT_MS,
    UNIQ_KEY,
)
from rocketpipe.wire.sys_flag import (
    TRANSACTION_MASK,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
)

TOPIC_BYTES_MAX = 255

_ZEROS = bytes(64)  # more than a property has, less than a sector
_TAGS, _DELAY, _KEYS, _UNIQ_KEY, _TIMER_OUT, _TIMER_DELETE = (
    f"{name}\x01".encode()
    for name in (TAGS, DELAY, KEYS, UNIQ_KEY, TIMER_OUT_MS, TIMER_DEL_UNIQKEY)
)


def is_in_queue(sys_flag: int) -> bool:
    """Whether a record has a place in its queue: not what only prepares or undoes another."""
    return sys_flag & TRANSACTION_MASK not in (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK)


def tags_code_of(
    topic: str, properties: bytes, store_timestamp_ms: int, settings: StoreSettings
) -> int:
    """What the queue's entry says of the tag; of a message that waits, when it is due."""
    if topic == TIMER_TOPIC:
        return _timer_code(properties, store_timestamp_ms, settings)
    if topic == SCHEDULE_TOPIC:
        level = property_value(properties, _DELAY)
        if level.isdigit() and int(level):
            levels = settings.delay_levels
            delay = levels[min(int(level), len(levels)) - 1]
            return store_timestamp_ms + round(delay * 1000)
    if _TAGS not in properties:
        return 0
    tags = property_value(properties, _TAGS)
    return tags_code(str(tags, "utf-8", "replace")) if tags else 0


def _timer_code(properties: bytes, store_timestamp_ms: int, settings: StoreSettings) -> int:
    """When a timer is due, in ms: at the end of its slot; negative if it takes another one back.

    One that waits for longer than the window is due at its end: to be stored anew, before the log
    deletes it by age.
    """
    out = property_value(properties, _TIMER_OUT)
    out_ms = int(out) if out.isdigit() and len(out) < 19 else 0  # no time: whoever reads it sees
    due_ms = out_ms + round(settings.timer_precision * 1000)
    window = min(
        settings.timer_roll_window_slots * settings.timer_precision, settings.file_reserved_time / 2
    )
    window_end_ms = store_timestamp_ms + round(window * 1000)
    if window_end_ms < out_ms:
        due_ms = window_end_ms
    return -due_ms if property_value(properties, _TIMER_DELETE) else due_ms


def key_hashes(topic: str, properties: bytes, sys_flag: int) -> list[int]:
    """The hashes of the unique id and of each key, for the key index (IndexService.buildIndex).

    The index is our own, and so is its hash: Java's takes ten times as long here.
    """
    if sys_flag & TRANSACTION_MASK == TRANSACTION_ROLLBACK:
        return []
    hashes = []
    before = _prefix_hash(topic)
    unique_id = property_value(properties, _UNIQ_KEY)
    if unique_id:
        hashes.append(crc32(unique_id, before))
    if _KEYS in properties:
        keys = property_value(properties, _KEYS)
        hashes += [crc32(key, before) for key in keys.split(b" ") if key]
    return hashes


def key_hash(topic: str, key: str) -> int:
    """The hash by which a record with that key, or unique id, is found.

    Nothing is remembered here: whoever asks may name topics of any length.
    """
    return crc32(f"{topic}#{key}".encode("utf-8", "replace"))


@lru_cache(maxsize=4096)
def is_legal_topic(topic: str) -> bool:
    """Whether a topic can be stored; it names a folder. (Which names a user may choose is asked
    elsewhere, and more strictly.)"""
    try:
        length = len(topic.encode())
    except UnicodeEncodeError:
        return False
    if "/" in topic or "\0" in topic or topic in (".", ".."):
        return False
    return 0 < length <= TOPIC_BYTES_MAX


def looks_torn(properties: bytes) -> bool:
    """Whether these may be what a power loss leaves of properties, which no checksum covers.

    What never reached the disk reads as zeros: at the end, at the start, or in whole sectors. No
    message that looks so may be stored, for it would be taken for a torn one later.
    """
    if b"\0" not in properties:
        return False
    return not properties[0] or not properties[-1] or _ZEROS in properties


def property_value(properties: bytes, start: bytes) -> bytes:
    """The value of the pair that begins with `start`, a name and 0x01; empty when there is none.

    As `decode_properties` has it, the last one wins that is not empty; but taking them all apart
    would take longer than all else that is done for a message.
    """
    at = properties.rfind(start)
    while at >= 0:
        if not at or properties[at - 1] == 2:
            at += len(start)
            end = properties.find(b"\x02", at)
            value = properties[at:] if end < 0 else properties[at:end]
            if value:
                return value
            at -= len(start)
        at = properties.rfind(start, 0, at + len(start) - 1)
    return b""


@lru_cache(maxsize=4096)
def _prefix_hash(topic: str) -> int:
    return crc32(f"{topic}#".encode())
