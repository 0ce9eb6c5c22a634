"""Tasks that an owner starts and, when it closes, ends: none is left behind."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from rocketpipe.errors import MQError

log = logging.getLogger(__name__)


class Background:
    """Runs what nobody waits for. A failure is logged, and ends nothing but its own task."""

    def __init__(self) -> None:
        # A dict for its order: that of a set differs from run to run of a simulation.
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._is_closed = False

    def spawn(self, work: Coroutine[Any, Any, object]) -> None:
        if self._is_closed:
            work.close()
            return
        task = asyncio.get_running_loop().create_task(self._watch(work))
        self._tasks[task] = None

        def end(_: object) -> None:
            del self._tasks[task]
            work.close()  # a task that is cancelled before it begins never gets to its work

        task.add_done_callback(end)

    def every(self, interval: float, work: Callable[[], Awaitable[object]]) -> None:
        """Do it again and again, from an interval from now on."""
        self.spawn(self._repeat(interval, work))

    async def close(self) -> None:
        """Cancel what still runs, and wait until it has ended; but not for our own caller."""
        self._is_closed = True
        ending = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in ending:
            task.cancel()
        if ending:
            await asyncio.wait(ending)

    async def _repeat(self, interval: float, work: Callable[[], Awaitable[object]]) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            due = max(due + interval, loop.time())  # in time also after one that took long
            await asyncio.sleep(due - loop.time())
            await self._watch(work())

    async def _watch(self, work: Awaitable[object]) -> None:
        try:
            await work
        except MQError as error:
            log.info("%s", error)  # the world is at fault, and we shall try again
        except Exception:
            log.exception("a background task failed")
