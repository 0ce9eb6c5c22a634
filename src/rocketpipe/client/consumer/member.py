"""What brokers are told of a consumer, and how their questions about it are answered."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rocketpipe.client.consumer.process_queue import Assigned
from rocketpipe.message import MessageQueue, StoredMessage
from rocketpipe.wire.bodies.consumer_info import (
    ConsumeMessageDirectlyResult,
    ConsumerRunningInfo,
    ProcessQueueInfo,
)
from rocketpipe.wire.bodies.heartbeat import ConsumerData

if TYPE_CHECKING:
    from rocketpipe.client.consumer.base import BaseConsumer


class Member:
    """A GroupMember: the side of a consumer that its users do not see."""

    def __init__(self, consumer: "BaseConsumer") -> None:
        self._consumer = consumer

    def consumer_data(self) -> ConsumerData:
        consumer = self._consumer
        return ConsumerData(
            group_name=consumer._group,
            consume_type=consumer._consume_type,
            message_model=consumer._model,
            consume_from_where=consumer._settings.consume_from_where,
            subscription_data_set=tuple(consumer._subscriptions.values()),
        )

    def rebalance_soon(self) -> None:
        self._consumer._rebalancer.soon()

    def reset_offsets(self, offsets: Mapping[MessageQueue, int]) -> None:
        self._consumer._background.spawn(self._consumer._reset_offsets(offsets))

    def positions(self, topic: str) -> dict[MessageQueue, int]:
        return {
            queue: offset
            for queue, assigned in self._consumer._assigned.items()
            for offset in [self._consumer._commit_offset(assigned)]
            if queue.topic == topic and offset is not None
        }

    def running_info(self) -> ConsumerRunningInfo:
        consumer = self._consumer
        return ConsumerRunningInfo(
            properties={
                "PROP_NAMESERVER_ADDR": f"{consumer._settings.namesrv};",
                "PROP_CONSUME_TYPE": consumer._consume_type.value,
                "PROP_CLIENT_VERSION": "V5_5_0",
                "PROP_CONSUMER_START_TIMESTAMP": str(consumer._started_ms),
                **consumer._running_properties(),
            },
            subscription_set=tuple(consumer._subscriptions.values()),
            mq_table={
                queue: self._queue_info(assigned) for queue, assigned in consumer._assigned.items()
            },
        )

    def _queue_info(self, assigned: Assigned) -> ProcessQueueInfo:
        queue = assigned.process_queue
        has_any = queue.count > 0
        return ProcessQueueInfo(
            commit_offset=self._consumer._commit_offset(assigned) or 0,
            cached_msg_min_offset=queue.commit_offset if has_any else 0,
            cached_msg_max_offset=queue.last_offset if has_any else 0,
            cached_msg_count=queue.count,
            cached_msg_size_in_mib=queue.bytes >> 20,
            dropped=queue.is_dropped,
            last_pull_timestamp=queue.last_pull_ms,
            last_consume_timestamp=queue.last_consume_ms,
        )

    async def consume_directly(self, message: StoredMessage) -> ConsumeMessageDirectlyResult:
        return await self._consumer._consume_directly(message)
