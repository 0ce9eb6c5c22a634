"""What is asked of a broker, which asks the client: how it is doing, and to try one message."""

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from rocketpipe.broker.clients import Client
from rocketpipe.broker.transactions import NOT_SET
from rocketpipe.codes import RequestCode, ResponseCode
from rocketpipe.errors import MQError, RequestTimeout
from rocketpipe.message import MessageQueue
from rocketpipe.remoting.connection import Connection
from rocketpipe.remoting.dispatch import Handler, Refusal
from rocketpipe.wire.bodies.offsets import ConsumerStatus
from rocketpipe.wire.frame import RemotingCommand
from rocketpipe.wire.message_id import parse_offset_message_id
from rocketpipe.wire.requests.admin import InvokeBrokerToGetConsumerStatus
from rocketpipe.wire.requests.callbacks import (
    ConsumeMessageDirectly,
    GetConsumerRunningInfo,
    GetConsumerStatusFromClient,
)

if TYPE_CHECKING:
    from rocketpipe.broker.broker import Broker

log = logging.getLogger(__name__)

CALL_TIMEOUT = 10.0
STATUS_TIMEOUT = 5.0
V3_1_8 = 62  # the first release whose clients can be called


def handlers(broker: "Broker") -> Mapping[int, Handler]:
    processor = _CallProcessor(broker)
    return {
        RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: processor.status,
        RequestCode.GET_CONSUMER_RUNNING_INFO: processor.running_info,
        RequestCode.CONSUME_MESSAGE_DIRECTLY: processor.consume_directly,
    }


class _CallProcessor:
    def __init__(self, broker: "Broker") -> None:
        self._settings = broker.settings
        self._topics = broker.topics
        self._groups = broker.groups
        self._clients = broker.clients
        self._store = broker.store

    async def running_info(
        self, connection: Connection, request: RemotingCommand
    ) -> RemotingCommand:
        header = GetConsumerRunningInfo.from_ext_fields(request.ext_fields)
        return await self._call(request, header.consumer_group, header.client_id)

    async def consume_directly(
        self, connection: Connection, request: RemotingCommand
    ) -> RemotingCommand:
        header = ConsumeMessageDirectly.from_ext_fields(request.ext_fields)
        request.ext_fields["brokerName"] = self._settings.broker_name
        if header.topic in self._topics.table:
            flag = self._topics.table[header.topic].topic_sys_flag
            request.ext_fields["topicSysFlag"] = str(flag)
        if header.consumer_group in self._groups.table:
            flag = self._groups.table[header.consumer_group].group_sys_flag
            request.ext_fields["groupSysFlag"] = str(flag)
        place = parse_offset_message_id(header.msg_id or "").physical_offset
        record = self._store.record_at(place)
        if record is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {place}")
        request.body = record
        return await self._call(request, header.consumer_group, header.client_id)

    async def _call(
        self, request: RemotingCommand, group: str, client_id: str | None
    ) -> RemotingCommand:
        """Ask the client what we were asked, and answer what it does."""
        client = self._find(group, client_id)
        if client is None:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR, f"The Consumer <{group}> <{client_id}> not online"
            )
        if client.version < V3_1_8:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"The Consumer <{client_id}> Version <{client.version}> too low to finish, "
                "please upgrade it to V3_1_8_SNAPSHOT",
            )
        call = RemotingCommand(request.code, dict(request.ext_fields), request.body)
        try:
            answer = await client.connection.invoke(call, timeout=CALL_TIMEOUT)
        except RequestTimeout as error:
            raise Refusal(
                ResponseCode.CONSUME_MSG_TIMEOUT,
                f"consumer <{group}> <{client_id}> Timeout: {error}",
            ) from error
        except MQError as error:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"invoke consumer <{group}> <{client_id}> Exception: {error}",
            ) from error
        return request.answer(answer.code, answer.remark, answer.ext_fields, answer.body)

    def _find(self, group: str, client_id: str | None) -> Client | None:
        return next((each for each in self._members(group) if each.client_id == client_id), None)

    def _members(self, group: str) -> list[Client]:
        known = self._clients.consumers.get(group)
        return list(known.members.values()) if known is not None else []

    async def status(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        header = InvokeBrokerToGetConsumerStatus.from_ext_fields(request.ext_fields)
        members = self._members(header.group)
        if not members:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"No Any Consumer online in the consumer group: [{header.group}]",
            )
        table: dict[str, dict[MessageQueue, int]] = {}
        for client in members:
            if header.client_addr and header.client_addr != client.client_id:
                continue
            question = GetConsumerStatusFromClient(topic=header.topic, group=header.group)
            try:
                told = await client.connection.request(question, timeout=STATUS_TIMEOUT)
            except MQError as error:
                log.info("%s does not say how far it is: %s", client.client_id, error)
            else:
                table[client.client_id] = told.message_queue_table
        body = ConsumerStatus(consumer_table=table).encode()
        return request.answer(ResponseCode.SUCCESS, NOT_SET, body=body)
