"""The thread itself, with clients that only count."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from rocketpipe.errors import IllegalState
from rocketpipe.sync import loop_thread
from rocketpipe.sync.client import BlockingClient
from rocketpipe.sync.loop_thread import LoopThread


class Client:
    def __init__(self) -> None:
        self.is_open = False
        self.may_start = True

    async def start(self) -> None:
        if not self.may_start:
            raise IllegalState("not today")
        self.is_open = True

    async def close(self) -> None:
        self.is_open = False


async def name_of_thread() -> str:
    return threading.current_thread().name


def test_it_starts_with_the_first_client_and_ends_with_the_last() -> None:
    first, second = BlockingClient(Client()), BlockingClient(Client())
    assert loop_thread._current is None
    with first:
        thread = loop_thread._current
        with second:
            assert loop_thread._current is thread
            assert second._call(name_of_thread()) == "rocketpipe-loop"
        assert loop_thread._current is thread
    assert loop_thread._current is None
    with BlockingClient(Client()):
        assert loop_thread._current not in (None, thread)


def test_a_client_that_fails_to_start_leaves_no_thread() -> None:
    client = Client()
    client.may_start = False
    with pytest.raises(IllegalState, match="not today"):
        BlockingClient(client).start()
    assert loop_thread._current is None


def test_who_still_waits_when_it_ends_is_told() -> None:
    thread = LoopThread()
    began = threading.Event()

    async def wait_forever() -> None:
        began.set()
        await asyncio.Event().wait()

    with ThreadPoolExecutor(1) as other:
        called = other.submit(thread.call, wait_forever())
        submitted = thread.submit(wait_forever())
        assert began.wait(10)
        thread.end()
        for future in (called, submitted):
            with pytest.raises(IllegalState, match="closed meanwhile"):
                future.result(10)


def test_a_call_that_comes_at_the_last_moment_does_not_wait_forever() -> None:
    thread = LoopThread()
    is_ending, is_posted = threading.Event(), threading.Event()

    def end() -> None:
        thread._ended.set()
        is_ending.set()
        is_posted.wait(10)

    thread.post(end)
    assert is_ending.wait(10)
    # As if the caller lost its processor between writing the mail and waking the loop.
    thread._wake = is_posted.set  # type: ignore[method-assign]
    with pytest.raises(IllegalState, match="closed meanwhile"):
        thread.submit(asyncio.Event().wait()).result(10)
    thread._thread.join(10)


def test_a_call_after_the_end_runs_by_itself() -> None:
    thread = LoopThread()
    thread.end()
    assert thread.call(name_of_thread()) == threading.current_thread().name
    assert thread.submit(name_of_thread()).result() == threading.current_thread().name


def test_calls_of_many_threads_all_get_their_own_answers() -> None:
    thread = LoopThread()

    async def double(number: int) -> int:
        await asyncio.sleep(0)
        return 2 * number

    with ThreadPoolExecutor(16) as threads:
        doubled = list(threads.map(lambda n: thread.call(double(n)), range(2000)))
    assert doubled == [2 * n for n in range(2000)]
    thread.end()


def test_one_wake_up_serves_all_the_mail() -> None:
    thread = LoopThread()
    is_held, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        is_held.set()
        go_on.wait(10)

    woken = 0
    wake = thread._wake

    def count() -> None:
        nonlocal woken
        woken += 1
        wake()

    thread.post(hold)
    assert is_held.wait(10)
    thread._wake = count  # type: ignore[method-assign]
    read: list[int] = []
    for n in range(10):
        thread.post(lambda n=n: read.append(n))  # type: ignore[misc]
    go_on.set()
    thread.end()
    assert (woken, read) == (1, list(range(10)))
