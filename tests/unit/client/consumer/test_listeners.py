"""Workers: every batch is given to the listener, whenever it comes."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any, cast

import pytest

from rocketpipe.client.consumer import listeners
from rocketpipe.client.consumer.listeners import Batch, TaskWorkers, ThreadWorkers
from rocketpipe.client.consumer.orderly import Orderly
from rocketpipe.client.consumer.process_queue import Cache, ProcessQueue
from rocketpipe.client.consumer.settings import PushConsumerSettings
from rocketpipe.message import MessageQueue, StoredMessage
from tests.stored_message import stored_message

DEADLINE = 20.0


def batches(count: int) -> list[Batch]:
    return [
        Batch(cast(Any, None), [stored_message(queue_offset=offset)], lambda: True)
        for offset in range(count)
    ]


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE):
        while not is_so():  # noqa: ASYNC110  # threads set no asyncio.Event
            await asyncio.sleep(0.001)


def test_a_batch_that_comes_as_a_worker_ends_is_not_forgotten() -> None:
    async def main() -> None:
        done: list[Batch] = []
        loop = asyncio.get_running_loop()

        async def listen(messages: list[StoredMessage]) -> None: ...

        def on_done(finished: list[Batch]) -> None:
            done.extend(finished)
            if done == [first]:  # comes when its task has ended, but is still known
                loop.call_soon(workers.submit, [second])

        first, second = batches(2)
        workers = TaskWorkers(listen, 1, on_done)
        workers.submit([first])
        for _ in range(10):
            await asyncio.sleep(0)
        assert done == [first, second]
        await workers.close(1.0)

    asyncio.run(main())


@pytest.mark.parametrize("is_async", [True, False])
def test_slow_listeners_all_work_at_once_though_one_worker_is_woken(is_async: bool) -> None:
    async def main() -> None:
        done: list[Batch] = []
        at_work: list[int] = []
        go_on, go_on_async = threading.Event(), asyncio.Event()

        def block(messages: list[StoredMessage]) -> None:
            at_work.append(messages[0].queue_offset)
            assert go_on.wait(DEADLINE)

        async def wait(messages: list[StoredMessage]) -> None:
            at_work.append(messages[0].queue_offset)
            await go_on_async.wait()

        def on_done(finished: list[Batch]) -> None:
            done.extend(finished)

        workers = TaskWorkers(wait, 5, on_done) if is_async else ThreadWorkers(block, 5, on_done)
        given = batches(8)
        workers.submit(given)
        await until(lambda: len(at_work) == 5)
        assert sorted(at_work) == [0, 1, 2, 3, 4]
        go_on.set()
        go_on_async.set()
        await until(lambda: len(done) == 8)
        assert set(done) == set(given)
        await workers.close(DEADLINE)

    asyncio.run(main())


@pytest.mark.parametrize("is_async", [True, False])
def test_nothing_is_lost_however_batches_come(is_async: bool) -> None:
    async def main() -> None:
        done: list[Batch] = []

        def count(messages: list[StoredMessage]) -> None: ...

        async def count_async(messages: list[StoredMessage]) -> None: ...

        def on_done(finished: list[Batch]) -> None:
            for batch in finished:
                assert batch.outcome is None
                assert batch.was_called
                done.append(batch)

        workers = (
            TaskWorkers(count_async, 3, on_done) if is_async else ThreadWorkers(count, 3, on_done)
        )
        given: list[Batch] = []
        for size in [1, 32, 2, 1, 5] * 40:
            more = batches(size)
            given += more
            workers.submit(more)
            if size != 2:
                await asyncio.sleep(0)
        await until(lambda: len(done) == len(given))
        assert set(done) == set(given)
        await workers.close(DEADLINE)

    asyncio.run(main())


def test_what_is_finished_is_known_while_others_take_long_and_more_waits() -> None:
    async def main() -> None:
        done: list[Batch] = []
        go_on = threading.Event()

        def block(messages: list[StoredMessage]) -> None:
            if messages[0].queue_offset >= 3:
                assert go_on.wait(DEADLINE)

        workers = ThreadWorkers(block, 2, done.extend)
        given = batches(10)
        workers.submit(given)
        await until(lambda: len(done) == 3)
        await asyncio.sleep(0)
        assert set(done) == set(given[:3])
        go_on.set()
        await until(lambda: len(done) == 10)
        await workers.close(DEADLINE)

    asyncio.run(main())


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


def test_closing_threads_returns_what_has_not_begun_and_waits_for_the_rest() -> None:
    async def main() -> None:
        done: list[Batch] = []
        has_begun, go_on = threading.Event(), threading.Event()

        def block(messages: list[StoredMessage]) -> None:
            has_begun.set()
            assert go_on.wait(DEADLINE)

        workers = ThreadWorkers(block, 1, done.extend)
        given = batches(3)
        workers.submit(given)
        await until(has_begun.is_set)
        closing = asyncio.create_task(workers.close(DEADLINE))
        await until(lambda: len(done) == 2)
        assert [each.was_called for each in given] == [True, False, False]
        assert not closing.done()
        go_on.set()
        await closing
        assert set(done) == set(given)
        await until(lambda: not any(each.is_alive() for each in workers._threads))

    asyncio.run(main())
