"""Orderly consumption: of each queue one batch after another, while its lock is ours."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from rocketpipe.client.background import Background
from rocketpipe.client.consumer.listeners import Listener, Parcel, workers
from rocketpipe.client.consumer.process_queue import ProcessQueue
from rocketpipe.client.consumer.send_back import SendBack
from rocketpipe.client.consumer.settings import PushConsumerSettings
from rocketpipe.errors import MQError
from rocketpipe.message import MessageQueue, StoredMessage

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Line:
    """The messages of a queue that wait for their turn."""

    process_queue: ProcessQueue
    messages: deque[StoredMessage] = field(default_factory=deque)
    batch: Parcel | None = None  # the one that the listener has, or is to get
    is_resting: bool = False  # the listener failed a moment ago
    is_stopped: bool = False
    at_rest: asyncio.Event = field(default_factory=asyncio.Event)  # no batch is out


class Orderly:
    """Nothing of a queue goes to the listener before all that was before it is done."""

    def __init__(
        self,
        settings: PushConsumerSettings,
        listener: Listener,
        send_back: SendBack,
        background: Background,
        *,
        is_held: Callable[[MessageQueue], bool],
    ) -> None:
        self._settings = settings
        self._send_back = send_back
        self._background = background
        self._is_held = is_held
        self.workers = workers(listener, settings.workers, self._done, in_a_hurry=True)
        self._lines: dict[ProcessQueue, _Line] = {}
        self._is_closed = False

    def take(self, process_queue: ProcessQueue, messages: Sequence[StoredMessage]) -> None:
        line = self._lines.get(process_queue)
        if line is None:
            line = self._lines[process_queue] = _Line(process_queue)
        line.messages += messages
        self._go_on(line)

    def go_on(self) -> None:
        """Locks were renewed: queues that had to wait for that may go on."""
        for line in list(self._lines.values()):
            self._go_on(line)

    async def stop(self, process_queue: ProcessQueue) -> None:
        """Begin with no more batches of a queue, and wait for the one that the listener has."""
        line = self._lines.get(process_queue)
        if line is not None:
            line.is_stopped = True
            try:
                while line.batch is not None:
                    line.at_rest.clear()
                    await line.at_rest.wait()
            finally:
                self._lines.pop(process_queue, None)

    async def close(self) -> None:
        """Let listeners return, for as long as closing may take."""
        self._is_closed = True  # what would come next is not at work: locks shall be given back
        await self.workers.close(self._settings.close_timeout)

    def is_at_work(self, queue: MessageQueue) -> bool:
        """Whether the listener has messages of this queue."""
        lines = self._lines.values()
        return any(each.process_queue.queue == queue and each.batch is not None for each in lines)

    def _go_on(self, line: _Line) -> None:
        if self._is_closed or line.batch is not None or line.is_resting:
            return
        if not line.messages or not self._may_start(line):
            return
        count = min(self._settings.consume_batch_size, len(line.messages))
        messages = [line.messages.popleft() for _ in range(count)]
        line.batch = Parcel(line.process_queue, messages, count, lambda: self._may_start(line))
        self.workers.submit(line.batch)

    def _may_start(self, line: _Line) -> bool:
        queue = line.process_queue
        return not (line.is_stopped or queue.is_dropped) and self._is_held(queue.queue)

    def _done(self, finished: Iterable[Parcel]) -> None:
        for batch in finished:
            self._batch_done(batch)

    def _batch_done(self, batch: Parcel) -> None:
        line = self._lines.get(batch.process_queue)
        if line is None:
            return  # nobody waits for it any more: the messages come again
        line.batch = None
        line.at_rest.set()
        if batch.not_given:  # the lock has to be renewed first
            line.messages.extendleft(reversed(batch.messages))
            return
        queue = batch.process_queue
        queue.last_consumed_at = asyncio.get_running_loop().time()
        if not batch.failed:
            queue.done(batch.messages)
            self._go_on(line)
            return
        ((messages, said),) = batch.take_failed()  # a batch of ours has one part
        queue.done(messages[: said.start])
        line.is_resting = True
        self._background.spawn(self._rest(line, messages[said.start :]))

    async def _rest(self, line: _Line, failed: Sequence[StoredMessage]) -> None:
        """Let the queue rest, and put what failed first again, but for what failed too often."""
        try:
            again = []
            for message in failed:
                if message.reconsume_times < self._send_back.times_max:
                    again.append(replace(message, reconsume_times=message.reconsume_times + 1))
                elif not await self._bury(line, message):
                    again.append(message)
            line.messages.extendleft(reversed(again))
            if again:
                await asyncio.sleep(self._settings.suspend_queue_time)
        finally:
            line.is_resting = False
        self._go_on(line)

    async def _bury(self, line: _Line, message: StoredMessage) -> bool:
        """Whether it is with the dead letters now, and no more in the way."""
        try:
            await self._send_back.send_anew(message, -1)
        except MQError as error:
            log.warning("message %s stays in the way: %s", message.message_id, error)
            return False
        line.process_queue.done([message])
        return True
