"""Of one send: what a broker still answers to an attempt whose share of time is over.

Where all brokers are slow, no attempt is answered in its own time, though each one's message is
stored. So an answer counts until the deadline of the whole send, and ends the attempt that is on
its way meanwhile.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any

from rocketpipe.client.send_flow import Ended
from rocketpipe.message import SendResult


class LateResult:
    __slots__ = ("_news", "deadline", "result")

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self.result: SendResult | None = None
        self._news: asyncio.Future[None] | None = None  # done with the result, if anybody waits

    def settle(self, result: SendResult) -> None:
        if self.result is None:
            self.result = result
            if self._news is not None and not self._news.done():
                self._news.set_result(None)

    async def or_end(self, trying: Coroutine[Any, Any, Ended]) -> Ended:
        """How this attempt ends; it is cancelled when the result is there."""
        task = asyncio.create_task(trying)
        self._wait_for_news().add_done_callback(lambda _: task.cancel())
        return await task

    async def wait(self, timeout: float) -> SendResult | None:
        """The result, if it comes in time."""
        if self.result is None and timeout > 0:
            await asyncio.wait([self._wait_for_news()], timeout=timeout)
        return self.result

    def _wait_for_news(self) -> "asyncio.Future[None]":
        self._news = asyncio.get_running_loop().create_future()
        return self._news
