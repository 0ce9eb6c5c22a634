"""Plays a fault script on a cluster. Whoever interrupts it ends the whole cluster."""

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from rocketpipe.broker.faults import FaultControl
from rocketpipe.codes import RequestCode
from rocketpipe.demo.scenario import LOST_ANSWERS_MAX, SLOW_SECONDS, Event, Trouble

# What is stored is hurt, and what is read is not: the pipeline shall show what the senders suffer.
SEND_CODES = (
    RequestCode.SEND_MESSAGE,
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
)


class Server(Protocol):
    """What can be done to a broker of any cluster whose processes are ours."""

    def kill(self) -> None: ...
    def start(self) -> None: ...
    def freeze(self) -> None: ...
    def thaw(self) -> None: ...


class FaultyServer(Server, Protocol):
    """What can be done to one of the embedded cluster besides."""

    @property
    def faults(self) -> FaultControl: ...


class Sufferer(Protocol):
    """A cluster that troubles can be made in."""

    @property
    def able(self) -> Collection[Trouble]:
        """Which of them."""

    def begin(self, event: Event) -> None:
        """Make this trouble; may block."""

    def end(self, event: Event) -> None:
        """End it; may block."""


@dataclass
class Played:
    """An event as it happened; times are seconds since the start of the run."""

    event: Event
    began: float
    ended: float | None = None


class Servers:
    """Servers that can be killed and frozen: any cluster's."""

    able: Collection[Trouble] = frozenset({Trouble.KILLED, Trouble.FROZEN})

    def __init__(self, find: Callable[[str], Server]) -> None:
        self._find = find

    def begin(self, event: Event) -> None:
        server = self._find(event.broker)
        match event.trouble:
            case Trouble.KILLED:
                server.kill()
            case Trouble.FROZEN:
                server.freeze()
            case _:
                raise AssertionError(f"{event.trouble} is not for these servers")

    def end(self, event: Event) -> None:
        server = self._find(event.broker)
        if event.trouble is Trouble.KILLED:
            server.start()
        else:
            server.thaw()


class FaultyServers(Servers):
    """Servers of the embedded cluster, which misbehave in all ways there are."""

    able = frozenset(Trouble)

    def __init__(self, find: Callable[[str], FaultyServer]) -> None:
        super().__init__(find)
        self._find_faulty = find

    def begin(self, event: Event) -> None:
        faults = self._find_faulty(event.broker).faults
        match event.trouble:
            case Trouble.SLOW:
                faults.delay(SLOW_SECONDS, code=SEND_CODES)
            case Trouble.BUSY:
                faults.busy(code=SEND_CODES)
            case Trouble.LOST_ANSWERS:
                faults.drop_answers(code=SEND_CODES, times=LOST_ANSWERS_MAX)
            case _:
                super().begin(event)

    def end(self, event: Event) -> None:
        if event.trouble in (Trouble.KILLED, Trouble.FROZEN):
            super().end(event)
        else:
            self._find_faulty(event.broker).faults.clear()


async def play(
    events: Sequence[Event], sufferer: Sufferer, started: float, played: list[Played]
) -> None:
    """Do what the script says, in time; `played` tells how far it is."""
    now = asyncio.get_running_loop().time

    async def one(event: Event) -> None:
        await asyncio.sleep(started + event.at - now())
        await asyncio.to_thread(sufferer.begin, event)
        mine = Played(event, now() - started)
        played.append(mine)
        await asyncio.sleep(started + event.until - now())
        await asyncio.to_thread(sufferer.end, event)
        mine.ended = now() - started

    async with asyncio.TaskGroup() as tasks:
        for event in events:
            tasks.create_task(one(event))
