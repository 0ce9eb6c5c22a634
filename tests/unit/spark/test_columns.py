"""Columns hold what the record decoder gives message by message, and damage never passes."""

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketpipe.compiled import compiled
from rocketpipe.errors import MalformedRecord
from rocketpipe.message import StoredMessage
from rocketpipe.spark import columns, compiled_columns
from rocketpipe.spark.columns import ColumnDecoder
from rocketpipe.spark.schema import COLUMNS, all_columns, arrow_schema
from rocketpipe.wire.batch import join_batch
from rocketpipe.wire.compression import Compression, compress
from rocketpipe.wire.record import decode_records, encode_record, pack_record
from rocketpipe.wire.sys_flag import COMPRESSED, INNER_BATCH, NEEDS_UNWRAP
from tests.stored_message import stored_message

SCHEMA = arrow_schema(all_columns(with_properties=True))
ENDLESS = 1 << 62


@pytest.fixture(scope="module", params=["compiled", "pure"], autouse=True)
def _both_twins(request: pytest.FixtureRequest) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "pure":
            patch.setattr(compiled_columns, "compiled", None)
        elif compiled is None:
            pytest.skip("nothing is compiled")  # CI insists on it in test_compiled.py
        yield


def decode(*answers: bytes, schema: pa.Schema = SCHEMA, **settings: Any) -> list[dict[str, Any]]:
    decoder = ColumnDecoder(schema, broker_name="broker-a", **settings)
    (batch,) = decoder.decode(answers, 0, ENDLESS)
    batch.validate(full=True)
    assert batch.schema == schema
    rows: list[dict[str, Any]] = batch.to_pylist(maps_as_pydicts="strict")
    return rows


def as_row(message: StoredMessage) -> dict[str, Any]:
    def instant(ms: int) -> Any:
        return pa.scalar(ms * 1000, pa.timestamp("us", "UTC")).as_py()

    return {
        "topic": message.topic,
        "brokerName": "broker-a",
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "messageId": message.message_id,
        "offsetMessageId": message.offset_message_id,
        "tags": message.tags,
        "keys": list(message.keys),
        "body": message.body,
        "properties": dict(message.properties),
        "bornTimestamp": instant(message.born_timestamp_ms),
        "storeTimestamp": instant(message.store_timestamp_ms),
        "bornHost": message.born_host,
        "storeHost": message.store_host,
        "flag": message.flag,
        "sysFlag": message.sys_flag,
        "reconsumeTimes": message.reconsume_times,
        "deliveryAttempt": message.reconsume_times + 1 if message.reconsume_times > 0 else None,
    }


def raw(properties: bytes, **fields: Any) -> bytes:
    """A record whose property string is as given."""
    message = stored_message(**fields)
    return pack_record(
        *(message.topic.encode(), message.body, properties, 0, 0, 0, 0, 0, 0),
        *(b"\x7f\0\0\1\0\0\0\1", 0, b"\x7f\0\0\1\0\0\0\1", 0, 0),
    )


hosts = st.sampled_from(["10.0.0.1:1", "10.0.0.2:65535", "[fe80::1]:10911", "[::1]:0"])
ints = st.integers(-(1 << 31), (1 << 31) - 1)
longs = st.integers(-(1 << 63), (1 << 63) - 1)
times = st.integers(0, 1 << 42)
names = st.text(st.characters(exclude_characters="\1\2", exclude_categories=["Cs"]), min_size=1)
values = st.text(st.characters(exclude_characters="\2", exclude_categories=["Cs"]), max_size=20)
properties = st.dictionaries(
    st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "a"]) | names, values, max_size=5
)


@st.composite
def messages(draw: st.DrawFn) -> StoredMessage:
    message = stored_message(
        topic=draw(st.sampled_from(["orders", "t" * 127, "long-" * 40])),
        body=draw(st.binary(max_size=60)),
        properties=draw(properties),
        queue_id=draw(ints),
        queue_offset=draw(st.integers(0, 1 << 40)),
        physical_offset=draw(longs),
        flag=draw(ints),
        born_timestamp_ms=draw(times),
        store_timestamp_ms=draw(times),
        born_host=draw(hosts),
        store_host=draw(hosts),
        reconsume_times=draw(ints.filter(lambda number: number < (1 << 31) - 1)),
    )
    how = draw(st.sampled_from([None, None, *Compression]))
    if how is None:
        return message
    body = compress(message.body, how.sys_flag)
    return replace(message, body=body, sys_flag=COMPRESSED | how.sys_flag)


@given(st.lists(messages(), min_size=1, max_size=12), st.integers(0, 12))
def test_columns_hold_what_the_decoder_of_records_gives(
    stored: list[StoredMessage], cut: int
) -> None:
    records = [encode_record(each) for each in stored]
    answers = [b"".join(records[:cut]), b"".join(records[cut:])]
    expected = [as_row(each) for each in decode_records(b"".join(records))]
    assert decode(*answers) == expected


@given(st.lists(st.binary(max_size=30) | st.lists(st.sampled_from(
    [b"a", b"TAGS", b"\1", b"\2", b"\xff", "ä".encode(), b" "]), max_size=12
).map(b"".join), min_size=1, max_size=6))  # fmt: skip
def test_any_property_string_is_read_as_java_reads_it(texts: list[bytes]) -> None:
    records = b"".join(raw(text) for text in texts)
    expected = [as_row(each) for each in decode_records(records)]
    assert decode(records) == expected


def test_many_different_names_in_many_rows() -> None:
    """More than the table of rows and names is for."""
    stored = [
        raw(b"n%d\1old\2same\1%d\2n%d\1new\2" % (number, number, number)) for number in range(3000)
    ]
    rows = decode(b"".join(stored))
    assert [row["properties"] for row in rows] == [
        {f"n{number}": "new", "same": str(number)} for number in range(3000)
    ]


def test_each_column_can_be_asked_for_alone_in_any_order_and_case() -> None:
    record = encode_record(stored_message(properties={"TAGS": "paid", "KEYS": "a b"}))
    (whole,) = decode(record)
    for name in COLUMNS:
        assert decode(record, schema=pa.schema([SCHEMA.field(name)])) == [{name: whole[name]}]
    fields = list(SCHEMA)
    random.Random(1).shuffle(fields)
    assert decode(record, schema=pa.schema(fields)) == [whole]
    renamed = SCHEMA.field("queueOffset").with_name("QUEUEOFFSET")
    assert decode(record, schema=pa.schema([renamed])) == [{"QUEUEOFFSET": 0}]


def test_a_time_that_no_timestamp_can_hold_is_null() -> None:
    record = encode_record(stored_message(born_timestamp_ms=(1 << 63) - 1, store_timestamp_ms=5))
    (row,) = decode(record, schema=pa.schema([SCHEMA.field("bornTimestamp")]))
    assert row == {"bornTimestamp": None}
    lowest = encode_record(stored_message(born_timestamp_ms=-(1 << 63)))
    (row,) = decode(lowest, schema=pa.schema([SCHEMA.field("bornTimestamp")]))
    assert row == {"bornTimestamp": None}


def test_topics_lose_their_namespace() -> None:
    record = encode_record(stored_message(topic="shop%orders"))
    assert decode(record, namespace="shop")[0]["topic"] == "orders"
    assert decode(record)[0]["topic"] == "shop%orders"


def test_only_the_tags_that_are_wanted_stay() -> None:
    """`Aa` and `BB` have the same hash, so a broker gives both."""
    tags = ["Aa", "BB", None, "C"]
    records = [
        encode_record(stored_message(queue_offset=number, properties={"TAGS": tag} if tag else {}))
        for number, tag in enumerate(tags)
    ]
    rows = decode(b"".join(records), tags={"Aa", "C"})
    assert [(row["queueOffset"], row["tags"]) for row in rows] == [(0, "Aa"), (3, "C")]
    offsets = pa.schema([SCHEMA.field("queueOffset")])
    assert decode(b"".join(records), tags={"BB"}, schema=offsets) == [{"queueOffset": 1}]


def test_a_batch_that_is_stored_as_one_record_becomes_a_row_for_each_message() -> None:
    members = [(b"x%d" % number, b"TAGS\1t%d\2" % number, 0) for number in range(4)]
    batch = stored_message(
        body=join_batch(members), sys_flag=INNER_BATCH | NEEDS_UNWRAP, queue_offset=10
    )
    plain = encode_record(stored_message(queue_offset=14))
    decoder = ColumnDecoder(SCHEMA, broker_name="broker-a")
    (found,) = decoder.decode([encode_record(batch) + plain], 11, 13)
    rows = found.to_pylist()
    assert [(row["queueOffset"], row["body"], row["tags"]) for row in rows] == [
        (11, b"x1", "t1"),
        (12, b"x2", "t2"),
        (14, b"body", None),
    ]
    assert list(decoder.decode([encode_record(batch)], 20, 30)) == []


def test_bodies_that_unfold_to_much_come_in_several_batches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(columns, "PLAIN_BYTES_MAX", 100_000)
    bodies = [bytes([number]) * 40_000 for number in range(7)] + [b"9" * 200_000]
    flag = COMPRESSED | Compression.ZLIB.sys_flag
    records = [
        encode_record(stored_message(body=compress(body, Compression.ZLIB.sys_flag), sys_flag=flag))
        for body in bodies
    ]
    decoder = ColumnDecoder(SCHEMA, broker_name="broker-a")
    batches = list(decoder.decode(records, 0, ENDLESS))
    assert [row["body"] for batch in batches for row in batch.to_pylist()] == bodies
    assert [batch.num_rows for batch in batches] == [2, 2, 2, 1, 1]


# Damage.


def test_a_body_that_does_not_match_its_crc_is_an_error() -> None:
    good = encode_record(stored_message(body=b"fine"))
    bad = encode_record(stored_message(body=b"damaged")).replace(b"damaged", b"damageD")
    with pytest.raises(MalformedRecord, match=f"record at {len(good)} does not match its CRC"):
        decode(good + bad)
    # Who does not read bodies does not pay for them.
    assert len(decode(good + bad, schema=pa.schema([SCHEMA.field("queueOffset")]))) == 2


@pytest.mark.parametrize("v6", [False, True])
def test_whatever_is_cut_off_or_changed_is_refused_as_by_the_decoder_of_records(v6: bool) -> None:
    host = "[::1]:1" if v6 else "10.0.0.1:1"
    whole = b"".join(
        encode_record(
            stored_message(
                body=b"b" * 20, born_host=host, store_host=host, properties={"TAGS": "x"}
            )
        )
        for _ in range(2)
    )
    for length in range(1, len(whole)):
        if length != len(whole) // 2:
            with pytest.raises(MalformedRecord):
                decode(whole[:length])
    dice = random.Random(7)
    for _ in range(2000):
        changed = bytearray(whole)
        changed[dice.randrange(len(whole))] = dice.randrange(256)
        try:
            stored = decode_records(bytes(changed))
        except MalformedRecord:
            with pytest.raises(MalformedRecord):
                decode(bytes(changed))
            continue
        try:
            expected = [as_row(each) for each in stored]
        except (OverflowError, ValueError):
            continue  # a time that Python has no name for
        assert decode(bytes(changed)) == expected
