"""The states of a client: it is started once, used, and closed."""

import asyncio
from enum import Enum

from rocketpipe.errors import IllegalState


class State(Enum):
    JUST_CREATED = "was not started"
    RUNNING = "is running"
    START_FAILED = "failed to start"
    CLOSED = "is closed"


class Lifecycle:
    """Keeps the state of `what`, and refuses what it does not allow."""

    def __init__(self, what: str) -> None:
        self.state = State.JUST_CREATED
        self._what = what
        self._loop: asyncio.AbstractEventLoop | None = None

    def begin(self) -> None:
        """It is being started: the state is START_FAILED until `started` says otherwise."""
        if self.state is not State.JUST_CREATED:
            raise IllegalState(f"{self._what} {self.state.value}: it can be started only once")
        self.state = State.START_FAILED

    def started(self) -> None:
        self.state = State.RUNNING
        self._loop = asyncio.get_running_loop()

    def close(self) -> bool:
        """Whether it was running, and thus has something to close."""
        was_running = self.state is State.RUNNING
        if was_running:
            self._require_own_loop()
        self.state = State.CLOSED
        return was_running

    def require_running(self) -> None:
        if self.state is not State.RUNNING:
            hint = "start it first" if self.state is State.JUST_CREATED else "make a new one"
            raise IllegalState(f"{self._what} {self.state.value}: {hint}")
        self._require_own_loop()

    def _require_own_loop(self) -> None:
        # After a fork there is another loop, or none: the connections are the parent's.
        if asyncio.get_running_loop() is not self._loop:
            raise IllegalState(
                f"{self._what} was started in another event loop or process: make a new one here"
            )


class InFlight:
    """Counts what is on its way: `with in_flight: ...`, and then `await in_flight.wait_none()`."""

    def __init__(self) -> None:
        self._count = 0
        self._none = asyncio.Event()
        self._none.set()

    def __enter__(self) -> None:
        self._count += 1
        if self._count == 1:
            self._none.clear()

    def __exit__(self, *failure: object) -> None:
        self._count -= 1
        if self._count == 0:
            self._none.set()

    async def wait_none(self) -> None:
        await self._none.wait()
