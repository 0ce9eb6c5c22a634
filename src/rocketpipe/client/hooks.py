"""Hooks: a user's own code around every attempt at sending."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from rocketpipe.errors import InvalidSetting, MQError
from rocketpipe.message import Attempt, Message, MessageQueue, SendResult, TransactionState

log = logging.getLogger(__name__)


@dataclass(slots=True)
class SendContext:
    """An attempt at sending, as hooks see it."""

    producer_group: str
    messages: Sequence[Message]  # one, or those of a batch
    message_id: str  # of a batch, all of them joined by commas
    body_bytes: int  # as sent, which may be compressed
    is_oneway: bool
    is_transaction: bool  # a half message
    attempt_number: int  # from 1
    queue: MessageQueue
    address: str | None = None  # of the broker, once it is known
    attempt: Attempt | None = None  # once it has ended
    result: SendResult | None = None  # if it ended well; None for a one-way send
    policy: str = ""  # the name of the one that chose the queue


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTransactionContext:
    """How a transaction ended, as a broker was told."""

    producer_group: str
    topic: str
    message_id: str
    tags: str | None
    keys: Sequence[str]
    region_id: str
    state: TransactionState
    is_from_check: bool  # the broker asked; else we told it by ourselves
    address: str  # of the broker


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallContext:
    """A timed message that was taken back, or was not."""

    producer_group: str
    topic: str
    message_id: str
    region_id: str
    error: MQError | None


class SendHook:
    """Override what you need. Hooks run on the event loop, so they must not block."""

    def check_forbidden(self, context: SendContext) -> None:
        """Raise an error to forbid this attempt; the send then fails with it."""

    def before(self, context: SendContext) -> None:
        """An attempt begins. What is raised here is logged and changes nothing."""

    def after(self, context: SendContext) -> None:
        """An attempt has ended, well or not. What is raised here is logged and changes nothing."""

    def answered_late(self, context: SendContext) -> None:
        """An attempt that was over, its time being up, was answered after all: the broker stored
        it. The send was still going on, or had ended well by another attempt. The context is
        that attempt's, with how it would have ended. What is raised here changes nothing."""

    def end_transaction(self, context: EndTransactionContext) -> None:
        """A broker was told how a transaction ended. What is raised here changes nothing."""

    def recalled(self, context: RecallContext) -> None:
        """A broker answered to a recall. What is raised here changes nothing."""

    async def close(self) -> None:
        """The producer closes: write what is still kept."""


class Hooks:
    """All hooks of a producer, called one after another."""

    def __init__(self, hooks: Sequence[SendHook]) -> None:
        self._hooks = tuple(hooks)
        if not all(isinstance(hook, SendHook) for hook in self._hooks):
            raise InvalidSetting(f"hooks are {self._hooks!r:.100}: they must be SendHooks")

    def __bool__(self) -> bool:
        return bool(self._hooks)

    def before(self, context: SendContext) -> None:
        for hook in self._hooks:
            hook.check_forbidden(context)
        self._call("before", context)

    def after(self, context: SendContext) -> None:
        self._call("after", context)

    def answered_late(self, context: SendContext) -> None:
        self._call("answered_late", context)

    def end_transaction(self, context: EndTransactionContext) -> None:
        self._call("end_transaction", context)

    def recalled(self, context: RecallContext) -> None:
        self._call("recalled", context)

    async def close(self) -> None:
        for hook in self._hooks:
            try:
                await hook.close()
            except Exception:
                log.exception("%r failed to close", hook)

    def _call(self, method: str, context: object) -> None:
        for hook in self._hooks:
            try:
                getattr(hook, method)(context)
            except Exception:
                log.exception("%r failed in %s", hook, method)
