"""Offsets: how far queues reach, how far a group is with them, and where it begins."""

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from rocketpipe.client.checks import RETRY_PREFIX
from rocketpipe.client.consumer.pulling import broker_address
from rocketpipe.client.consumer.settings import FIRST, LAST, ConsumerSettings
from rocketpipe.client.instance import ClientInstance
from rocketpipe.codes import ResponseCode
from rocketpipe.errors import BrokerError, MalformedData, MQError
from rocketpipe.message import MessageQueue
from rocketpipe.wire.bodies.offsets import ResetOffsetBody
from rocketpipe.wire.headers import Request
from rocketpipe.wire.requests.reading import (
    GetMaxOffset,
    GetMinOffset,
    Offset,
    QueryConsumerOffset,
    SearchOffsetByTimestamp,
    UpdateConsumerOffset,
)

log = logging.getLogger(__name__)


class OffsetStore(Protocol):
    """Where a group's offsets are kept."""

    async def read(self, queue: MessageQueue, *, is_exact: bool = False) -> int | None:
        """The offset to go on from; None if the group never was here.

        Unless `is_exact`, 0 too may mean that, while the queue still has its first message.
        """

    async def write(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Keep these; MQError or OSError when some could not be kept."""


class QueueEnds:
    """Asks brokers how far queues reach."""

    def __init__(self, instance: ClientInstance) -> None:
        self._instance = instance

    async def min_offset(self, queue: MessageQueue) -> int:
        request = GetMinOffset(
            topic=queue.topic, queue_id=queue.queue_id, broker_name=queue.broker_name
        )
        return await self.ask(queue, request)

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message will have."""
        request = GetMaxOffset(
            topic=queue.topic, queue_id=queue.queue_id, broker_name=queue.broker_name
        )
        return await self.ask(queue, request)

    async def offset_at(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Of the first message that was stored then or later."""
        request = SearchOffsetByTimestamp(
            topic=queue.topic,
            queue_id=queue.queue_id,
            timestamp=timestamp_ms,
            broker_name=queue.broker_name,
        )
        return await self.ask(queue, request)

    async def ask(self, queue: MessageQueue, request: Request[Offset]) -> int:
        address = await broker_address(self._instance, queue)
        timeout = self._instance.settings.request_timeout
        reply = await self._instance.connections.request(address, request, timeout=timeout)
        return reply.offset


class RemoteOffsets:
    """Kept by the queue's own broker, for the whole group."""

    def __init__(self, instance: ClientInstance, group: str) -> None:
        self._instance = instance
        self._ends = QueueEnds(instance)
        self._group = group

    async def read(self, queue: MessageQueue, *, is_exact: bool = False) -> int | None:
        request = QueryConsumerOffset(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            set_zero_if_not_found=False if is_exact else None,  # 4.x does not know of it: 0
            broker_name=queue.broker_name,
        )
        try:
            return await self._ends.ask(queue, request)
        except BrokerError as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                return None
            raise

    async def write(self, offsets: Mapping[MessageQueue, int]) -> None:
        by_broker: dict[str, list[MessageQueue]] = {}
        for queue in offsets:
            by_broker.setdefault(queue.broker_name, []).append(queue)

        async def write(queues: list[MessageQueue]) -> None:
            # One after another: of a group's first two that come at once, Apache's brokers may
            # keep only one (ConsumerOffsetManager.commitOffset).
            for queue in queues:
                try:
                    await self._write(queue, offsets[queue])
                except MQError as error:
                    failures.append(error)  # the others shall not suffer for it

        failures: list[MQError] = []
        await asyncio.gather(*map(write, by_broker.values()))
        if failures:
            raise failures[0]

    async def _write(self, queue: MessageQueue, offset: int) -> None:
        request = UpdateConsumerOffset(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            commit_offset=offset,
            broker_name=queue.broker_name,
        )
        address = await broker_address(self._instance, queue)
        timeout = self._instance.settings.request_timeout
        await self._instance.connections.request(address, request, timeout=timeout)


class LocalOffsets:
    """Kept in a file of this machine, as each broadcasting consumer has its own.

    Java's LocalFileOffsetStore: `<folder>/<client id>/<group>/offsets.json`, and the one before it
    beside it.
    """

    def __init__(self, folder: Path, client_id: str, group: str) -> None:
        self._file = folder / client_id / group / "offsets.json"
        self._offsets = self._load()

    async def read(self, queue: MessageQueue, *, is_exact: bool = False) -> int | None:
        return self._offsets.get(queue)

    async def write(self, offsets: Mapping[MessageQueue, int]) -> None:
        self._offsets.update(offsets)
        self._file.parent.mkdir(parents=True, exist_ok=True)
        fresh = self._file.with_suffix(".json.tmp")
        fresh.write_bytes(ResetOffsetBody(offset_table=self._offsets).encode())
        if self._file.exists():
            self._file.replace(self._backup)
        fresh.replace(self._file)

    @property
    def _backup(self) -> Path:
        return self._file.with_suffix(".json.bak")

    def _load(self) -> dict[MessageQueue, int]:
        for file in (self._file, self._backup):
            try:
                return dict(ResetOffsetBody.decode(file.read_bytes()).offset_table)
            except FileNotFoundError:
                continue
            except MalformedData as error:
                log.warning("%s can't be read, and is passed over: %s", file, error)
        return {}


async def first_offset(
    store: OffsetStore, ends: QueueEnds, settings: ConsumerSettings, queue: MessageQueue
) -> int:
    """Where a group goes on, or begins (RebalancePushImpl.computePullFromWhere)."""
    is_retry = queue.topic.startswith(RETRY_PREFIX)
    # Asked for before the broker says that the group is new here: of a queue that is only being
    # made, a broker may say so, and a message that comes right after that would be missed.
    begin = await _begin(ends, settings.consume_from, queue, is_retry=is_retry)
    # A time says itself what a group is not to miss, so a young queue need not be read from its
    # first message on. Of retries it says nothing.
    is_exact = isinstance(settings.consume_from, int) and not is_retry
    stored = await store.read(queue, is_exact=is_exact)
    return stored if stored is not None and stored >= 0 else begin


async def _begin(
    ends: QueueEnds, consume_from: str | int, queue: MessageQueue, *, is_retry: bool
) -> int:
    if consume_from == FIRST or (consume_from == LAST and is_retry):
        return await ends.min_offset(queue)
    if consume_from == LAST or is_retry:
        return await ends.max_offset(queue)
    assert isinstance(consume_from, int)
    return await ends.offset_at(queue, consume_from)
