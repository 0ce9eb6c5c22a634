"""Code that may block, off the event loop."""

import asyncio
import contextvars
import threading
from typing import Any

import pytest

from rocketpipe.client.threads import Threads

answer: contextvars.ContextVar[int] = contextvars.ContextVar("answer")


async def call(function: Any, *args: Any) -> Any:
    threads = Threads("test-threads", 2)
    try:
        return await threads.call(function, *args)
    finally:
        threads.close()


def names() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name.startswith("test-threads")]


def test_a_plain_function_runs_in_a_thread_with_the_callers_context() -> None:
    async def main() -> tuple[str, int]:
        answer.set(42)
        found: tuple[str, int] = await call(lambda: (threading.current_thread().name, answer.get()))
        return found

    name, value = asyncio.run(main())
    assert name.startswith("test-threads")
    assert value == 42
    assert names() == []


def test_a_coroutine_runs_on_the_loop_however_it_is_dressed() -> None:
    async def where(word: str) -> tuple[str, str]:
        return word, threading.current_thread().name

    class Callable:
        async def __call__(self, word: str) -> tuple[str, str]:
            return await where(word)

    async def main() -> None:
        here = threading.current_thread().name
        assert await call(where, "a") == ("a", here)
        assert await call(Callable(), "b") == ("b", here)
        assert await call(lambda: where("c")) == ("c", here)

    asyncio.run(main())


def test_errors_come_back_even_the_one_no_future_takes() -> None:
    def stop() -> None:
        raise StopIteration

    async def main() -> None:
        with pytest.raises(ZeroDivisionError):
            await call(lambda: 1 / 0)
        async with asyncio.timeout(10):
            with pytest.raises(RuntimeError, match="StopIteration"):
                await call(stop)

    asyncio.run(main())


def test_there_are_no_more_threads_than_allowed() -> None:
    async def main() -> None:
        threads = Threads("test-threads", 2)
        both = threading.Barrier(2, timeout=10)
        busiest = 0

        def work() -> None:
            nonlocal busiest
            both.wait()  # there are two of them at a time,
            busiest = max(busiest, len(names()))  # and no more

        await asyncio.gather(*(threads.call(work) for _ in range(6)))
        assert busiest == 2
        threads.close()

    asyncio.run(main())
    assert names() == []


def test_closing_does_not_wait_for_one_that_still_works() -> None:
    gate = threading.Event()
    has_begun = threading.Event()
    began: list[int] = []

    def work(number: int) -> None:
        began.append(number)
        has_begun.set()
        gate.wait(10)

    async def main() -> None:
        threads = Threads("test-threads", 1)
        jobs = [asyncio.create_task(threads.call(work, number)) for number in range(2)]
        await asyncio.sleep(0)  # both are in the queue now,
        assert has_begun.wait(10)  # and one of them is at work
        threads.close()
        assert not gate.is_set()
        assert names()
        gate.set()
        await asyncio.wait([jobs[0]])
        await asyncio.wait([jobs[1]], timeout=10)
        assert jobs[1].cancelled()  # what had not begun never does

    asyncio.run(main())
    for thread in threading.enumerate():
        if thread.name.startswith("test-threads"):
            thread.join(10)
    assert names() == []
    assert began == [0]
