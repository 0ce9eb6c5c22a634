"""Makes records of what is put, and with them what their queue and the key index keep of each."""

from collections.abc import Sequence
from typing import NamedTuple

from rocketpipe.broker.names import SCHEDULE_TOPIC, TIMER_TOPIC
from rocketpipe.broker.store.consume_queue import ENTRY
from rocketpipe.broker.store.key_index import KEYED
from rocketpipe.broker.store.record_facts import key_hashes, looks_torn, tags_code_of
from rocketpipe.broker.store.settings import StoreSettings
from rocketpipe.broker.store.values import MessageDraft
from rocketpipe.compiled import compiled
from rocketpipe.errors import InvalidMessage
from rocketpipe.wire.batch import split_batch
from rocketpipe.wire.properties import PROPERTIES_BYTES_MAX
from rocketpipe.wire.record import pack_records

_WAITING = (TIMER_TOPIC, SCHEDULE_TOPIC)  # their entries tell when a message is due


class Place(NamedTuple):
    """Where and when the first record goes; each of the others stands behind the one before it."""

    topic: bytes
    queue_offset: int
    queue_step: int  # 0: they have no place in the queue
    physical_offset: int
    store_timestamp_ms: int


# Records, ready for the log; the offset of each, there; their entries, as the queue keeps them; and
# hashes of keys with where their records are, as the key index takes them. A plain tuple: one is
# made of every message, and taken apart at once.
LaidOut = tuple[bytes, tuple[int, ...], bytes, bytes]


def lay_out(
    message: MessageDraft, properties: bytes | None, place: Place, settings: StoreSettings
) -> LaidOut:
    """The records of a message, or without properties of a batch, which is then its body.

    InvalidMessage or MalformedRecord if they can't be stored.
    """
    if compiled is not None and message.topic not in _WAITING:
        found = compiled.lay_out(
            message.body,
            properties,
            message.flag,
            place.topic,
            message.queue_id,
            place.queue_offset,
            place.queue_step,
            place.physical_offset,
            message.sys_flag,
            message.born_timestamp_ms,
            message.born_host,
            place.store_timestamp_ms,
            message.store_host,
            message.reconsume_times,
            message.prepared_transaction_offset,
        )
        if found is not None:
            return found
    if properties is not None:
        return _lay_out_members(
            message, ((message.flag, message.body, properties),), place, settings
        )
    members = split_batch(message.body)
    if not members:
        raise InvalidMessage("the batch is empty")
    return _lay_out_members(message, members, place, settings)


def _lay_out_members(
    message: MessageDraft,
    members: Sequence[tuple[int, bytes, bytes]],
    place: Place,
    settings: StoreSettings,
) -> LaidOut:
    for _, _, properties in members:
        if len(properties) > PROPERTIES_BYTES_MAX or looks_torn(properties):
            raise InvalidMessage("properties: too long, or NULs")
    topic, sys_flag, now_ms = message.topic, message.sys_flag, place.store_timestamp_ms
    records = pack_records(
        place.topic,
        members,
        message.queue_id,
        place.queue_offset,
        place.queue_step,
        place.physical_offset,
        sys_flag,
        message.born_timestamp_ms,
        message.born_host,
        now_ms,
        message.store_host,
        message.reconsume_times,
        message.prepared_transaction_offset,
    )
    offsets: list[int] = []
    entries: list[bytes] = []
    keyed: list[bytes] = []
    offset = place.physical_offset
    for record, (_, _, properties) in zip(records, members, strict=True):
        size = len(record)
        entries.append(ENTRY.pack(offset, size, tags_code_of(topic, properties, now_ms, settings)))
        keyed += [KEYED.pack(each, offset) for each in key_hashes(topic, properties, sys_flag)]
        offsets.append(offset)
        offset += size
    return b"".join(records), tuple(offsets), b"".join(entries), b"".join(keyed)
