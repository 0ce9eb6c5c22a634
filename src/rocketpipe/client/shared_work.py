"""Work that is done once for all who ask for it at the same time."""

import asyncio
import copy
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

from rocketpipe.errors import IllegalState

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class SharedWork(Generic[K, T]):
    """Tasks by key. Whoever has less time gives up alone; the others may still be lucky."""

    def __init__(self) -> None:
        self._tasks: dict[K, asyncio.Task[T]] = {}
        self._is_closed = False

    async def get(self, key: K, work: Callable[[], Coroutine[Any, Any, T]], timeout: float) -> T:
        """What the work gives; TimeoutError when this caller's time is over."""
        if self._is_closed:
            raise IllegalState("this client is closed")
        task = self._tasks.get(key)
        if task is None:
            task = self._tasks[key] = asyncio.get_running_loop().create_task(work())
            task.add_done_callback(lambda done: self._end(key, done))
        done, _ = await asyncio.wait([task], timeout=timeout)
        if not done:
            raise TimeoutError
        if task.cancelled():
            raise IllegalState("this client is closed")
        if error := task.exception():
            raise copy.copy(error)  # each who waited gets one of their own
        return task.result()

    async def close(self) -> None:
        self._is_closed = True
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _end(self, key: K, task: asyncio.Task[T]) -> None:
        del self._tasks[key]
        if not task.cancelled():
            task.exception()  # those who waited may all have given up: nobody else looks at it
