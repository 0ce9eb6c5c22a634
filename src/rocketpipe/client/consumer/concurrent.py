"""Concurrent consumption: batches of any queue go to whichever worker is free."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

from rocketpipe.client.background import Background
from rocketpipe.client.consumer.listeners import Batch, Listener, Outcome, workers
from rocketpipe.client.consumer.process_queue import ProcessQueue
from rocketpipe.client.consumer.send_back import FIRST_DELAY_LEVEL, SendBack
from rocketpipe.client.consumer.settings import PushConsumerSettings
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
        send_back: SendBack,
        background: Background,
        wall_ms: Callable[[], int],
    ) -> None:
        self._settings = settings
        self._send_back = send_back
        self._background = background
        self._wall_ms = wall_ms
        self.workers = workers(listener, settings.workers, self._done)
        self._open: dict[Batch, None] = {}  # given to the workers, and not done yet
        self._background.every(settings.consume_timeout / 4, self._give_up_late_ones)

    def take(self, process_queue: ProcessQueue, messages: Sequence[StoredMessage]) -> None:
        size = self._settings.consume_batch_size
        for start in range(0, len(messages), size):
            batch = Batch(
                process_queue,
                messages[start : start + size],
                lambda: not process_queue.is_dropped,
            )
            self._open[batch] = None
            self.workers.submit(batch)

    async def stop(self, process_queue: ProcessQueue) -> None:
        """Nothing to wait for: what a listener works on comes again elsewhere, as in Java."""

    def _done(self, batch: Batch, outcome: Outcome) -> None:
        is_late = self._open.pop(batch, batch) is batch
        queue = batch.process_queue
        if is_late or queue.is_dropped or not batch.was_called:
            return
        queue.last_consume_ms = self._wall_ms()
        if outcome is None:
            queue.done(batch.messages)
            return
        queue.done(batch.messages[: outcome.start])
        failed = batch.messages[outcome.start :]
        if self._settings.is_broadcasting:
            for message in failed:
                log.warning("message %s is lost: broadcasts do not come again", message.message_id)
            queue.done(failed)
        else:
            self._background.spawn(self._return(queue, failed, outcome.delay_level))

    async def _return(
        self, queue: ProcessQueue, messages: Sequence[StoredMessage], delay_level: int
    ) -> None:
        """Send them back. If nobody takes them they stay ours, and are tried again here."""
        kept = []
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
                log.warning(
                    "a listener works on %s for %.0f s already: it is sent back",
                    *(batch.messages[0].message_id, now - started_at),
                )
                if self._settings.is_broadcasting:
                    batch.process_queue.done(batch.messages)
                else:
                    await self._return(batch.process_queue, batch.messages, FIRST_DELAY_LEVEL)
