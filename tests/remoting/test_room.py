"""How much may be on its way at once, and what happens to more."""

import asyncio

import pytest

from rocketpipe.codes import RequestCode, ResponseCode
from rocketpipe.compiled import Pull, compiled
from rocketpipe.errors import (
    ConnectionLost,
    InvalidMessage,
    RequestTimeout,
    TooManyRequests,
)
from rocketpipe.remoting.connection import Connection
from rocketpipe.remoting.dispatch import Outcome
from rocketpipe.remoting.settings import RemotingSettings
from rocketpipe.wire.frame import RemotingCommand
from rocketpipe.wire.pull_frames import PullFrames
from rocketpipe.wire.record import encode_record
from rocketpipe.wire.requests.reading import PullMessage, PullMessageReply
from tests.remoting.peers import (
    BIG,
    ECHO,
    HANDLER,
    LATER,
    SILENT,
    answer_big,
    connected,
    raw_peer,
    run,
    serving,
)
from tests.stored_message import stored_message

Answer = asyncio.Future[RemotingCommand | Pull]
PULLS = PullFrames(
    PullMessage(
        consumer_group="g",
        topic="t",
        queue_id=0,
        queue_offset=0,
        max_msg_nums=0,
        sys_flag=0,
        commit_offset=0,
        suspend_timeout_millis=0,
        sub_version=0,
    )
)


def ignore_pulls(connection: Connection, request: RemotingCommand) -> Outcome:
    return None if request.code == RequestCode.PULL_MESSAGE else request.answer(0)


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
async def test_who_does_not_wait_is_told_when_there_is_no_room() -> None:
    settings = RemotingSettings(requests_in_flight_max=1)
    async with (
        serving() as server,
        connected(server.addresses[0], settings=settings) as connection,
    ):
        answer: Answer = asyncio.get_running_loop().create_future()
        assert connection.pull_nowait(PULLS, 0, 32, answer, timeout=5)
        assert not connection.pull_nowait(PULLS, 0, 32, answer, timeout=5)
        waiting = asyncio.create_task(connection.invoke(RemotingCommand(ECHO), timeout=5))
        refused = await answer
        assert isinstance(refused, RemotingCommand)
        assert refused.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert (await waiting).code == ResponseCode.SUCCESS
        assert not connection.pull_nowait(PULLS, 0, 32, answer, timeout=0)


@run
async def test_a_plain_answer_to_a_pull_leaves_its_room_to_others() -> None:
    settings = RemotingSettings(requests_in_flight_max=1)
    fields = PullMessageReply(
        suggest_which_broker_id=0, next_begin_offset=8, min_offset=0, max_offset=9
    ).to_ext_fields()
    record = encode_record(stored_message(queue_offset=7))

    def handle(connection: Connection, request: RemotingCommand) -> Outcome:
        assert request.ext_fields.get("queueOffset", "7") == "7"
        return request.answer(0, "FOUND", fields, record)

    async with (
        serving(handle) as server,
        connected(server.addresses[0], settings=settings) as connection,
    ):
        answer: Answer = asyncio.get_running_loop().create_future()
        assert connection.pull_nowait(PULLS, 7, 32, answer, timeout=5)
        waiting = asyncio.create_task(connection.invoke(RemotingCommand(ECHO), timeout=5))
        pulled = await answer
        assert isinstance(pulled, RemotingCommand if compiled is None else tuple)
        assert (await waiting).body == record
        assert not connection._unanswered.pulls


@run
async def test_a_pull_that_is_too_long_is_not_sent() -> None:
    settings = RemotingSettings(frame_bytes_max=200)
    async with (
        serving() as server,
        connected(server.addresses[0], settings=settings) as connection,
    ):
        answer: Answer = asyncio.get_running_loop().create_future()
        with pytest.raises(InvalidMessage, match=r"PULL_MESSAGE of .* over the limit of 200"):
            connection.pull_nowait(PULLS, 0, 32, answer, timeout=5)


@run
async def test_one_that_nobody_answered_in_time_leaves_its_room_to_others() -> None:
    settings = RemotingSettings(requests_in_flight_max=1)
    async with (
        serving(ignore_pulls) as server,
        connected(server.addresses[0], settings=settings) as connection,
    ):
        answer: Answer = asyncio.get_running_loop().create_future()
        assert connection.pull_nowait(PULLS, 0, 32, answer, timeout=0.1)
        waiting = asyncio.create_task(connection.invoke(RemotingCommand(ECHO), timeout=30))
        with pytest.raises(RequestTimeout):
            await answer
        async with asyncio.timeout(10):  # long before the other gives up
            assert (await waiting).code == ResponseCode.SUCCESS


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
        async with asyncio.timeout(20):
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
        await asyncio.wait_for(asyncio.gather(*waiting), 20)


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
        ended = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 20)
        assert {type(error) for error in ended} == {ConnectionLost}
        stop.set()


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
        errors = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 20)
        assert {type(error) for error in errors} == {ConnectionLost}


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
