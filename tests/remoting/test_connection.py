"""Both ends of a connection over real loopback sockets, and peers that misbehave."""

import asyncio
import gc
import logging
import socket
import struct
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from rocketpipe.codes import RequestCode, ResponseCode
from rocketpipe.errors import (
    BrokerError,
    ConnectFailed,
    ConnectionLost,
    InvalidMessage,
    InvalidSetting,
    MalformedFrame,
    MalformedHeader,
    RequestTimeout,
    TooManyRequests,
)
from rocketpipe.remoting.address import Address
from rocketpipe.remoting.connection import Connection, connect
from rocketpipe.remoting.dispatch import Handler, Outcome, Refusal, dispatch_by_code
from rocketpipe.remoting.network import AsyncioNetwork
from rocketpipe.remoting.server import Server
from rocketpipe.remoting.settings import RemotingSettings
from rocketpipe.wire.frame import RemotingCommand, SerializeType
from rocketpipe.wire.requests.reading import GetMaxOffset, Offset

ANYWHERE = Address("127.0.0.1", 0)
ECHO, LATER, FAIL, REFUSE, SILENT, BAD_FIELDS, BIG, ASK_BACK = range(1, 9)


def echo(connection: Connection, request: RemotingCommand) -> RemotingCommand:
    return request.answer(0, request.remark, request.ext_fields, request.body)


async def answer_later(connection: Connection, request: RemotingCommand) -> RemotingCommand:
    await asyncio.sleep(float(request.ext_fields["after"]))
    return request.answer(0, body=request.body)


def fail(connection: Connection, request: RemotingCommand) -> RemotingCommand:
    raise ZeroDivisionError("the handler's own mistake")


def refuse(connection: Connection, request: RemotingCommand) -> RemotingCommand:
    raise Refusal(ResponseCode.NO_PERMISSION, "not for you", {"why": "because"})


def keep_silent(connection: Connection, request: RemotingCommand) -> None:
    return None


def read_fields(connection: Connection, request: RemotingCommand) -> RemotingCommand:
    GetMaxOffset.from_ext_fields(request.ext_fields)
    return request.answer(0)


def answer_big(connection: Connection, request: RemotingCommand) -> RemotingCommand:
    return request.answer(0, body=bytes(int(request.ext_fields["size"])))


async def ask_back(connection: Connection, request: RemotingCommand) -> RemotingCommand:
    answer = await connection.invoke(RemotingCommand(ECHO, body=b"and you?"), timeout=5)
    return request.answer(0, body=answer.body)


HANDLER = dispatch_by_code(
    {
        ECHO: echo,
        LATER: answer_later,
        FAIL: fail,
        REFUSE: refuse,
        SILENT: keep_silent,
        BAD_FIELDS: read_fields,
        BIG: answer_big,
        ASK_BACK: ask_back,
    }
)


@asynccontextmanager
async def serving(handler: Handler = HANDLER, **options: Any) -> AsyncIterator[Server]:
    server = Server(AsyncioNetwork(), handler, **options)
    await server.listen(ANYWHERE)
    try:
        yield server
    finally:
        await server.close()


@asynccontextmanager
async def connected(address: Address, **options: Any) -> AsyncIterator[Connection]:
    connection = await connect(AsyncioNetwork(), address, timeout=5, **options)
    try:
        yield connection
    finally:
        await connection.close()


Peer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def raw_peer(peer: Peer) -> AsyncIterator[Address]:
    """A server that is no RocketMQ: it does what `peer` does."""
    at_work: list[asyncio.Task[None]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        at_work.append(asyncio.current_task())  # type: ignore[arg-type]  # it runs in a task
        await peer(reader, writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield Address("127.0.0.1", server.sockets[0].getsockname()[1])
    finally:
        server.close()
        await asyncio.wait_for(asyncio.gather(*at_work), 10)


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """An async test, run on a loop of its own, that leaves no task and no complaint behind."""
    complaints: list[dict[str, Any]] = []

    async def checked() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: complaints.append(context))
        await test()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, left

    def wrapper() -> None:
        asyncio.run(checked())
        assert not complaints, complaints

    wrapper.__name__ = test.__name__
    return wrapper


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
async def test_an_unknown_code_is_not_supported() -> None:
    async with serving() as server, connected(server.addresses[0]) as connection:
        answer = await connection.invoke(RemotingCommand(4711), timeout=5)
        assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert answer.remark == " request type 4711 not supported"


def test_a_failing_handler_is_a_system_error_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with serving() as server, connected(server.addresses[0]) as connection:
            answer = await connection.invoke(RemotingCommand(FAIL), timeout=5)
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert answer.remark == "ZeroDivisionError: the handler's own mistake"
            assert (await connection.invoke(RemotingCommand(ECHO), timeout=5)).code == 0

    with caplog.at_level(logging.ERROR):
        asyncio.run(main())
    assert "ZeroDivisionError" in caplog.text


@run
async def test_malformed_fields_are_a_system_error_that_names_the_field() -> None:
    async with serving() as server, connected(server.addresses[0]) as connection:
        answer = await connection.invoke(RemotingCommand(BAD_FIELDS, {"topic": "t"}), timeout=5)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark == "MalformedHeader: GetMaxOffset: queueId is missing"


@run
async def test_a_oneway_request_gets_no_answer_not_even_to_a_failure() -> None:
    seen = []

    def note(connection: Connection, request: RemotingCommand) -> RemotingCommand:
        seen.append((request.code, request.is_oneway))
        return HANDLER(connection, request)  # type: ignore[return-value]

    async with serving(note) as server, connected(server.addresses[0]) as connection:
        for code in (ECHO, REFUSE, 4711):
            await connection.send_oneway(RemotingCommand(code), timeout=5)
        answer = await connection.invoke(RemotingCommand(ECHO, body=b"the only one"), timeout=5)
        assert answer.body == b"the only one"
        assert seen == [(ECHO, True), (REFUSE, True), (4711, True), (ECHO, False)]


@run
async def test_nothing_is_written_in_answer_to_a_oneway_request() -> None:
    async with serving() as server:
        reader, writer = await asyncio.open_connection(*server.addresses[0])
        oneway = RemotingCommand(ECHO, body=b"oneway")
        oneway.mark_oneway()
        writer.write(oneway.encode() + RemotingCommand(ECHO, body=b"asked").encode())
        answer = await reader.readuntil(b"asked")
        assert b"oneway" not in answer
        writer.close()
        await writer.wait_closed()


@run
async def test_an_answer_made_elsewhere_gets_the_opaque_of_its_request() -> None:
    def forward(connection: Connection, request: RemotingCommand) -> RemotingCommand:
        return RemotingCommand(0, flag=1, opaque=4711)

    async with serving(forward) as server, connected(server.addresses[0]) as connection:
        assert (await connection.invoke(RemotingCommand(ECHO), timeout=5)).code == 0


@run
async def test_a_refusal_may_carry_fields() -> None:
    async with serving() as server, connected(server.addresses[0]) as connection:
        answer = await connection.invoke(RemotingCommand(REFUSE), timeout=5)
        assert (answer.code, answer.remark) == (ResponseCode.NO_PERMISSION, "not for you")
        assert answer.ext_fields == {"why": "because"}


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
        connection._opaque = 0x7FFFFFFE
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
async def test_after_a_handler_cut_the_connection_no_more_requests_are_taken() -> None:
    taken = []

    def cut(connection: Connection, request: RemotingCommand) -> None:
        taken.append(request.body)
        connection.abort()

    async with serving(cut) as server:
        reader, writer = await asyncio.open_connection(*server.addresses[0])
        writer.write(b"".join(RemotingCommand(ECHO, body=body).encode() for body in (b"1", b"2")))
        with pytest.raises(ConnectionResetError):
            await asyncio.wait_for(reader.read(), 5)
            raise ConnectionResetError  # closed in order is as good
        assert taken == [b"1"]
        writer.close()


@run
async def test_a_closed_connection_is_freed_at_once() -> None:
    async with serving() as server:
        connection = await connect(AsyncioNetwork(), server.addresses[0], timeout=5)
        await connection.invoke(RemotingCommand(ECHO), timeout=60)
        await connection.close()
        left = weakref.ref(connection)
        del connection
        await asyncio.sleep(0)
        gc.collect()
        assert left() is None


@run
async def test_the_server_may_ask_while_it_is_asked() -> None:
    def client_side(connection: Connection, request: RemotingCommand) -> RemotingCommand:
        assert request.body == b"and you?"
        return request.answer(0, body=b"fine")

    async with (
        serving() as server,
        connected(server.addresses[0], handler=client_side) as connection,
    ):
        answer = await connection.invoke(RemotingCommand(ASK_BACK), timeout=5)
        assert answer.body == b"fine"


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
async def test_over_the_cap_requests_wait_for_room_and_get_it() -> None:
    settings = RemotingSettings(requests_in_flight_max=2)
    at_once, most = 0, 0

    async def count(connection: Connection, request: RemotingCommand) -> RemotingCommand:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0)
        at_once -= 1
        return request.answer(0)

    async with (
        serving(count) as server,
        connected(server.addresses[0], settings=settings) as connection,
    ):
        await asyncio.gather(
            *(connection.invoke(RemotingCommand(ECHO), timeout=5) for _ in range(50))
        )
        assert most == 2


@run
async def test_without_room_in_time_a_request_is_not_sent() -> None:
    settings = RemotingSettings(requests_in_flight_max=1)
    async with (
        serving() as server,
        connected(server.addresses[0], settings=settings) as connection,
    ):
        first = asyncio.create_task(connection.invoke(RemotingCommand(SILENT), timeout=5))
        await asyncio.sleep(0)
        for send in (connection.invoke, connection.send_oneway):
            with pytest.raises(TooManyRequests, match="1 requests on their way already"):
                await send(RemotingCommand(ECHO), timeout=0.01)
        first.cancel()
        await asyncio.wait([first])


@run
async def test_who_gives_up_waiting_for_room_passes_it_on() -> None:
    settings = RemotingSettings(requests_in_flight_max=1)
    async with (
        serving() as server,
        connected(server.addresses[0], settings=settings) as connection,
    ):
        first, second, third = (
            asyncio.create_task(connection.invoke(RemotingCommand(code), timeout=5))
            for code in (SILENT, ECHO, ECHO)
        )
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait([first])  # the room is offered to the second now
        second.cancel()
        assert (await third).code == 0


@run
async def test_who_may_not_send_what_it_wanted_passes_its_room_on() -> None:
    settings = RemotingSettings(requests_in_flight_max=1, frame_bytes_max=1000)
    async with (
        serving() as server,
        connected(server.addresses[0], settings=settings) as connection,
    ):
        first, *waiting = (
            asyncio.create_task(send(command, timeout=5))
            for send, command in (
                (connection.invoke, RemotingCommand(SILENT)),
                (connection.invoke, RemotingCommand(ECHO, body=bytes(1000))),
                (connection.send_oneway, RemotingCommand(ECHO, body=bytes(1000))),
                (connection.invoke, RemotingCommand(ECHO)),
            )
        )
        await asyncio.sleep(0)
        first.cancel()
        async with asyncio.timeout(1):
            *refused, answer = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(error) for error in refused] == [InvalidMessage, InvalidMessage]
        assert isinstance(answer, RemotingCommand)


@run
async def test_room_is_given_in_order_and_nobody_pushes_in() -> None:
    settings = RemotingSettings(requests_in_flight_max=1)
    served = []

    def note(connection: Connection, request: RemotingCommand) -> RemotingCommand:
        served.append(request.body)
        return request.answer(0)

    async with (
        serving(note) as server,
        connected(server.addresses[0], settings=settings) as connection,
    ):

        async def ask_on_and_on() -> None:
            for _ in range(20):
                await connection.invoke(RemotingCommand(ECHO, body=b"greedy"), timeout=5)

        greedy = asyncio.create_task(ask_on_and_on())
        await asyncio.sleep(0)
        async with asyncio.TaskGroup() as patient:
            for name in (b"1", b"2", b"3"):
                patient.create_task(connection.invoke(RemotingCommand(ECHO, body=name), timeout=5))
        assert served[:4] == [b"greedy", b"1", b"2", b"3"]
        await greedy


@run
async def test_bytes_that_a_peer_does_not_read_are_bounded() -> None:
    stop = asyncio.Event()

    async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await stop.wait()
        writer.close()

    settings = RemotingSettings(write_buffer_bytes_max=1 << 20, close_timeout=0.05)
    async with raw_peer(deaf) as address, connected(address, settings=settings) as connection:
        body = bytes(1 << 18)
        sent = 0
        with pytest.raises(TooManyRequests, match="too many bytes"):
            while True:
                await connection.send_oneway(RemotingCommand(ECHO, body=body), timeout=0.1)
                sent += len(body)
        assert sent < 32 << 20  # ours, and what the two kernels' buffers hold
        assert connection._transport is not None
        assert connection._transport.get_write_buffer_size() <= 1 << 21
        stop.set()


@run
async def test_who_waits_for_bytes_to_leave_is_told_when_they_have_left() -> None:
    go_on = asyncio.Event()

    async def hesitant(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await go_on.wait()
        while await reader.read(1 << 20):
            pass
        writer.close()

    settings = RemotingSettings(write_buffer_bytes_max=1 << 20)
    async with raw_peer(hesitant) as address, connected(address, settings=settings) as connection:
        command = RemotingCommand(ECHO, body=bytes(1 << 18))
        with pytest.raises(TooManyRequests):
            while True:
                await connection.send_oneway(command, timeout=0.1)
        waiting = [
            asyncio.create_task(connection.send_oneway(command, timeout=5)) for _ in range(30)
        ]
        await asyncio.sleep(0)
        go_on.set()
        await asyncio.wait_for(asyncio.gather(*waiting), 3)


@run
async def test_who_waits_for_bytes_to_leave_is_told_when_they_never_will() -> None:
    stop = asyncio.Event()

    async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await stop.wait()
        writer.close()

    settings = RemotingSettings(write_buffer_bytes_max=1 << 20)
    async with raw_peer(deaf) as address, connected(address, settings=settings) as connection:
        command = RemotingCommand(ECHO, body=bytes(1 << 18))
        with pytest.raises(TooManyRequests):
            while True:
                await connection.send_oneway(command, timeout=0.1)
        waiting = [
            asyncio.create_task(connection.send_oneway(command, timeout=60)) for _ in range(3)
        ]
        await asyncio.sleep(0)
        connection.abort()
        ended = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 1)
        assert {type(error) for error in ended} == {ConnectionLost}
        stop.set()


@run
async def test_closing_fails_every_waiting_request_at_once() -> None:
    async with serving() as server, connected(server.addresses[0]) as connection:
        waiting = [
            asyncio.create_task(connection.invoke(RemotingCommand(SILENT), timeout=60))
            for _ in range(3)
        ]
        await asyncio.sleep(0)
        await connection.close()
        errors = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 1)
        for send in (connection.invoke, connection.send_oneway):
            with pytest.raises(ConnectionLost) as raised:
                await send(RemotingCommand(ECHO), timeout=60)
            errors.append(raised.value)
        assert {str(error).partition(": ")[2] for error in errors} == {"closed on our side"}
        # Each its own: one error raised twice would collect the tracebacks of both.
        assert len({id(error) for error in [*errors, connection.lost]}) == 6


@run
async def test_closing_fails_those_who_wait_for_room_at_once() -> None:
    settings = RemotingSettings(requests_in_flight_max=1)
    async with (
        serving() as server,
        connected(server.addresses[0], settings=settings) as connection,
    ):
        waiting = [
            asyncio.create_task(connection.invoke(RemotingCommand(SILENT), timeout=60))
            for _ in range(3)
        ]
        await asyncio.sleep(0)
        await connection.close()
        errors = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 1)
        assert {type(error) for error in errors} == {ConnectionLost}


@run
async def test_closing_writes_what_was_still_on_its_way_out() -> None:
    arrived = asyncio.Event()

    def note(connection: Connection, request: RemotingCommand) -> None:
        arrived.set()

    async with serving(note) as server:
        connection = await connect(AsyncioNetwork(), server.addresses[0], timeout=5)
        await connection.send_oneway(RemotingCommand(ECHO, body=bytes(1 << 20)), timeout=5)
        await connection.close()
        await asyncio.wait_for(arrived.wait(), 5)


@run
async def test_a_connection_goes_even_if_nobody_waits_for_it() -> None:
    stop, lost = asyncio.Event(), asyncio.Event()

    async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await stop.wait()
        writer.close()

    settings = RemotingSettings(frame_bytes_max=64 << 20, close_timeout=0.05)
    async with raw_peer(deaf) as address:
        connection = await connect(
            AsyncioNetwork(), address, timeout=5, settings=settings, on_lost=lambda _: lost.set()
        )
        await connection.send_oneway(RemotingCommand(ECHO, body=bytes(32 << 20)), timeout=5)
        closing = asyncio.create_task(connection.close())
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait_for(lost.wait(), 2)
        stop.set()


@run
async def test_a_closing_server_fails_its_clients_requests_at_once() -> None:
    lost: list[Connection] = []
    async with (
        serving() as server,
        connected(server.addresses[0], on_lost=lost.append) as connection,
    ):
        waiting = asyncio.create_task(connection.invoke(RemotingCommand(SILENT), timeout=60))
        await connection.invoke(RemotingCommand(ECHO), timeout=5)
        await server.close()
        with pytest.raises(ConnectionLost, match="the peer closed it"):
            await asyncio.wait_for(waiting, 1)
        assert lost == [connection]
        assert not server.connections


@run
async def test_a_peer_that_closes_one_half_is_taken_as_gone() -> None:
    async def last_word(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write_eof()
        await reader.read()
        writer.close()

    async with raw_peer(last_word) as address, connected(address) as connection:
        with pytest.raises(ConnectionLost, match="the peer closed it"):
            await connection.invoke(RemotingCommand(ECHO), timeout=60)


@run
async def test_a_peer_that_closes_one_half_and_reads_no_more_is_gone_at_once() -> None:
    stop = asyncio.Event()

    async def last_word(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write_eof()
        await stop.wait()
        writer.close()

    settings = RemotingSettings(frame_bytes_max=64 << 20, close_timeout=0.05)
    async with raw_peer(last_word) as address:
        lost = asyncio.Event()
        connection = await connect(
            AsyncioNetwork(), address, timeout=5, settings=settings, on_lost=lambda _: lost.set()
        )
        async with asyncio.timeout(2):
            with pytest.raises(ConnectionLost, match="the peer closed it"):
                await connection.invoke(RemotingCommand(ECHO, body=bytes(32 << 20)), timeout=60)
            await lost.wait()  # and what it would not read is not kept for it
        stop.set()


@run
async def test_a_peer_that_dies_in_the_middle_of_a_frame_is_named_so() -> None:
    async def half(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(RemotingCommand(0).encode()[:20])
        writer.close()

    async with raw_peer(half) as address, connected(address) as connection:
        with pytest.raises(ConnectionLost, match="in the middle of a frame"):
            await connection.invoke(RemotingCommand(ECHO), timeout=60)


@run
async def test_an_http_server_is_recognised_at_once() -> None:
    async def http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
        writer.close()

    async with raw_peer(http) as address, connected(address) as connection:
        with pytest.raises(MalformedFrame, match=f"{address}: .*this is HTTP, not RocketMQ"):
            await connection.invoke(RemotingCommand(ECHO), timeout=60)


@run
async def test_a_silent_server_costs_the_deadline_and_no_more() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with raw_peer(silent) as address, connected(address) as connection:
        with pytest.raises(RequestTimeout):
            await asyncio.wait_for(connection.invoke(RemotingCommand(ECHO), timeout=0.02), 2)


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x00\x00\x00\x00",
        b"\x7f\xff\xff\xff",
        struct.pack(">iI", 8, 1 << 20) + b"{}{}",
        struct.pack(">iI", 8, 7 << 24 | 4) + b"\0\0\0\0",
        struct.pack(">iI", 8, 4) + b"{{{{",
        struct.pack(">iI", 8, 1 << 24 | 4) + b"\0\0\0\0",
    ],
)
def test_garbage_closes_that_connection_and_nobody_elses(garbage: bytes) -> None:
    async def main() -> None:
        async with serving() as server, connected(server.addresses[0]) as other:
            reader, writer = await asyncio.open_connection(*server.addresses[0])
            writer.write(RemotingCommand(ECHO).encode() + garbage)
            with pytest.raises(ConnectionResetError):
                while await asyncio.wait_for(reader.read(1000), 5):
                    pass
                raise ConnectionResetError  # closed in order is as good
            writer.close()
            assert (await other.invoke(RemotingCommand(ECHO), timeout=5)).code == 0
            assert len(server.connections) == 1

    asyncio.run(main())


@run
async def test_a_peer_that_is_gone_before_it_is_welcomed_is_no_error_of_ours() -> None:
    async with serving() as server:
        hasty = socket.create_connection(server.addresses[0])
        hasty.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        hasty.close()  # a reset, before the server had a chance to accept
        async with connected(server.addresses[0]) as connection:
            await connection.invoke(RemotingCommand(ECHO), timeout=5)
            assert len(server.connections) == 1


@run
async def test_a_frame_over_the_limit_is_refused_before_it_is_sent() -> None:
    settings = RemotingSettings(frame_bytes_max=1000)
    async with (
        serving(settings=settings) as server,
        connected(server.addresses[0], settings=settings) as connection,
    ):
        with pytest.raises(InvalidMessage, match="over the limit of 1000"):
            await connection.invoke(RemotingCommand(ECHO, body=bytes(1000)), timeout=5)
        empty = len(RemotingCommand(ECHO, opaque=2).encode())
        body = bytes(1000 - empty)  # the length itself counts, as for Netty's decoder
        with pytest.raises(InvalidMessage, match="of 1001 bytes is over the limit of 1000"):
            await connection.invoke(RemotingCommand(ECHO, body=body + b"!"), timeout=5)
        answer = await connection.invoke(RemotingCommand(ECHO, body=body), timeout=5)
        assert answer.body == body


def test_an_answer_over_the_limit_becomes_an_error_that_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        settings = RemotingSettings(frame_bytes_max=1000)
        async with (
            serving(settings=settings) as server,
            connected(server.addresses[0]) as connection,
        ):
            answer = await connection.invoke(RemotingCommand(BIG, {"size": "2000"}), timeout=5)
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert answer.remark is not None
            assert "over the limit of 1000" in answer.remark

    asyncio.run(main())


@run
async def test_a_slow_reader_stops_being_served_and_hurts_no_fast_one() -> None:
    settings = RemotingSettings(write_buffer_bytes_max=1 << 20)
    served = 0

    def count(connection: Connection, request: RemotingCommand) -> Outcome:
        nonlocal served
        if request.is_oneway:
            return None
        served += 1
        return answer_big(connection, request)

    async with (
        serving(count, settings=settings) as server,
        connected(server.addresses[0]) as fast,
    ):
        reader, writer = await asyncio.open_connection(*server.addresses[0])
        request = RemotingCommand(BIG, {"size": str(1 << 16)}).encode()
        big_oneway = RemotingCommand(SILENT, body=bytes(1 << 20))
        big_oneway.mark_oneway()
        oneway = big_oneway.encode()
        writer.write(request * 2000)  # asks for 128 MiB and reads none of it
        for _ in range(20):
            answer = await fast.invoke(RemotingCommand(BIG, {"size": "10"}), timeout=5)
            assert answer.code == 0
        assert served - 20 < 600
        with pytest.raises(TimeoutError):  # nor is more of it read
            for _ in range(64):
                writer.write(oneway)
                await asyncio.wait_for(writer.drain(), 0.2)
        read = 0  # and when it reads at last, it gets everything
        async with asyncio.timeout(20):
            while read < 2000 * (1 << 16):
                read += len(await reader.read(1 << 20))
        assert served == 2020
        writer.close()


@run
async def test_a_server_that_asks_and_reads_no_answers_is_cut() -> None:
    async def ask_on_and_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = RemotingCommand(BIG, {"size": str(1 << 16)}).encode()
        while not writer.is_closing():
            writer.write(request * 100)
            try:
                await writer.drain()
            except ConnectionError:
                break
        writer.close()

    settings = RemotingSettings(write_buffer_bytes_max=1 << 20)
    async with (
        raw_peer(ask_on_and_on) as address,
        connected(address, settings=settings, handler=HANDLER) as connection,
    ):
        with pytest.raises(ConnectionLost, match="reads no answers"):
            await connection.invoke(RemotingCommand(ECHO), timeout=5)


@run
async def test_a_handler_at_work_is_cancelled_when_its_client_is_gone() -> None:
    began, cancelled = asyncio.Event(), asyncio.Event()

    async def wait_forever(connection: Connection, request: RemotingCommand) -> RemotingCommand:
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise
        raise AssertionError

    async with serving(wait_forever) as server:
        async with connected(server.addresses[0]) as connection:
            await connection.send_oneway(RemotingCommand(ECHO), timeout=5)
            await asyncio.wait_for(began.wait(), 5)
        await asyncio.wait_for(cancelled.wait(), 5)


@run
async def test_a_handler_that_waits_for_what_was_cancelled_has_failed() -> None:
    shared: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def wait_for_shared(connection: Connection, request: RemotingCommand) -> Outcome:
        await shared
        raise AssertionError

    async with serving(wait_for_shared) as server, connected(server.addresses[0]) as connection:
        asking = asyncio.create_task(connection.invoke(RemotingCommand(ECHO), timeout=5))
        async with connected(server.addresses[0]) as other:  # gone, it takes the future with it
            await other.send_oneway(RemotingCommand(ECHO), timeout=5)
            await asyncio.sleep(0.02)
        answer = await asking
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark is not None
        assert answer.remark.startswith("CancelledError")


@run
async def test_a_closed_server_has_no_handler_at_work() -> None:
    began, is_cleaned_up = asyncio.Event(), False

    async def clean_up_slowly(connection: Connection, request: RemotingCommand) -> None:
        nonlocal is_cleaned_up
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.05)
            is_cleaned_up = True

    async with serving(clean_up_slowly) as server, connected(server.addresses[0]) as connection:
        await connection.send_oneway(RemotingCommand(ECHO), timeout=5)
        await asyncio.wait_for(began.wait(), 5)
        await server.close()
        assert is_cleaned_up


@run
async def test_a_handler_may_close_its_own_connection() -> None:
    async def close(connection: Connection, request: RemotingCommand) -> None:
        await connection.close()

    async with serving(close) as server, connected(server.addresses[0]) as connection:
        with pytest.raises(ConnectionLost):
            await connection.invoke(RemotingCommand(ECHO), timeout=5)


@run
async def test_an_error_as_long_as_a_frame_is_told_in_short() -> None:
    def quote(connection: Connection, request: RemotingCommand) -> None:
        raise MalformedHeader(request.ext_fields["a"])

    async with serving(quote) as server, connected(server.addresses[0]) as connection:
        command = RemotingCommand(ECHO, {"a": "x" * (8 << 20)})
        answer = await connection.invoke(command, timeout=5)
        assert answer.remark is not None
        assert len(answer.remark) == 4096


@run
async def test_more_requests_at_work_than_allowed_are_told_that_it_is_busy() -> None:
    settings = RemotingSettings(requests_in_flight_max=3)
    async with (
        serving(settings=settings) as server,
        connected(server.addresses[0]) as connection,
    ):
        answers = await asyncio.gather(
            *(
                connection.invoke(RemotingCommand(LATER, {"after": "0.05"}), timeout=5)
                for _ in range(5)
            )
        )
        assert sorted(answer.code for answer in answers) == [0, 0, 0, 2, 2]
        answer = await connection.invoke(RemotingCommand(LATER, {"after": "0"}), timeout=5)
        assert answer.code == 0  # those that are done count no more


@run
async def test_a_server_listens_on_several_ports_at_once() -> None:
    async with serving() as server:
        await server.listen(ANYWHERE)
        first, second = server.addresses
        assert first != second
        for address in (first, second):
            async with connected(address) as connection:
                assert (await connection.invoke(RemotingCommand(ECHO), timeout=5)).code == 0


@run
async def test_a_closed_server_listens_nowhere() -> None:
    async with serving() as server:
        address = server.addresses[0]
        await server.close()
        assert not server.addresses
        with pytest.raises(ConnectFailed):
            await connect(AsyncioNetwork(), address, timeout=5)


def test_a_server_for_nobody_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="connections_max is 0"):
        Server(AsyncioNetwork(), HANDLER, connections_max=0)


@run
async def test_connections_over_the_limit_are_closed() -> None:
    lost: asyncio.Queue[Connection] = asyncio.Queue()
    async with (
        serving(connections_max=1, on_lost=lost.put_nowait) as server,
        connected(server.addresses[0]) as first,
        connected(server.addresses[0]) as second,
    ):
        assert (await first.invoke(RemotingCommand(ECHO), timeout=5)).code == 0
        with pytest.raises(ConnectionLost):
            await second.invoke(RemotingCommand(ECHO), timeout=5)
        (welcomed,) = server.connections
        await first.close()
        # One who was never let in is not lost.
        assert await asyncio.wait_for(lost.get(), 5) is welcomed
        assert lost.empty()


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
