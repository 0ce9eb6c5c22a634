"""Both ends for the tests of connections: handlers that do as they are asked, and raw peers."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from rocketpipe.codes import ResponseCode
from rocketpipe.remoting.address import Address
from rocketpipe.remoting.connection import Connection, connect
from rocketpipe.remoting.dispatch import Handler, Refusal, dispatch_by_code
from rocketpipe.remoting.network import AsyncioNetwork
from rocketpipe.remoting.server import Server
from rocketpipe.wire.frame import RemotingCommand
from rocketpipe.wire.requests.reading import GetMaxOffset

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
