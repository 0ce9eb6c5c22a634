"""Answering over a connection: handlers, refusals, and the server itself."""

import asyncio
import gc
import logging

import pytest

from rocketpipe.codes import ResponseCode
from rocketpipe.errors import (
    ConnectFailed,
    ConnectionLost,
    MalformedHeader,
    RemotingError,
)
from rocketpipe.remoting.address import Address
from rocketpipe.remoting.connection import Connection, connect
from rocketpipe.remoting.dispatch import Outcome
from rocketpipe.remoting.network import AsyncioNetwork
from rocketpipe.remoting.settings import RemotingSettings
from rocketpipe.remoting.tls import ServerTls, TlsMode, TlsSettings
from rocketpipe.wire.frame import RemotingCommand
from tests.certificates import Certificates
from tests.remoting.peers import (
    ANYWHERE,
    ASK_BACK,
    BAD_FIELDS,
    ECHO,
    FAIL,
    HANDLER,
    LATER,
    REFUSE,
    connected,
    run,
    serving,
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
async def test_the_first_of_a_burst_are_answered_while_the_last_still_wait() -> None:
    taken: list[int] = []
    taken_at_first_answer: list[int] = []

    def count(connection: Connection, request: RemotingCommand) -> RemotingCommand:
        taken.append(request.opaque)
        if len(taken) == 1:
            loop = asyncio.get_running_loop()
            loop.call_soon(lambda: taken_at_first_answer.append(len(taken)))
        return request.answer(0)

    async with serving(count) as server, connected(server.addresses[0]) as connection:
        asked = [connection.invoke(RemotingCommand(ECHO), timeout=30) for _ in range(200)]
        await asyncio.gather(*asked)
    assert taken == sorted(taken)
    assert len(taken) == 200
    assert taken_at_first_answer[0] < 100


@run
async def test_of_a_burst_all_are_taken_though_the_peer_has_gone() -> None:
    taken = 0
    all_taken = asyncio.Event()

    def count(connection: Connection, request: RemotingCommand) -> None:
        nonlocal taken
        taken += 1
        if taken == 100:
            all_taken.set()

    async with serving(count) as server:
        async with connected(server.addresses[0]) as connection:
            for _ in range(100):
                await connection.send_oneway(RemotingCommand(ECHO), timeout=30)
        async with asyncio.timeout(30):
            await all_taken.wait()


@run
async def test_a_handler_may_answer_later_from_a_callback_and_in_any_order() -> None:
    asked: list[tuple[Connection, RemotingCommand]] = []

    def answer_two_at_once(connection: Connection, request: RemotingCommand) -> None:
        asked.append((connection, request))
        if len(asked) == 2:
            for asker, question in reversed(asked):
                asker.answer(question, question.answer(0, body=question.body))

    async with (
        serving(answer_two_at_once) as server,
        connected(server.addresses[0]) as connection,
    ):
        answers = await asyncio.gather(
            *(
                connection.invoke(RemotingCommand(ECHO, body=body), timeout=5)
                for body in (b"1", b"2")
            )
        )
        assert [answer.body for answer in answers] == [b"1", b"2"]
    asked[0][0].answer(asked[0][1], RemotingCommand(0))  # to one who is gone: it is dropped


@run
async def test_a_handler_that_never_began_is_no_coroutine_that_nobody_awaited() -> None:
    later = RemotingCommand(LATER, {"after": "0"}).encode()
    async with serving() as server:
        # In one read: the connection is cut in the turn of the loop that takes the request.
        reader, writer = await asyncio.open_connection(*server.addresses[0])
        writer.write(later + b"\xff" * 8)
        assert await reader.read() == b""
        writer.close()
        gc.collect()  # which would tell of it


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
async def test_an_error_as_long_as_a_frame_is_told_in_short() -> None:
    def quote(connection: Connection, request: RemotingCommand) -> None:
        raise MalformedHeader(request.ext_fields["a"])

    async with serving(quote) as server, connected(server.addresses[0]) as connection:
        command = RemotingCommand(ECHO, {"a": "x" * (8 << 20)})
        answer = await connection.invoke(command, timeout=5)
        assert answer.remark is not None
        assert len(answer.remark) == 4096


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


def test_requests_travel_over_tls_and_plain_on_one_port(certificates: Certificates) -> None:
    async def main() -> None:
        tls = server_tls(certificates)
        async with serving(tls=ServerTls(mode=TlsMode.PERMISSIVE, server=tls)) as server:
            for client in (None, TlsSettings(ca_file=certificates.ca)):
                async with connected(server.addresses[0], tls=client) as connection:
                    answer = await connection.invoke(RemotingCommand(ECHO, body=b"x"), timeout=5)
                    assert answer.body == b"x"

    asyncio.run(main())


def test_where_tls_is_enforced_plain_requests_are_not_answered(certificates: Certificates) -> None:
    async def main() -> None:
        tls = server_tls(certificates)
        async with (
            serving(tls=ServerTls(mode=TlsMode.ENFORCING, server=tls)) as server,
            connected(server.addresses[0]) as connection,
        ):
            with pytest.raises(RemotingError):
                await connection.invoke(RemotingCommand(ECHO), timeout=5)

    asyncio.run(main())


def test_the_name_to_expect_of_a_server_can_be_set(certificates: Certificates) -> None:
    async def main() -> None:
        tls = server_tls(certificates)  # of 127.0.0.1
        async with serving(tls=ServerTls(mode=TlsMode.ENFORCING, server=tls)) as server:
            port = server.addresses[0].port
            for name, is_trusted in ((None, False), ("127.0.0.1", True), ("other", False)):
                client = TlsSettings(ca_file=certificates.ca, server_hostname=name)
                connecting = connect(
                    AsyncioNetwork(), Address("localhost", port), timeout=5, tls=client
                )
                if is_trusted:
                    await (await connecting).close()
                else:
                    with pytest.raises(ConnectFailed, match="not trusted"):
                        await connecting

    asyncio.run(main())


def server_tls(certificates: Certificates) -> TlsSettings:
    cert, key = certificates.server
    return TlsSettings(cert_file=cert, key_file=key)


@run
async def test_connections_over_the_limit_are_closed() -> None:
    lost: asyncio.Queue[Connection] = asyncio.Queue()
    async with (
        serving(settings=RemotingSettings(connections_max=1), on_lost=lost.put_nowait) as server,
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
