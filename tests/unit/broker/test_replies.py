"""Request-reply: a reply finds the client that asked."""

import asyncio
from typing import Any

from rocketpipe.errors import BrokerError
from rocketpipe.remoting.connection import Connection
from rocketpipe.wire.frame import RemotingCommand
from rocketpipe.wire.properties import decode_properties
from rocketpipe.wire.requests.callbacks import PushReplyMessageToClient
from rocketpipe.wire.requests.sending import (
    SendMessageReply,
    SendReplyMessage,
    SendReplyMessageV2,
)
from tests.unit.broker.bench import CLIENT_HOST, Bench, messages, send_header, simulated
from tests.unit.broker.test_clients import heartbeat

TOPIC = "DefaultCluster_REPLY_TOPIC"


class Asker:
    """Takes pushed replies, and says what it is told to."""

    def __init__(self, code: int = 0) -> None:
        self.got: list[tuple[PushReplyMessageToClient, bytes]] = []
        self._code = code

    def __call__(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        push = PushReplyMessageToClient.from_ext_fields(request.ext_fields)
        self.got.append((push, request.body))
        return request.answer(self._code)


async def reply(client: Connection, *, is_v2: bool = True, **properties: str) -> SendMessageReply:
    header = send_header(TOPIC, properties={"CORRELATION_ID": "c-1", **properties}, flag=7)
    fields: dict[str, Any] = {name: getattr(header, name) for name in header.short_names}
    kind = SendReplyMessageV2 if is_v2 else SendReplyMessage
    return await client.request(kind(**fields), b"pong", timeout=30)


@simulated
async def test_a_reply_is_pushed_to_who_asked_and_stored(bench: Bench) -> None:
    asker = Asker()
    async with (
        bench.broker() as broker,
        bench.client(broker.address, handler=asker) as asking,
        bench.client(broker.address) as answering,
    ):
        await heartbeat(asking, "asker", producers=("p",))
        for is_v2 in (True, False):
            answer = await reply(answering, is_v2=is_v2, REPLY_TO_CLIENT="asker")
            stored = messages(broker, TOPIC)[-1]
            assert answer.msg_id == stored.offset_message_id
            assert stored.body == b"pong"
        ((push, body), _) = asker.got
    assert body == b"pong"
    assert push.topic == TOPIC
    assert push.flag == 7
    assert push.born_host.startswith(f"{CLIENT_HOST}:")
    assert push.store_host == "10.0.0.1:10911"
    properties = decode_properties(push.properties or "")
    assert properties.pop("PUSH_REPLY_TIME") == str(push.store_timestamp)
    assert properties == {
        "CORRELATION_ID": "c-1",
        "REPLY_TO_CLIENT": "asker",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
    }


@simulated
async def test_a_reply_need_not_be_stored(bench: Bench) -> None:
    async with (
        bench.broker(store_reply_message_enable=False) as broker,
        bench.client(broker.address, handler=Asker()) as client,
    ):
        await heartbeat(client, "asker", producers=("p",))
        answer = await reply(client, REPLY_TO_CLIENT="asker")
        assert (answer.msg_id, answer.queue_id, answer.queue_offset) == ("0", 0, 0)
        assert messages(broker, TOPIC) == []


async def refused(client: Connection, asker: str | None = None) -> BrokerError:
    try:
        await (reply(client, REPLY_TO_CLIENT=asker) if asker else reply(client))
    except BrokerError as error:
        return error
    raise AssertionError("the reply was taken")


@simulated
async def test_a_reply_that_finds_nobody_is_an_error_but_stored(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        error = await refused(client, "gone")
        assert error.code == 1
        assert error.remark == "push reply message fail, channel of <gone> not found."
        error = await refused(client)
        assert error.remark == "reply message properties[REPLY_TO_CLIENT] is null"
        assert len(messages(broker, TOPIC)) == 2


@simulated
async def test_a_reply_that_is_not_taken_is_an_error(bench: Bench) -> None:
    async def never(connection: Connection, request: RemotingCommand) -> None:
        await asyncio.sleep(1000)

    async with (
        bench.broker() as broker,
        bench.client(broker.address, handler=Asker(code=1)) as refusing,
        bench.client(broker.address, handler=never) as silent,
    ):
        await heartbeat(refusing, "refusing", producers=("p",))
        await heartbeat(silent, "silent", producers=("p",))
        for asker in ("refusing", "silent"):
            error = await refused(refusing, asker)
            assert error.remark == f"push reply message to {asker}fail."


@simulated
async def test_a_reply_is_checked_like_any_send(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        header = send_header("no good")
        fields: dict[str, Any] = {name: getattr(header, name) for name in header.short_names}
        command = SendReplyMessageV2(**fields).to_command(b"x")
        answer = await client.invoke(command, timeout=3)
        assert answer.code == 29
        assert answer.ext_fields == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
