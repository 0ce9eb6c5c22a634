"""What happens to a message between whoever puts it and the store."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from rocketpipe.broker.replication import Slaves
from rocketpipe.broker.settings import BrokerSettings
from rocketpipe.broker.store.message_store import MessageStore
from rocketpipe.broker.store.values import MessageDraft, PutResult, PutStatus
from rocketpipe.broker.waiting import CanNotWait, may_wait, placed_to_wait
from rocketpipe.clock import Clock
from rocketpipe.codes import ResponseCode
from rocketpipe.host import pack_host
from rocketpipe.message import StoredMessage
from rocketpipe.wire.properties import encode_properties

# Is told what became of a message, and what a send of it is answered with.
Stored = Callable[[PutResult, ResponseCode], None]

CODES = {
    PutStatus.PUT_OK: ResponseCode.SUCCESS,
    PutStatus.FLUSH_DISK_TIMEOUT: ResponseCode.FLUSH_DISK_TIMEOUT,
    PutStatus.MESSAGE_ILLEGAL: ResponseCode.MESSAGE_ILLEGAL,
    PutStatus.SERVICE_NOT_AVAILABLE: ResponseCode.SERVICE_NOT_AVAILABLE,
    PutStatus.OS_PAGE_CACHE_BUSY: ResponseCode.SYSTEM_BUSY,
    PutStatus.WHEEL_TIMER_MSG_ILLEGAL: ResponseCode.MESSAGE_ILLEGAL,
    PutStatus.WHEEL_TIMER_NOT_ENABLE: ResponseCode.SYSTEM_ERROR,
}

_IS_SLAVE = "this broker is a slave"


class Puts:
    """Puts messages into the store as this broker's role has it; some of them to wait."""

    def __init__(
        self, settings: BrokerSettings, store: MessageStore, slaves: Slaves, clock: Clock
    ) -> None:
        self._settings = settings
        self._store = store
        self._slaves = slaves
        self._clock = clock

    def put(self, draft: MessageDraft, stored: Stored) -> None:
        """Store a message; `stored` is called once, when it is as safe as the settings promise."""
        if may_wait(draft.properties):
            try:
                draft = self.placed(draft)
            except CanNotWait as error:
                _refuse(stored, error.status, str(error))
                return
        self.put_now(draft, stored)

    def placed(self, draft: MessageDraft) -> MessageDraft:
        """The draft, in the place where it has to wait if its properties say so; or CanNotWait."""
        return placed_to_wait(draft, self._settings, self._clock.wall_ms())

    def put_now(self, draft: MessageDraft, stored: Stored) -> None:
        """Store a message where its draft says, whatever its delay."""
        if self._settings.is_slave:
            _refuse(stored, PutStatus.SERVICE_NOT_AVAILABLE, _IS_SLAVE)
        else:
            self._store.put(draft, partial(self._flushed, stored, draft.wait_store_ok))

    def put_batch(self, draft: MessageDraft, stored: Stored) -> None:
        """Store the messages of a batch, all or none."""
        if self._settings.is_slave:
            _refuse(stored, PutStatus.SERVICE_NOT_AVAILABLE, _IS_SLAVE)
        else:
            self._store.put_batch(draft, partial(self._flushed, stored, draft.wait_store_ok))

    async def put_and_wait(self, draft: MessageDraft) -> PutResult:
        """What `put` gives to its callback: for all but the hottest paths."""
        return await as_future(self.put, draft)

    def _flushed(self, stored: Stored, waits: bool, result: PutResult) -> None:
        # Members of an enum are slow to look up by, and this is nearly always that one.
        is_ok = result.status is PutStatus.PUT_OK
        code = ResponseCode.SUCCESS if is_ok else CODES[result.status]
        if not waits or not self._slaves.are_waited_for or not result.is_stored:
            stored(result, code)
            return

        def replicated(slaves_code: ResponseCode) -> None:
            # If disk and slaves both fail us, the slaves' failure is told, as by Apache.
            stored(result, code if slaves_code is ResponseCode.SUCCESS else slaves_code)

        self._slaves.wait(result.end_offset, replicated)


def _refuse(stored: Stored, status: PutStatus, reason: str) -> None:
    stored(PutResult(status, reason=reason), CODES[status])


def as_future(
    put: Callable[[MessageDraft, Stored], None], draft: MessageDraft
) -> asyncio.Future[PutResult]:
    """The result that a put gives to its callback, as a future; it was put when this returns."""
    future: asyncio.Future[PutResult] = asyncio.get_running_loop().create_future()
    put(draft, lambda result, _: None if future.done() else future.set_result(result))
    return future


def redraft(message: StoredMessage, **changes: Any) -> MessageDraft:
    """A draft to store a message again, which was decoded as it is stored: not decompressed.

    Nobody waits for such a message, so it is done as soon as the log has it.
    """
    return MessageDraft(
        **{
            "topic": message.topic,
            "queue_id": message.queue_id,
            "body": message.body,
            "properties": encode_properties(message.properties),
            "born_timestamp_ms": message.born_timestamp_ms,
            "born_host": pack_host(message.born_host),
            "store_host": pack_host(message.store_host),
            "flag": message.flag,
            "sys_flag": message.sys_flag,
            "reconsume_times": message.reconsume_times,
            "prepared_transaction_offset": message.prepared_transaction_offset,
            "wait_store_ok": False,
            **changes,
        }
    )
