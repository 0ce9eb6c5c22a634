import copy
import pickle
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketpipe.errors import InvalidMessage, MalformedRecord
from rocketpipe.message import StoredMessage
from rocketpipe.wire import record as layout
from rocketpipe.wire.batch import BatchMember, encode_batch
from rocketpipe.wire.compression import compress
from rocketpipe.wire.hashing import body_crc
from rocketpipe.wire.record import (
    blank_size,
    decode_record,
    decode_records,
    encode_blank,
    encode_record,
    record_starts,
    unwrap_inner_batch,
)
from rocketpipe.wire.sys_flag import (
    COMPRESSED,
    COMPRESSION_ZLIB,
    HOSTS_V6_MASK,
    INNER_BATCH,
    NEEDS_UNWRAP,
)
from tests.stored_message import stored_message

int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
words = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"), min_size=1)
hosts = st.builds("{}:{}".format, st.ip_addresses(v=4), st.integers(0, 65535)) | st.builds(
    "[{}]:{}".format, st.ip_addresses(v=6), st.integers(0, 65535)
)
messages = st.builds(
    StoredMessage,
    topic=st.text(st.characters(exclude_categories=["Cs"]), max_size=300),
    body=st.binary(),
    properties=st.dictionaries(words, words, max_size=5),
    queue_id=int32,
    queue_offset=int64,
    physical_offset=int64,
    flag=int32,
    sys_flag=int32,
    body_crc=st.just(0),
    born_timestamp_ms=int64,
    born_host=hosts,
    store_timestamp_ms=int64,
    store_host=hosts,
    reconsume_times=int32,
    prepared_transaction_offset=int64,
    store_size=st.just(0),
)
MESSAGE = StoredMessage(
    topic="TopicTest",
    body=b"a body that is worth its checksum",
    properties={"TAGS": "TagA", "KEYS": "k1", "名": "值"},
    queue_id=1,
    queue_offset=2,
    physical_offset=3,
    flag=4,
    sys_flag=0,
    body_crc=0,
    born_timestamp_ms=5,
    born_host="10.0.0.1:6",
    store_timestamp_ms=7,
    store_host="10.0.0.2:8",
    reconsume_times=9,
    prepared_transaction_offset=10,
    store_size=0,
)
PACKED = replace(
    MESSAGE,
    body=compress(b"plain " * 30, COMPRESSION_ZLIB),
    sys_flag=COMPRESSED | COMPRESSION_ZLIB,
    born_host="[fe80::1]:6",
)
SAMPLES = [
    pytest.param(encode_record(MESSAGE), id="plain"),
    pytest.param(encode_record(PACKED), id="compressed, born on IPv6"),
    pytest.param(encode_record(replace(MESSAGE, topic="t" * 200)), id="V2"),
]


def completed(message: StoredMessage, data: bytes) -> StoredMessage:
    """The message with what writing it works out."""
    host_bits = data[layout.SYS_FLAG_AT + 3] & HOSTS_V6_MASK
    return replace(
        message,
        sys_flag=message.sys_flag & ~HOSTS_V6_MASK | host_bits,
        body_crc=body_crc(message.body),
        store_size=len(data),
    )


@given(messages)
def test_any_message_is_read_as_it_was_written(message: StoredMessage) -> None:
    data = encode_record(message)
    decoded = decode_record(data, decompressing=False)
    assert decoded == completed(message, data)
    assert type(decoded) is StoredMessage
    assert encode_record(decoded) == data


@given(st.lists(messages, max_size=5))
def test_records_in_a_row_are_all_read(row: list[StoredMessage]) -> None:
    parts = [encode_record(message) for message in row]
    wanted = [completed(*pair) for pair in zip(row, parts, strict=True)]
    for data in (b"".join(parts), memoryview(b"".join(parts)), bytearray(b"".join(parts))):
        offset = 0
        for message in wanted:
            assert decode_record(data, offset, decompressing=False) == message
            offset += message.store_size
        assert offset == len(data)


def test_what_a_memoryview_held_is_kept_when_its_buffer_changes() -> None:
    buffer = bytearray(encode_record(MESSAGE))
    message = decode_record(memoryview(buffer))
    buffer[:] = bytes(len(buffer))
    assert (message.topic, message.body) == (MESSAGE.topic, MESSAGE.body)


def test_a_decoded_message_is_as_frozen_and_picklable_as_any() -> None:
    message = decode_record(encode_record(MESSAGE))
    with pytest.raises(AttributeError, match="cannot assign"):
        message.topic = "other"  # type: ignore[misc]
    assert pickle.loads(pickle.dumps(message)) == message
    assert replace(message, topic="other").topic == "other"


def test_properties_are_read_once_and_when_asked_for_whoever_asks() -> None:
    message = decode_record(encode_record(MESSAGE))
    for copied in (copy.copy(message), pickle.loads(pickle.dumps(message))):
        assert copied.properties == MESSAGE.properties
    assert message.properties == MESSAGE.properties
    assert message.properties is message.properties
    with pytest.raises(AttributeError, match="no attribute 'propertys'"):
        _ = message.propertys  # type: ignore[attr-defined]


@given(st.binary(max_size=300))
def test_arbitrary_bytes_are_malformed(data: bytes) -> None:
    with pytest.raises(MalformedRecord):
        decode_record(data)


@given(st.binary(max_size=200), st.sampled_from([layout.MAGIC_V1, layout.MAGIC_V2]))
def test_arbitrary_bytes_behind_a_magic_are_read_or_malformed(data: bytes, magic: int) -> None:
    record = len(data).to_bytes(4, "big") + magic.to_bytes(4, "big", signed=True) + data[8:]
    try:
        decode_record(record, check_crc=False)
    except MalformedRecord:
        pass


@pytest.mark.parametrize("data", SAMPLES)
def test_a_record_cut_off_anywhere_is_malformed(data: bytes) -> None:
    for size in range(len(data)):
        with pytest.raises(MalformedRecord):
            decode_record(data[:size])


@pytest.mark.parametrize("data", SAMPLES)
def test_whatever_byte_is_damaged_no_wrong_body_comes_out(data: bytes) -> None:
    right = decode_record(data).body
    for place in range(len(data)):
        for value in {data[place] ^ 1 << bit for bit in range(8)} | {0, 255} - {data[place]}:
            damaged = bytearray(data)
            damaged[place] = value
            try:
                message = decode_record(damaged, decompressing=False)
                assert body_crc(message.body) == message.body_crc
                plain = decode_record(damaged)
            except MalformedRecord:
                continue
            # Only the bit that says "compressed" can make another, equally intact, body of it.
            assert plain.body == right or place == layout.SYS_FLAG_AT + 3


@pytest.mark.parametrize("data", SAMPLES)
def test_torn_or_stray_bytes_after_good_records_raise_instead_of_vanishing(data: bytes) -> None:
    assert len(decode_records(data * 3)) == 3
    for tail in (data[:-1], data[:50], b"\0", bytes(500), encode_blank(8)):
        with pytest.raises(MalformedRecord):
            decode_records(data * 2 + tail)


def test_a_damaged_body_can_be_read_by_those_who_skip_the_check() -> None:
    data = bytearray(encode_record(MESSAGE))
    data[data.index(b"worth")] ^= 0xFF
    with pytest.raises(MalformedRecord, match="CRC"):
        decode_record(data)
    assert decode_record(data, check_crc=False).body != MESSAGE.body


def test_sizes_that_contradict_each_other_are_malformed() -> None:
    data = bytearray(encode_record(MESSAGE))
    data[layout.HEADS[0].size - 4 : layout.HEADS[0].size] = (-5).to_bytes(4, "big", signed=True)
    with pytest.raises(MalformedRecord, match="body of -5"):
        decode_record(data)


def test_properties_that_are_not_utf8_are_read_but_a_topic_is_not() -> None:
    data = encode_record(MESSAGE)
    message = decode_record(data.replace("值".encode(), b"\xff\xff\xff"))
    assert message.properties["名"] == "\ufffd" * 3
    with pytest.raises(MalformedRecord, match="topic"):
        decode_record(data.replace(b"TopicTest", b"Topic\xff\xff\xff\xff"))


def test_a_compressed_body_comes_out_plain_up_to_a_limit() -> None:
    data = encode_record(PACKED)
    message = decode_record(data)
    assert message.body == b"plain " * 30
    assert message.sys_flag & (COMPRESSED | COMPRESSION_ZLIB) == COMPRESSION_ZLIB
    assert message.body_crc == body_crc(PACKED.body)
    with pytest.raises(MalformedRecord, match="more than 179 bytes"):
        decode_record(data, body_bytes_max=179)
    with pytest.raises(MalformedRecord, match="more than 179 bytes"):
        decode_records(data, body_bytes_max=179)


def test_an_inner_batch_is_unwrapped_to_messages_with_offsets_of_their_own() -> None:
    batch = encode_batch([BatchMember(b"one", {"a": "1"}, 5), BatchMember(b"two", {"a": "2"}, 6)])
    flags = INNER_BATCH | NEEDS_UNWRAP
    wrapped = [
        replace(MESSAGE, body=batch, sys_flag=flags),
        replace(
            MESSAGE,
            body=compress(batch, COMPRESSION_ZLIB),
            sys_flag=flags | COMPRESSED | COMPRESSION_ZLIB,
        ),
    ]
    for message in wrapped:
        data = encode_record(message)
        before, first, second, after = decode_records(
            encode_record(MESSAGE) + data + encode_record(MESSAGE)
        )
        assert before == after
        assert before.body == MESSAGE.body
        assert [first, second] == unwrap_inner_batch(decode_record(data))
        assert (first.body, first.properties, first.flag) == (b"one", {"a": "1"}, 5)
        assert (second.body, second.properties, second.flag) == (b"two", {"a": "2"}, 6)
        assert (first.queue_offset, second.queue_offset) == (2, 3)
        assert second.topic == MESSAGE.topic


def test_an_inner_batch_still_compressed_or_not_marked_stays_as_it_is() -> None:
    batch = encode_batch([BatchMember(b"one")])
    marked = replace(MESSAGE, body=batch, sys_flag=INNER_BATCH)
    (message,) = decode_records(encode_record(marked))
    assert message.body == batch
    packed = replace(PACKED, sys_flag=PACKED.sys_flag | INNER_BATCH | NEEDS_UNWRAP)
    (message,) = decode_records(encode_record(packed), decompressing=False)
    assert message.body == PACKED.body


def test_a_damaged_inner_batch_is_malformed() -> None:
    wrapped = replace(MESSAGE, sys_flag=INNER_BATCH | NEEDS_UNWRAP)
    with pytest.raises(MalformedRecord, match="batch"):
        decode_records(encode_record(wrapped))


@pytest.mark.parametrize(("length", "magic"), [(127, layout.MAGIC_V1), (128, layout.MAGIC_V2)])
def test_a_long_topic_takes_the_second_version_of_a_record(length: int, magic: int) -> None:
    data = encode_record(replace(MESSAGE, topic="t" * length))
    magic_bytes = data[layout.MAGIC_AT : layout.MAGIC_AT + 4]
    assert int.from_bytes(magic_bytes, "big", signed=True) == magic
    assert decode_record(data).topic == "t" * length


@pytest.mark.parametrize(
    "wrong",
    [
        {"topic": "t" * 32768},
        {"topic": "\ud800"},
        {"queue_id": 2**31},
        {"queue_offset": 2**63},
        {"born_host": "nowhere:80"},
        {"store_host": "10.0.0.1"},
        {"properties": {"a": "\x02"}},
        {"properties": {"a": "x" * 32768}},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_what_cannot_be_stored_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidMessage):
        encode_record(replace(MESSAGE, **wrong))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("place", "size", "value"),
    [
        (layout.SIZE_AT, 4, None),
        (layout.BODY_CRC_AT, 4, body_crc(MESSAGE.body)),
        (layout.QUEUE_ID_AT, 4, 1),
        (layout.QUEUE_OFFSET_AT, 8, 2),
        (layout.PHYSICAL_OFFSET_AT, 8, 3),
        (layout.FLAG_AT, 4, 4),
        (layout.SYS_FLAG_AT, 4, 0),
        (layout.BORN_TIMESTAMP_AT, 8, 5),
    ],
)
def test_fields_stand_where_the_layout_says(place: int, size: int, value: int | None) -> None:
    data = encode_record(MESSAGE)
    found = int.from_bytes(data[place : place + size], "big")
    assert found == (len(data) if value is None else value)


def test_the_smallest_record_has_91_bytes() -> None:
    empty = replace(MESSAGE, topic="", body=b"", properties={})
    assert len(encode_record(empty)) == layout.RECORD_BYTES_MIN == 91


def test_the_blank_end_of_a_commit_log_file_is_no_record() -> None:
    blank = encode_blank(1000)
    assert blank == bytes.fromhex("000003e8cbd43194")
    assert blank_size(blank + bytes(992)) == 1000
    assert blank_size(b"xx" + blank, 2) == 1000
    assert blank_size(encode_record(MESSAGE)) is None
    assert blank_size(blank[:7]) is None
    with pytest.raises(MalformedRecord, match="magic is 0xcbd43194"):
        decode_record(blank + bytes(992))


def test_records_are_found_by_their_sizes() -> None:
    record = encode_record(stored_message())
    assert record_starts(record * 2) == [0, len(record)]
    assert record_starts(b"") == []
    for damaged in (record[:-1], record + b"\0", b"\0" * len(record), b"\x80" * 200):
        with pytest.raises(MalformedRecord):
            record_starts(damaged)
