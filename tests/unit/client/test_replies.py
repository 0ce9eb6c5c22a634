"""Replies: how they are made, and how those that brokers bring find who waits for them."""

import asyncio
import copy
import logging
import pickle
import threading
import zlib
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, cast

import pytest

from rocketpipe import Message, StoredMessage, reply_message
from rocketpipe.client.checks import check_batch
from rocketpipe.client.many import packs
from rocketpipe.client.replies import Replies, Reply
from rocketpipe.client.settings import ProducerSettings
from rocketpipe.codes import ResponseCode
from rocketpipe.errors import InvalidMessage, MalformedData, ReplyTimeout
from rocketpipe.remoting.connection import Connection
from rocketpipe.wire.frame import RemotingCommand
from rocketpipe.wire.hashing import body_crc
from rocketpipe.wire.properties import encode_properties
from rocketpipe.wire.requests.callbacks import PushReplyMessageToClient
from tests.stored_message import stored_message

ROUTING = {"CLUSTER": "c1", "CORRELATION_ID": "42", "REPLY_TO_CLIENT": "10.0.0.1@7", "TTL": "3000"}
BROKER = cast(Connection, None)  # who brings a reply does not matter


def request(properties: Mapping[str, str]) -> StoredMessage:
    return stored_message(topic="questions", properties=properties)


# Made by who replies.


def test_a_reply_goes_to_the_client_that_asked() -> None:
    reply = reply_message(request(ROUTING), b"!", tags="t", keys=["k"], properties={"a": "b"})
    assert isinstance(reply, Reply)
    assert (reply.topic, reply.body) == ("c1_REPLY_TOPIC", b"!")
    assert (reply.tags, reply.keys, reply.properties) == ("t", ("k",), {"a": "b"})
    assert reply.routing == {
        "MSG_TYPE": "reply",
        "CORRELATION_ID": "42",
        "REPLY_TO_CLIENT": "10.0.0.1@7",
        "TTL": "3000",
    }


def test_a_request_may_say_nothing_of_its_time_to_live() -> None:
    without = {name: value for name, value in ROUTING.items() if name != "TTL"}
    reply = reply_message(request(without), b"!")
    assert isinstance(reply, Reply)
    assert "TTL" not in reply.routing


@pytest.mark.parametrize("missing", ["CLUSTER", "CORRELATION_ID", "REPLY_TO_CLIENT"])
def test_what_is_no_request_can_not_be_replied_to(missing: str) -> None:
    properties = {name: value for name, value in ROUTING.items() if name != missing}
    with pytest.raises(InvalidMessage, match=f"is no request: it has no {missing}$"):
        reply_message(request(properties), b"!")


def test_a_reply_goes_by_itself() -> None:
    reply = reply_message(request(ROUTING), b"!")
    other = Message(reply.topic, b"other")
    with pytest.raises(InvalidMessage, match="a reply"):
        check_batch([other, reply])
    settings = ProducerSettings("group", namesrv="n:9876")
    assert [len(pack.messages) for pack in packs([other, other, reply, other], settings)] == [
        2,
        1,
        1,
    ]


# Brought by brokers.


def push(body: bytes = b"!", sys_flag: int = 0, **properties: str) -> RemotingCommand:
    return PushReplyMessageToClient(
        producer_group="g",
        topic="c1_REPLY_TOPIC",
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=3,
        sys_flag=sys_flag,
        born_timestamp=11,
        flag=5,
        properties=encode_properties(properties),
        born_host="10.0.0.3:3",
        store_host="10.0.0.2:10911",
        store_timestamp=12,
    ).to_command(body)


def test_a_reply_reaches_who_waits_for_it_and_nobody_else() -> None:
    async def main() -> None:
        replies = Replies(lambda: 1234)
        with replies.expect("1") as first, replies.expect("2") as second:
            answer = replies.take(BROKER, push(CORRELATION_ID="2", a="b"))
            assert answer.code == ResponseCode.SUCCESS
            assert not first.done()
            reply = second.result()
        assert (reply.topic, reply.body, reply.flag, reply.queue_id) == (
            *("c1_REPLY_TOPIC", b"!"),
            *(5, 3),
        )
        assert reply.properties == {"CORRELATION_ID": "2", "a": "b", "ARRIVE_TIME": "1234"}
        assert (reply.born_host, reply.store_host) == ("10.0.0.3:3", "10.0.0.2:10911")
        assert (reply.born_timestamp_ms, reply.store_timestamp_ms) == (11, 12)
        assert (reply.sys_flag, reply.body_crc) == (0, body_crc(b"!"))

    asyncio.run(main())


@pytest.mark.parametrize("sys_flag", [1, 1 | 3 << 8])
def test_a_compressed_reply_is_unfolded(sys_flag: int) -> None:
    async def main() -> None:
        replies = Replies(lambda: 0)
        with replies.expect("1") as reply:
            packed = zlib.compress(b"!" * 1000)
            replies.take(BROKER, push(packed, sys_flag, CORRELATION_ID="1"))
            assert reply.result().body == b"!" * 1000
            assert reply.result().sys_flag == sys_flag & ~1
            assert reply.result().body_crc == body_crc(packed)

    asyncio.run(main())


def test_a_damaged_reply_is_an_error_to_its_broker_and_ends_no_wait() -> None:
    async def main() -> None:
        replies = Replies(lambda: 0)
        with replies.expect("1") as reply:
            with pytest.raises(MalformedData):
                replies.take(BROKER, push(b"no zlib", 1, CORRELATION_ID="1"))
            with pytest.raises(MalformedData):
                replies.take(BROKER, RemotingCommand(326, {}, b"!"))
            assert not reply.done()
            replies.take(BROKER, push(CORRELATION_ID="1"))
            assert reply.result().body == b"!"

    asyncio.run(main())


def test_a_reply_may_come_to_another_client_of_the_process() -> None:
    """Whose event loop runs in another thread, as that of the blocking faces does."""

    async def take(body: bytes) -> None:
        Replies(lambda: 0).take(BROKER, push(body, CORRELATION_ID="1"))

    async def main() -> None:
        with Replies(lambda: 0).expect("1") as reply:
            for body in (b"first", b"second"):  # both before this loop turns
                thread = threading.Thread(target=lambda text: asyncio.run(take(text)), args=[body])
                thread.start()
                thread.join()
            assert (await reply).body == b"first"

    asyncio.run(main())


def test_a_loop_that_is_gone_waits_for_nothing() -> None:
    async def expect() -> None:
        expected.enter_context(replies.expect("1"))

    async def take() -> None:
        assert replies.take(BROKER, push(CORRELATION_ID="1")).code == ResponseCode.SUCCESS

    replies = Replies(lambda: 0)
    with ExitStack() as expected:
        asyncio.run(expect())
        asyncio.run(take())


def test_a_reply_that_nobody_waits_for_is_taken_and_dropped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        caplog.set_level(logging.DEBUG)
        replies = Replies(lambda: 0)
        with replies.expect("1") as reply:
            replies.take(BROKER, push(b"first", CORRELATION_ID="1"))
            again = replies.take(BROKER, push(b"second", CORRELATION_ID="1"))
            assert reply.result().body == b"first"
        assert not replies._awaited
        late = replies.take(BROKER, push(CORRELATION_ID="1"))
        stray = replies.take(BROKER, push())
        assert [each.code for each in (again, late, stray)] == [ResponseCode.SUCCESS] * 3

    asyncio.run(main())
    assert caplog.text.count("dropped a reply that nobody waits for") == 3
    assert {record.levelno for record in caplog.records if "dropped" in record.message} == {
        logging.DEBUG
    }


@pytest.mark.parametrize("copy_of", [copy.copy, lambda error: pickle.loads(pickle.dumps(error))])
def test_a_reply_timeout_keeps_its_facts(copy_of: Any) -> None:
    error = copy_of(ReplyTimeout("questions", "42", 3.0))
    assert (error.topic, error.correlation_id, error.timeout) == ("questions", "42", 3.0)
    assert str(error) == (
        "a request to topic 'questions' was sent, but no reply came within 3 s (correlation id 42)"
    )
