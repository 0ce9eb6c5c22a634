"""A protocol that writes down what happens to it, for the tests of networks."""

import asyncio
from collections.abc import Callable
from typing import cast


class Recorder(asyncio.Protocol):
    """Keeps bytes apart from events: a network may split them as it likes."""

    def __init__(self, *, is_echo: bool = False, keeps_open_at_eof: bool = False) -> None:
        self.transport = cast(asyncio.Transport, None)
        self.events: list[str] = []
        self.error: Exception | None = None
        self.data = bytearray()
        self._is_echo = is_echo
        self._keeps_open_at_eof = keeps_open_at_eof
        self._changed = asyncio.Event()

    async def until(self, holds: "Callable[[Recorder], bool]") -> None:
        while not holds(self):
            self._changed.clear()
            await self._changed.wait()

    async def until_event(self, event: str) -> None:
        await self.until(lambda it: event in it.events)

    async def until_bytes(self, count: int) -> bytes:
        await self.until(lambda it: len(it.data) >= count)
        return bytes(self.data)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._note("made")

    def data_received(self, data: bytes) -> None:
        if self.events[-1] != "data":
            self._note("data")
        self.data += data
        self._changed.set()
        if self._is_echo:
            self.transport.write(data)

    def eof_received(self) -> bool:
        self._note("eof")
        return self._keeps_open_at_eof

    def pause_writing(self) -> None:
        self._note("pause")

    def resume_writing(self) -> None:
        self._note("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.error = exc
        self._note("lost")

    def _note(self, event: str) -> None:
        self.events.append(event)
        self._changed.set()
