"""The codec behind bodies: what is missing, unknown or wrong, and bytes that mean harm."""

import dataclasses
import time
import zlib
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Annotated

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketpipe.errors import MalformedBody
from rocketpipe.message import MessageQueue
from rocketpipe.wire.bodies import consumer_info, groups, heartbeat, offsets, route, topics
from rocketpipe.wire.bodies.codec import Body, _members
from rocketpipe.wire.bodies.heartbeat import (
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    SubscriptionData,
)
from rocketpipe.wire.bodies.offsets import ConsumeStats, OffsetWrapper, TopicStatsTable
from rocketpipe.wire.bodies.route import BrokerData, Perm, QueueData, TopicRouteData
from rocketpipe.wire.bodies.topics import (
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from rocketpipe.wire.fastjson import dumps, loads

BODIES = [
    body
    for module in (consumer_info, groups, heartbeat, offsets, route, topics)
    for body in vars(module).values()
    if isinstance(body, type) and issubclass(body, Body) and body.__module__ == module.__name__
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample(Body):
    """One member of each kind."""

    plain_text: str
    number: int = 0
    rate: float = 0.0
    is_on: bool = False
    perm: Perm = Perm.READ
    model: MessageModel | None = None
    odd_name: Annotated[str | None, "oddNAME"] = None
    numbers: tuple[int, ...] = ()
    names: frozenset[str] = frozenset()
    by_id: dict[int, str] = field(default_factory=dict)
    by_queue: dict[MessageQueue, int] = field(default_factory=dict)
    inner: SubscriptionData | None = None
    anything: object = None


TEXT = st.text(max_size=5)
INTEGERS = st.integers(-(2**63), 2**63 - 1)
QUEUES = st.builds(MessageQueue, TEXT, TEXT, INTEGERS)
SUBSCRIPTIONS = st.builds(SubscriptionData, topic=TEXT, sub_string=TEXT)
SAMPLES = st.builds(
    Sample,
    plain_text=TEXT,
    number=INTEGERS,
    rate=st.floats(allow_nan=False, allow_infinity=False),
    is_on=st.booleans(),
    perm=st.integers(0, 15).map(Perm),
    model=st.sampled_from(MessageModel) | st.none(),
    odd_name=TEXT | st.none(),
    numbers=st.lists(INTEGERS, max_size=3).map(tuple),
    names=st.frozensets(TEXT, max_size=3),
    by_id=st.dictionaries(INTEGERS, TEXT, max_size=3),
    by_queue=st.dictionaries(QUEUES, INTEGERS, max_size=3),
    inner=SUBSCRIPTIONS | st.none(),
    anything=TEXT | st.lists(INTEGERS) | st.none(),
)


@pytest.mark.slow
@given(SAMPLES, st.booleans())
def test_any_body_is_written_and_read_back(sample: Sample, standard: bool) -> None:
    assert Sample.decode(sample.encode(standard=standard)) == sample


def test_members_are_written_in_alphabetical_order_and_none_is_left_out() -> None:
    sample = Sample(plain_text="x", names=frozenset("cab"), odd_name="y")
    assert sample.encode() == (
        b'{"byId":{},"byQueue":{},"isOn":false,"names":["a","b","c"],"number":0,"numbers":[],'
        b'"oddNAME":"y","perm":4,"plainText":"x","rate":0.0}'
    )


def test_unknown_members_are_ignored_and_null_takes_the_default() -> None:
    assert Sample.decode(b'{"plainText":"x","new":{"in":[6]},"number":null}') == Sample(
        plain_text="x"
    )


def test_a_number_key_may_be_in_quotes_or_not() -> None:
    assert Sample.decode(b'{"plainText":"x","byId":{"1":"a",-2:"b"}}').by_id == {1: "a", -2: "b"}


def test_a_rate_may_be_a_whole_number() -> None:
    rate = Sample.decode(b'{"plainText":"x","rate":3}').rate
    assert rate == 3.0
    assert isinstance(rate, float)


def test_an_unknown_permission_bit_is_kept() -> None:
    assert Sample.decode(b'{"plainText":"x","perm":20}').perm == 20


@pytest.mark.parametrize(
    ("member", "value"),
    [
        *(("plainText", value) for value in ("1", "true", "[]", "{}")),
        *(("number", value) for value in ('"1"', "1.0", "true", "[]")),
        *(("rate", value) for value in ('"1"', "true")),
        *(("isOn", value) for value in ('"true"', "1")),
        *(("perm", value) for value in ('"6"', "true")),
        *(("model", value) for value in ('"X"', "0")),
        *(("numbers", value) for value in ("1", "{}", '["1"]', "[null]")),
        *(("names", value) for value in ('"ab"', "[[]]")),
        *(("byId", value) for value in ("[]", '{"x":"y"}', '{" 1":"y"}', "{0:1}", '{{"a":1}:"x"}')),
        *(("byQueue", value) for value in ('{"q":1}', "{1:1}", '{{"topic":"t"}:1}')),
        *(("inner", value) for value in ("[]", "{}", '"x"')),
    ],
)
def test_a_member_of_the_wrong_type_is_named(member: str, value: str) -> None:
    with pytest.raises(MalformedBody, match=rf"^Sample\.{member}: "):
        Sample.decode(f'{{"plainText":"x",{member}:{value}}}'.encode())


def test_a_missing_member_is_named_with_the_way_to_it() -> None:
    with pytest.raises(MalformedBody, match=r"^Sample\.plainText is missing$"):
        Sample.decode(b"{}")
    with pytest.raises(
        MalformedBody, match=r"^TopicRouteData\.queueDatas: QueueData\.perm is miss"
    ):
        TopicRouteData.decode(
            b'{"queueDatas":[{"brokerName":"b","readQueueNums":1,"writeQueueNums":1}]}'
        )


@pytest.mark.parametrize("text", ["[]", "1", "null", '"x"', ""])
@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
def test_a_body_is_an_object(body: type[Body], text: str) -> None:
    with pytest.raises(MalformedBody):
        body.decode(text.encode())


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
def test_a_body_is_a_frozen_slotted_keyword_dataclass(body: type[Body]) -> None:
    assert dataclasses.is_dataclass(body)
    with pytest.raises(dataclasses.FrozenInstanceError):
        object.__new__(body).anything = 1
    assert "__dict__" not in dir(body)
    assert all(member.kw_only for member in dataclasses.fields(body))


JSON = st.recursive(
    st.none() | st.booleans() | INTEGERS | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT | INTEGERS, inner, max_size=3),
    max_leaves=5,
)


@pytest.mark.slow
@given(st.data())
def test_a_body_with_any_members_is_read_or_refused(data: st.DataObject) -> None:
    body = data.draw(st.sampled_from(BODIES))
    names = [member.java_name for member in _members(body)]
    value = data.draw(st.fixed_dictionaries({}, optional=dict.fromkeys(names, JSON)))
    with suppress(MalformedBody):
        body.decode(dumps(value))


STATS = ConsumeStats(
    offset_table={
        MessageQueue("T", "b", number): OffsetWrapper(broker_offset=number, consumer_offset=0)
        for number in range(4)
    }
).encode()
ROUTE = TopicRouteData(
    broker_datas=(BrokerData(broker_name="b", broker_addrs={0: "127.0.0.1:1"}),),
    queue_datas=(
        QueueData(broker_name="b", read_queue_nums=1, write_queue_nums=1, perm=Perm.READ),
    ),
).encode()
HEARTBEAT = HeartbeatData(
    client_id="c",
    consumer_data_set=(
        ConsumerData(
            group_name="g",
            consume_type=ConsumeType.CONSUME_PASSIVELY,
            message_model=MessageModel.CLUSTERING,
            subscription_data_set=(SubscriptionData.of_tags("T", "A || B", sub_version=1),),
        ),
    ),
).encode()
REGISTRATION = RegisterBrokerBody(
    topic_config_serialize_wrapper=TopicConfigSerializeWrapper(
        topic_config_table={
            "A": TopicConfig(topic_name="A", attributes={"k": "a b"}),
            "B": TopicConfig(topic_name="B", perm=Perm.READ),
        },
        topic_queue_mapping_info_map={"A": {"topic": "A", "currIdMap": {0: 1}}},
    ),
    filter_server_list=("f1",),
)
INFLATED = zlib.decompress(REGISTRATION.encode_compressed())


@st.composite
def mutated(draw: st.DrawFn, original: bytes) -> bytes:
    """The bytes with a stretch of them replaced."""
    start = draw(st.integers(0, len(original)))
    length = draw(st.integers(0, 8))
    return original[:start] + draw(st.binary(max_size=8)) + original[start + length :]


@pytest.mark.parametrize(
    ("body", "original"),
    [(ConsumeStats, STATS), (TopicRouteData, ROUTE), (HeartbeatData, HEARTBEAT)],
    ids=["stats", "route", "heartbeat"],
)
@given(data=st.data())
def test_a_damaged_body_is_read_or_refused(
    body: type[Body], original: bytes, data: st.DataObject
) -> None:
    with suppress(MalformedBody):
        body.decode(data.draw(mutated(original)))


@given(mutated(REGISTRATION.encode_compressed()) | mutated(INFLATED).map(zlib.compress))
def test_a_damaged_registration_is_read_or_refused(damaged: bytes) -> None:
    with suppress(MalformedBody):
        RegisterBrokerBody.decode_compressed(damaged)


def test_a_compressed_registration_keeps_attributes_and_mappings() -> None:
    assert RegisterBrokerBody.decode_compressed(REGISTRATION.encode_compressed()) == REGISTRATION


@pytest.mark.parametrize("line", [b"T 4 4 6 SINGLE_TAG", b"T 4 4 6 SINGLE_TAG "])
def test_a_topic_line_may_lack_attributes(line: bytes) -> None:
    assert TopicConfig.decode_line(line) == TopicConfig(
        topic_name="T", read_queue_nums=4, write_queue_nums=4
    )


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"T 4 4 6",
        b"T x 4 6 SINGLE_TAG",
        b"T 4 4 6 NO_TAG",
        b"\xff 4 4 6 SINGLE_TAG",
        b"T 4 4 6 SINGLE_TAG [",
    ],
)
def test_a_topic_line_that_makes_no_sense_is_refused(line: bytes) -> None:
    with pytest.raises(MalformedBody):
        TopicConfig.decode_line(line)


@pytest.mark.parametrize("data", [b"", b"x", REGISTRATION.encode_compressed()[:-1]])
def test_a_registration_that_is_not_whole_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedBody):
        RegisterBrokerBody.decode_compressed(data)


@pytest.mark.parametrize("size", [-1, 2**31 - 1])
def test_a_registration_that_promises_too_much_is_refused(size: int) -> None:
    inflated = size.to_bytes(4, "big", signed=True) + INFLATED[4:]
    with pytest.raises(MalformedBody, match="are promised"):
        RegisterBrokerBody.decode_compressed(zlib.compress(inflated))


def test_decompression_stops_at_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "INFLATED_BYTES_MAX", len(INFLATED))
    RegisterBrokerBody.decode_compressed(zlib.compress(INFLATED))
    with pytest.raises(MalformedBody, match="when decompressed"):
        RegisterBrokerBody.decode_compressed(zlib.compress(INFLATED + b"\0"))


def test_a_fingerprint_changes_with_subscriptions_alone() -> None:
    first = HeartbeatData.decode(HEARTBEAT)
    (consumer,) = first.consumer_data_set
    (subscription,) = consumer.subscription_data_set

    def with_subscription(changed: SubscriptionData) -> HeartbeatData:
        changed_consumer = dataclasses.replace(consumer, subscription_data_set=(changed,))
        return dataclasses.replace(
            first, client_id="other", without_sub=True, consumer_data_set=(changed_consumer,)
        )

    renewed = with_subscription(dataclasses.replace(subscription, sub_version=99))
    other = with_subscription(SubscriptionData.of_tags("T", "C", sub_version=1))
    assert renewed.compute_fingerprint() == first.compute_fingerprint()
    assert other.compute_fingerprint() != first.compute_fingerprint()


@pytest.mark.slow
def test_ten_thousand_queues_are_read_in_linear_time() -> None:
    member = (
        '{"brokerName":"broker-a","queueId":%d,"topic":"TopicVector"}:'
        '{"lastUpdateTimestamp":1700000000000,"maxOffset":9,"minOffset":0}'
    )
    table = ",".join(member % number for number in range(10_000))
    text = b'{"offsetTable":{%s},"topicPutTps":0.0}' % table.encode()
    start = time.process_time()
    stats = TopicStatsTable.decode(text)
    assert time.process_time() - start < 10  # quadratic would take minutes
    assert len(stats.offset_table) == 10_000
    assert loads(stats.encode()) == loads(text)
