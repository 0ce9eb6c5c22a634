"""Concurrent consumption: batches of any queue go to whichever worker is free."""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from rocketpipe.client.background import Background
from rocketpipe.client.consumer.listeners import Batch, Listener, workers
from rocketpipe.client.consumer.popping import Receipts
from rocketpipe.client.consumer.process_queue import ProcessQueue
from rocketpipe.client.consumer.send_back import FIRST_DELAY_LEVEL, SendBack
from rocketpipe.client.consumer.settings import PushConsumerSettings
from rocketpipe.client.lifecycle import InFlight
from rocketpipe.errors import MQError
from rocketpipe.message import StoredMessage

log = logging.getLogger(__name__)

AGAIN_PAUSE = 5.0  # before a message that could not be sent back goes to the listener once more


class Concurrent:
    """A message is done when its listener returned, or when it was sent back: not before."""

    def __init__(
        self,
        settings: PushConsumerSettings,
        listener: Listener,
        send_back: SendBack | Receipts,
        background: Background,
    ) -> None:
        self._settings = settings
        self._send_back = send_back
        self._background = background
        self.workers = workers(listener, settings.workers, self._done)
        self._telling = InFlight()  # brokers, what became of messages
        self._open: dict[Batch, None] = {}  # given to the workers, and not done yet
        if not settings.pop:  # what was popped comes again by itself
            self._background.every(settings.consume_timeout / 4, self._give_up_late_ones)

    def take(
        self,
        process_queue: ProcessQueue,
        messages: Sequence[StoredMessage],
        visible_at: float | None = None,
    ) -> None:
        """Give them to the listener; popped ones not after others may have them again."""
        size = self._settings.consume_batch_size
        pulled = list(messages)
        now = asyncio.get_running_loop().time

        def may_start() -> bool:
            return not process_queue.is_dropped and (visible_at is None or now() < visible_at)

        batches = [
            Batch(process_queue, pulled, may_start, start, start + size)
            for start in range(0, len(pulled), size)
        ]
        self._open.update(dict.fromkeys(batches))
        self.workers.submit(batches)

    async def stop(self, process_queue: ProcessQueue) -> None:
        """Nothing to wait for: what a listener works on comes again elsewhere, as in Java."""

    async def close(self) -> None:
        """Let listeners return, and brokers be told of what they did; in the time for closing."""
        timeout = self._settings.close_timeout
        await self.workers.close(timeout)
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._telling.wait_none()

    def _done(self, finished: list[Batch]) -> None:
        consumed: dict[ProcessQueue, list[StoredMessage]] = {}
        for batch in finished:
            is_late = self._open.pop(batch, batch) is batch
            queue = batch.process_queue
            if is_late or queue.is_dropped:
                continue
            if not batch.was_called:
                if self._settings.pop:
                    queue.done(batch.messages)  # others have them by now
                continue
            queue.last_consumed_at = batch.started_at
            messages, outcome = batch.messages, batch.outcome
            if outcome is not None:
                self._failed(queue, messages[outcome.start :], outcome.delay_level)
                messages = messages[: outcome.start]
            of_queue = consumed.get(queue)
            if of_queue is None:
                of_queue = consumed[queue] = []
            of_queue += messages
        for queue, of_queue in consumed.items():
            self._consumed(queue, of_queue)

    def _failed(
        self, queue: ProcessQueue, messages: Sequence[StoredMessage], delay_level: int
    ) -> None:
        if self._settings.is_broadcasting:
            for message in messages:
                log.warning("message %s is lost: broadcasts do not come again", message.message_id)
            queue.done(messages)
        else:
            self._background.spawn(self._return(queue, messages, delay_level))

    def _consumed(self, queue: ProcessQueue, messages: Sequence[StoredMessage]) -> None:
        queue.done(messages)
        if isinstance(self._send_back, Receipts) and messages:
            self._background.spawn(self._acknowledge(self._send_back, queue, messages))

    async def _acknowledge(
        self, receipts: Receipts, queue: ProcessQueue, messages: Sequence[StoredMessage]
    ) -> None:
        with self._telling:
            await receipts.consumed(queue.queue, messages)

    async def _return(
        self, queue: ProcessQueue, messages: Sequence[StoredMessage], delay_level: int
    ) -> None:
        """Send them back. If nobody takes them they stay ours, and are tried again here."""
        kept = []
        with self._telling:
            for message in messages:
                try:
                    await self._send_back.send(queue.queue, message, delay_level)
                    queue.done([message])
                except MQError as error:
                    log.warning("message %s is tried again here: %s", message.message_id, error)
                    kept.append(replace(message, reconsume_times=message.reconsume_times + 1))
        if kept:
            await asyncio.sleep(AGAIN_PAUSE)
            if not queue.is_dropped:
                self.take(queue, kept)

    async def _give_up_late_ones(self) -> None:
        """Send back what a listener has worked on for too long, whatever it will say in the end."""
        now = asyncio.get_running_loop().time()
        for batch in list(self._open):
            started_at = batch.started_at
            if started_at is not None and now - started_at > self._settings.consume_timeout:
                self._open.pop(batch, None)
                if batch.process_queue.is_dropped:
                    continue  # it is another's already
                log.warning(
                    "a listener works on %s for %.0f s already: it is sent back",
                    *(batch.messages[0].message_id, now - started_at),
                )
                if self._settings.is_broadcasting:
                    batch.process_queue.done(batch.messages)
                else:
                    await self._return(batch.process_queue, batch.messages, FIRST_DELAY_LEVEL)
