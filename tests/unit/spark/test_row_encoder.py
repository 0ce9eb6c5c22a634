"""Columns become the very messages that the producer would have made of them, row by row."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketpipe.client.checks import check_message
from rocketpipe.client.encoded import Encoded
from rocketpipe.client.selectors import by_hash
from rocketpipe.client.settings import ProducerSettings
from rocketpipe.errors import InvalidMessage
from rocketpipe.message import Message, MessageQueue
from rocketpipe.spark.row_encoder import RowEncoder
from rocketpipe.spark.row_ids import FIRST_ROW, row_of, task_digits
from rocketpipe.wire.batch import decode_batch
from rocketpipe.wire.properties import UNIQ_KEY, decode_properties, message_properties

TASK = task_digits("job", "j", 0)
QUEUES = [MessageQueue("orders", broker, n) for broker in ("a", "b") for n in range(4)]
ROW = pa.schema(
    [
        ("topic", pa.string()),
        ("body", pa.binary()),
        ("tags", pa.string()),
        ("keys", pa.list_(pa.string())),
        ("properties", pa.map_(pa.string(), pa.string())),
        ("delayLevel", pa.int32()),
        ("deliverAt", pa.timestamp("us", "Europe/Berlin")),
        ("shardingKey", pa.string()),
        ("queueId", pa.int32()),
        ("brokerName", pa.string()),
    ]
)


def encoder(topic: str | None = "orders", **settings: Any) -> RowEncoder:
    producer = ProducerSettings("group", namesrv="n:9876", **settings)

    def queues_of(topic: str) -> list[MessageQueue]:
        return [MessageQueue(topic, queue.broker_name, queue.queue_id) for queue in QUEUES]

    return RowEncoder(TASK, topic, producer, queues_of)


def rows(*rows: dict[str, Any]) -> pa.RecordBatch:
    """A batch with the columns that any of these has."""
    names = [name for name in ROW.names if any(name in row for row in rows)]
    schema = pa.schema([ROW.field(name) for name in names])
    return pa.RecordBatch.from_pylist(list(rows), schema)


def bodies(*texts: str | None) -> pa.RecordBatch:
    return rows(*({"body": None if text is None else text.encode()} for text in texts))


class Sent:
    """A message as it would reach a broker."""

    def __init__(self, request: Encoded, body: bytes, properties: dict[str, str]) -> None:
        self.request = request
        self.body = body
        self.id = properties.pop(UNIQ_KEY)
        self.properties = properties


def sent(parcels: Sequence[Encoded]) -> list[Sent]:
    """What is sent, in the order of the rows."""
    found = []
    for parcel in parcels:
        if parcel.is_batch:
            assert parcel.properties == "WAIT\x01true\x02"
            members = [(each.body, each.properties) for each in decode_batch(parcel.body)]
        else:
            members = [(parcel.body, decode_properties(parcel.properties))]
        some = [Sent(parcel, body, dict(properties)) for body, properties in members]
        assert [one.id for one in some] == parcel.message_id.split(",")
        assert len(some) == parcel.message_count
        found += some
    return sorted(found, key=lambda one: row_of(one.id))


def test_bodies_alone_become_one_batch() -> None:
    (parcel,) = encoder().encode(bodies("one", "two", "three"))
    assert (parcel.topic, parcel.message_count, parcel.queue) == ("orders", 3, None)
    assert [each.body for each in sent([parcel])] == [b"one", b"two", b"three"]
    assert all(each.properties == {"WAIT": "true"} for each in sent([parcel]))


def test_ids_count_the_rows_of_the_task() -> None:
    making = encoder()
    ids = [each.id for n in range(3) for each in sent(making.encode(bodies(*"abcde")))]
    assert ids == [f"{TASK}{n:012X}" for n in range(15)]
    assert making.rows == 15
    assert [row_of(each) for each in ids] == list(range(15))


def test_a_single_row_is_no_batch() -> None:
    (parcel,) = encoder().encode(bodies("one"))
    assert (parcel.message_count, parcel.body) == (1, b"one")
    assert decode_properties(parcel.properties) == {UNIQ_KEY: f"{TASK}{0:012X}", "WAIT": "true"}


def test_no_rows_are_nothing_to_send() -> None:
    assert encoder().encode(bodies()) == []


def test_every_column_has_its_property() -> None:
    making = encoder()
    found = sent(
        making.encode(
            rows(
                {
                    "body": b"\x00\x01\x02",
                    "tags": "paid",
                    "keys": ["o-1", "o-2"],
                    "properties": {"colour": "grün", "a\x03": "\x01"},
                    "shardingKey": "k",
                },
                {"body": b"2", "tags": "", "keys": [], "properties": {}, "shardingKey": ""},
                {"body": b"3"},
            )
        )
    )
    assert found[0].body == b"\x00\x01\x02"
    assert found[0].properties == {
        "TAGS": "paid",
        "KEYS": "o-1 o-2",
        "__SHARDINGKEY": "k",
        "colour": "grün",
        "a\x03": "\x01",
        "WAIT": "true",
    }
    assert found[1].properties == found[2].properties == {"WAIT": "true"}


def test_text_columns_may_be_of_any_width() -> None:
    wide = pa.RecordBatch.from_pydict(
        {
            "body": pa.array(["é", "2"], pa.large_string()),
            "keys": pa.array(["k", None], pa.large_string()),
            "tags": pa.array(["t", None], pa.large_string()),
        }
    )
    first, second = sent(encoder().encode(wide))
    assert first.body == "é".encode()
    assert first.properties == {"KEYS": "k", "TAGS": "t", "WAIT": "true"}
    assert second.properties == {"WAIT": "true"}


def test_slices_of_batches_are_like_any_other() -> None:
    whole = rows(
        *({"body": b"%d" % n, "properties": {"n": str(n)}, "keys": [f"k{n}"]} for n in range(9))
    )
    found = sent(encoder().encode(whole.slice(4, 3)))
    assert [each.body for each in found] == [b"4", b"5", b"6"]
    assert [each.properties["n"] for each in found] == ["4", "5", "6"]
    assert [each.properties["KEYS"] for each in found] == ["k4", "k5", "k6"]


def test_delayed_rows_go_by_themselves() -> None:
    at = datetime(2030, 1, 2, 3, 4, 5, 678901, UTC)
    parcels = encoder().encode(
        rows(
            {"body": b"0", "delayLevel": 0},
            {"body": b"1", "delayLevel": 3},
            {"body": b"2", "deliverAt": at},
            {"body": b"3"},
        )
    )
    assert [each.message_count for each in parcels] == [2, 1, 1]
    found = sent(parcels)
    assert found[1].properties == {"DELAY": "3", "WAIT": "true", FIRST_ROW: "1"}
    milliseconds = str(int(at.timestamp()) * 1000 + 678)
    assert found[2].properties == {
        "TIMER_DELIVER_MS": milliseconds,
        "WAIT": "true",
        FIRST_ROW: "2",
    }
    assert found[0].request is found[3].request


def test_so_do_large_ones_which_are_compressed_and_those_of_retry_topics() -> None:
    parcels = encoder(compress_body_bytes_min=100).encode(bodies("a", "b" * 100, "c"))
    assert [each.message_count for each in parcels] == [2, 1]
    assert [each.message_count for each in encoder("%RETRY%group").encode(bodies("a", "b"))] == [
        1,
        1,
    ]


def test_requests_keep_the_limits_set() -> None:
    assert [
        each.message_count for each in encoder(batch_messages_max=4).encode(bodies(*"abcdefghij"))
    ] == [
        4,
        4,
        2,
    ]
    parcels = encoder(batch_bytes_max=1000).encode(bodies(*["x" * 100] * 20))
    assert max(len(each.body) for each in parcels) <= 1000
    assert {each.message_count for each in parcels} == {5}
    (parcel,) = encoder(batch_bytes_max=1 << 40).encode(bodies("a", "b"))
    assert parcel.message_count == 2
    parcels = encoder(batch_bytes_max=10).encode(bodies("a", "b"))
    assert [each.message_count for each in parcels] == [1, 1]


def test_each_row_may_have_its_own_topic() -> None:
    parcels = encoder(None).encode(
        rows(*({"topic": f"t{n % 3}", "body": b"%d" % n} for n in range(10)))
    )
    assert [(each.topic, each.message_count) for each in parcels] == [
        ("t0", 4),
        ("t1", 3),
        ("t2", 3),
    ]
    assert {each.body: each.request.topic for each in sent(parcels)} == {
        b"%d" % n: f"t{n % 3}" for n in range(10)
    }


def test_the_option_overrides_the_rows_topics() -> None:
    (parcel,) = encoder("orders").encode(rows({"topic": "other", "body": b"1"}))
    assert parcel.topic == "orders"


def test_a_namespace_stands_in_the_properties() -> None:
    (parcel,) = encoder(namespace="ns").encode(bodies("1"))
    assert decode_properties(parcel.properties)["INSTANCE_ID"] == "ns"


def test_a_sharding_key_has_its_queue_as_in_the_client_and_its_order() -> None:
    keys = ["a", "ключ", "polygenelubricants", "", None, "a" * 100]
    making = encoder()
    parcels = making.encode(
        rows(*({"body": b"%d" % n, "shardingKey": keys[n % len(keys)]} for n in range(600)))
    )
    for each in sent(parcels):
        key = keys[int(each.body) % len(keys)]
        message = Message("orders", b"", sharding_key=key)
        assert each.request.queue == (by_hash(QUEUES, message, None) if key else None)
    for queue in {each.queue for each in parcels} - {None}:
        numbers = [
            row_of(id)
            for each in parcels
            if each.queue == queue
            for id in each.message_id.split(",")
        ]
        assert numbers == sorted(numbers)


def test_keyed_rows_that_go_alone_keep_their_place() -> None:
    parcels = encoder().encode(
        rows(
            *(
                {"body": b"%d" % n, "shardingKey": "k", "delayLevel": 1 if n == 4 else 0}
                for n in range(10)
            )
        )
    )
    assert [each.message_count for each in parcels] == [4, 1, 5]


def test_rows_may_name_their_queue() -> None:
    parcels = encoder().encode(
        rows(
            *(
                {"body": b"%d" % n, "queueId": n % 4, "brokerName": "a" if n < 5 else "b"}
                for n in range(10)
            ),
            {"body": b"10"},
        )
    )
    for each in sent(parcels):
        n = int(each.body)
        queue = MessageQueue("orders", "a" if n < 5 else "b", n % 4)
        assert each.request.queue == (queue if n < 10 else None)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"body": None}, "the body is null"),
        ({"body": b""}, "the body is empty"),
        ({"body": b"x" * 1001}, "a body of 1001 bytes; 1000 are allowed"),
        ({"topic": None}, "the topic is null"),
        ({"topic": "a b"}, "letters, digits"),
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, "the brokers' own"),
        ({"tags": "a\x02b"}, "contains 0x02"),
        ({"shardingKey": "a\x02b"}, "contains 0x02"),
        ({"keys": ["a", None]}, "a key is null"),
        ({"keys": ["a", ""]}, "key '': a key is not empty"),
        ({"keys": ["a b"]}, "key 'a b'"),
        ({"keys": ["a\u3000b"]}, "no blanks"),
        ({"keys": ["a\x1fb"]}, "no blanks"),
        ({"properties": {"KEYS": "a"}}, "property 'KEYS' is RocketMQ's own"),
        ({"properties": {"a": " "}}, "property 'a': neither name nor value may be blank"),
        ({"properties": {"": "a"}}, "may be blank"),
        ({"properties": {"a": None}}, "property 'a' is null"),
        ({"properties": {"a": "\x02"}}, "contains 0x02"),
        ({"properties": {"a\x01b": "c"}}, "has 0x01 in its name"),
        ({"properties": {"a": "x" * 32767}}, "32767 are allowed"),
        ({"delayLevel": -1}, "delayLevel -1: levels start at 1"),
        ({"delayLevel": 1, "deliverAt": datetime(2030, 1, 1, tzinfo=UTC)}, "give one of them"),
        ({"deliverAt": datetime(1969, 1, 1, tzinfo=UTC)}, "before 1970"),
        ({"shardingKey": "k", "queueId": 0, "brokerName": "a"}, "give one of them"),
        ({"queueId": 0, "brokerName": None}, "only together"),
        ({"queueId": None, "brokerName": "a"}, "only together"),
        ({"queueId": 9, "brokerName": "a"}, "'orders' has no queue 9 of broker 'a' now"),
        ({"queueId": -1, "brokerName": "a"}, "no queue -1"),
        ({"queueId": 1, "brokerName": "c"}, "of broker 'c' now: brokers a, b have some"),
    ],
)
def test_a_bad_row_is_named_with_its_reason(row: dict[str, Any], reason: str) -> None:
    making = encoder(None, message_bytes_max=1000)
    good = {
        "topic": "orders",
        "body": b"good",
        "tags": "t",
        "keys": ["k"],
        "properties": {"a": "b", "c": "d"},
    }
    making.encode(rows(good, good))
    with pytest.raises(InvalidMessage) as caught:
        making.encode(rows(good, {**good, **row}, good))
    assert str(caught.value).startswith("row 3: ")
    assert reason in str(caught.value)


def test_text_that_is_not_utf8_is_refused() -> None:
    bad = pa.array([b"good", b"\xff"], pa.binary()).view(pa.string())
    for name in ("tags", "keys", "shardingKey", "topic"):
        batch = pa.RecordBatch.from_arrays([pa.array([b"1", b"2"]), bad], names=["body", name])
        with pytest.raises(InvalidMessage, match=r"row 1: .*not UTF-8"):
            encoder(None if name == "topic" else "orders").encode(batch)


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x02"), max_size=8)
names = st.text("abcXYZ.é", min_size=1, max_size=6)
messages = st.builds(
    Message,
    st.sampled_from(["orders", "other", "%RETRY%g"]),
    st.binary(min_size=1, max_size=50),
    tags=st.none() | texts,
    keys=st.lists(st.text("abcé/", min_size=1, max_size=4), max_size=3),
    properties=st.dictionaries(names, names, max_size=3),
    delay_level=st.integers(0, 18),
    sharding_key=st.none() | texts,
)


@given(st.lists(messages, min_size=1, max_size=30), st.integers(1, 10), st.integers(1, 500))
def test_rows_are_the_messages_they_stand_for(
    many: list[Message], batch_messages_max: int, batch_bytes_max: int
) -> None:
    for message in many:
        check_message(message, body_bytes_max=1000)
    making = encoder(
        None,
        batch_messages_max=batch_messages_max,
        batch_bytes_max=batch_bytes_max,
        compress_body_bytes_min=40,
    )
    found = sent(
        making.encode(
            rows(
                *(
                    {
                        "topic": each.topic,
                        "body": each.body,
                        "tags": each.tags,
                        "keys": list(each.keys),
                        "properties": dict(each.properties),
                        "delayLevel": each.delay_level,
                        "shardingKey": each.sharding_key,
                    }
                    for each in many
                )
            )
        )
    )
    assert len(found) == len(many)
    firsts: dict[str, int] = {}
    for number, (row, message) in enumerate(zip(found, many, strict=True)):
        assert row.request.topic == message.topic
        assert row.body == message.body
        first = firsts.setdefault(message.topic, number) if not message.delay_level else number
        announced = {FIRST_ROW: str(first)} if first else {}
        assert row.properties == message_properties(message) | announced
        assert row.request.is_first == (
            firsts.get(message.topic) == row_of(row.request.message_id.split(",")[0])
        )


def test_one_row_of_each_topic_announces_the_others() -> None:
    making = encoder(None, batch_messages_max=2, compress_body_bytes_min=100)
    large = b"x" * 200  # goes by itself, behind the others
    first = making.encode(
        rows(
            {"topic": "orders", "body": b"0", "delayLevel": 2},
            {"topic": "orders", "body": large},
            *({"topic": "orders", "body": b"o"} for _ in range(3)),
            {"topic": "other", "body": b"5"},
        )
    )
    then = making.encode(
        rows({"topic": "third", "body": b"6"}, *({"topic": "other", "body": b"7"},) * 3)
    )
    announcing = [each for each in first + then if each.is_first]
    assert [(each.topic, row_of(each.message_id[:32])) for each in announcing] == [
        *(("orders", 1), ("other", 5), ("third", 6)),
    ]
    said = [each.properties.get(FIRST_ROW) for each in sent(first) + sent(then)]
    assert said == [None, "1", "1", "1", "1", "5", "6", "5", "5", "5"]
