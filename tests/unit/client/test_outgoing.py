"""What goes out for a message: header, properties and body, and the user's own left as it was."""

import copy
import random
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from rocketpipe.client.encoded import Encoded
from rocketpipe.client.outgoing import Packer
from rocketpipe.client.replies import Reply
from rocketpipe.client.settings import ProducerSettings
from rocketpipe.errors import InvalidMessage
from rocketpipe.message import Message, MessageQueue
from rocketpipe.wire.batch import decode_batch
from rocketpipe.wire.compression import Compression, decompress
from rocketpipe.wire.properties import decode_properties
from rocketpipe.wire.requests.sending import (
    SendBatchMessage,
    SendMessageV2,
    SendReplyMessageV2,
)

QUEUE = MessageQueue("orders", "broker-b", 3)
MESSAGE = Message("orders", b"body", tags="paid", keys=["o-1", "o-2"], flag=7)


class Ids:
    def __init__(self) -> None:
        self._numbers = count()

    def __call__(self) -> str:
        return f"ID{next(self._numbers)}"

    def many(self, quantity: int) -> list[str]:
        return [self() for _ in range(quantity)]


def packer(**settings: Any) -> Packer:
    return Packer(
        ProducerSettings("group", namesrv="n:9876", **settings),
        Ids(),
        lambda: 1_750_000_000_000,
    )


def test_a_message_becomes_a_header_for_the_queue_asked_for() -> None:
    outgoing = packer(create_topic_key="MINE", default_topic_queue_nums=6).pack(MESSAGE)
    assert outgoing.request(QUEUE) == SendMessageV2(
        producer_group="group",
        topic="orders",
        default_topic="MINE",
        default_topic_queue_nums=6,
        queue_id=3,
        sys_flag=0,
        born_timestamp=1_750_000_000_000,
        flag=7,
        properties="TAGS\x01paid\x02KEYS\x01o-1 o-2\x02WAIT\x01true\x02UNIQ_KEY\x01ID0\x02",
        reconsume_times=0,
        unit_mode=False,
        batch=False,
        broker_name="broker-b",
    )
    assert outgoing.command(QUEUE) == outgoing.request(QUEUE).to_command(b"body")
    assert (outgoing.body, outgoing.message_id) == (b"body", "ID0")
    assert not outgoing.is_transaction


def test_each_attempt_gets_the_queue_id_and_broker_name_of_its_own_queue() -> None:
    # RocketMQ issue 1497: an async retry sent the old queue id to the new broker.
    outgoing = packer().pack(MESSAGE)
    headers = [outgoing.request(MessageQueue("orders", f"b{n}", n)) for n in range(3)]
    assert [(each.queue_id, each.broker_name) for each in headers] == [
        (0, "b0"),
        (1, "b1"),
        (2, "b2"),
    ]


def test_the_users_message_is_never_changed() -> None:
    body = bytes(10_000)
    properties = {"a": "1"}
    message = replace(MESSAGE, body=body, properties=properties)
    before = copy.deepcopy(message)
    outgoing = packer(namespace="shop").pack(message, {"TRAN_MSG": "true"})
    assert message == before
    assert message.body is body
    assert outgoing.messages == [message]
    assert outgoing.messages[0] is message
    assert properties == {"a": "1"}


@pytest.mark.parametrize("compression", list(Compression))
def test_a_large_body_is_compressed_in_the_way_chosen(compression: Compression) -> None:
    if compression is not Compression.ZLIB:
        pytest.importorskip({"lz4": "lz4", "zstd": "zstandard"}[compression])
    body = b"0123456789" * 100
    outgoing = packer(compress_body_bytes_min=100, compression=compression).pack(
        replace(MESSAGE, body=body)
    )
    sys_flag = outgoing.request(QUEUE).sys_flag
    assert sys_flag == 1 | compression.sys_flag
    assert outgoing.body != body
    assert decompress(outgoing.body, sys_flag) == body


def test_a_body_below_the_limit_goes_as_it_is() -> None:
    outgoing = packer(compress_body_bytes_min=100).pack(replace(MESSAGE, body=bytes(99)))
    assert (outgoing.body, outgoing.request(QUEUE).sys_flag) == (bytes(99), 0)


def test_a_body_that_compression_would_not_make_smaller_goes_as_it_is() -> None:
    body = random.Random(1).randbytes(100)
    mine = packer(compress_body_bytes_min=100)
    encoded = Encoded(MESSAGE.topic, 1, "ID", body, "")
    for outgoing in (mine.pack(replace(MESSAGE, body=body)), mine.pack_encoded(encoded)):
        assert (outgoing.body, outgoing.request(QUEUE).sys_flag) == (body, 0)


def test_a_body_is_measured_before_it_is_compressed() -> None:
    with pytest.raises(InvalidMessage, match="5001 bytes; 5000 are allowed"):
        packer(message_bytes_max=5000).pack(replace(MESSAGE, body=bytes(5001)))


def test_a_half_message_carries_its_flag() -> None:
    outgoing = packer().pack(replace(MESSAGE, body=bytes(5000)), {"TRAN_MSG": "true"})
    assert outgoing.request(QUEUE).sys_flag & 0b1100 == 0b0100
    assert outgoing.is_transaction


def test_a_reply_has_a_request_of_its_own() -> None:
    routing = {"MSG_TYPE": "reply", "CORRELATION_ID": "c-1"}
    reply = Reply("DefaultCluster_REPLY_TOPIC", b"yes", tags="re", routing=routing)
    header = packer(namespace="shop").pack(reply).request(QUEUE)
    assert type(header) is SendReplyMessageV2
    assert header.topic == "DefaultCluster_REPLY_TOPIC"  # the whole cluster's, not the namespace's
    properties = decode_properties(header.properties or "")
    assert properties.items() >= {**routing, "TAGS": "re"}.items()


def test_a_namespace_stands_before_topic_and_group_and_in_the_properties() -> None:
    outgoing = packer(namespace="shop").pack(MESSAGE)
    header = outgoing.request(QUEUE)
    assert (outgoing.topic, header.topic, header.producer_group) == (
        "shop%orders",
        "shop%orders",
        "shop%group",
    )
    assert decode_properties(header.properties or "")["INSTANCE_ID"] == "shop"


def test_a_topic_that_gets_too_long_by_its_namespace_is_refused() -> None:
    long = replace(MESSAGE, topic="t" * 123)
    assert packer(namespace="abc").pack(long).topic == "abc%" + "t" * 123
    with pytest.raises(InvalidMessage, match="128 characters"):
        packer(namespace="abcd").pack(long)


@pytest.mark.parametrize(
    ("changes", "because"),
    [
        ({"properties": {"a": "\ud800"}}, "not text"),
        ({"keys": ["\udfff"]}, "not text"),
        ({"tags": "\ud800"}, "not text"),
        ({"properties": {"a": "x\x02y"}}, "0x02"),
        ({"properties": {"a\x01b": "x"}}, "0x01"),
        ({"properties": {"a": "x" * 33_000}}, "32767 are allowed"),
        ({"properties": {"a": "世" * 11_000}}, "32767 are allowed"),
        ({"keys": ["k" * 1000] * 40}, "32767 are allowed"),
        ({"body": b""}, "empty"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_what_can_not_be_written_down_is_refused_alone_and_in_a_batch(
    changes: dict[str, Any], because: str
) -> None:
    message = replace(MESSAGE, **changes)
    with pytest.raises(InvalidMessage, match=because):
        packer().pack(message)
    with pytest.raises(InvalidMessage, match=because):
        packer().pack_batch([MESSAGE, message])


def test_properties_as_long_as_allowed_are_not_refused() -> None:
    for value in ("x" * 32_600, "世" * 10_866):
        message = replace(MESSAGE, properties={"a": value})
        sent = packer().pack(message).request(QUEUE).properties or ""
        assert decode_properties(sent)["a"] == value


# Batches.


def test_a_batch_is_one_body_with_an_id_for_each() -> None:
    second = replace(MESSAGE, body=b"second", tags=None, flag=9, properties={"a": "1"})
    outgoing = packer().pack_batch([MESSAGE, second])
    header = outgoing.request(QUEUE)
    assert type(header) is SendBatchMessage
    assert header.batch is True
    assert (header.flag, header.sys_flag) == (0, 0)
    assert header.properties == "WAIT\x01true\x02"
    assert outgoing.message_id == "ID0,ID1"
    members = decode_batch(outgoing.body)
    assert [(each.body, each.flag) for each in members] == [(b"body", 7), (b"second", 9)]
    assert members[1].properties == {
        "a": "1",
        "KEYS": "o-1 o-2",
        "WAIT": "true",
        "UNIQ_KEY": "ID1",
    }


def test_a_batch_that_does_not_wait_for_the_store_says_so() -> None:
    hasty = replace(MESSAGE, wait_store_ok=False)
    assert packer().pack_batch([hasty]).request(QUEUE).properties == "WAIT\x01false\x02"


def test_a_batch_is_never_compressed() -> None:
    large = replace(MESSAGE, body=bytes(5000))
    outgoing = packer().pack_batch([large, large])
    assert outgoing.request(QUEUE).sys_flag == 0
    assert len(outgoing.body) > 10_000


def test_a_whole_batch_has_the_limit_of_a_body() -> None:
    one = len(packer().pack_batch([MESSAGE]).body)
    packer(message_bytes_max=2 * one).pack_batch([MESSAGE] * 2)
    with pytest.raises(InvalidMessage, match=f"a batch of {2 * one} bytes"):
        packer(message_bytes_max=2 * one - 1).pack_batch([MESSAGE] * 2)


def test_a_batch_with_a_bad_message_is_refused() -> None:
    with pytest.raises(InvalidMessage, match="one topic"):
        packer().pack_batch([MESSAGE, replace(MESSAGE, topic="other")])
    with pytest.raises(InvalidMessage, match="empty"):
        packer().pack_batch([MESSAGE, replace(MESSAGE, body=b"")])
    with pytest.raises(InvalidMessage, match="no messages"):
        packer().pack_batch([])


@pytest.mark.parametrize("like", [MESSAGE, Message("orders", b"x"), replace(MESSAGE, tags="世")])
def test_a_batch_of_messages_alike_is_what_it_would_be_anyway(like: Message) -> None:
    messages = [replace(like, body=bytes(length)) for length in (1, 200, 200, 7)]
    for settings in ({}, {"namespace": "shop"}):
        slow = packer(**settings).pack_batch(messages)
        quick = packer(**settings).pack_batch(messages, alike=True)
        assert (quick.body, quick.message_id) == (slow.body, slow.message_id)
        assert quick.request(QUEUE) == slow.request(QUEUE)


def test_a_batch_of_messages_alike_with_a_bad_one_is_refused() -> None:
    with pytest.raises(InvalidMessage, match="empty"):
        packer().pack_batch([MESSAGE, replace(MESSAGE, body=b"")], alike=True)
    with pytest.raises(InvalidMessage, match="a body of 11 bytes"):
        large = replace(MESSAGE, body=bytes(11))
        packer(message_bytes_max=10).pack_batch([MESSAGE, large], alike=True)
    with pytest.raises(InvalidMessage, match="flag"):
        packer().pack_batch([replace(MESSAGE, flag=1 << 31)] * 2, alike=True)


def test_plain_messages_get_all_that_others_get() -> None:
    """They take a shorter way, which must lead to the same place."""
    pack = packer(namespace="shop").pack
    for wait, n in ((True, 0), (False, 1), (True, 2)):
        message = Message("orders", b"x", wait_store_ok=wait)
        assert decode_properties(pack(message).request(QUEUE).properties or "") == {
            "WAIT": "true" if wait else "false",
            "UNIQ_KEY": f"ID{n}",
            "INSTANCE_ID": "shop",
        }
    for more in ({"delay_level": 3}, {"tags": "t"}, {"keys": ["k"]}, {"sharding_key": "s"}):
        message = Message("orders", b"x", **more)
        assert len(decode_properties(pack(message).request(QUEUE).properties or "")) == 4


def test_plain_members_of_a_batch_have_ids_of_their_own() -> None:
    plain = Message("orders", b"x")
    members = decode_batch(packer().pack_batch([plain, plain]).body)
    assert [member.properties for member in members] == [
        {"WAIT": "true", "UNIQ_KEY": "ID0"},
        {"WAIT": "true", "UNIQ_KEY": "ID1"},
    ]
