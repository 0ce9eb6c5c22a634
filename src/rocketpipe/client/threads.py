"""Code that may block, such as a user's own: run in threads, so that the event loop goes on."""

import asyncio
import contextvars
import inspect
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any


class Threads:
    """Some threads at most, made when first needed."""

    def __init__(self, name: str, threads_max: int) -> None:
        self._executor = ThreadPoolExecutor(threads_max, thread_name_prefix=name)
        self._jobs: set[Future[Any]] = set()

    async def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """What the function returns; a coroutine runs on the loop, anything else in a thread."""
        if inspect.iscoroutinefunction(function):
            return await function(*args)
        context = contextvars.copy_context()
        job = self._executor.submit(context.run, _call, function, args)
        self._jobs.add(job)
        job.add_done_callback(self._jobs.discard)
        outcome = await asyncio.wrap_future(job)
        return await outcome if inspect.isawaitable(outcome) else outcome

    def close(self) -> None:
        """End the threads; one that still works ends after that, and nobody waits for it."""
        self._executor.shutdown(wait=not self._jobs, cancel_futures=True)


def _call(function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    try:
        return function(*args)
    except StopIteration as error:
        # No future takes this one, and who waits would wait forever.
        raise RuntimeError("a function ended with StopIteration") from error
