"""Request-reply: the replies that a client waits for, and the reply that a consumer sends."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import ClassVar

from rocketpipe.codes import ResponseCode
from rocketpipe.errors import InvalidMessage
from rocketpipe.message import Message, StoredMessage
from rocketpipe.remoting.connection import Connection
from rocketpipe.wire import properties as names
from rocketpipe.wire.compression import decompress
from rocketpipe.wire.frame import RemotingCommand
from rocketpipe.wire.hashing import body_crc
from rocketpipe.wire.properties import decode_properties
from rocketpipe.wire.requests.callbacks import PushReplyMessageToClient
from rocketpipe.wire.sys_flag import COMPRESSED

log = logging.getLogger(__name__)

REPLY = "reply"  # the value of MSG_TYPE


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply(Message):
    """A message that a broker hands to the client that asked; `reply_message` makes one."""

    routing: Mapping[str, str] = field(hash=False)  # properties that no user may set


def reply_message(
    request: StoredMessage,
    body: bytes,
    *,
    tags: str | None = None,
    keys: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
) -> Message:
    """The reply to a request, to be sent with any producer of the cluster the request came from.

    InvalidMessage when what was received is no request.
    """
    kept = (names.CLUSTER, names.CORRELATION_ID, names.REPLY_TO_CLIENT)
    cluster, correlation_id, reply_to_client = map(request.properties.get, kept)
    if cluster is None or correlation_id is None or reply_to_client is None:
        missing = ", ".join(name for name in kept if name not in request.properties)
        raise InvalidMessage(f"message {request.message_id} is no request: it has no {missing}")
    routing = {
        names.MSG_TYPE: REPLY,
        names.CORRELATION_ID: correlation_id,
        names.REPLY_TO_CLIENT: reply_to_client,
    }
    if names.TTL in request.properties:
        routing[names.TTL] = request.properties[names.TTL]
    return Reply(
        reply_topic(cluster),
        body,
        tags=tags,
        keys=keys,
        properties=properties or {},
        routing=routing,
    )


def reply_topic(cluster: str) -> str:
    """The topic of a cluster's replies, which every broker of it has."""
    return f"{cluster}_REPLY_TOPIC"


class Replies:
    """The replies that somebody in this process waits for, by correlation id.

    All clients of a process have them in common, as Java's do in RequestFutureHolder: their ids may
    be alike, and then a broker gives a reply to any of them.
    """

    _awaited: ClassVar[dict[str, asyncio.Future[StoredMessage]]] = {}

    def __init__(self, wall_ms: Callable[[], int]) -> None:
        self._wall_ms = wall_ms

    @contextmanager
    def expect(self, correlation_id: str) -> Iterator[asyncio.Future[StoredMessage]]:
        """The reply to come; whatever comes after the `with` is dropped."""
        reply: asyncio.Future[StoredMessage] = asyncio.get_running_loop().create_future()
        self._awaited[correlation_id] = reply
        try:
            yield reply
        finally:
            del self._awaited[correlation_id]

    def take(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """A broker brings a reply (PUSH_REPLY_MESSAGE_TO_CLIENT)."""
        header = PushReplyMessageToClient.from_ext_fields(request.ext_fields)
        properties = decode_properties(header.properties or "")
        correlation_id = properties.get(names.CORRELATION_ID, "")
        awaited = self._awaited.get(correlation_id)
        if awaited is None or awaited.done():
            log.debug("dropped a reply that nobody waits for: correlation id %r", correlation_id)
        else:
            properties[names.ARRIVE_TIME] = str(self._wall_ms())
            _give(awaited, _reply(header, properties, request.body))
        # Also when it came too late: it is no fault of who replied, and he need not try again.
        return request.answer(ResponseCode.SUCCESS)


def _give(awaited: "asyncio.Future[StoredMessage]", reply: StoredMessage) -> None:
    def set_result() -> None:
        if not awaited.done():
            awaited.set_result(reply)

    loop = awaited.get_loop()
    if loop is asyncio.get_running_loop():
        set_result()
    else:
        with suppress(RuntimeError):  # that loop is closed, and nobody waits there any more
            loop.call_soon_threadsafe(set_result)


def _reply(
    header: PushReplyMessageToClient, properties: Mapping[str, str], body: bytes
) -> StoredMessage:
    crc = body_crc(body)
    if header.sys_flag & COMPRESSED:
        body = decompress(body, header.sys_flag)
    return StoredMessage(
        topic=header.topic,
        body=body,
        properties=properties,
        queue_id=header.queue_id,
        queue_offset=0,  # this and other zeros: a broker does not say where it stored it, if it did
        physical_offset=0,
        flag=header.flag,
        sys_flag=header.sys_flag & ~COMPRESSED,
        body_crc=crc,
        born_timestamp_ms=header.born_timestamp,
        born_host=header.born_host,
        store_timestamp_ms=header.store_timestamp,
        store_host=header.store_host,
        reconsume_times=header.reconsume_times or 0,
        prepared_transaction_offset=0,
        store_size=0,
    )
