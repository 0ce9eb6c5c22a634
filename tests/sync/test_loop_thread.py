"""The thread itself, with clients that only count."""

import asyncio
import sys
import threading
import time
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
    assert not loop_thread._shared
    with first:
        threads = dict(loop_thread._shared)
        with second:
            assert loop_thread._shared == threads
            assert second._submit(name_of_thread()).result(10) == "rocketpipe-loop"
        assert loop_thread._shared == threads
    assert not loop_thread._shared
    with BlockingClient(Client()):
        assert loop_thread._shared.keys() == threads.keys()
        assert loop_thread._shared != threads


def test_a_client_that_fails_to_start_leaves_no_thread() -> None:
    client = Client()
    client.may_start = False
    with pytest.raises(IllegalState, match="not today"):
        BlockingClient(client).start()
    assert not loop_thread._shared


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
        threading.Thread(target=thread.end).start()
        while not thread._is_ending:
            pass
        is_ending.set()
        is_posted.wait(10)

    thread.post(end)
    assert is_ending.wait(10)
    # As if the caller lost its processor between writing the mail and waking the loop.
    thread._wake = is_posted.set  # type: ignore[method-assign]
    with pytest.raises(IllegalState, match="closed meanwhile"):
        thread.submit(asyncio.Event().wait()).result(10)
    thread._threads[0].join(10)


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


# Who drives.


def settled(thread: LoopThread) -> LoopThread:
    """When the thread has lent its loop: it did a call, and rests."""
    while thread.call(name_of_thread()) != threading.current_thread().name:
        pass
    return thread


def test_who_calls_often_drives_the_loop_himself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rocketpipe.sync.loop_thread.REST_SECONDS", 30)  # whoever is slow
    thread = settled(LoopThread())
    for _ in range(100):
        thread.call(asyncio.sleep(0))
    assert thread.call(name_of_thread()) == threading.current_thread().name
    thread.end()


def test_the_thread_takes_the_loop_back_when_nobody_calls() -> None:
    thread = settled(LoopThread())
    ticked = threading.Event()

    async def tick_later() -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(0.1, ticked.set)

    thread.call(tick_later())
    assert ticked.wait(30)
    thread.end()


def test_what_a_caller_leaves_undone_the_thread_does() -> None:
    """Also if it was handed over while a caller drove."""
    thread = settled(LoopThread())
    is_driving, go_on = threading.Event(), threading.Event()

    async def hold() -> None:
        is_driving.set()
        go_on.wait(30)  # blocks the loop

    with ThreadPoolExecutor(2) as others:
        driver = others.submit(thread.call, hold())
        assert is_driving.wait(30)
        waiting = [
            others.submit(thread.call, asyncio.sleep(0.05, "called")),
            thread.submit(asyncio.sleep(0.05, "submitted")),
        ]
        go_on.set()
        assert driver.result(30) is None
        assert [each.result(30) for each in waiting] == ["called", "submitted"]
    thread.end()


def test_for_clients_that_listen_and_for_servers_only_the_thread_drives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rocketpipe.sync.loop_thread.REST_SECONDS", 30)

    class Listener(BlockingClient):
        _LISTENS = True

    server = LoopThread("server", lends=False)
    with Listener(Client()) as listener, BlockingClient(Client()) as caller:
        for _ in range(20):
            assert listener._call(name_of_thread()) == "rocketpipe-listening"
            assert server.call(name_of_thread()) == "server"
        # They have no part in what others call.
        assert caller._loop_thread is not None
        settled(caller._loop_thread)
        assert caller._call(name_of_thread()) == threading.current_thread().name
    server.end()
    assert not loop_thread._shared


def test_who_drives_goes_on_an_errand_while_the_other_drives() -> None:
    thread = LoopThread("relieved", lends=False, has_relief=True)
    drivers: set[threading.Thread] = set()
    away, go_on = threading.Event(), threading.Event()

    def errand() -> None:
        assert asyncio._get_running_loop() is None
        drivers.add(threading.current_thread())
        away.set()
        assert go_on.wait(30)

    async def hand_over() -> bool:
        return thread.loop.hand_over(errand)

    async def driver() -> threading.Thread:
        return threading.current_thread()

    def handed_over() -> bool:
        """The relief may need a moment to be there."""
        deadline = time.monotonic() + 30
        while not thread.call(hand_over()):
            assert time.monotonic() < deadline
        return True

    for _ in range(4):
        before = thread.call(driver())
        assert handed_over()
        assert away.wait(30)
        assert thread.call(driver()) is not before
        assert not thread.call(hand_over())  # nobody is left to drive
        away.clear()
        go_on.set()
        deadline = time.monotonic() + 30
        while thread._away is not None:
            assert time.monotonic() < deadline
        go_on.clear()
    assert len(drivers) == 2

    # Nobody waits for the function of a user when it ends.
    assert handed_over()
    assert away.wait(30)
    thread.end(30)
    assert thread._is_over
    away_thread = thread._away
    assert away_thread is not None
    go_on.set()
    away_thread.join(30)
    assert not any(each.is_alive() for each in thread._threads)


def test_an_errand_that_fails_does_not_end_the_thread() -> None:
    thread = LoopThread("relieved", lends=False, has_relief=True)

    async def hand_over() -> bool:
        return thread.loop.hand_over(sys.exit)

    for _ in range(100):
        thread.call(hand_over())
    thread.end(30)
    for each in thread._threads:
        each.join(30)
        assert not each.is_alive()


def test_to_end_takes_the_loop_from_a_caller_who_drives_it() -> None:
    thread = settled(LoopThread())
    began = threading.Event()

    async def wait_forever() -> None:
        began.set()
        await asyncio.Event().wait()

    with ThreadPoolExecutor(1) as other:
        for _ in range(50):  # so that it is this one who drives
            other.submit(thread.call, asyncio.sleep(0)).result(30)
        called = other.submit(thread.call, wait_forever())
        assert began.wait(30)
        thread.end()
        with pytest.raises(IllegalState, match="closed meanwhile"):
            called.result(30)


def test_a_callback_that_exits_does_not_end_the_loop() -> None:
    thread = LoopThread()

    def leave() -> None:
        raise SystemExit

    thread.post(lambda: thread.loop.call_soon(leave))
    assert thread.submit(asyncio.sleep(0, "alive")).result(30) == "alive"
    thread.end()


def test_a_late_order_to_stop_driving_does_not_stop_the_last_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failures: list[object] = []
    monkeypatch.setattr(threading, "excepthook", failures.append)
    thread = LoopThread()
    is_whole = False

    async def linger() -> None:
        nonlocal is_whole
        try:
            await asyncio.Event().wait()
        finally:
            thread._stop_driving()
            await asyncio.sleep(0.01)
            is_whole = True

    waiting = thread.submit(linger())
    thread.call(asyncio.sleep(0))
    thread.end()
    with pytest.raises(IllegalState, match="closed meanwhile"):
        waiting.result(30)
    assert is_whole
    assert failures == []
