"""What slaves copy of a master besides its log: topics, groups, offsets and timers."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rocketpipe.codes import RequestCode, ResponseCode
from rocketpipe.remoting.connection import Connection
from rocketpipe.remoting.dispatch import Handler
from rocketpipe.wire.frame import RemotingCommand

if TYPE_CHECKING:
    from rocketpipe.broker.broker import Broker


def handlers(broker: "Broker") -> Mapping[int, Handler]:
    def all_topics(connection: Connection, request: RemotingCommand) -> RemotingCommand:
        # All at once, whatever page was asked for: the count says that there are no more.
        total = {"totalTopicNum": str(len(broker.topics.table))}
        return request.answer(ResponseCode.SUCCESS, None, total, broker.topics.wrapper().encode())

    def all_groups(connection: Connection, request: RemotingCommand) -> RemotingCommand:
        total = {"totalGroupNum": str(len(broker.groups.table))}
        return request.answer(ResponseCode.SUCCESS, None, total, broker.groups.wrapper().encode())

    def consumer_offsets(connection: Connection, request: RemotingCommand) -> RemotingCommand:
        return request.answer(ResponseCode.SUCCESS, body=broker.offsets.wrapper().encode())

    def delay_offsets(connection: Connection, request: RemotingCommand) -> RemotingCommand:
        return request.answer(ResponseCode.SUCCESS, body=broker.delays.wrapper().encode())

    def timer_checkpoint(connection: Connection, request: RemotingCommand) -> RemotingCommand:
        return request.answer(ResponseCode.SUCCESS, body=broker.timers.checkpoint.encode())

    return {
        RequestCode.GET_ALL_TOPIC_CONFIG: all_topics,
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: all_groups,
        RequestCode.GET_ALL_CONSUMER_OFFSET: consumer_offsets,
        RequestCode.GET_ALL_DELAY_OFFSET: delay_offsets,
        RequestCode.GET_TIMER_CHECK_POINT: timer_checkpoint,
    }
