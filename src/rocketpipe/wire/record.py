"""Stored records: what a commit log holds and what pulls, views and queries bring.

Size, magic, CRC and the other numbers come first, at places that depend only on whether the two
hosts are IPv4 or IPv6; then the body, the topic and the properties, each behind its length.
Damage never passes in silence: a record must fill its size exactly and match its CRC, and a body
of records must be made of nothing else.
"""

import struct
from collections.abc import Sequence
from dataclasses import field, fields, make_dataclass, replace
from functools import lru_cache
from struct import Struct
from typing import Any, NamedTuple

from rocketpipe.compiled import compiled
from rocketpipe.errors import InvalidMessage, MalformedRecord
from rocketpipe.host import PACKED_V6_BYTES, pack_host, unpack_host
from rocketpipe.message import StoredMessage
from rocketpipe.wire.batch import decode_batch
from rocketpipe.wire.compression import BODY_BYTES_MAX, decompress
from rocketpipe.wire.hashing import body_crc
from rocketpipe.wire.properties import (
    PROPERTIES_BYTES_MAX,
    decode_properties,
    encode_properties_bytes,
)
from rocketpipe.wire.sys_flag import (
    BORN_HOST_V6,
    COMPRESSED,
    HOSTS_V6_MASK,
    INNER_BATCH,
    NEEDS_UNWRAP,
    STORE_HOST_V6,
)

Buffer = bytes | bytearray | memoryview

MAGIC_V1 = -626843481  # 0xDAA320A7: one byte of topic length
MAGIC_V2 = -626843477  # 0xDAA320AB: two of them, for topics longer than 127
MAGIC_BLANK = -875286124  # 0xCBD43194: nothing more in this commit log file
TOPIC_BYTES_MAX_V1 = 127  # Java reads the length as a signed byte
TOPIC_BYTES_MAX_V2 = 32767

# The fields up to and with the body's length, by the host bits of sysFlag: size, magic, body CRC,
# queue id, flag, queue offset, physical offset, sysFlag, born timestamp, born host, store
# timestamp, store host, reconsume times, prepared transaction offset, body length.
HEADS = {
    0: Struct(">iiiiiqqiq8sq8siqi"),
    BORN_HOST_V6: Struct(">iiiiiqqiq20sq8siqi"),
    STORE_HOST_V6: Struct(">iiiiiqqiq8sq20siqi"),
    HOSTS_V6_MASK: Struct(">iiiiiqqiq20sq20siqi"),
}
RECORD_BYTES_MIN = HEADS[0].size + 1 + 2  # with no body, no topic and no properties

# Where in a record the fields stand that are looked at, or filled in, without the others.
SIZE_AT = 0
MAGIC_AT = 4
BODY_CRC_AT = 8
QUEUE_ID_AT = 12
FLAG_AT = 16
QUEUE_OFFSET_AT = 20
PHYSICAL_OFFSET_AT = 28
SYS_FLAG_AT = 36
BORN_TIMESTAMP_AT = 40
_HOST_BITS_AT = SYS_FLAG_AT + 3

_BLANK = Struct(">ii")
_SIZE = Struct(">i")

# A frozen dataclass sets each of its fields by a slow call, which would take a third of the time
# to decode a record. So the decoder fills in a twin of the same slots that is not frozen, and then
# makes it a StoredMessage. The slot of its properties stays empty until somebody asks for them.
_UNREAD = "_unread_properties"
_Draft: Any = make_dataclass(
    "_Draft",
    [
        *((f.name, Any, field(init=f.name != "properties")) for f in fields(StoredMessage)),
        (_UNREAD, Any),
    ],
    bases=StoredMessage.__bases__,
    slots=True,
)


def decode_record(
    buffer: Buffer,
    offset: int = 0,
    *,
    check_crc: bool = True,
    decompressing: bool = True,
    body_bytes_max: int = BODY_BYTES_MAX,
    broker_name: str | None = None,
) -> StoredMessage:
    """The record that starts at `offset`; the next one starts `store_size` bytes further.

    A compressed body comes out plain, up to `body_bytes_max`, and sysFlag without the bit that
    says "compressed", but with those that say how, as in Java. `decompressing=False` leaves both
    as they are stored.
    """
    data = bytes(buffer)  # the very same, if these are bytes already
    return _decode(data, offset, check_crc, decompressing, body_bytes_max, broker_name)


def _decode(
    buffer: bytes,
    offset: int,
    check_crc: bool,
    decompressing: bool,
    body_bytes_max: int,
    broker_name: str | None,
) -> StoredMessage:
    (
        size,
        crc,
        queue_id,
        flag,
        queue_offset,
        physical_offset,
        sys_flag,
        born_timestamp_ms,
        born_host,
        store_timestamp_ms,
        store_host,
        reconsume_times,
        prepared_transaction_offset,
        body_start,
        body_end,
        topic_start,
        topic_end,
        properties_start,
    ) = _split(buffer, offset)
    body = buffer[body_start:body_end]
    if check_crc and body_crc(body) != crc:
        raise MalformedRecord(f"the body of the record at {offset} does not match its CRC")
    if sys_flag & COMPRESSED and decompressing:
        body = decompress(body, sys_flag, body_bytes_max)
        sys_flag &= ~COMPRESSED
    try:
        topic = _decode_topic(buffer[topic_start:topic_end])
    except UnicodeDecodeError as error:
        raise MalformedRecord(f"the topic of the record at {offset}: {error}") from error
    message: StoredMessage = _Draft(
        topic,
        body,
        queue_id,
        queue_offset,
        physical_offset,
        flag,
        sys_flag,
        crc,
        born_timestamp_ms,
        unpack_host(born_host),
        store_timestamp_ms,
        unpack_host(store_host),
        reconsume_times,
        prepared_transaction_offset,
        size,
        broker_name,
        buffer[properties_start : offset + size],
    )
    message.__class__ = StoredMessage
    return message


@lru_cache(maxsize=1024)
def _decode_topic(topic: bytes) -> str:
    return topic.decode()


class RecordParts(NamedTuple):
    """The numbers of a record, and where in its buffer body, topic and properties stand."""

    size: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    born_timestamp_ms: int
    born_host: bytes
    store_timestamp_ms: int
    store_host: bytes
    reconsume_times: int
    prepared_transaction_offset: int
    body_start: int
    body_end: int
    topic_start: int
    topic_end: int
    properties_start: int


def split_record(buffer: Buffer, offset: int = 0) -> RecordParts:
    """The record at `offset`, taken apart; MalformedRecord unless it fills its size exactly.

    Nothing is copied, and the CRC of the body is not looked at.
    """
    return RecordParts._make(_split(buffer, offset))


def _split(buffer: Buffer, offset: int) -> tuple[Any, ...]:
    """What `split_record` tells, as a plain tuple: whoever takes it apart at once pays no more."""
    try:
        head = HEADS[buffer[offset + _HOST_BITS_AT] & HOSTS_V6_MASK]
        (
            size,
            magic,
            crc,
            queue_id,
            flag,
            queue_offset,
            physical_offset,
            sys_flag,
            born_timestamp_ms,
            born_host,
            store_timestamp_ms,
            store_host,
            reconsume_times,
            prepared_transaction_offset,
            body_length,
        ) = head.unpack_from(buffer, offset)
        body_start = offset + head.size
        body_end = body_start + body_length
        if magic == MAGIC_V1:
            topic_start = body_end + 1
            topic_end = topic_start + buffer[body_end]
        elif magic == MAGIC_V2:
            topic_start = body_end + 2
            topic_end = topic_start + (buffer[body_end] << 8 | buffer[body_end + 1])
        else:
            raise MalformedRecord(f"no record at {offset}: its magic is {magic & 0xFFFFFFFF:#x}")
        properties_start = topic_end + 2
        properties_length = buffer[topic_end] << 8 | buffer[topic_end + 1]
        end = properties_start + properties_length
    except (IndexError, struct.error):
        raise MalformedRecord(f"the record at {offset} of {len(buffer)} bytes is cut off") from None
    if (
        body_length < 0
        or properties_length > PROPERTIES_BYTES_MAX
        or end != offset + size
        or end > len(buffer)
    ):
        raise MalformedRecord(
            f"the record at {offset} of {len(buffer)} bytes says it has {size}, but holds"
            f" {end - offset} with a body of {body_length} and properties of {properties_length}"
        )
    return (
        size,
        crc,
        queue_id,
        flag,
        queue_offset,
        physical_offset,
        sys_flag,
        born_timestamp_ms,
        born_host,
        store_timestamp_ms,
        store_host,
        reconsume_times,
        prepared_transaction_offset,
        body_start,
        body_end,
        topic_start,
        topic_end,
        properties_start,
    )


def record_properties(record: Buffer) -> dict[str, str]:
    """The properties of one record, and nothing else of it."""
    start = split_record(record).properties_start
    return decode_properties(str(record[start:], "utf-8", "replace"))


def record_starts(buffer: Buffer) -> list[int]:
    """Where each record of a buffer begins, by their sizes alone; MalformedRecord unless these lead
    exactly to its end."""
    found = compiled.record_starts(buffer) if compiled is not None else None
    if found is not None:
        return found
    starts: list[int] = []
    append, unpack = starts.append, _SIZE.unpack_from
    position, end = 0, len(buffer)
    last = end - RECORD_BYTES_MIN
    while position <= last:
        append(position)
        (size,) = unpack(buffer, position)
        if size < RECORD_BYTES_MIN:
            raise MalformedRecord(f"the record at {position} of {end} bytes says {size}")
        position += size
    if position != end:
        start = position if position < end else starts[-1]
        raise MalformedRecord(f"the record at {start} of {end} bytes is cut off")
    return starts


def decode_records(
    body: Buffer,
    *,
    check_crc: bool = True,
    decompressing: bool = True,
    body_bytes_max: int = BODY_BYTES_MAX,
    broker_name: str | None = None,
) -> list[StoredMessage]:
    """Every message of a pull, view or query, inner batches unwrapped; read at this broker.

    Where Java keeps the records before the first bad one and drops the rest, this raises.
    """
    messages: list[StoredMessage] = []
    data = bytes(body)
    if compiled is not None:
        found = compiled.decode_records(StoredMessage, data, check_crc, unpack_host, broker_name)
        if found is not None:
            return found
    offset = 0
    while offset < len(data):
        message = _decode(data, offset, check_crc, decompressing, body_bytes_max, broker_name)
        offset += message.store_size
        if message.sys_flag and is_inner_batch(message):
            messages += unwrap_inner_batch(message)
        else:
            messages.append(message)
    return messages


def is_inner_batch(message: StoredMessage) -> bool:
    """Whether the body is a batch to unwrap: not while it is still compressed."""
    wanted = INNER_BATCH | NEEDS_UNWRAP
    return message.sys_flag & (wanted | COMPRESSED) == wanted


def unwrap_inner_batch(message: StoredMessage) -> list[StoredMessage]:
    """The messages of a batch stored as one record, at queue offsets of their own.

    CRC and size stay those of the record. The first ones may lie before the offset pulled from.
    """
    return [
        replace(
            message,
            body=member.body,
            properties=member.properties,
            flag=member.flag,
            queue_offset=message.queue_offset + index,
        )
        for index, member in enumerate(decode_batch(message.body))
    ]


def encode_record(message: StoredMessage) -> bytes:
    """The record of a message whose body is as it shall be stored.

    Size, CRC and the host bits of sysFlag are worked out, whatever the message says of them.
    """
    try:
        topic = message.topic.encode()
    except UnicodeEncodeError as error:
        raise InvalidMessage(f"topic {message.topic!r}: {error}") from error
    return pack_record(
        topic,
        message.body,
        encode_properties_bytes(message.properties),
        message.queue_id,
        message.flag,
        message.queue_offset,
        message.physical_offset,
        message.sys_flag,
        message.born_timestamp_ms,
        pack_host(message.born_host),
        message.store_timestamp_ms,
        pack_host(message.store_host),
        message.reconsume_times,
        message.prepared_transaction_offset,
    )


def pack_record(
    topic: bytes,
    body: Buffer,
    properties: Buffer,
    queue_id: int,
    flag: int,
    queue_offset: int,
    physical_offset: int,
    sys_flag: int,
    born_timestamp_ms: int,
    born_host: bytes,
    store_timestamp_ms: int,
    store_host: bytes,
    reconsume_times: int,
    prepared_transaction_offset: int,
) -> bytes:
    """The record made of parts that are encoded already."""
    return pack_records(
        topic,
        ((flag, body, properties),),
        queue_id,
        queue_offset,
        0,
        physical_offset,
        sys_flag,
        born_timestamp_ms,
        born_host,
        store_timestamp_ms,
        store_host,
        reconsume_times,
        prepared_transaction_offset,
    )[0]


def pack_records(
    topic: bytes,
    members: Sequence[tuple[int, Buffer, Buffer]],
    queue_id: int,
    queue_offset: int,
    queue_step: int,
    physical_offset: int,
    sys_flag: int,
    born_timestamp_ms: int,
    born_host: bytes,
    store_timestamp_ms: int,
    store_host: bytes,
    reconsume_times: int,
    prepared_transaction_offset: int,
) -> list[bytes]:
    """Records that follow one another in the log: what a broker makes of every send.

    A member is a flag, a body and encoded properties; they share all else. Each has a queue offset
    `queue_step` after that of the one before it.
    """
    sys_flag &= ~HOSTS_V6_MASK
    if len(born_host) == PACKED_V6_BYTES:
        sys_flag |= BORN_HOST_V6
    if len(store_host) == PACKED_V6_BYTES:
        sys_flag |= STORE_HOST_V6
    head = HEADS[sys_flag & HOSTS_V6_MASK]
    if len(topic) <= TOPIC_BYTES_MAX_V1:
        magic = MAGIC_V1
        topic_part = len(topic).to_bytes(1, "big") + topic
    elif len(topic) <= TOPIC_BYTES_MAX_V2:
        magic = MAGIC_V2
        topic_part = len(topic).to_bytes(2, "big") + topic
    else:
        raise InvalidMessage(f"a topic of {len(topic)} bytes")
    pack, join = head.pack, b"".join
    rest_bytes = head.size + len(topic_part) + 2
    records = []
    try:
        for flag, body, properties in members:
            size = rest_bytes + len(body) + len(properties)
            packed = pack(
                size,
                magic,
                body_crc(body),
                queue_id,
                flag,
                queue_offset,
                physical_offset,
                sys_flag,
                born_timestamp_ms,
                born_host,
                store_timestamp_ms,
                store_host,
                reconsume_times,
                prepared_transaction_offset,
                len(body),
            )
            properties_length = len(properties).to_bytes(2, "big")
            records.append(join((packed, body, topic_part, properties_length, properties)))
            physical_offset += size
            queue_offset += queue_step
    except struct.error as error:
        raise InvalidMessage(f"a number of a message to {topic!r} is too large: {error}") from error
    return records


def is_record_magic(magic: int) -> bool:
    """Whether a record begins here, of either version."""
    return magic in (MAGIC_V1, MAGIC_V2)


def has_born_host_v6(record: Buffer) -> bool:
    """Whether the born host takes 20 bytes instead of 8."""
    return bool(record[_HOST_BITS_AT] & BORN_HOST_V6)


def encode_blank(size: int) -> bytes:
    """The 8 bytes that close a commit log file of which `size` bytes, with these, stay unused."""
    return _BLANK.pack(size, MAGIC_BLANK)


def blank_size(buffer: Buffer, offset: int = 0) -> int | None:
    """How many bytes to skip where a file was closed; None where something else stands."""
    if len(buffer) - offset < _BLANK.size:
        return None
    size, magic = _BLANK.unpack_from(buffer, offset)
    return int(size) if magic == MAGIC_BLANK else None
