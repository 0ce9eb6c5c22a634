"""The simulated loop moves its clock instead of waiting, and hides nothing that goes wrong."""

import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from rocketpipe.clock import Clock, SystemClock
from rocketpipe.testing.simulated_loop import WALL_START_MS, SimulatedClock, run


def test_an_hour_passes_in_no_time() -> None:
    async def main() -> tuple[int, float]:
        beats = 0

        async def beat() -> None:
            nonlocal beats
            while True:
                await asyncio.sleep(10)
                beats += 1

        async with asyncio.timeout(3600.5):
            beating = asyncio.create_task(beat())
            await asyncio.sleep(3600)
        beating.cancel()
        return beats, asyncio.get_running_loop().time()

    started = time.process_time()
    assert run(main()) == (359, 3600.0)
    assert time.process_time() - started < 10


def test_timers_ring_in_the_order_of_their_times() -> None:
    async def main() -> list[float]:
        loop = asyncio.get_running_loop()
        rung: list[float] = []
        for delay in (3.0, 1.0, 2.0, 0.0):
            loop.call_later(delay, lambda: rung.append(loop.time()))
        await asyncio.sleep(4)
        return rung

    assert run(main()) == [0.0, 1.0, 2.0, 3.0]


def test_a_timeout_is_simulated_too() -> None:
    async def main() -> float:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), timeout=86_000)
        return asyncio.get_running_loop().time()

    assert run(main()) == 86_000


def test_a_month_passes_and_the_clock_is_still_exact() -> None:
    async def main() -> float:
        await asyncio.sleep(30 * 86_400.1)
        for _ in range(1000):
            await asyncio.sleep(1e-6)
        return asyncio.get_running_loop().time()

    assert run(main(), time_max=1e7) == pytest.approx(30 * 86_400.1 + 0.001, abs=1e-6)


def test_what_main_raises_comes_out() -> None:
    async def main() -> None:
        raise LookupError("lost")

    with pytest.raises(LookupError, match="lost"):
        run(main())


def test_leftover_tasks_are_cancelled_and_may_clean_up() -> None:
    cleaned: list[str] = []

    async def leftover() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(1)
            cleaned.append("up")

    async def main() -> asyncio.Task[None]:
        task = asyncio.create_task(leftover())
        await asyncio.sleep(0)
        return task

    assert run(main()).cancelled()
    assert cleaned == ["up"]


def test_a_run_where_nothing_is_left_to_happen_says_who_waits() -> None:
    async def wait_for_godot() -> None:
        await asyncio.Event().wait()

    with pytest.raises(RuntimeError, match=r"nothing is left to happen(?s:.*)wait_for_godot"):
        run(wait_for_godot())


def test_a_task_that_is_busy_without_end_is_stopped() -> None:
    cleaned: list[str] = []

    async def busy() -> None:
        try:
            while True:  # noqa: ASYNC110
                await asyncio.sleep(0)
        finally:
            await asyncio.sleep(0)
            cleaned.append("up")

    with pytest.raises(RuntimeError, match=r"busy without end(?s:.*)busy"):
        run(busy(), steps_max=1000)
    assert cleaned == ["up"]


def test_steps_count_for_one_moment_only() -> None:
    async def main() -> None:
        for _ in range(1000):
            await asyncio.sleep(0.001)

    run(main(), steps_max=10)


def test_a_run_that_never_ends_is_stopped() -> None:
    cleaned: list[str] = []

    async def beat() -> None:
        try:
            while True:  # noqa: ASYNC110
                await asyncio.sleep(1)
        finally:
            await asyncio.sleep(1)
            cleaned.append("up")

    with pytest.raises(RuntimeError, match="600 simulated seconds are over"):
        run(beat(), time_max=600)
    assert cleaned == ["up"]


def test_a_task_that_refuses_to_be_cancelled_is_stopped_too() -> None:
    async def stubborn() -> None:
        while True:
            try:
                await asyncio.sleep(100)
            except asyncio.CancelledError:
                continue

    async def main() -> None:
        task = asyncio.create_task(stubborn())
        await asyncio.sleep(1)
        del task

    with pytest.raises(RuntimeError, match="are over, and the run is not"):
        run(main())


def test_a_failed_task_that_nobody_asked_fails_the_run() -> None:
    async def fail() -> None:
        raise LookupError("lost")

    async def main() -> object:
        task = asyncio.create_task(fail())
        await asyncio.sleep(1)
        return task  # still referred to, so the garbage collector has not told of it

    with pytest.raises(ExceptionGroup, match="nobody saw it") as caught:
        run(main())
    assert isinstance(caught.value.exceptions[0], LookupError)


def test_a_failed_task_that_was_dropped_fails_the_run() -> None:
    async def fail() -> None:
        raise LookupError("lost")

    async def main() -> None:
        task = asyncio.create_task(fail())
        await asyncio.sleep(1)
        del task

    with pytest.raises(ExceptionGroup, match="nobody saw it"):
        run(main())


def test_a_failed_task_that_was_asked_does_not() -> None:
    async def fail() -> None:
        raise LookupError("lost")

    async def main() -> None:
        task = asyncio.create_task(fail())
        with pytest.raises(LookupError):
            await task
        await asyncio.gather(asyncio.create_task(fail()), return_exceptions=True)

    run(main())


def test_a_failed_callback_fails_the_run() -> None:
    async def main() -> None:
        asyncio.get_running_loop().call_soon([].pop)
        await asyncio.sleep(1)

    with pytest.raises(ExceptionGroup, match="nobody saw it") as caught:
        run(main())
    assert isinstance(caught.value.exceptions[0], IndexError)


def test_a_failed_callback_is_told_of_beside_what_main_raises() -> None:
    async def main() -> None:
        asyncio.get_running_loop().call_soon([].pop)
        await asyncio.sleep(1)
        raise LookupError("lost")

    with pytest.raises(LookupError) as caught:
        run(main())
    assert any("pop from empty list" in note for note in caught.value.__notes__)


def _in_a_thread(loop: asyncio.AbstractEventLoop, _: socket.socket) -> Any:
    return loop.run_in_executor(None, print)


def _connect(loop: asyncio.AbstractEventLoop, _: socket.socket) -> Any:
    return loop.create_connection(asyncio.Protocol, "127.0.0.1", 1)


def _serve(loop: asyncio.AbstractEventLoop, _: socket.socket) -> Any:
    return loop.create_server(asyncio.Protocol, "127.0.0.1", 0)


def _receive(loop: asyncio.AbstractEventLoop, sock: socket.socket) -> Any:
    return loop.sock_recv(sock, 1)


def _resolve(loop: asyncio.AbstractEventLoop, _: socket.socket) -> Any:
    return loop.getaddrinfo("localhost", 1)


@pytest.mark.parametrize("escape", [_in_a_thread, _connect, _serve, _receive, _resolve])
def test_what_lies_outside_of_simulated_time_is_refused(
    escape: Callable[[asyncio.AbstractEventLoop, socket.socket], Any],
) -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)

    async def main() -> None:
        with pytest.raises(RuntimeError, match="outside of simulated time"):
            await escape(asyncio.get_running_loop(), ours)

    with ours, theirs:
        run(main())


_CANCEL_ORDER = """
import asyncio
from rocketpipe.testing.simulated_loop import run

async def member(n):
    try:
        await asyncio.Event().wait()
    finally:
        print(n, end=" ")

async def main():
    ballast = [object() for _ in range(int(input()))]
    async with asyncio.TaskGroup() as group:
        for n in range(50):
            group.create_task(member(n))
        await asyncio.sleep(1)
        raise LookupError

try:
    run(main())
except ExceptionGroup:
    pass
"""


@pytest.mark.slow
def test_a_task_group_cancels_in_the_same_order_in_every_process() -> None:
    orders = {
        subprocess.run(
            [sys.executable, "-c", _CANCEL_ORDER],
            input=f"{ballast}\n",
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONPATH": ":".join(sys.path)},
        ).stdout
        for ballast in (0, 1001, 54321)
    }
    assert len(orders) == 1
    assert len(orders.pop().split()) == 50


def test_the_simulated_clock_shows_the_time_of_the_loop() -> None:
    async def main() -> None:
        clock = SimulatedClock(asyncio.get_running_loop())
        same: Clock = clock
        await asyncio.sleep(1.001)
        assert same.monotonic() == pytest.approx(1.001)
        assert same.wall_ms() == WALL_START_MS + 1001
        clock.wall_shift_ms = -5000
        assert same.wall_ms() == WALL_START_MS - 3999
        assert same.monotonic() == pytest.approx(1.001)

    run(main())


def test_the_system_clock_shows_the_time_of_the_machine() -> None:
    clock: Clock = SystemClock()
    assert abs(clock.wall_ms() / 1000 - time.time()) < 5
    assert time.monotonic() - 5 < clock.monotonic() <= time.monotonic()
