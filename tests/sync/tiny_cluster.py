"""A NameServer and broker in one, on a thread of its own: takes any message and forgets it."""

import asyncio
import threading
from itertools import count
from typing import Self

from rocketpipe.codes import RequestCode, ResponseCode
from rocketpipe.remoting.address import Address
from rocketpipe.remoting.connection import Connection
from rocketpipe.remoting.dispatch import dispatch_by_code
from rocketpipe.remoting.network import AsyncioNetwork
from rocketpipe.remoting.server import Server
from rocketpipe.wire.batch import decode_batch
from rocketpipe.wire.bodies.route import BrokerData, Perm, QueueData, TopicRouteData
from rocketpipe.wire.frame import RemotingCommand
from rocketpipe.wire.requests.sending import SendMessageReply

SILENT = "silent"  # no message to this topic is answered,
SLOW = "slow"  # and to this one it takes a moment until they are stored


class TinyCluster:
    """`namesrv` is where it listens; `bodies` is what it was sent, in order."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.goodbyes = 0
        self.transaction_ends = 0
        self.silent_sends = threading.Semaphore(0)
        self._offsets = count()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="tiny-cluster")

    @property
    def connections(self) -> int:
        return len(self._server.connections)

    async def _start(self) -> str:
        handler = dispatch_by_code(
            {
                RequestCode.GET_ROUTEINFO_BY_TOPIC: self._route,
                RequestCode.HEART_BEAT: lambda _, request: request.answer(ResponseCode.SUCCESS),
                RequestCode.UNREGISTER_CLIENT: self._goodbye,
                RequestCode.SEND_MESSAGE_V2: self._store,
                RequestCode.END_TRANSACTION: self._end_transaction,
                RequestCode.RECALL_MESSAGE: lambda _, request: request.answer(
                    ResponseCode.SUCCESS, ext_fields={"msgId": "recalled"}
                ),
                RequestCode.SEND_BATCH_MESSAGE: self._store,
            }
        )
        self._server = Server(AsyncioNetwork(), handler)
        return str(await self._server.listen(Address("127.0.0.1", 0)))

    def _route(self, _: Connection, request: RemotingCommand) -> RemotingCommand:
        route = TopicRouteData(
            broker_datas=(
                BrokerData(cluster="c", broker_name="a", broker_addrs={0: self.namesrv}),
            ),
            queue_datas=(
                QueueData(broker_name="a", read_queue_nums=4, write_queue_nums=4, perm=Perm(6)),
            ),
        )
        return request.answer(ResponseCode.SUCCESS, body=route.encode())

    def _goodbye(self, _: Connection, request: RemotingCommand) -> RemotingCommand:
        self.goodbyes += 1
        return request.answer(ResponseCode.SUCCESS)

    def _end_transaction(self, _: Connection, request: RemotingCommand) -> None:
        self.transaction_ends += 1

    async def _store(self, _: Connection, request: RemotingCommand) -> RemotingCommand | None:
        topic = request.ext_fields["b"]
        if topic == SILENT:
            self.silent_sends.release()
            return None
        if topic == SLOW:
            await asyncio.sleep(0.2)
        is_batch = request.code == RequestCode.SEND_BATCH_MESSAGE
        bodies = [each.body for each in decode_batch(request.body)] if is_batch else [request.body]
        self.bodies += bodies
        reply = SendMessageReply(
            msg_id=",".join(["0" * 32] * len(bodies)),
            queue_id=int(request.ext_fields["e"]),
            queue_offset=next(self._offsets),
        )
        return request.answer(ResponseCode.SUCCESS, ext_fields=reply.to_ext_fields())

    def __enter__(self) -> Self:
        self._thread.start()
        started = asyncio.run_coroutine_threadsafe(self._start(), self._loop)
        self.namesrv = started.result(10)
        return self

    def __exit__(self, *error: object) -> None:
        asyncio.run_coroutine_threadsafe(self._server.close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()
