"""Offsets: where queues begin and end, and where in them a moment is."""

from typing import Literal

from rocketpipe.client.admin.asking import V5_1, Asking, describe
from rocketpipe.codes import ResponseCode
from rocketpipe.errors import BrokerError
from rocketpipe.message import MessageQueue
from rocketpipe.wire.requests.reading import (
    GetEarliestMsgStoretime,
    GetMaxOffset,
    GetMinOffset,
    QueryConsumerOffset,
    SearchOffsetByTimestamp,
)

Boundary = Literal["lower", "upper"]


class OffsetAdmin(Asking):
    async def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the oldest message that the queue still has."""
        request = GetMinOffset(topic=queue.topic, queue_id=queue.queue_id)
        reply = await self._ask_queue(
            queue, request, doing=f"ask for the first offset of {describe(queue)}"
        )
        return reply.offset

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the queue's next message will get."""
        request = GetMaxOffset(topic=queue.topic, queue_id=queue.queue_id)
        reply = await self._ask_queue(
            queue, request, doing=f"ask for the next offset of {describe(queue)}"
        )
        return reply.offset

    async def search_offset(
        self, queue: MessageQueue, timestamp_ms: int, *, boundary: Boundary = "lower"
    ) -> int:
        """The first message stored at that time or later; `upper`: the last one at it or before.

        Where there is none, it is the end of the queue or its first message. Brokers before 5.1
        know no upper boundary, and take the message nearest in time for the lower one.
        """
        doing = f"search {describe(queue)} by time"
        if boundary == "upper":
            await self._require_release(
                await self._master_of(queue), V5_1, "it knows no upper boundary, as 5.1 does"
            )
        request = SearchOffsetByTimestamp(
            topic=queue.topic,
            queue_id=queue.queue_id,
            timestamp=timestamp_ms,
            boundary_type=boundary,
        )
        return (await self._ask_queue(queue, request, doing=doing)).offset

    async def earliest_store_time(self, queue: MessageQueue) -> int | None:
        """When the oldest message of the queue was stored, in ms; None if there is none."""
        request = GetEarliestMsgStoretime(topic=queue.topic, queue_id=queue.queue_id)
        reply = await self._ask_queue(queue, request, doing=f"ask for the age of {describe(queue)}")
        return reply.timestamp if reply.timestamp > 0 else None

    async def consumer_offset(self, group: str, queue: MessageQueue) -> int | None:
        """How far a group is with a queue; None if it never said (0, says a broker of 4.x)."""
        request = QueryConsumerOffset(
            consumer_group=group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            set_zero_if_not_found=False,
        )
        doing = f"ask how far group {group!r} is with {describe(queue)}"
        try:
            return (await self._ask_queue(queue, request, doing=doing)).offset
        except BrokerError as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                return None
            raise
