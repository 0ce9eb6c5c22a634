"""The consumers of a client: one for each group, whom brokers know, tell and ask."""

import logging
from collections.abc import Awaitable, Mapping
from typing import Protocol

from rocketpipe.codes import RequestCode, ResponseCode
from rocketpipe.errors import ClientError
from rocketpipe.message import MessageQueue, StoredMessage
from rocketpipe.remoting.connection import Connection
from rocketpipe.remoting.dispatch import Handler, Refusal
from rocketpipe.wire.bodies.consumer_info import ConsumeMessageDirectlyResult, ConsumerRunningInfo
from rocketpipe.wire.bodies.heartbeat import ConsumerData
from rocketpipe.wire.bodies.offsets import ConsumerStatus, ResetOffsetBody
from rocketpipe.wire.frame import RemotingCommand
from rocketpipe.wire.record import decode_record
from rocketpipe.wire.requests.callbacks import (
    ConsumeMessageDirectly,
    GetConsumerRunningInfo,
    GetConsumerStatusFromClient,
    NotifyConsumerIdsChanged,
    ResetConsumerClientOffset,
)

log = logging.getLogger(__name__)


class GroupMember(Protocol):
    """A consumer, as its client sees it."""

    def consumer_data(self) -> ConsumerData:
        """What heartbeats tell of it."""

    def rebalance_soon(self) -> None:
        """Its group, or a route, has changed."""

    def reset_offsets(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Go on from these, where the queues are its own."""

    def positions(self, topic: str) -> dict[MessageQueue, int]:
        """How far it is with its queues of a topic."""

    def running_info(self) -> ConsumerRunningInfo: ...

    def consume_directly(self, message: StoredMessage) -> Awaitable[ConsumeMessageDirectlyResult]:
        """Have the listener try this message now."""


class GroupMembers:
    """By group. What is asked of a group that is not here is refused, as Java does."""

    def __init__(self) -> None:
        self._members: dict[str, GroupMember] = {}

    def __contains__(self, group: str) -> bool:
        return group in self._members

    def add(self, group: str, member: GroupMember, client_id: str) -> None:
        if group in self._members:
            raise ClientError(
                f"there is a consumer of group {group!r} in client {client_id} already: "
                "give one of them another instance_name"
            )
        self._members[group] = member

    def remove(self, group: str) -> None:
        self._members.pop(group, None)

    def consumer_data(self) -> tuple[ConsumerData, ...]:
        return tuple(member.consumer_data() for member in self._members.values())

    def rebalance_soon(self) -> None:
        for member in self._members.values():
            member.rebalance_soon()

    def handlers(self) -> Mapping[int, Handler]:
        return {
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: self._ids_changed,
            RequestCode.RESET_CONSUMER_CLIENT_OFFSET: self._reset_offset,
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: self._status,
            RequestCode.GET_CONSUMER_RUNNING_INFO: self._running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self._consume_directly,
        }

    def _ids_changed(self, connection: Connection, request: RemotingCommand) -> None:
        group = NotifyConsumerIdsChanged.from_ext_fields(request.ext_fields).consumer_group
        member = self._members.get(group)
        if member is not None:
            log.info("%s says that group %s has changed", connection.address, group)
            member.rebalance_soon()

    def _reset_offset(self, connection: Connection, request: RemotingCommand) -> None:
        header = ResetConsumerClientOffset.from_ext_fields(request.ext_fields)
        member = self._members.get(header.group)
        if member is not None:
            offsets = ResetOffsetBody.decode(request.body).offset_table
            log.info("%s resets the offsets of group %s", connection.address, header.group)
            member.reset_offsets(offsets)

    def _status(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        header = GetConsumerStatusFromClient.from_ext_fields(request.ext_fields)
        positions = self._find(header.group).positions(header.topic)
        body = ConsumerStatus(message_queue_table=positions).encode()
        return request.answer(ResponseCode.SUCCESS, body=body)

    def _running_info(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        header = GetConsumerRunningInfo.from_ext_fields(request.ext_fields)
        body = self._find(header.consumer_group).running_info().encode()
        return request.answer(ResponseCode.SUCCESS, body=body)

    async def _consume_directly(
        self, connection: Connection, request: RemotingCommand
    ) -> RemotingCommand:
        header = ConsumeMessageDirectly.from_ext_fields(request.ext_fields)
        member = self._find(header.consumer_group)
        message = decode_record(request.body, broker_name=header.broker_name)
        result = await member.consume_directly(message)
        return request.answer(ResponseCode.SUCCESS, body=result.encode())

    def _find(self, group: str) -> GroupMember:
        member = self._members.get(group)
        if member is None:
            remark = f"The Consumer Group <{group}> not exist in this consumer"
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
        return member
