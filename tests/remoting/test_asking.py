"""Asking over a connection: each request gets its own answer, or an error in time."""

import asyncio
from typing import Any

import pytest

from rocketpipe.codes import RequestCode, ResponseCode
from rocketpipe.errors import (
    BrokerError,
    InvalidSetting,
    MalformedHeader,
    RequestTimeout,
)
from rocketpipe.remoting.connection import Connection
from rocketpipe.remoting.dispatch import Outcome, Refusal, dispatch_by_code
from rocketpipe.remoting.settings import RemotingSettings
from rocketpipe.wire.frame import RemotingCommand, SerializeType
from rocketpipe.wire.requests.reading import GetMaxOffset, Offset
from tests.remoting.peers import ECHO, LATER, SILENT, connected, echo, run, serving


@run
async def test_a_request_gets_its_own_answer_in_whatever_order_they_come() -> None:
    async with serving() as server, connected(server.addresses[0]) as connection:
        delays = [0.03, 0.0, 0.02, 0.01]
        answers = await asyncio.gather(
            *(
                connection.invoke(
                    RemotingCommand(LATER, {"after": str(delay)}, str(delay).encode()), timeout=5
                )
                for delay in delays
            )
        )
        assert [answer.body for answer in answers] == [str(delay).encode() for delay in delays]


@run
async def test_a_thousand_requests_share_one_connection() -> None:
    async with serving() as server, connected(server.addresses[0]) as connection:
        bodies = [str(number).encode() * 50 for number in range(1000)]
        answers = await asyncio.gather(
            *(connection.invoke(RemotingCommand(ECHO, body=body), timeout=5) for body in bodies)
        )
        assert [answer.body for answer in answers] == bodies
        assert len(server.connections) == 1


@pytest.mark.parametrize("serialize_type", SerializeType)
def test_an_answer_comes_in_the_serialization_of_its_request(
    serialize_type: SerializeType,
) -> None:
    async def main() -> None:
        async with serving() as server, connected(server.addresses[0]) as connection:
            command = RemotingCommand(ECHO, {"a": "é"}, serialize_type=serialize_type)
            answer = await connection.invoke(command, timeout=5)
            assert answer.serialize_type is serialize_type
            assert answer.ext_fields == {"a": "é"}

    asyncio.run(main())


@run
async def test_a_typed_request_gives_its_typed_reply() -> None:
    def max_offset(connection: Connection, request: RemotingCommand) -> RemotingCommand:
        header = GetMaxOffset.from_ext_fields(request.ext_fields)
        return request.answer(0, ext_fields=Offset(offset=header.queue_id + 40).to_ext_fields())

    handler = dispatch_by_code({RequestCode.GET_MAX_OFFSET: max_offset})
    async with serving(handler) as server, connected(server.addresses[0]) as connection:
        reply = await connection.request(GetMaxOffset(topic="t", queue_id=2), timeout=5)
        assert reply == Offset(offset=42)


@run
async def test_a_refusal_is_a_broker_error_that_says_who_and_why() -> None:
    def no(connection: Connection, request: RemotingCommand) -> Outcome:
        raise Refusal(ResponseCode.TOPIC_NOT_EXIST, "no such topic")

    async with serving(no) as server, connected(server.addresses[0]) as connection:
        with pytest.raises(BrokerError) as raised:
            await connection.request(GetMaxOffset(topic="t", queue_id=2), timeout=5)
        assert raised.value.code == ResponseCode.TOPIC_NOT_EXIST
        assert str(raised.value) == (
            f"{server.addresses[0]} answered TOPIC_NOT_EXIST: no such topic"
        )


@run
async def test_requests_go_out_in_the_serialization_of_the_settings() -> None:
    seen = []

    def note(connection: Connection, request: RemotingCommand) -> RemotingCommand:
        seen.append(request.serialize_type)
        return request.answer(0, ext_fields={"offset": "1"})

    settings = RemotingSettings(serialize_type=SerializeType.ROCKETMQ)
    async with (
        serving(note) as server,
        connected(server.addresses[0], settings=settings) as connection,
    ):
        await connection.request(GetMaxOffset(topic="t", queue_id=0), timeout=5)
        assert seen == [SerializeType.ROCKETMQ]


@run
async def test_opaques_begin_anew_and_skip_those_that_wait() -> None:
    async with serving() as server, connected(server.addresses[0]) as connection:
        waiting = asyncio.create_task(
            connection.invoke(RemotingCommand(LATER, {"after": "0.1"}, b"1"), timeout=5)
        )
        await asyncio.sleep(0)
        connection._unanswered._opaque = 0x7FFFFFFE
        for opaque in (0x7FFFFFFF, 2):
            answer = await connection.invoke(RemotingCommand(ECHO, body=b"2"), timeout=5)
            assert (answer.opaque, answer.body) == (opaque, b"2")
        assert (await waiting).body == b"1"


@run
async def test_an_answer_to_one_who_was_just_cancelled_is_dropped() -> None:
    async with serving() as server, connected(server.addresses[0]) as connection:
        caller = asyncio.create_task(connection.invoke(RemotingCommand(SILENT), timeout=5))
        await asyncio.sleep(0)
        caller.cancel()
        connection.data_received(RemotingCommand(SILENT, opaque=1).answer(0).encode())
        assert (await connection.invoke(RemotingCommand(ECHO), timeout=5)).code == 0


@run
async def test_no_answer_in_time_is_a_timeout_that_hurts_nobody_else() -> None:
    async with serving() as server, connected(server.addresses[0]) as connection:
        slow = asyncio.create_task(
            connection.invoke(RemotingCommand(LATER, {"after": "0.1"}), timeout=5)
        )
        with pytest.raises(RequestTimeout) as raised:
            await connection.invoke(RemotingCommand(SILENT), timeout=0.02)
        assert str(raised.value) == (
            f"request code {SILENT} to {server.addresses[0]}: no answer within 0.02 s"
        )
        assert (await slow).code == 0


@run
async def test_a_late_answer_is_dropped() -> None:
    async with serving() as server, connected(server.addresses[0]) as connection:
        with pytest.raises(RequestTimeout):
            await connection.invoke(RemotingCommand(LATER, {"after": "0.05"}), timeout=0.01)
        answer = await connection.invoke(RemotingCommand(LATER, {"after": "0.1"}), timeout=5)
        assert answer.code == 0


@run
async def test_a_request_without_any_time_is_not_sent() -> None:
    seen = []

    def note(connection: Connection, request: RemotingCommand) -> RemotingCommand:
        seen.append(request.body)
        return request.answer(0)

    async with serving(note) as server, connected(server.addresses[0]) as connection:
        for timeout in (0.0, -1.0, float("nan")):
            for send in (connection.invoke, connection.send_oneway):
                with pytest.raises(RequestTimeout):
                    await send(RemotingCommand(ECHO, body=b"late"), timeout=timeout)
        await connection.invoke(RemotingCommand(ECHO, body=b"in time"), timeout=5)
        assert seen == [b"in time"]


@run
async def test_a_cancelled_caller_leaves_nothing_behind() -> None:
    async with serving() as server, connected(server.addresses[0]) as connection:
        caller = asyncio.create_task(connection.invoke(RemotingCommand(SILENT), timeout=5))
        await connection.invoke(RemotingCommand(ECHO), timeout=5)
        assert "1 in flight" in repr(connection)
        caller.cancel()
        await asyncio.wait([caller])
        assert "0 in flight" in repr(connection)


@run
async def test_a_reply_that_lacks_a_field_is_named_so() -> None:
    async with serving(echo) as server, connected(server.addresses[0]) as connection:
        with pytest.raises(MalformedHeader, match="Offset: offset is missing"):
            await connection.request(GetMaxOffset(topic="t", queue_id=0), timeout=5)


@pytest.mark.parametrize(
    "wrong",
    [
        {"frame_bytes_max": 0},
        {"frame_bytes_max": 1 << 31},
        {"requests_in_flight_max": -1},
        {"write_buffer_bytes_max": 1.5},
        {"connections_max": 0},
        {"idle_timeout": 0},
        {"close_timeout": "1"},
        {"idle_timeout": float("nan")},
        {"serialize_type": "JSON"},
    ],
)
def test_settings_that_make_no_sense_are_refused_by_name(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(InvalidSetting, match=name):
        RemotingSettings(**wrong)
