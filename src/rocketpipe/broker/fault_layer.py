"""Does what the faults of a broker say: around its handlers, on its disk, to its slaves."""

import asyncio
import errno
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

from rocketpipe.broker.faults import (
    AFTER,
    BEFORE,
    CONTROL_FAULTS,
    Fault,
    FaultKind,
    Faults,
    control,
    encode_faults,
    topic_of,
)
from rocketpipe.broker.store.disk import Disk, DiskUsage, File, Lock
from rocketpipe.codes import ResponseCode
from rocketpipe.errors import InvalidSetting
from rocketpipe.remoting.connection import Connection
from rocketpipe.remoting.dispatch import Handler, Outcome, Refusal
from rocketpipe.wire.frame import RemotingCommand

HELD_ANSWERS_MAX = 100_000


class FaultLayer:
    """Between the connections of a broker and its handlers."""

    def __init__(
        self, faults: Faults, dice: random.Random, cut_connections: Callable[[Connection], None]
    ) -> None:
        """`cut_connections` cuts all but this one."""
        self._cut_connections = cut_connections
        self._faults = faults
        self._dice = dice
        self._held: set[asyncio.TimerHandle] = set()
        self._frozen: dict[asyncio.Event, None] = {}
        # What sends the answers that are frozen, by the fault that they met.
        self._frozen_answers: dict[int, list[Callable[[], None]]] = {}
        self._thawing: set[asyncio.Task[None]] = set()

    def around(self, dispatch: Handler) -> Handler:
        """A handler that is this one but for the faults."""

        def handle(
            connection: Connection, request: RemotingCommand
        ) -> Outcome | Awaitable[Outcome]:
            if not self._faults or request.code == CONTROL_FAULTS:
                return dispatch(connection, request)
            fault = self._faults.take(BEFORE, request.code, topic_of(request))
            if fault is None:
                return dispatch(connection, request)
            if fault.kind is FaultKind.CUT:
                connection.abort()
                return None
            if fault.kind is FaultKind.REFUSE:
                # Not a Refusal, which knows ResponseCodes only: any number may be tried.
                return request.answer(fault.response_code, fault.remark)

            async def wait() -> Outcome:
                await self._wait_over(fault)
                outcome = dispatch(connection, request)
                return await outcome if isinstance(outcome, Awaitable) else outcome

            return wait()

        return handle

    def holds(self, connection: Connection, request: RemotingCommand, answer: Outcome) -> bool:
        """Whether this answer is not to be sent now; it is sent later if it is only late."""
        if not self._faults or answer is None or request.code == CONTROL_FAULTS:
            return False
        if self._freezes(request, lambda: connection.answer(request, answer)):
            return True
        fault = self._faults.take(AFTER, request.code, topic_of(request))
        if fault is None or self._is_full():
            return False
        if fault.kind is FaultKind.DELAY:

            def send() -> None:
                self._held.discard(handle)
                if not self._freezes(request, send):
                    connection.answer_now(request, answer)

            loop = asyncio.get_running_loop()
            handle = loop.call_later(fault.seconds_to_wait(self._dice), send)
            self._held.add(handle)
        return True

    def control(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answers other processes."""
        try:
            active = control(self._faults, request.body, lambda: self._cut_connections(connection))
        except InvalidSetting as error:
            raise Refusal(ResponseCode.INVALID_PARAMETER, str(error)) from None
        return request.answer(ResponseCode.SUCCESS, body=encode_faults(active))

    def changed(self) -> None:
        """There are more faults, or fewer: the frozen may be free."""
        for changed in self._frozen:
            changed.set()

    def close(self) -> None:
        for handle in self._held:
            handle.cancel()
        self._held.clear()
        for task in self._thawing:
            task.cancel()

    def _is_full(self) -> bool:
        frozen = sum(map(len, self._frozen_answers.values()))
        return len(self._held) + frozen >= HELD_ANSWERS_MAX

    def _freezes(self, request: RemotingCommand, send: Callable[[], None]) -> bool:
        """Whether this answer is frozen; it is sent when that is over.

        It was asked for before the broker froze, as pulls are that wait for messages.
        """
        fault = self._faults.take({FaultKind.FREEZE}, request.code, topic_of(request))
        if fault is None or self._is_full():
            return False
        if fault.id not in self._frozen_answers:
            self._frozen_answers[fault.id] = []
            task = asyncio.get_running_loop().create_task(self._thaw(fault))
            self._thawing.add(task)
            task.add_done_callback(self._thawing.discard)
        self._frozen_answers[fault.id].append(send)
        return True

    async def _thaw(self, fault: Fault) -> None:
        await self._wait_over(fault)
        for send in self._frozen_answers.pop(fault.id):
            send()

    async def _wait_over(self, fault: Fault) -> None:
        while (left := self._faults.seconds_left(fault)) > 0:
            await self._wait_for_change(left)

    async def _wait_for_change(self, seconds: float) -> None:
        changed = asyncio.Event()
        self._frozen[changed] = None
        try:
            async with asyncio.timeout(None if seconds == float("inf") else seconds):
                await changed.wait()
        except TimeoutError:
            pass
        finally:
            del self._frozen[changed]


class FillableDisk:
    """A disk that is full when a fault says so."""

    def __init__(self, disk: Disk, faults: Faults) -> None:
        self._disk = disk
        self._faults = faults

    def open(self, path: Path, *, create: bool = False) -> File:
        return _FillableFile(self._disk.open(path, create=create), self._faults)

    def names(self, folder: Path) -> list[str]:
        return self._disk.names(folder)

    def make_folder(self, folder: Path) -> None:
        self._disk.make_folder(folder)

    def rename(self, source: Path, target: Path) -> None:
        self._disk.rename(source, target)

    def remove(self, path: Path) -> None:
        self._disk.remove(path)

    def remove_folder(self, folder: Path) -> None:
        self._disk.remove_folder(folder)

    async def sync_folder(self, folder: Path) -> None:
        await self._disk.sync_folder(folder)

    def lock(self, path: Path) -> Lock:
        return self._disk.lock(path)

    def usage(self, folder: Path) -> DiskUsage:
        # As it is: a fault must not make the store delete what is old to make room.
        return self._disk.usage(folder)


class _FillableFile:
    def __init__(self, file: File, faults: Faults) -> None:
        self._faults = faults
        self._file = file
        # Only writing differs, and reading is to cost nothing.
        self.size = file.size
        self.read_at = file.read_at
        self.truncate = file.truncate
        self.sync = file.sync
        self.close = file.close

    def write_at(self, offset: int, data: bytes | bytearray) -> None:
        self._check_for_room()
        self._file.write_at(offset, data)

    async def write_aside(self, offset: int, data: bytes) -> None:
        self._check_for_room()
        await self._file.write_aside(offset, data)

    def _check_for_room(self) -> None:
        if self._faults and self._faults.is_now(FaultKind.FILL_DISK):
            raise OSError(errno.ENOSPC, "no space left on the disk, by a fault")
