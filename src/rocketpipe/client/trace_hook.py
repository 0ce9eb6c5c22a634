"""Message trace: what a producer did, told to the trace topic in RocketMQ's own format.

Losing a trace harms nobody, so nothing here may fail a send or make it wait: what can't be told in
time is dropped and counted.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from rocketpipe.client.checks import is_delayed
from rocketpipe.client.hooks import (
    EndTransactionContext,
    Hooks,
    RecallContext,
    SendContext,
    SendHook,
)
from rocketpipe.client.instance import ClientInstance
from rocketpipe.client.outgoing import Packer
from rocketpipe.client.queue_choice import policy_settings
from rocketpipe.client.sender import Sender
from rocketpipe.client.settings import GROUP_CHARACTERS_MAX, ProducerSettings
from rocketpipe.errors import InvalidMessage, MQError
from rocketpipe.message import Message, SendStatus
from rocketpipe.wire.trace import EndTransaction, Pub, Recall, Trace, encode_traces, trace_keys

log = logging.getLogger(__name__)

# Java's AsyncTraceDispatcher.
TRACES_WAITING_MAX = 2048
TRACES_TOGETHER = 10
FLUSH_INTERVAL = 5.0
SEND_TIMEOUT = 5.0
CLOSE_TIMEOUT = 5.0
BODY_CHARACTERS_MAX = 128_000

KEYS_CHARACTERS_MAX = 16_000  # half of what all properties of a message may take
KEY_CHARACTERS_MAX = 255

NORMAL, HALF, COMMIT, DELAY = 0, 1, 2, 3  # Java's MessageType, by its ordinals


def trace_hook(settings: ProducerSettings, instance: ClientInstance) -> "TraceHook":
    """A trace of what a producer of these settings does, sent through its own client instance."""
    group = f"_INNER_TRACE_PRODUCER-{settings.producer_group}-PRODUCE"
    inner = replace(
        settings,
        producer_group=group[:GROUP_CHARACTERS_MAX],
        namespace=None,  # the trace topic is the whole cluster's
        vip_channel=False,
    )
    environment = instance.environment
    packer = Packer(inner, instance.new_message_id, environment.clock.wall_ms)
    policy = policy_settings(inner.policy).build(environment.dice)
    sender = Sender(inner, instance, policy, Hooks(()))  # no hooks: a trace leaves no trace

    async def send(message: Message) -> object:
        return await sender.send(packer.pack(message), None, timeout=SEND_TIMEOUT)

    return TraceHook(settings.trace_topic, send, environment.clock.wall_ms)


class TraceHook(SendHook):
    """Turns what happened into traces, and sends them from a task of its own."""

    def __init__(
        self,
        trace_topic: str,
        send: Callable[[Message], Awaitable[object]],
        wall_ms: Callable[[], int],
    ) -> None:
        self.dropped = 0  # traces that nobody will see
        self._topic = trace_topic
        self._send = send
        self._wall_ms = wall_ms
        self._waiting: deque[Trace] = deque()
        self._wake_up = asyncio.Event()
        self._is_closing = False
        self._task = asyncio.get_running_loop().create_task(self._run())

    def after(self, context: SendContext) -> None:
        attempt, result = context.attempt, context.result
        if attempt is None or result is None or not result.is_traced:
            return  # as Java does: there is nothing to find, or the broker wants no trace
        first = context.messages[0]
        is_batch = len(context.messages) > 1
        self._append(
            Pub(
                timestamp_ms=attempt.started_ms,
                region_id=result.region_id,
                group=context.producer_group,
                topic=first.topic,
                message_id=context.message_id,
                tags=None if is_batch else first.tags,
                keys=None if is_batch else _keys(first.keys),
                store_host=context.address,
                body_length=context.body_bytes,
                cost_ms=round(attempt.elapsed * 1000),
                message_type=(
                    HALF if context.is_transaction else DELAY if is_delayed(first) else NORMAL
                ),
                offset_message_id=result.offset_message_id,
                is_success=result.status is SendStatus.SEND_OK,
            )
        )

    def end_transaction(self, context: EndTransactionContext) -> None:
        self._append(
            EndTransaction(
                timestamp_ms=self._wall_ms(),
                region_id=context.region_id,
                group=context.producer_group,
                topic=context.topic,
                message_id=context.message_id,
                tags=context.tags,
                keys=_keys(context.keys),
                store_host=context.address,
                message_type=COMMIT,  # also of a rollback, in Java
                transaction_id=context.message_id,
                state=context.state.value,
                is_from_check=context.is_from_check,
            )
        )

    def recalled(self, context: RecallContext) -> None:
        self._append(
            Recall(
                timestamp_ms=self._wall_ms(),
                region_id=context.region_id,
                group=context.producer_group,
                topic=context.topic,
                message_id=context.message_id,
                is_success=context.error is None,
            )
        )

    async def close(self) -> None:
        """Send what waits, if the brokers take it in time."""
        self._is_closing = True
        self._wake_up.set()
        await asyncio.wait([self._task], timeout=CLOSE_TIMEOUT)
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self.dropped += len(self._waiting)
        self._waiting.clear()
        if self.dropped:
            log.warning("%d traces were lost", self.dropped)

    def _append(self, trace: Pub | EndTransaction | Recall) -> None:
        if trace.topic == self._topic:
            return
        if len(self._waiting) >= TRACES_WAITING_MAX:
            self.dropped += 1
            return
        self._waiting.append(trace)
        if len(self._waiting) >= TRACES_TOGETHER:
            self._wake_up.set()

    async def _run(self) -> None:
        while not (self._is_closing and not self._waiting):
            least = TRACES_TOGETHER
            try:
                async with asyncio.timeout(FLUSH_INTERVAL):
                    await self._wake_up.wait()
            except TimeoutError:
                least = 1
            self._wake_up.clear()
            while len(self._waiting) >= (1 if self._is_closing else least):
                together = min(TRACES_TOGETHER, len(self._waiting))
                await self._tell([self._waiting.popleft() for _ in range(together)])

    async def _tell(self, traces: Sequence[Trace]) -> None:
        try:
            await self._send(trace_message(self._topic, traces))
        except MQError as error:
            if isinstance(error, InvalidMessage) and len(traces) > 1:
                for trace in traces:  # some may be well by themselves
                    await self._tell([trace])
            else:
                self.dropped += len(traces)
                log.info("lost %d traces: %s", len(traces), error)
        except Exception:  # as a policy of the user's own may raise; the next may do better
            self.dropped += len(traces)
            log.exception("lost %d traces", len(traces))
        except asyncio.CancelledError:
            self.dropped += len(traces)  # as far as we know
            raise


def trace_message(topic: str, traces: Sequence[Trace]) -> Message:
    """A message that tells all these; InvalidMessage when they are too many for one."""
    text = encode_traces(traces)
    keys = trace_keys(traces)
    if len(text) > BODY_CHARACTERS_MAX or sum(map(len, keys)) > KEYS_CHARACTERS_MAX:
        if len(traces) > 1:
            raise InvalidMessage(f"{len(traces)} traces of {len(text)} characters: too long")
        # Of a large batch, whose ids are one key. Nobody will find it by that; but it is there.
        keys = tuple(key for key in keys if len(key) <= KEY_CHARACTERS_MAX)
    return Message(topic, text.encode(errors="replace"), keys=keys)


def _keys(keys: Sequence[str]) -> str | None:
    return " ".join(keys) or None
