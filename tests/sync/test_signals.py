"""Signals while the main thread drives the loop: their handlers wait, but not for long."""

import asyncio
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType

import pytest

from rocketpipe.sync.loop_thread import LoopThread
from rocketpipe.sync.signals import SignalsLater


class Torn(Exception):
    pass


@pytest.fixture
def handled() -> Iterator[list[int]]:
    """SIGUSR1 is noted here, and SIGUSR2 raises; as before afterwards."""
    noted: list[int] = []

    def note(number: int, _: FrameType | None) -> None:
        noted.append(number)

    def tear(*_: object) -> None:
        raise Torn

    before = {
        signal.SIGUSR1: signal.signal(signal.SIGUSR1, note),
        signal.SIGUSR2: signal.signal(signal.SIGUSR2, tear),
    }
    yield noted
    assert signal.getsignal(signal.SIGUSR1) is note
    assert signal.getsignal(signal.SIGUSR2) is tear
    for number, handler in before.items():
        signal.signal(number, handler)


def test_handlers_run_when_it_is_over(handled: list[int]) -> None:
    told = []
    with SignalsLater(lambda: told.append("signal")):
        os.kill(os.getpid(), signal.SIGUSR1)
        assert (handled, told) == ([], ["signal"])
    assert handled == [signal.SIGUSR1]


def test_one_that_raises_does_so_when_it_is_over(handled: list[int]) -> None:
    is_whole = False
    with pytest.raises(Torn), SignalsLater(lambda: None):
        os.kill(os.getpid(), signal.SIGUSR2)
        is_whole = True
    assert is_whole


def test_default_and_ignored_signals_are_left_alone() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGPIPE)]
    with SignalsLater(lambda: None):
        assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGPIPE)] == before
        assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def lent() -> LoopThread:
    thread = LoopThread()

    async def driver() -> threading.Thread:
        return threading.current_thread()

    while thread.call(driver()) is not threading.main_thread():
        pass
    return thread


def test_a_caller_who_is_torn_away_leaves_the_loop_whole(handled: list[int]) -> None:
    """What others do there goes on, and what he wanted is cancelled."""
    thread = lent()
    is_cancelled = threading.Event()

    async def wait_forever() -> None:
        try:
            asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGUSR2)
            await asyncio.Event().wait()
        finally:
            is_cancelled.set()

    other = thread.submit(asyncio.sleep(0.2, "whole"))
    for _ in range(3):
        is_cancelled.clear()
        with pytest.raises(Torn):
            thread.call(wait_forever())
        assert is_cancelled.wait(30)
    assert other.result(30) == "whole"
    assert thread.call(asyncio.sleep(0, "again")) == "again"
    thread.end()


def test_a_handler_that_returns_lets_the_caller_wait_on(handled: list[int]) -> None:
    thread = lent()

    async def kill_and_wait() -> str:
        os.kill(os.getpid(), signal.SIGUSR1)
        await asyncio.sleep(0.05)
        return "answer"

    assert thread.call(kill_and_wait()) == "answer"
    assert handled == [signal.SIGUSR1]
    thread.end()
