"""Transactions: a message that consumers get only if the sender's own work succeeds.

The message is sent as a half message, which nobody gets to see. Then the listener does its work,
and the broker is told to commit the message or to roll it back. A broker that is told nothing, or
that the outcome is unknown, asks for it later, and asks any producer of the group.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, fields, replace
from typing import Any, Protocol

from rocketpipe.client.checks import is_delayed
from rocketpipe.client.hooks import EndTransactionContext
from rocketpipe.client.namespace import without_namespace
from rocketpipe.client.producer import AsyncProducer
from rocketpipe.client.replies import Reply
from rocketpipe.client.sender import DEFAULT_REGION
from rocketpipe.client.settings import ProducerSettings
from rocketpipe.client.threads import Threads
from rocketpipe.errors import InvalidMessage, InvalidSetting, MQError
from rocketpipe.message import (
    Message,
    SendStatus,
    StoredMessage,
    TransactionResult,
    TransactionState,
)
from rocketpipe.remoting.address import Address
from rocketpipe.wire import properties as names
from rocketpipe.wire.message_id import parse_offset_message_id
from rocketpipe.wire.requests.callbacks import CheckTransactionState
from rocketpipe.wire.requests.sending import EndTransaction
from rocketpipe.wire.sys_flag import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK

log = logging.getLogger(__name__)

END_PAUSE = 0.2  # before a broker that can't be reached is told once more how it ended
REMARK_CHARACTERS_MAX = 1024

_SYS_FLAGS = {
    TransactionState.COMMIT: TRANSACTION_COMMIT,
    TransactionState.ROLLBACK: TRANSACTION_ROLLBACK,
    TransactionState.UNKNOWN: 0,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HalfMessage(Message):
    """The message of a transaction, with the id by which `check` will know it again."""

    message_id: str


class TransactionListener(Protocol):
    """The sender's own work. Both may be coroutines, or plain functions, which run in threads.

    What raises an error counts as UNKNOWN.
    """

    def execute(
        self, message: HalfMessage, arg: Any
    ) -> TransactionState | Awaitable[TransactionState]:
        """The half message is stored: do the work, and say whether it succeeded."""

    def check(self, message: StoredMessage) -> TransactionState | Awaitable[TransactionState]:
        """A broker asks how this ended. It may have been sent by another producer of the group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Half:
    """A half message, and where its broker keeps it."""

    message: Message | StoredMessage
    message_id: str
    topic: str  # on the wire
    region_id: str
    broker_name: str | None
    queue_offset: int  # in the queue of half messages
    commit_log_offset: int
    is_checked: bool  # the broker asks how it ended
    find_broker: Callable[[float], Awaitable[Address]]  # within so many seconds


class AsyncTransactionProducer(AsyncProducer):
    """A producer that can also send in transactions.

    async with AsyncTransactionProducer("order-service", listener, namesrv=...) as producer:
        result = await producer.send_in_transaction(Message("orders", b"..."), order)
    """

    def __init__(
        self, producer_group: str | ProducerSettings, listener: TransactionListener, **others: Any
    ) -> None:
        super().__init__(producer_group, **others)
        if not all(callable(getattr(listener, name, None)) for name in ("execute", "check")):
            raise InvalidSetting(f"the listener {listener!r:.100} has no methods execute and check")
        self._listener = listener
        self._threads = Threads("rocketpipe-listener", self.settings.listener_threads_max)
        self._checks = 0  # those that wait, and those that the listener is asked
        self._check_turn = asyncio.Semaphore(self.settings.transaction_checks_max)
        self._check_transaction = self._take_check

    async def close(self) -> None:
        try:
            await super().close()
        finally:
            self._threads.close()

    async def send_in_transaction(
        self, message: Message, arg: Any = None, *, timeout: float | None = None
    ) -> TransactionResult:
        """Where the half message was stored and how the transaction ended, or SendFailed.

        The listener gets the message and `arg` if the broker has it safe (SEND_OK); with any other
        status the transaction is rolled back. The timeout is for sending.
        """
        self._lifecycle.require_running()
        outgoing = self._packer.pack(message, {names.TRAN_MSG: "true", names.PGROUP: self._group})
        if is_delayed(message):
            raise InvalidMessage("a message of a transaction can't be delayed")
        if isinstance(message, Reply):
            raise InvalidMessage("a reply can't be part of a transaction")
        with self._in_flight:
            sent = await self._sender.send(outgoing, None, timeout=self._timeout(timeout))
            broker_name = sent.queue.broker_name
            half = _Half(
                message=message,
                message_id=sent.message_id,
                topic=outgoing.topic,
                region_id=sent.region_id,
                broker_name=broker_name,
                queue_offset=sent.queue_offset,
                commit_log_offset=parse_offset_message_id(sent.offset_message_id).physical_offset,
                is_checked=False,
                find_broker=lambda left: self._instance.master(
                    outgoing.topic, broker_name, timeout=left
                ),
            )
            state, remark = TransactionState.ROLLBACK, None
            if sent.status is SendStatus.SEND_OK:
                values = {each.name: getattr(message, each.name) for each in fields(Message)}
                state, remark = await self._ask(
                    "executeLocalTransactionBranch exception",
                    *(self._listener.execute, HalfMessage(**values, message_id=sent.message_id)),
                    arg,
                )
            await self._end(half, state, remark)
        return TransactionResult(sent, state)

    # A broker asks.

    def _take_check(
        self, broker: Address, header: CheckTransactionState, message: StoredMessage
    ) -> None:
        settings = self.settings
        if (
            self._checks
            >= settings.transaction_checks_max + settings.transaction_checks_waiting_max
        ):
            log.warning(
                "%s asks how transaction %s ended, but too many such questions wait already",
                *(broker, message.message_id),
            )
        else:
            self._checks += 1
            self._background.spawn(self._check(broker, header, message))

    async def _check(
        self, broker: Address, header: CheckTransactionState, message: StoredMessage
    ) -> None:
        async def find_broker(left: float) -> Address:
            return broker

        half = _Half(
            message=message,
            message_id=message.message_id,
            # Java repeats the name of the half topic, as the broker gave it; but it is the real one
            # for which a broker with an ACL wants to know whether we may write to it.
            topic=message.topic,
            region_id=message.properties.get(names.MSG_REGION) or DEFAULT_REGION,
            broker_name=header.broker_name,
            queue_offset=header.tran_state_table_offset,
            commit_log_offset=header.commit_log_offset,
            is_checked=True,
            find_broker=find_broker,
        )
        topic = without_namespace(self.settings.namespace, message.topic)
        try:
            async with self._check_turn:
                state, remark = await self._ask(
                    "checkLocalTransactionState Exception",
                    *(self._listener.check, replace(message, topic=topic)),
                )
            await self._end(half, state, remark)
        finally:
            self._checks -= 1

    # The listener, and what becomes of its answer.

    async def _ask(
        self, what: str, function: Callable[..., Any], *args: Any
    ) -> tuple[TransactionState, str | None]:
        """What the listener says, and a remark for the broker's log if it failed."""
        try:
            state = await self._threads.call(function, *args)
            if not isinstance(state, TransactionState):
                raise TypeError(f"a listener returned {state!r:.100}, not a TransactionState")
        except Exception as error:
            log.exception("%r failed: the broker will ask how the transaction ended", function)
            remark = f"{what}: {type(error).__name__}: {error}"
            return TransactionState.UNKNOWN, remark[:REMARK_CHARACTERS_MAX]
        return state, None

    async def _end(self, half: _Half, state: TransactionState, remark: str | None) -> None:
        """Tell the broker, which gives no answer; if it can't be told, it will ask by itself."""
        request = EndTransaction(
            producer_group=self._group,
            tran_state_table_offset=half.queue_offset,
            commit_log_offset=half.commit_log_offset,
            commit_or_rollback=_SYS_FLAGS[state],
            from_transaction_check=half.is_checked,
            msg_id=half.message_id,
            transaction_id=half.message_id,
            topic=half.topic,
            broker_name=half.broker_name,
        )
        now = asyncio.get_running_loop().time
        deadline = now() + self.settings.send_timeout
        while True:
            left = deadline - now()
            try:
                broker = await half.find_broker(left)
                await self._instance.connections.send_oneway(
                    broker, request, remark=remark, timeout=left
                )
                break
            except MQError as error:
                if now() + END_PAUSE >= deadline:
                    log.warning(
                        "transaction %s ended with %s, but its broker could not be told: %s",
                        *(half.message_id, state.name, error),
                    )
                    return
                self._instance.routes.refresh_soon(half.topic)  # it may be elsewhere by now
                await asyncio.sleep(END_PAUSE)
        self._hooks.end_transaction(
            EndTransactionContext(
                producer_group=self.settings.producer_group,
                topic=without_namespace(self.settings.namespace, half.topic),
                message_id=half.message_id,
                tags=half.message.tags,
                keys=half.message.keys,
                region_id=half.region_id,
                state=state,
                is_from_check=half.is_checked,
                address=str(broker),
            )
        )
