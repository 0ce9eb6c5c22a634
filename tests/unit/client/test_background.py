"""Tasks in the background: none is left behind, and a failure ends only its own."""

import asyncio
import gc
import logging

import pytest

from rocketpipe.client.background import Background
from rocketpipe.errors import MQError
from rocketpipe.testing.simulated_loop import run


def test_what_still_runs_is_cancelled_and_waited_for() -> None:
    ended = []

    async def slow() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(1)
            ended.append(asyncio.get_running_loop().time())

    async def main() -> None:
        background = Background()
        background.spawn(slow())
        await asyncio.sleep(5)
        await background.close()
        assert ended == [6.0]
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run(main())


def test_work_that_was_cancelled_before_it_began_is_not_complained_about() -> None:
    async def work() -> None:
        raise AssertionError("it never begins")

    async def main() -> None:
        background = Background()
        background.spawn(work())
        await background.close()
        background.spawn(work())  # too late, and no harm
        gc.collect()

    run(main())  # a coroutine that was never awaited is a warning, and warnings are errors


def test_something_is_done_again_and_again_also_after_it_failed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    times = []

    async def work() -> None:
        times.append(asyncio.get_running_loop().time())
        if len(times) == 1:
            raise MQError("the world is at fault")
        if len(times) == 2:
            raise ZeroDivisionError("we are")

    async def main() -> None:
        background = Background()
        background.every(30, work)
        await asyncio.sleep(100)
        await background.close()

    caplog.set_level(logging.INFO, "rocketpipe")
    run(main())
    assert times == [30, 60, 90]
    assert [(each.levelname, each.getMessage()) for each in caplog.records] == [
        ("INFO", "the world is at fault"),
        ("ERROR", "a background task failed"),
    ]


def test_what_takes_long_does_not_move_the_next_and_is_not_done_twice_at_once() -> None:
    times = []

    async def work() -> None:
        times.append(asyncio.get_running_loop().time())
        await asyncio.sleep(25 if len(times) == 2 else 5)

    async def main() -> None:
        background = Background()
        background.every(10, work)
        await asyncio.sleep(68)
        await background.close()

    run(main())
    assert times == [10, 20, 45, 55, 65]


def test_a_task_may_close_its_own_background() -> None:
    async def main() -> None:
        background = Background()
        background.spawn(background.close())
        await asyncio.sleep(1)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run(main())
