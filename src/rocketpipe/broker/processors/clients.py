"""Heartbeats: clients that make themselves known, and say goodbye."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rocketpipe.broker.clients import Client, Clients
from rocketpipe.broker.groups import SubscriptionGroups
from rocketpipe.broker.names import retry_topic
from rocketpipe.broker.topics import UNIT_SUB, TopicConfigs
from rocketpipe.clock import Clock
from rocketpipe.codes import RequestCode, ResponseCode
from rocketpipe.remoting.connection import Connection
from rocketpipe.remoting.dispatch import Handler, Refusal
from rocketpipe.wire.bodies.heartbeat import ConsumerData, HeartbeatData
from rocketpipe.wire.frame import RemotingCommand
from rocketpipe.wire.requests.clients import HeartBeatReply, UnregisterClient

if TYPE_CHECKING:
    from rocketpipe.broker.broker import Broker

# Of clients and of producer groups, which RocketMQ's brokers take at any length; its own clients
# let no group be longer.
NAME_CHARACTERS_MAX = 255


def handlers(broker: "Broker") -> Mapping[int, Handler]:
    processor = _ClientProcessor(broker.clients, broker.topics, broker.groups, broker.clock)
    return {
        RequestCode.HEART_BEAT: processor.heart_beat,
        RequestCode.UNREGISTER_CLIENT: processor.unregister,
    }


class _ClientProcessor:
    def __init__(
        self, clients: Clients, topics: TopicConfigs, groups: SubscriptionGroups, clock: Clock
    ) -> None:
        self._clients = clients
        self._topics = topics
        self._groups = groups
        self._clock = clock

    def heart_beat(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        heartbeat = HeartbeatData.decode(request.body)
        producer_groups = [producer.group_name for producer in heartbeat.producer_data_set]
        for name in (heartbeat.client_id, *producer_groups):  # those of consumers are checked below
            if len(name) > NAME_CHARACTERS_MAX:
                raise Refusal(
                    ResponseCode.INVALID_PARAMETER,
                    f"{name[:40]}... is longer than {NAME_CHARACTERS_MAX} characters",
                )
        client = Client(
            heartbeat.client_id,
            connection,
            request.language,
            request.version,
            self._clock.monotonic(),
            self._clock.wall_ms(),
        )
        is_changed = False
        for data in heartbeat.consumer_data_set:
            if self._create_retry_topic(data):
                is_changed |= self._clients.register_consumer(
                    data, client, without_sub=heartbeat.without_sub
                )
        for group_name in producer_groups:
            self._clients.register_producer(group_name, client)
        # A heartbeat of the first version says everything anew, so that always counts as changed.
        is_first_version = heartbeat.heartbeat_fingerprint == 0
        reply = HeartBeatReply(
            is_support_heart_beat_v2=True, is_sub_change=is_first_version or is_changed
        )
        return request.answer(ResponseCode.SUCCESS, ext_fields=reply.to_ext_fields())

    def unregister(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        header = UnregisterClient.from_ext_fields(request.ext_fields)
        if header.producer_group is not None:
            self._clients.unregister_producer(header.producer_group, connection)
        if header.consumer_group is not None:
            self._clients.unregister_consumer(header.consumer_group, connection)
        return request.answer(ResponseCode.SUCCESS)

    def _create_retry_topic(self, data: ConsumerData) -> bool:
        """Whether the group may be; then its retry topic is, too."""
        group = self._groups.find(data.group_name)
        if group is None:
            return False
        has_order = any(self._topics.is_order(each.topic) for each in data.subscription_data_set)
        self._topics.create_inner(
            retry_topic(data.group_name),
            group.retry_queue_nums,
            order=has_order,
            topic_sys_flag=UNIT_SUB if data.unit_mode else 0,
        )
        return True
