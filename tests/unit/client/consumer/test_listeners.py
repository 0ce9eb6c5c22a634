"""Workers: every batch is given to the listener, whenever it comes."""

import asyncio
from typing import Any, cast

from rocketpipe.client.consumer.listeners import Batch, Outcome, TaskWorkers
from rocketpipe.message import StoredMessage
from tests.stored_message import stored_message


def test_a_batch_that_comes_as_a_worker_ends_is_not_forgotten() -> None:
    async def main() -> None:
        done: list[Batch] = []
        loop = asyncio.get_running_loop()

        async def listen(messages: list[StoredMessage]) -> None: ...

        def on_done(batch: Batch, outcome: Outcome) -> None:
            done.append(batch)
            if batch is first:  # comes when its task has ended, but is still known
                loop.call_soon(workers.submit, second)

        first, second = (Batch(cast(Any, None), [stored_message()], lambda: True) for _ in range(2))
        workers = TaskWorkers(listen, 1, on_done)
        workers.submit(first)
        for _ in range(10):
            await asyncio.sleep(0)
        assert done == [first, second]
        await workers.close(1.0)

    asyncio.run(main())
