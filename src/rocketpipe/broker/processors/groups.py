"""Groups and clients, for administrators: settings, who is connected, and how far they are."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from rocketpipe.broker import clients
from rocketpipe.broker.names import group_fault
from rocketpipe.broker.processors.topics import QUEUES_MAX, refuse_on_slave
from rocketpipe.codes import RequestCode, ResponseCode
from rocketpipe.message import MessageQueue
from rocketpipe.remoting.connection import Connection
from rocketpipe.remoting.dispatch import Handler, Refusal
from rocketpipe.wire.bodies import groups as bodies
from rocketpipe.wire.bodies.groups import SubscriptionGroupConfig
from rocketpipe.wire.bodies.offsets import (
    ConsumeStats,
    ConsumeTimeSpan,
    OffsetWrapper,
    QueueTimeSpan,
)
from rocketpipe.wire.frame import RemotingCommand
from rocketpipe.wire.pop_receipt import RETRY_MARKS, pop_retry_topic
from rocketpipe.wire.requests.admin import (
    DeleteSubscriptiongroup,
    GetConsumerConnectionList,
    GetConsumeStats,
    GetProducerConnectionList,
    GetSubscriptiongroupConfig,
    QueryConsumeTimeSpan,
)

if TYPE_CHECKING:
    from rocketpipe.broker.broker import Broker


def handlers(broker: "Broker") -> Mapping[int, Handler]:
    processor = _GroupProcessor(broker)
    return {
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: processor.create,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: processor.create_list,
        RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: processor.config,
        RequestCode.DELETE_SUBSCRIPTIONGROUP: processor.delete,
        RequestCode.GET_CONSUMER_CONNECTION_LIST: processor.consumers,
        RequestCode.GET_PRODUCER_CONNECTION_LIST: processor.producers,
        RequestCode.GET_ALL_PRODUCER_INFO: processor.all_producers,
        RequestCode.GET_CONSUME_STATS: processor.progress,
        RequestCode.QUERY_CONSUME_TIME_SPAN: processor.time_span,
    }


class _GroupProcessor:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._settings = broker.settings
        self._topics = broker.topics
        self._groups = broker.groups
        self._clients = broker.clients
        self._offsets = broker.offsets
        self._store = broker.store
        self._rates = broker.rates
        self._clock = broker.clock

    # Settings.

    async def create(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        return await self._create(request, [SubscriptionGroupConfig.decode(request.body)])

    async def create_list(
        self, connection: Connection, request: RemotingCommand
    ) -> RemotingCommand:
        wanted = bodies.SubscriptionGroupList.decode(request.body).group_config_list
        return await self._create(request, list(wanted))

    async def _create(
        self, request: RemotingCommand, configs: list[SubscriptionGroupConfig]
    ) -> RemotingCommand:
        refuse_on_slave(self._broker)
        table = self._groups.table
        for config in configs:
            if fault := group_fault(config.group_name):
                raise Refusal(ResponseCode.INVALID_PARAMETER, fault)
            if not 0 <= config.retry_queue_nums <= QUEUES_MAX:
                raise Refusal(
                    ResponseCode.INVALID_PARAMETER,
                    f"group[{config.group_name}] can't have {config.retry_queue_nums} queues "
                    f"for retries: {QUEUES_MAX} at most",
                )
            if config.attributes:  # RocketMQ has none for groups, either
                name = next(iter(config.attributes))[1:]
                raise Refusal(ResponseCode.SYSTEM_ERROR, f"unsupported key: {name}")
        new = sum(config.group_name not in table for config in configs)
        if new and len(table) + new > self._settings.groups_max:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"there are {len(table)} groups already")
        for config in configs:
            self._groups.put(replace(config, attributes={}))
        await self._groups.saved.wait_saved()
        return request.answer(ResponseCode.SUCCESS)

    def config(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        header = GetSubscriptiongroupConfig.from_ext_fields(request.ext_fields)
        config = self._groups.find(header.group)
        if config is None:
            raise Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "No group in this broker")
        return request.answer(ResponseCode.SUCCESS, body=config.encode())

    async def delete(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        header = DeleteSubscriptiongroup.from_ext_fields(request.ext_fields)
        refuse_on_slave(self._broker)
        self._groups.delete(header.group_name)
        self._broker.pop.forget(group=header.group_name)
        if header.clean_offset:
            self._offsets.forget_group(header.group_name)
        await self._groups.saved.wait_saved()
        return request.answer(ResponseCode.SUCCESS)

    # Who is connected.

    def consumers(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        name = GetConsumerConnectionList.from_ext_fields(request.ext_fields).consumer_group
        group = self._clients.consumers.get(name)
        if group is None:
            raise Refusal(
                ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{name}] not online"
            )
        answer = bodies.ConsumerConnection(
            connection_set=tuple(map(_connection, group.members.values())),
            subscription_table=group.subscriptions,
            consume_type=group.data.consume_type,
            message_model=group.data.message_model,
            consume_from_where=group.data.consume_from_where,
        )
        return request.answer(ResponseCode.SUCCESS, body=answer.encode())

    def producers(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        name = GetProducerConnectionList.from_ext_fields(request.ext_fields).producer_group
        members = self._clients.producers.get(name)
        if members is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"the producer group[{name}] not exist")
        connections = tuple(map(_connection, members.values()))
        body = bodies.ProducerConnection(connection_set=connections).encode()
        return request.answer(ResponseCode.SUCCESS, body=body)

    def all_producers(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        data = {
            group: tuple(
                bodies.ProducerInfo(
                    client_id=client.client_id,
                    remote_ip=f"/{client.connection.address}",
                    language=client.language.name,
                    version=client.version,
                    last_update_timestamp=client.seen_at_ms,
                )
                for client in members.values()
            )
            for group, members in self._clients.producers.items()
        }
        body = bodies.ProducerTable(data=data).encode()
        return request.answer(ResponseCode.SUCCESS, body=body)

    # How far groups are.

    def progress(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        header = GetConsumeStats.from_ext_fields(request.ext_fields)
        name = header.consumer_group
        table: dict[MessageQueue, OffsetWrapper] = {}
        tps = 0.0
        for topic in self._topics_to_tell(header):
            config = self._topics.table.get(topic)
            queues = config.read_queue_nums if config is not None else 0
            table |= progress_of(self._broker, name, topic, queues)
            tps += self._rates.group_get_tps(name, topic)
        body = ConsumeStats(offset_table=table, consume_tps=tps).encode()
        return request.answer(ResponseCode.SUCCESS, body=body)

    def _topics_to_tell(self, header: GetConsumeStats) -> list[str]:
        """Those that were asked for; else all the group has read, and still does if it is there."""
        if header.topic_list:
            return list(dict.fromkeys(topic for topic in header.topic_list.split(";") if topic))
        topics = [header.topic] if header.topic else self._offsets.topics_of(header.consumer_group)
        return still_read(self._broker, header.consumer_group, topics)

    def time_span(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        header = QueryConsumeTimeSpan.from_ext_fields(request.ext_fields)
        topic, store = header.topic, self._store
        config = self._topics.table.get(topic)
        if config is None:
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
        spans = []
        for queue_id in range(config.write_queue_nums):
            first_ms = store.earliest_store_time(topic, queue_id)
            end = store.max_offset(topic, queue_id)
            offset = self._offsets.query(header.group, topic, queue_id)
            consumed_ms = first_ms
            if offset > 0:
                consumed_ms = store.store_time_at(topic, queue_id, offset - 1)
            delay_ms = 0
            if offset < end:
                delay_ms = self._clock.wall_ms() - store.store_time_at(topic, queue_id, offset)
            spans.append(
                QueueTimeSpan(
                    message_queue=self._queue(topic, queue_id),
                    min_time_stamp=first_ms,
                    max_time_stamp=store.store_time_at(topic, queue_id, end - 1),
                    consume_time_stamp=consumed_ms,
                    delay_time=delay_ms,
                )
            )
        body = ConsumeTimeSpan(consume_time_span_set=tuple(spans)).encode()
        return request.answer(ResponseCode.SUCCESS, body=body)

    def _queue(self, topic: str, queue_id: int) -> MessageQueue:
        return MessageQueue(topic, self._settings.broker_name, queue_id)


def still_read(broker: "Broker", group: str, topics: list[str]) -> list[str]:
    """Those that the group still reads, if it is there; else all of them."""
    online = broker.clients.consumers.get(group)
    if online is None or not online.subscriptions:
        return topics
    # Nobody subscribes to what comes again to a group that pops, yet it is read.
    retries = tuple(pop_retry_topic(group, "", kind) for kind in RETRY_MARKS)
    return [topic for topic in topics if topic in online.subscriptions or topic.startswith(retries)]


def progress_of(
    broker: "Broker", group: str, topic: str, queues: int
) -> dict[MessageQueue, OffsetWrapper]:
    """How far a group is in each of the topic's first so many queues."""
    store, offsets, table = broker.store, broker.offsets, {}
    for queue_id in range(queues):
        consumed = max(0, offsets.query(group, topic, queue_id))
        last_ms = store.store_time_at(topic, queue_id, consumed - 1)
        table[MessageQueue(topic, broker.settings.broker_name, queue_id)] = OffsetWrapper(
            broker_offset=store.max_offset(topic, queue_id),
            consumer_offset=consumed,
            pull_offset=max(consumed, offsets.query_pulled(group, topic, queue_id)),
            last_timestamp=max(0, last_ms),
        )
    return table


def _connection(client: clients.Client) -> bodies.Connection:
    return bodies.Connection(
        client_id=client.client_id,
        client_addr=client.connection.address,
        language=client.language.name,
        version=client.version,
    )
