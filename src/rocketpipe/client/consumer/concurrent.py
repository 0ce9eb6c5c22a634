"""Concurrent consumption: batches of any queue go to whichever worker is free."""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace

from rocketpipe.client.background import Background
from rocketpipe.client.consumer.listeners import Listener, Parcel, workers
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
        if not settings.pop:  # what was popped comes again by itself
            self._background.every(settings.consume_timeout / 4, self._give_up_late_ones)

    def take(
        self,
        process_queue: ProcessQueue,
        messages: Sequence[StoredMessage],
        visible_at: float | None = None,
    ) -> None:
        """Give them to the listener; popped ones not after others may have them again."""
        if not messages:
            return
        now = asyncio.get_running_loop().time

        def may_start() -> bool:
            return not process_queue.is_dropped and (visible_at is None or now() < visible_at)

        size = self._settings.consume_batch_size
        self.workers.submit(Parcel(process_queue, list(messages), size, may_start))

    async def stop(self, process_queue: ProcessQueue) -> None:
        """Nothing to wait for: what a listener works on comes again elsewhere, as in Java."""

    async def close(self) -> None:
        """Let listeners return, and brokers be told of what they did; in the time for closing."""
        timeout = self._settings.close_timeout
        await self.workers.close(timeout)
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._telling.wait_none()

    def _done(self, finished: Iterable[Parcel]) -> None:
        now = asyncio.get_running_loop().time()
        for parcel in finished:
            queue = parcel.process_queue
            if queue.is_dropped:
                continue
            if parcel.not_given and self._settings.pop:
                queue.done(parcel.take_not_given())  # others have them by now
            consumed = parcel.take_consumed()
            for part, said in parcel.take_failed():
                self._failed(queue, part[said.start :], said.delay_level)
                consumed = consumed + part[: said.start]
            if consumed:
                queue.last_consumed_at = now
                self._consumed(queue, consumed)

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
        for parcel, start, since in list(self.workers.at_work.values()):
            queue, late = parcel.process_queue, now - since
            if late <= self._settings.consume_timeout or start in parcel.given_up:
                continue
            parcel.given_up.add(start)
            if queue.is_dropped:
                continue  # it is another's already
            messages = parcel.part(start)
            log.warning(
                "a listener works on %s for %.0f s already: it is sent back",
                *(messages[0].message_id, late),
            )
            if self._settings.is_broadcasting:
                queue.done(messages)
            else:
                await self._return(queue, messages, FIRST_DELAY_LEVEL)
