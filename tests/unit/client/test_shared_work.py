"""Work that is done once for all who ask at the same time."""

import asyncio

import pytest

from rocketpipe.client.shared_work import SharedWork
from rocketpipe.errors import ConnectFailed, IllegalState
from rocketpipe.testing.simulated_loop import run


class Work:
    def __init__(self, *, seconds: float, error: Exception | None = None) -> None:
        self.begun = 0
        self._seconds = seconds
        self._error = error

    async def do(self) -> int:
        self.begun += 1
        await asyncio.sleep(self._seconds)
        if self._error is not None:
            raise self._error
        return self.begun


def test_all_who_ask_at_the_same_time_get_the_same() -> None:
    async def main() -> None:
        shared, work = SharedWork[str, int](), Work(seconds=1)
        results = await asyncio.gather(*(shared.get("a", work.do, 5) for _ in range(100)))
        assert set(results) == {1}
        assert await shared.get("a", work.do, 5) == 2  # who asks later asks anew
        others = await asyncio.gather(*(shared.get(key, work.do, 5) for key in "bc"))
        assert others == [4, 4]

    run(main())


def test_an_error_is_each_callers_own() -> None:
    error = ConnectFailed("a:10911", "refused")

    async def main() -> None:
        shared, work = SharedWork[str, int](), Work(seconds=1, error=error)
        errors = await asyncio.gather(
            *(shared.get("a", work.do, 5) for _ in range(3)), return_exceptions=True
        )
        assert work.begun == 1
        assert len({id(each) for each in (*errors, error)}) == 4
        assert {str(each) for each in errors} == {str(error)}

    run(main())


def test_who_has_less_time_gives_up_alone() -> None:
    async def main() -> None:
        shared, work = SharedWork[str, int](), Work(seconds=3)
        patient = asyncio.create_task(shared.get("a", work.do, 5))
        with pytest.raises(TimeoutError):
            await shared.get("a", work.do, 1)
        cancelled = asyncio.create_task(shared.get("a", work.do, 5))
        await asyncio.sleep(0.5)
        cancelled.cancel()
        assert await patient == 1
        assert work.begun == 1

    run(main())


def test_a_failure_that_nobody_waits_for_any_more_is_not_complained_about() -> None:
    async def main() -> None:
        shared = SharedWork[str, int]()
        work = Work(seconds=3, error=ConnectFailed("a:10911", "refused"))
        with pytest.raises(TimeoutError):
            await shared.get("a", work.do, 1)
        await asyncio.sleep(5)

    run(main())  # which fails for a task whose error nobody saw


def test_closing_ends_the_work_and_tells_those_who_wait() -> None:
    async def main() -> None:
        shared, work = SharedWork[str, int](), Work(seconds=3)
        waiting = asyncio.create_task(shared.get("a", work.do, 5))
        await asyncio.sleep(1)
        await shared.close()
        with pytest.raises(IllegalState, match="closed"):
            await waiting
        with pytest.raises(IllegalState, match="closed"):
            await shared.get("a", work.do, 5)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run(main())
