"""The first Ctrl-C interrupts, the second does not disturb the cleaning up."""

import asyncio
import os
import signal

import pytest

from rocketpipe.demo.interrupts import Interrupts
from rocketpipe.errors import JobError


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_interrupts_and_the_second_is_ignored(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    cleaned_up = False
    with Interrupts(), pytest.raises(KeyboardInterrupt):
        try:
            os.kill(os.getpid(), number)
        finally:
            os.kill(os.getpid(), number)
            cleaned_up = True
    assert cleaned_up
    assert signal.getsignal(number) is before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_in_an_event_loop_the_task_is_cancelled_and_may_clean_up(number: signal.Signals) -> None:
    done = []

    async def work() -> None:
        try:
            os.kill(os.getpid(), number)
            await asyncio.sleep(60)
        finally:
            os.kill(os.getpid(), number)
            await asyncio.sleep(0.01)
            done.append("cleaned up")

    with Interrupts() as interrupts:
        with pytest.raises(KeyboardInterrupt):
            interrupts.run(work())
        os.kill(os.getpid(), number)  # nobody is disturbed here either
    assert done == ["cleaned up"]


def test_after_a_loop_a_signal_interrupts_again() -> None:
    async def work() -> int:
        return 7

    with Interrupts() as interrupts:
        assert interrupts.run(work()) == 7
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)


def test_of_a_group_of_errors_the_first_is_raised() -> None:
    async def work() -> None:
        async def fail() -> None:
            raise JobError("no")

        async with asyncio.TaskGroup() as outer:
            async with asyncio.TaskGroup() as inner:
                inner.create_task(fail())
            outer.create_task(fail())

    with Interrupts() as interrupts, pytest.raises(JobError, match="no"):
        interrupts.run(work())
