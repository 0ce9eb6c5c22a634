"""Offsets: how far groups are and where they shall go on; how far queues reach, and by time."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rocketpipe.broker.checks import no_such_group
from rocketpipe.broker.page_cache import is_in_memory
from rocketpipe.broker.pop.checkpoints import QueueOf
from rocketpipe.codes import RequestCode, ResponseCode
from rocketpipe.message import MessageQueue
from rocketpipe.remoting.connection import Connection
from rocketpipe.remoting.dispatch import Handler, Refusal
from rocketpipe.wire.bodies.offsets import ResetOffsetBody
from rocketpipe.wire.bodies.topics import TopicConfig
from rocketpipe.wire.frame import RemotingCommand
from rocketpipe.wire.requests.admin import CloneGroupOffset, InvokeBrokerToResetOffset
from rocketpipe.wire.requests.reading import (
    EarliestMsgStoretime,
    GetEarliestMsgStoretime,
    GetMaxOffset,
    GetMinOffset,
    Offset,
    QueryConsumerOffset,
    SearchOffsetByTimestamp,
    UpdateConsumerOffset,
)

if TYPE_CHECKING:
    from rocketpipe.broker.broker import Broker


def handlers(broker: "Broker") -> Mapping[int, Handler]:
    processor = _OffsetProcessor(broker)
    return {
        RequestCode.QUERY_CONSUMER_OFFSET: processor.query,
        RequestCode.UPDATE_CONSUMER_OFFSET: processor.update,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: processor.search,
        RequestCode.GET_MAX_OFFSET: processor.max_offset,
        RequestCode.GET_MIN_OFFSET: processor.min_offset,
        RequestCode.GET_EARLIEST_MSG_STORETIME: processor.earliest_store_time,
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: processor.reset,
        RequestCode.CLONE_GROUP_OFFSET: processor.clone,
    }


class _OffsetProcessor:
    def __init__(self, broker: "Broker") -> None:
        self._settings = broker.settings
        self._topics = broker.topics
        self._groups = broker.groups
        self._clients = broker.clients
        self._offsets = broker.offsets
        self._store = broker.store
        self._held_pulls = broker.held_pulls
        self._pop = broker.pop

    # Of groups.

    def query(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        header = QueryConsumerOffset.from_ext_fields(request.ext_fields)
        topic, queue_id = header.topic, header.queue_id
        offset = self._offsets.query(header.consumer_group, topic, queue_id)
        if offset < 0:
            if header.set_zero_if_not_found is False:
                raise Refusal(
                    ResponseCode.QUERY_NOT_FOUND,
                    "Not found, do not set to zero, maybe this group boot first",
                )
            # A new group of a young queue reads all of it, whatever it would begin with: so that
            # no message is missed that came while its topic was only being made.
            if not self._is_young(topic, queue_id):
                raise Refusal(
                    ResponseCode.QUERY_NOT_FOUND,
                    "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first",
                )
            offset = 0
        return _answer_offset(request, offset)

    def _is_young(self, topic: str, queue_id: int) -> bool:
        """Whether the queue still has its first message, and that counts as in memory."""
        place = self._store.physical_offset_at(topic, queue_id, 0)
        return place >= 0 and is_in_memory(self._store, self._settings, place)

    def update(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        header = UpdateConsumerOffset.from_ext_fields(request.ext_fields)
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        if group not in self._groups.table:
            raise Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} not exist!")
        config = self._topics.table.get(topic)
        if config is None:
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"Topic {topic} not exist!")
        # Apache keeps whatever it is told; here there is an end to the queues of a topic.
        if not 0 <= queue_id < max(config.read_queue_nums, config.write_queue_nums):
            raise Refusal(
                ResponseCode.INVALID_PARAMETER, f"queueId[{queue_id}] is illegal, topic is {topic}"
            )
        if self._offsets.is_reset(group, topic, queue_id):
            return request.answer(ResponseCode.SUCCESS, "Offset has been previously reset")
        self._offsets.commit(group, topic, queue_id, header.commit_offset)
        return request.answer(ResponseCode.SUCCESS)

    def reset(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """As 5.x: the group goes on from there, and its consumers learn that when they pull."""
        header = InvokeBrokerToResetOffset.from_ext_fields(request.ext_fields)
        group, topic = header.group, header.topic
        if self._settings.is_slave:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "Can not reset offset in slave broker")
        config = self._topics.table.get(topic)
        if config is None:
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"Topic {topic} does not exist")
        if group not in self._groups.table:
            raise Refusal(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} does not exist"
            )
        offsets = self._reset_offsets(header, config)
        for queue_id, offset in offsets.items():
            self._offsets.reset(group, topic, queue_id, offset)
            self._held_pulls.wake_group(group, topic, queue_id)
            self._pop.wake_for_queue(QueueOf(group, topic, queue_id))
        broker_name = self._settings.broker_name
        table = {
            MessageQueue(topic, broker_name, queue_id): offset
            for queue_id, offset in offsets.items()
        }
        body = ResetOffsetBody(offset_table=table).encode()
        return request.answer(ResponseCode.SUCCESS, body=body)

    def _reset_offsets(
        self, header: InvokeBrokerToResetOffset, config: TopicConfig
    ) -> dict[int, int]:
        """Where to go on, by queue."""
        topic = header.topic

        def by_time(queue_id: int) -> int:
            if header.timestamp < 0:
                return self._store.max_offset(topic, queue_id)
            return self._store.offset_by_time(topic, queue_id, header.timestamp)

        if header.queue_id < 0:
            return {queue_id: by_time(queue_id) for queue_id in range(config.read_queue_nums)}
        if header.queue_id >= max(config.read_queue_nums, config.write_queue_nums):
            raise Refusal(
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{header.queue_id}] is illegal, topic is {topic}",
            )
        if header.offset is None or header.offset == -1:
            return {header.queue_id: by_time(header.queue_id)}
        first = self._store.min_offset(topic, header.queue_id)
        last = self._store.max_offset(topic, header.queue_id)
        if not first <= header.offset <= last + 1:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"Target offset {header.offset} not in consume queue range [{first}-{last}]",
            )
        return {header.queue_id: header.offset}

    def clone(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        header = CloneGroupOffset.from_ext_fields(request.ext_fields)
        if self._groups.find(header.dest_group) is None:  # Apache keeps offsets for any name
            raise no_such_group(header.dest_group)
        source = self._clients.consumers.get(header.src_group)
        for topic in [header.topic] if header.topic else self._offsets.topics_of(header.src_group):
            is_read = header.offline or source is None or topic in source.subscriptions
            if topic in self._topics.table and is_read:
                self._offsets.copy(topic, of_group=header.src_group, to_group=header.dest_group)
        return request.answer(ResponseCode.SUCCESS)

    # Of queues.

    def search(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        header = SearchOffsetByTimestamp.from_ext_fields(request.ext_fields)
        is_upper = (header.boundary_type or "").lower() == "upper"
        offset = self._store.offset_by_time(
            header.topic, header.queue_id, header.timestamp, "upper" if is_upper else "lower"
        )
        return _answer_offset(request, offset)

    def max_offset(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        header = GetMaxOffset.from_ext_fields(request.ext_fields)
        return _answer_offset(request, self._store.max_offset(header.topic, header.queue_id))

    def min_offset(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        header = GetMinOffset.from_ext_fields(request.ext_fields)
        return _answer_offset(request, self._store.min_offset(header.topic, header.queue_id))

    def earliest_store_time(
        self, connection: Connection, request: RemotingCommand
    ) -> RemotingCommand:
        header = GetEarliestMsgStoretime.from_ext_fields(request.ext_fields)
        time_ms = self._store.earliest_store_time(header.topic, header.queue_id)
        fields = EarliestMsgStoretime(timestamp=time_ms).to_ext_fields()
        return request.answer(ResponseCode.SUCCESS, ext_fields=fields)


def _answer_offset(request: RemotingCommand, offset: int) -> RemotingCommand:
    fields = Offset(offset=offset).to_ext_fields()
    return request.answer(ResponseCode.SUCCESS, ext_fields=fields)
