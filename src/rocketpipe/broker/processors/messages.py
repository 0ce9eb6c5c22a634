"""Messages and where they are: by place, by key, and the entries of a queue."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rocketpipe.broker.transactions import NOT_SET
from rocketpipe.codes import RequestCode, ResponseCode
from rocketpipe.remoting.connection import Connection
from rocketpipe.remoting.dispatch import Handler, Refusal
from rocketpipe.wire.bodies.offsets import ConsumeQueueAnswer, ConsumeQueueData
from rocketpipe.wire.frame import RemotingCommand
from rocketpipe.wire.requests.admin import QueryConsumeQueue
from rocketpipe.wire.requests.reading import QueryMessage, QueryMessageReply, ViewMessageById

if TYPE_CHECKING:
    from rocketpipe.broker.broker import Broker

QUERY_BYTES_MAX = 8 * 1024 * 1024  # half a frame
ENTRIES_MAX = 10_000


def handlers(broker: "Broker") -> Mapping[int, Handler]:
    processor = _MessageProcessor(broker)
    return {
        RequestCode.VIEW_MESSAGE_BY_ID: processor.view,
        RequestCode.QUERY_MESSAGE: processor.query,
        RequestCode.QUERY_CONSUME_QUEUE: processor.query_queue,
    }


class _MessageProcessor:
    def __init__(self, broker: "Broker") -> None:
        self._settings = broker.settings
        self._clients = broker.clients
        self._store = broker.store

    def view(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        header = ViewMessageById.from_ext_fields(request.ext_fields)
        record = self._store.record_at(header.offset)
        if record is None:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {header.offset}"
            )
        return request.answer(ResponseCode.SUCCESS, body=record)

    def query(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        header = QueryMessage.from_ext_fields(request.ext_fields)
        count = header.max_num
        if header.unique_key_query:
            count = self._settings.default_query_max_num
        found = self._store.query(
            header.topic,
            header.key,
            count_max=min(count, self._settings.max_msgs_num_batch),
            begin_ms=header.begin_timestamp,
            end_ms=header.end_timestamp,
        )
        fields = QueryMessageReply(
            index_last_update_timestamp=found.last_update_timestamp_ms,
            index_last_update_phyoffset=found.last_update_physical_offset,
        ).to_ext_fields()
        if not found.records:
            raise Refusal(
                ResponseCode.QUERY_NOT_FOUND,
                "can not find message, maybe time range not correct",
                fields,
            )
        # The newest that fit, but in the order of the log.
        body = b"".join(reversed(_within(found.records, QUERY_BYTES_MAX)))
        return request.answer(ResponseCode.SUCCESS, None, fields, body)

    def query_queue(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        header = QueryConsumeQueue.from_ext_fields(request.ext_fields)
        store, topic, queue_id = self._store, header.topic, header.queue_id
        first, last = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
        data = []
        for offset in range(header.index, header.index + min(header.count, ENTRIES_MAX)):
            entry = store.entry_at(topic, queue_id, offset)
            if entry is None:
                break
            place, size, tags_code = entry
            data.append(
                ConsumeQueueData(physic_offset=place, physic_size=size, tags_code=tags_code)
            )
        if not data and last:
            remark = f"Index {header.index} of {queue_id}@{topic} is not exist!"
            return request.answer(ResponseCode.SUCCESS, remark)
        subscription = filter_data = None
        if header.consumer_group is not None:
            group = self._clients.consumers.get(header.consumer_group)
            subscription = group.subscriptions.get(topic) if group is not None else None
            filter_data = "null"
            if subscription is None:
                filter_data = f"{header.consumer_group}@{topic} is not online!"
        answer = ConsumeQueueAnswer(
            queue_data=tuple(data),
            min_queue_index=first,
            max_queue_index=last,
            subscription_data=subscription,
            filter_data=filter_data,
        )
        return request.answer(ResponseCode.SUCCESS, NOT_SET, body=answer.encode())


def _within(records: list[bytes], bytes_max: int) -> list[bytes]:
    """As many of the records as may travel at once; the first in any case."""
    total = 0
    for count, record in enumerate(records):
        total += len(record)
        if count and total > bytes_max:
            return records[:count]
    return records
