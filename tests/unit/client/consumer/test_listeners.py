"""Workers: every batch is given to the listener, whenever it comes."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, cast

import pytest

from rocketpipe.client.consumer import listeners
from rocketpipe.client.consumer.listeners import Parcel, TaskWorkers, ThreadWorkers, Workers
from rocketpipe.client.consumer.orderly import Orderly
from rocketpipe.client.consumer.process_queue import Cache, ProcessQueue
from rocketpipe.client.consumer.settings import PushConsumerSettings
from rocketpipe.message import MessageQueue, StoredMessage
from rocketpipe.sync.loop_thread import LoopThread
from tests.stored_message import stored_message

DEADLINE = 20.0

Run = Callable[[Coroutine[Any, Any, None]], None]


def on_relieved_loop(coroutine: Coroutine[Any, Any, None]) -> None:
    """On a loop whose driver can go to the listener itself."""
    thread = LoopThread("relieved", lends=False, has_relief=True)
    try:
        thread.call(coroutine)
    finally:
        thread.end()


THREADS = pytest.mark.parametrize("run", [asyncio.run, on_relieved_loop])
WAYS = pytest.mark.parametrize(
    ("is_async", "run"), [(True, asyncio.run), (False, asyncio.run), (False, on_relieved_loop)]
)


def parcel(count: int, part_size: int = 1) -> Parcel:
    messages = [stored_message(queue_offset=offset) for offset in range(count)]
    return Parcel(cast(Any, None), messages, part_size, lambda: True)


class Finished:
    """Remembers what was consumed, and what the listener was not given."""

    def __init__(self) -> None:
        self.consumed: list[tuple[Parcel, int]] = []
        self.not_given: list[tuple[Parcel, int]] = []

    def __call__(self, parcels: Iterable[Parcel]) -> None:
        for each in parcels:
            assert not each.failed
            self.consumed += [(each, message.queue_offset) for message in each.take_consumed()]
            self.not_given += [(each, message.queue_offset) for message in each.take_not_given()]


def parts(of: Parcel) -> set[tuple[Parcel, int]]:
    return {(of, message.queue_offset) for message in of.messages}


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE):
        while not is_so():  # noqa: ASYNC110  # threads set no asyncio.Event
            await asyncio.sleep(0.001)


def test_what_comes_as_a_worker_ends_is_not_forgotten() -> None:
    async def main() -> None:
        done: list[Parcel] = []
        loop = asyncio.get_running_loop()

        async def listen(messages: list[StoredMessage]) -> None: ...

        def on_done(finished: Iterable[Parcel]) -> None:
            done.extend(finished)
            if done == [first]:  # comes when its task has ended, but is still known
                loop.call_soon(workers.submit, second)

        first, second = parcel(1), parcel(1)
        workers = TaskWorkers(listen, 1, on_done)
        workers.submit(first)
        for _ in range(10):
            await asyncio.sleep(0)
        assert done == [first, second]
        await workers.close(1.0)

    asyncio.run(main())


@WAYS
def test_slow_listeners_all_work_at_once_though_one_worker_is_woken(
    is_async: bool, run: Run
) -> None:
    async def main() -> None:
        done = Finished()
        at_work: list[int] = []
        go_on, go_on_async = threading.Event(), asyncio.Event()

        def block(messages: list[StoredMessage]) -> None:
            at_work.append(messages[0].queue_offset)
            assert go_on.wait(DEADLINE)

        async def wait(messages: list[StoredMessage]) -> None:
            at_work.append(messages[0].queue_offset)
            await go_on_async.wait()

        workers: Workers = TaskWorkers(wait, 5, done) if is_async else ThreadWorkers(block, 5, done)
        given = parcel(8)
        workers.submit(given)
        await until(lambda: len(at_work) == 5)
        assert sorted(at_work) == [0, 1, 2, 3, 4]
        assert sorted(start for _, start, _ in workers.at_work.values()) == [0, 1, 2, 3, 4]
        go_on.set()
        go_on_async.set()
        await until(lambda: len(done.consumed) == 8)
        assert set(done.consumed) == parts(given)
        await until(lambda: not workers.at_work)
        await workers.close(DEADLINE)

    run(main())


@WAYS
def test_nothing_is_lost_or_doubled_however_messages_come(is_async: bool, run: Run) -> None:
    async def main() -> None:
        done = Finished()
        given_sizes: list[int] = []

        def count(messages: list[StoredMessage]) -> None:
            given_sizes.append(len(messages))

        async def count_async(messages: list[StoredMessage]) -> None:
            given_sizes.append(len(messages))

        workers: Workers = (
            TaskWorkers(count_async, 3, done) if is_async else ThreadWorkers(count, 3, done)
        )
        given: set[tuple[Parcel, int]] = set()
        for size, part_size in [(1, 1), (32, 1), (2, 1), (33, 4), (5, 5)] * 40:
            more = parcel(size, part_size)
            given |= parts(more)
            workers.submit(more)
            if size != 2:
                await asyncio.sleep(0)
        await until(lambda: len(done.consumed) >= len(given))
        assert len(done.consumed) == len(given)
        assert set(done.consumed) == given
        assert len(given_sizes) == 40 * (1 + 32 + 2 + 9 + 1)
        await workers.close(DEADLINE)

    run(main())


@WAYS
def test_one_message_wakes_one_worker(is_async: bool, run: Run) -> None:
    async def main() -> None:
        done = Finished()

        def listen(messages: list[StoredMessage]) -> None: ...

        async def listen_async(messages: list[StoredMessage]) -> None: ...

        tasks, threads = TaskWorkers(listen_async, 3, done), ThreadWorkers(listen, 3, done)
        workers: Workers = tasks if is_async else threads
        for number in range(1, 4):
            workers.submit(parcel(1))
            await until(lambda: len(done.consumed) == number)  # noqa: B023  # it is awaited here
            assert len(tasks._tasks if is_async else threads._threads) <= 1
        await workers.close(DEADLINE)

    run(main())


@THREADS
def test_what_is_finished_is_known_while_others_take_long_and_more_waits(run: Run) -> None:
    async def main() -> None:
        done = Finished()
        go_on = threading.Event()

        def block(messages: list[StoredMessage]) -> None:
            if messages[0].queue_offset >= 3:
                assert go_on.wait(DEADLINE)

        workers = ThreadWorkers(block, 2, done)
        given = parcel(10)
        workers.submit(given)
        await until(lambda: len(done.consumed) == 3)
        await asyncio.sleep(0)
        assert {offset for _, offset in done.consumed} == {0, 1, 2}
        go_on.set()
        await until(lambda: len(done.consumed) == 10)
        await workers.close(DEADLINE)

    run(main())


def test_who_consumes_in_order_hears_at_once_that_the_next_may_be_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else each message would wait for the loop to look by itself."""
    monkeypatch.setattr(listeners, "WATCH_PAUSE", 10 * DEADLINE)
    given: list[int] = []

    def listen(messages: list[StoredMessage]) -> None:
        given.append(messages[0].queue_offset)

    async def main() -> None:
        settings = PushConsumerSettings("group", namesrv="127.0.0.1:1", orderly=True)
        orderly = Orderly(settings, listen, *cast(Any, (None, None)), is_held=lambda _: True)
        queue = ProcessQueue(MessageQueue("orders", "broker-a", 0), 0, Cache(settings))
        messages = [stored_message(queue_offset=offset) for offset in range(20)]
        queue.put(messages, 20)
        orderly.take(queue, messages)
        await until(lambda: queue.count == 0)
        await orderly.close()

    asyncio.run(main())
    assert given == list(range(20))


@THREADS
def test_closing_threads_returns_what_has_not_begun_and_waits_for_the_rest(run: Run) -> None:
    async def main() -> None:
        done = Finished()
        has_begun, go_on = threading.Event(), threading.Event()

        def block(messages: list[StoredMessage]) -> None:
            has_begun.set()
            assert go_on.wait(DEADLINE)

        workers = ThreadWorkers(block, 1, done)
        given, other = parcel(3), parcel(2)
        workers.submit(given)
        workers.submit(other)
        await until(has_begun.is_set)
        closing = asyncio.create_task(workers.close(DEADLINE))
        await until(lambda: len(done.not_given) == 4)
        assert set(done.not_given) == {(given, 1), (given, 2), (other, 0), (other, 1)}
        assert not closing.done()
        go_on.set()
        await closing
        assert done.consumed == [(given, 0)]
        await until(lambda: not any(each.is_alive() for each in workers._threads))

    run(main())


def test_the_driver_of_the_loop_stands_in_for_a_thread_that_sleeps() -> None:
    async def main() -> None:
        done = Finished()
        names: list[str] = []
        at_work, most = 0, 0
        go_on = threading.Event()
        go_on.set()

        def listen(messages: list[StoredMessage]) -> None:
            nonlocal at_work, most
            at_work += 1
            most = max(most, at_work)
            names.append(threading.current_thread().name)
            assert go_on.wait(DEADLINE)
            at_work -= 1

        workers = ThreadWorkers(listen, 1, done)
        thread = cast(Any, asyncio.get_running_loop()).hand_over.__self__
        for number in range(1, 10):
            workers.submit(parcel(1))
            await until(lambda: len(done.consumed) == number)  # noqa: B023  # it is awaited here
            await until(lambda: workers._sleeping == 1 and thread._is_relief_there)
        # To begin with there was none that slept.
        assert names == ["rocketpipe-consumer-0", *["relieved"] * 8]
        # However many come while it is away, the listener is called by one at a time; the loop
        # is driven on meanwhile, and whoever slept hears of the end.
        go_on.clear()
        for _ in range(3):
            workers.submit(parcel(2))
        await until(lambda: at_work == 1)
        closing = asyncio.create_task(workers.close(DEADLINE))
        await until(lambda: len(done.not_given) == 5)
        go_on.set()
        await closing
        assert most == 1
        assert len(done.consumed) == 10
        await until(lambda: not any(each.is_alive() for each in workers._threads))

    on_relieved_loop(main())
