"""What the consumers of a group ask of a broker: each other, queues to lock, their own filters."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rocketpipe.broker.message_filter import is_tag_type, property_filter, unsupported_filter
from rocketpipe.codes import RequestCode, ResponseCode
from rocketpipe.errors import InvalidSetting
from rocketpipe.remoting.connection import Connection
from rocketpipe.remoting.dispatch import Handler, Refusal
from rocketpipe.wire.bodies.groups import (
    CheckClientConfig,
    ConsumerIdList,
    LockBatchAnswer,
    LockBatchRequest,
)
from rocketpipe.wire.frame import RemotingCommand
from rocketpipe.wire.requests.clients import GetConsumerListByGroup

if TYPE_CHECKING:
    from rocketpipe.broker.broker import Broker


def handlers(broker: "Broker") -> Mapping[int, Handler]:
    def consumers(connection: Connection, request: RemotingCommand) -> RemotingCommand:
        header = GetConsumerListByGroup.from_ext_fields(request.ext_fields)
        group = broker.clients.consumers.get(header.consumer_group)
        if group is None:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {header.consumer_group}"
            )
        ids = tuple(client.client_id for client in group.members.values())
        body = ConsumerIdList(consumer_id_list=ids).encode()
        return request.answer(ResponseCode.SUCCESS, body=body)

    def lock(connection: Connection, request: RemotingCommand) -> RemotingCommand:
        wanted = LockBatchRequest.decode(request.body)
        locked = broker.queue_locks.lock(wanted.consumer_group, wanted.mq_set, wanted.client_id)
        body = LockBatchAnswer(lock_ok_mq_set=locked).encode()
        return request.answer(ResponseCode.SUCCESS, body=body)

    def unlock(connection: Connection, request: RemotingCommand) -> RemotingCommand:
        given = LockBatchRequest.decode(request.body)
        broker.queue_locks.unlock(given.consumer_group, given.mq_set, given.client_id)
        return request.answer(ResponseCode.SUCCESS)

    def check_filter(connection: Connection, request: RemotingCommand) -> RemotingCommand:
        subscription = CheckClientConfig.decode(request.body).subscription_data
        expression_type = subscription.expression_type
        if not is_tag_type(expression_type):
            if not broker.settings.enable_property_filter:
                raise unsupported_filter(expression_type)
            try:
                property_filter(subscription.sub_string, expression_type)
            except InvalidSetting as error:
                raise Refusal(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from error
        return request.answer(ResponseCode.SUCCESS)

    return {
        RequestCode.GET_CONSUMER_LIST_BY_GROUP: consumers,
        RequestCode.LOCK_BATCH_MQ: lock,
        RequestCode.UNLOCK_BATCH_MQ: unlock,
        RequestCode.CHECK_CLIENT_CONFIG: check_filter,
    }
