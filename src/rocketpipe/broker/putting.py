"""What happens to a message between whoever puts it and the store."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from rocketpipe.broker.names import SCHEDULE_TOPIC
from rocketpipe.broker.replication import Slaves
from rocketpipe.broker.settings import BrokerSettings
from rocketpipe.broker.store.message_store import MessageStore
from rocketpipe.broker.store.values import MessageDraft, PutResult, PutStatus
from rocketpipe.codes import ResponseCode
from rocketpipe.host import pack_host
from rocketpipe.message import StoredMessage
from rocketpipe.wire.java_text import read_integer
from rocketpipe.wire.properties import (
    DELAY,
    REAL_QID,
    REAL_TOPIC,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    decode_properties,
    encode_properties,
)

# Is told what became of a message, and what a send of it is answered with.
Stored = Callable[[PutResult, ResponseCode], None]

CODES = {
    PutStatus.PUT_OK: ResponseCode.SUCCESS,
    PutStatus.FLUSH_DISK_TIMEOUT: ResponseCode.FLUSH_DISK_TIMEOUT,
    PutStatus.MESSAGE_ILLEGAL: ResponseCode.MESSAGE_ILLEGAL,
    PutStatus.SERVICE_NOT_AVAILABLE: ResponseCode.SERVICE_NOT_AVAILABLE,
    PutStatus.OS_PAGE_CACHE_BUSY: ResponseCode.SYSTEM_BUSY,
}

_DELAY_MARK = f"{DELAY}\x01"
_IS_SLAVE = "this broker is a slave"


class Puts:
    """Puts messages into the store as this broker's role has it; those with a delay to wait."""

    def __init__(self, settings: BrokerSettings, store: MessageStore, slaves: Slaves) -> None:
        self._settings = settings
        self._store = store
        self._slaves = slaves

    def put(self, draft: MessageDraft, stored: Stored) -> None:
        """Store a message; `stored` is called once, when it is as safe as the settings promise."""
        if _DELAY_MARK in draft.properties:
            try:
                draft = delayed(draft, len(self._settings.store.delay_levels))
            except ValueError as error:
                _refuse(stored, PutStatus.MESSAGE_ILLEGAL, f"{DELAY}: {error}")
                return
        self.put_now(draft, stored)

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
        code = CODES[result.status]
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


def delayed(draft: MessageDraft, level_max: int) -> MessageDraft:
    """The draft, to wait in SCHEDULE_TOPIC_XXXX if its properties name a level; or ValueError."""
    properties = decode_properties(draft.properties)
    level = read_integer(properties.get(DELAY, "0"), 32)
    if level <= 0:
        return draft
    level = min(level, level_max)
    for name in (TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER_MS):  # a level wins over a time
        properties.pop(name, None)
    properties |= {DELAY: str(level), REAL_TOPIC: draft.topic, REAL_QID: str(draft.queue_id)}
    return draft._replace(
        topic=SCHEDULE_TOPIC, queue_id=level - 1, properties=encode_properties(properties)
    )


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
