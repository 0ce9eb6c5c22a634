"""A script is played in its order, and each trouble does to its broker what it says."""

import asyncio
import random

import pytest

from rocketpipe.broker.faults import FaultKind, Faults
from rocketpipe.codes import RequestCode, ResponseCode
from rocketpipe.demo.scenario import LOST_ANSWERS_MAX, SLOW_SECONDS, Event, Trouble
from rocketpipe.demo.troubles import FaultyServers, Played, Servers, play

SEND, PULL = RequestCode.SEND_MESSAGE_V2, RequestCode.PULL_MESSAGE


class Broker:
    """Writes down what is done to it."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.faults = Faults(lambda: 0.0)

    def kill(self) -> None:
        self.done.append("kill")

    def start(self) -> None:
        self.done.append("start")

    def freeze(self) -> None:
        self.done.append("freeze")

    def thaw(self) -> None:
        self.done.append("thaw")


def event(trouble: Trouble, at: float = 0.0, until: float = 1.0) -> Event:
    return Event(at, until, "broker-a", trouble)


@pytest.mark.parametrize("kind", [Servers, FaultyServers])
@pytest.mark.parametrize(
    ("trouble", "done"),
    [(Trouble.KILLED, ["kill", "start"]), (Trouble.FROZEN, ["freeze", "thaw"])],
)
def test_any_server_can_be_killed_and_frozen(
    kind: type[Servers], trouble: Trouble, done: list[str]
) -> None:
    broker = Broker()
    servers = kind({"broker-a": broker}.__getitem__)
    assert trouble in servers.able
    servers.begin(event(trouble))
    assert broker.done == done[:1]
    servers.end(event(trouble))
    assert broker.done == done


def test_what_needs_faults_is_not_for_any_server() -> None:
    assert set(Servers.able) == {Trouble.KILLED, Trouble.FROZEN}
    assert set(FaultyServers.able) == set(Trouble)
    with pytest.raises(AssertionError):
        Servers(lambda _: Broker()).begin(event(Trouble.SLOW))


@pytest.mark.parametrize(
    ("trouble", "kind"),
    [
        (Trouble.SLOW, FaultKind.DELAY),
        (Trouble.BUSY, FaultKind.REFUSE),
        (Trouble.LOST_ANSWERS, FaultKind.DROP_ANSWERS),
    ],
)
def test_a_fault_meets_sends_and_nothing_else_until_it_is_over(
    trouble: Trouble, kind: FaultKind
) -> None:
    broker = Broker()
    servers = FaultyServers(lambda _: broker)
    servers.begin(event(trouble))
    assert broker.faults.take(set(FaultKind), PULL) is None, "the pipeline reads on"
    fault = broker.faults.take(set(FaultKind), SEND)
    assert fault is not None
    assert fault.kind is kind
    match kind:
        case FaultKind.DELAY:
            delay = fault.seconds_to_wait(random.Random(1))
            assert SLOW_SECONDS[0] <= delay <= SLOW_SECONDS[1]
        case FaultKind.REFUSE:
            assert fault.response_code == ResponseCode.SYSTEM_BUSY
        case _:
            for _ in range(LOST_ANSWERS_MAX - 1):
                assert broker.faults.take(set(FaultKind), SEND) is not None
            assert broker.faults.take(set(FaultKind), SEND) is None
    servers.end(event(trouble))
    assert broker.faults.active() == []


def test_a_script_is_played_in_order_and_written_down() -> None:
    broker = Broker()
    events = [event(Trouble.KILLED, 0.01, 0.03), event(Trouble.FROZEN, 0.05, 0.06)]
    played: list[Played] = []

    async def main() -> None:
        started = asyncio.get_running_loop().time()
        await play(events, FaultyServers(lambda _: broker), started, played)

    asyncio.run(main())
    # A busy machine may be late with the end of one.
    assert [each for each in broker.done if each in ("kill", "start")] == ["kill", "start"]
    assert [each for each in broker.done if each in ("freeze", "thaw")] == ["freeze", "thaw"]
    assert {each.event for each in played} == set(events)
    for each in played:
        assert each.ended is not None
        assert each.event.at <= each.began <= each.ended
        assert each.ended >= each.event.until
