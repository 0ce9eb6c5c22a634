"""The replies of request-reply: pushed to the client that asked, and stored as well."""

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from rocketpipe.broker.hosts import packed_host
from rocketpipe.broker.processors.sending import Send, SendProcessor, no_body, read_send
from rocketpipe.broker.store.values import MessageDraft
from rocketpipe.codes import RequestCode, ResponseCode
from rocketpipe.errors import MQError
from rocketpipe.host import unpack_host
from rocketpipe.remoting.connection import Connection
from rocketpipe.remoting.dispatch import Handler, Refusal
from rocketpipe.wire.frame import RemotingCommand
from rocketpipe.wire.properties import (
    PUSH_REPLY_TIME,
    REPLY_TO_CLIENT,
    decode_properties,
    encode_properties,
)
from rocketpipe.wire.requests.callbacks import PushReplyMessageToClient

if TYPE_CHECKING:
    from rocketpipe.broker.broker import Broker

log = logging.getLogger(__name__)

PUSH_TIMEOUT = 10.0


def handlers(broker: "Broker") -> Mapping[int, Handler]:
    processor = ReplyProcessor(broker)
    return {
        RequestCode.SEND_REPLY_MESSAGE: processor.reply_v1,
        RequestCode.SEND_REPLY_MESSAGE_V2: processor.reply_v2,
    }


class ReplyProcessor(SendProcessor):
    """Checks a reply like any send (ReplyMessageProcessor)."""

    def __init__(self, broker: "Broker") -> None:
        super().__init__(broker)
        self._clients = broker.clients
        self._clock = broker.clock

    async def reply_v1(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        return await self._reply(connection, request, read_send(request, is_v1=True))

    async def reply_v2(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        return await self._reply(connection, request, read_send(request, is_v1=False))

    async def _reply(
        self, connection: Connection, request: RemotingCommand, reply: Send
    ) -> RemotingCommand:
        if not request.body:
            raise no_body()
        try:
            _, queue_id = self._admit(connection, reply)
        except Refusal as refusal:
            refusal.ext_fields = self.answer_fields
            raise
        properties = {**decode_properties(reply.properties), **self.answer_fields}
        failure = await self._push(connection, request, reply, properties)
        fields = dict(self.answer_fields)
        if failure is None:
            fields |= {"msgId": "0", "queueId": str(queue_id), "queueOffset": "0"}
        if self._settings.store_reply_message_enable:
            fields |= await self._store_reply(connection, request, reply, queue_id, properties)
        code = ResponseCode.SUCCESS if failure is None else ResponseCode.SYSTEM_ERROR
        return request.answer(code, failure, fields)

    async def _push(
        self,
        connection: Connection,
        request: RemotingCommand,
        reply: Send,
        properties: dict[str, str],
    ) -> str | None:
        """Hand the reply to the client that asked; what went wrong, in Apache's words."""
        asker = properties.get(REPLY_TO_CLIENT)
        if asker is None:
            return f"reply message properties[{REPLY_TO_CLIENT}] is null"
        target = self._clients.producer_connection(asker)
        if target is None:
            return f"push reply message fail, channel of <{asker}> not found."
        now_ms = self._clock.wall_ms()
        push = PushReplyMessageToClient(
            producer_group=reply.producer_group,
            topic=reply.topic,
            default_topic=reply.default_topic,
            default_topic_queue_nums=reply.default_topic_queue_nums,
            queue_id=reply.queue_id,
            sys_flag=reply.sys_flag,
            born_timestamp=reply.born_timestamp,
            flag=reply.flag,
            properties=encode_properties({**properties, PUSH_REPLY_TIME: str(now_ms)}),
            reconsume_times=reply.reconsume_times,
            unit_mode=reply.unit_mode,
            born_host=unpack_host(packed_host(connection.address)),
            store_host=unpack_host(self._store_host),
            store_timestamp=now_ms,
        )
        try:
            await target.request(push, request.body, timeout=PUSH_TIMEOUT)
        except MQError as error:
            log.warning("the reply for %s was not taken: %s", asker, error)
            return f"push reply message to {asker}fail."  # without a space, as Apache's
        return None

    async def _store_reply(
        self,
        connection: Connection,
        request: RemotingCommand,
        reply: Send,
        queue_id: int,
        properties: dict[str, str],
    ) -> dict[str, str]:
        """Where the reply is stored; nothing when it is not, which is no fault of the sender's."""
        result = await self._puts.put_and_wait(
            MessageDraft(
                topic=reply.topic,
                queue_id=queue_id,
                body=request.body,
                properties=encode_properties(properties),
                born_timestamp_ms=reply.born_timestamp,
                born_host=packed_host(connection.address),
                store_host=self._store_host,
                flag=reply.flag,
                reconsume_times=reply.reconsume_times,
            )
        )
        if not result.is_stored:
            log.warning("a reply was not stored: %s", result.reason)
            return {}
        return {
            "msgId": f"{self._message_id_prefix}{result.physical_offsets[0]:016X}",
            "queueId": str(queue_id),
            "queueOffset": str(result.queue_offset),
        }
