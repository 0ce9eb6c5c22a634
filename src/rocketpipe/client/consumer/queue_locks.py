"""Locks on queues: brokers let one orderly consumer of a group have a queue at a time."""

import asyncio
import logging
from collections.abc import Collection

from rocketpipe.client.consumer.pulling import broker_address
from rocketpipe.client.instance import ClientInstance
from rocketpipe.errors import MQError
from rocketpipe.message import MessageQueue
from rocketpipe.wire.bodies.groups import LockBatchRequest
from rocketpipe.wire.requests.clients import LockBatchMq, UnlockBatchMq

log = logging.getLogger(__name__)

# Java's. A broker forgets a lock that was not renewed for 60 s.
RENEW_INTERVAL = 20.0
TRUSTED_FOR = 30.0


class QueueLocks:
    """The queues that brokers have locked for us."""

    def __init__(self, instance: ClientInstance, group: str) -> None:
        self._instance = instance
        self._group = group
        self._locked_at: dict[MessageQueue, float] = {}

    def is_held(self, queue: MessageQueue) -> bool:
        """Whether nobody else can have it: not if too much time went by since it was renewed."""
        locked_at = self._locked_at.get(queue)
        now = self._instance.environment.clock.monotonic()
        return locked_at is not None and now - locked_at <= TRUSTED_FOR

    def locked_ms_ago(self, queue: MessageQueue) -> int:
        now = self._instance.environment.clock.monotonic()
        return round((now - self._locked_at.get(queue, now)) * 1000)

    async def lock(self, queue: MessageQueue) -> bool:
        """Whether it is ours now; MQError when the broker can't be asked."""
        return await self._ask([queue]) == {queue}

    async def renew(self) -> set[MessageQueue]:
        """Keep all of them; those that are another's by now."""
        by_broker: dict[str, list[MessageQueue]] = {}
        for queue in self._locked_at:
            by_broker.setdefault(queue.broker_name, []).append(queue)
        lost: set[MessageQueue] = set()

        async def renew(queues: list[MessageQueue]) -> None:
            try:
                still_ours = await self._ask(queues)
            except MQError as error:
                log.info("locks of group %s: %s", self._group, error)
                return  # nobody else has them before we stop trusting them
            for queue in set(queues) - still_ours:
                if self._locked_at.pop(queue, None) is not None:
                    lost.add(queue)

        await asyncio.gather(*map(renew, by_broker.values()))
        return lost

    async def unlock(self, queue: MessageQueue) -> None:
        """Let another have it."""
        if self._locked_at.pop(queue, None) is None:
            return
        try:
            address = await broker_address(self._instance, queue)
            await self._instance.connections.request(
                address,
                UnlockBatchMq(),
                self._body([queue]),
                timeout=self._instance.settings.request_timeout,
            )
        except MQError as error:
            log.info("locks of group %s: %s", self._group, error)  # it ends by itself

    def forget(self, queue: MessageQueue) -> None:
        """Renew it no more, and let the broker find out: we may still be at work on it."""
        self._locked_at.pop(queue, None)

    async def _ask(self, queues: Collection[MessageQueue]) -> set[MessageQueue]:
        asked_at = self._instance.environment.clock.monotonic()
        address = await broker_address(self._instance, next(iter(queues)))
        answer = await self._instance.connections.request(
            address,
            LockBatchMq(),
            self._body(queues),
            timeout=self._instance.settings.request_timeout,
        )
        ours = set(answer.lock_ok_mq_set) & set(queues)
        for queue in ours:
            self._locked_at[queue] = asked_at
        return ours

    def _body(self, queues: Collection[MessageQueue]) -> bytes:
        return LockBatchRequest(
            client_id=self._instance.client_id,
            consumer_group=self._group,
            mq_set=frozenset(queues),
        ).encode()
