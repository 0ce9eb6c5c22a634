"""Topics, for administrators: made, changed and deleted, what they hold and who reads them."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from rocketpipe.broker.attributes import AttributeFault, change_attributes
from rocketpipe.broker.names import topic_fault
from rocketpipe.broker.transactions import NOT_SET
from rocketpipe.codes import RequestCode, ResponseCode
from rocketpipe.message import MessageQueue
from rocketpipe.remoting.connection import Connection
from rocketpipe.remoting.dispatch import Handler, Refusal
from rocketpipe.wire.bodies.groups import GroupList
from rocketpipe.wire.bodies.offsets import TopicOffset, TopicStatsTable
from rocketpipe.wire.bodies.route import Perm, TopicList
from rocketpipe.wire.bodies.topics import TopicConfig, TopicConfigList, TopicFilterType
from rocketpipe.wire.frame import RemotingCommand
from rocketpipe.wire.pop_receipt import RETRY_V1, RETRY_V2, pop_retry_topic
from rocketpipe.wire.requests.admin import (
    DeleteTopicInBroker,
    GetTopicConfig,
    GetTopicStatsInfo,
    QueryTopicConsumeByWho,
    UpdateAndCreateTopic,
)

if TYPE_CHECKING:
    from rocketpipe.broker.broker import Broker

QUEUES_MAX = 65_536  # of one topic
REGISTER_SECONDS_MAX = 3.0  # that an administrator waits for the NameServers


def handlers(broker: "Broker") -> Mapping[int, Handler]:
    processor = _TopicProcessor(broker)
    return {
        RequestCode.UPDATE_AND_CREATE_TOPIC: processor.create,
        RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: processor.create_list,
        RequestCode.DELETE_TOPIC_IN_BROKER: processor.delete,
        RequestCode.GET_TOPIC_CONFIG: processor.config,
        RequestCode.GET_TOPIC_STATS_INFO: processor.stats,
        RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: processor.readers,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: processor.system_topics,
    }


def refuse_on_slave(broker: "Broker") -> None:
    """What is changed on a slave would be overwritten by its master's."""
    if broker.settings.is_slave:
        raise Refusal(
            ResponseCode.SYSTEM_ERROR,
            "Can't modify topic or subscription group from slave broker, "
            "please execute it from master broker.",
        )


class _TopicProcessor:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._settings = broker.settings
        self._topics = broker.topics
        self._clients = broker.clients
        self._offsets = broker.offsets
        self._store = broker.store
        self._clock = broker.clock

    async def create(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        header = UpdateAndCreateTopic.from_ext_fields(request.ext_fields)
        refuse_on_slave(self._broker)
        try:
            config = TopicConfig(
                topic_name=header.topic,
                read_queue_nums=header.read_queue_nums,
                write_queue_nums=header.write_queue_nums,
                perm=Perm(header.perm),
                topic_filter_type=TopicFilterType(header.topic_filter_type),
                topic_sys_flag=header.topic_sys_flag or 0,
                order=header.order,
            )
        except ValueError as error:
            raise Refusal(ResponseCode.INVALID_PARAMETER, str(error)) from error
        await self._put([self._with_attributes(config, header.attributes)])
        return request.answer(ResponseCode.SUCCESS, NOT_SET)

    async def create_list(
        self, connection: Connection, request: RemotingCommand
    ) -> RemotingCommand:
        wanted = TopicConfigList.decode(request.body).topic_config_list
        refuse_on_slave(self._broker)
        await self._put(
            [
                self._with_attributes(
                    replace(config, attributes={}),
                    ",".join(f"{k}={v}" if v else k for k, v in config.attributes.items()),
                )
                for config in wanted
            ]
        )
        return request.answer(ResponseCode.SUCCESS, NOT_SET)

    def _with_attributes(self, config: TopicConfig, changes: str | None) -> TopicConfig:
        topic = config.topic_name
        if fault := topic_fault(topic):
            raise Refusal(ResponseCode.INVALID_PARAMETER, fault)
        if self._topics.is_system(topic):
            raise _conflict(topic)
        for queues in (config.read_queue_nums, config.write_queue_nums):
            if not 0 <= queues <= QUEUES_MAX:
                raise Refusal(
                    ResponseCode.INVALID_PARAMETER,
                    f"topic[{topic}] can't have {queues} queues: {QUEUES_MAX} at most",
                )
        known = self._topics.table.get(topic)
        current = known.attributes if known is not None else {}
        try:
            attributes = change_attributes(current, changes, is_new=known is None)
        except AttributeFault as error:
            raise Refusal(ResponseCode.SYSTEM_ERROR, str(error)) from error
        return replace(config, attributes=attributes)

    async def _put(self, configs: list[TopicConfig]) -> None:
        """Keep them, and tell the NameServers, before the administrator is answered."""
        table = self._topics.table
        changed = [config for config in configs if table.get(config.topic_name) != config]
        new = sum(config.topic_name not in table for config in changed)
        if new and len(table) + new > self._settings.topics_max:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"there are {len(table)} topics already")
        if changed:
            self._topics.put(changed)
            await self._topics.saved.wait_saved()
            await self._broker.registration.wait_told(timeout=REGISTER_SECONDS_MAX)

    async def delete(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        # A slave does so too, as in 5.5.0: mqadmin asks masters and slaves alike.
        topic = DeleteTopicInBroker.from_ext_fields(request.ext_fields).topic
        if fault := topic_fault(topic):
            raise Refusal(ResponseCode.INVALID_PARAMETER, fault)
        if self._topics.is_system(topic):
            raise _conflict(topic)
        for each in [topic, *self._pop_retry_topics(topic)]:
            self._topics.delete(each)
            self._broker.pop.forget(topic=each)
            self._offsets.forget_topic(each)
            await self._store.delete_topic(each)
        await self._topics.saved.wait_saved()
        return request.answer(ResponseCode.SUCCESS)

    def _pop_retry_topics(self, topic: str) -> list[str]:
        """Where its messages come again to groups that pop (clearRetryTopicWhenDeleteTopic)."""
        return [
            name
            for group in self._offsets.groups_of(topic)
            for kind in (RETRY_V1, RETRY_V2)
            if (name := pop_retry_topic(group, topic, kind)) in self._topics.table
        ]

    def config(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        topic = GetTopicConfig.from_ext_fields(request.ext_fields).topic
        config = self._topics.table.get(topic)
        if config is None:
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {topic}")
        return request.answer(ResponseCode.SUCCESS, body=config.encode())

    def stats(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        topic = GetTopicStatsInfo.from_ext_fields(request.ext_fields).topic
        config = self._topics.table.get(topic)
        if config is None:
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
        store, table = self._store, {}
        minute_ago_ms = self._clock.wall_ms() - 60_000
        of_last_minute = 0
        for queue_id in range(max(config.read_queue_nums, config.write_queue_nums)):
            end = store.max_offset(topic, queue_id)
            of_last_minute += end - store.offset_by_time(topic, queue_id, minute_ago_ms)
            table[MessageQueue(topic, self._settings.broker_name, queue_id)] = TopicOffset(
                min_offset=store.min_offset(topic, queue_id),
                max_offset=end,
                last_update_timestamp=store.store_time_at(topic, queue_id, end - 1) if end else 0,
            )
        answer = TopicStatsTable(offset_table=table, topic_put_tps=of_last_minute / 60)
        return request.answer(ResponseCode.SUCCESS, body=answer.encode())

    def readers(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        topic = QueryTopicConsumeByWho.from_ext_fields(request.ext_fields).topic
        online = {
            name for name, group in self._clients.consumers.items() if topic in group.subscriptions
        }
        groups = online | set(self._offsets.groups_of(topic))
        body = GroupList(group_list=frozenset(groups)).encode()
        return request.answer(ResponseCode.SUCCESS, body=body)

    def system_topics(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        body = TopicList(topic_list=self._topics.system_topics()).encode()
        return request.answer(ResponseCode.SUCCESS, body=body)


def _conflict(topic: str) -> Refusal:
    return Refusal(
        ResponseCode.INVALID_PARAMETER, f"The topic[{topic}] is conflict with system topic."
    )
