"""One sick server of a cluster fails no send and loses no message, by default settings."""

import asyncio
from collections.abc import Callable

import pytest

from rocketpipe import Message, SendStatus
from rocketpipe.client.queue_choice import POLICIES
from rocketpipe.errors import NoNameServer
from rocketpipe.testing import EmbeddedCluster
from tests.interop.clusters import Cluster, new_topic
from tests.interop.fault_load import FAULTS, Fault, Run, freeze, kill, run_fault
from tests.interop.messages import producer_at

# A broker refuses what has waited in its queue for 200 ms. Where even a healthy one lets a witness
# wait for that long, it is the machine that is sick, and what a run shows is not about us.
STALL_MAX = 0.2
RUNS_MAX = 6
SICK_SHARE_MAX = 0.02  # of the sends within the isolation time of java5


@pytest.fixture
def show(pytestconfig: pytest.Config) -> Callable[[str], None]:
    """Shows figures, which are worth a look also when all is well."""
    terminal = pytestconfig.pluginmanager.getplugin("terminalreporter")
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")

    def show(text: str) -> None:
        with capture.global_and_fixture_disabled():
            terminal.write_line(f"\n{text}")

    return show


def undisturbed_run(cluster: Cluster, fault: Fault, show: Callable[[str], None]) -> Run:
    """A run that keeps every promise, or one that breaks it on a machine that could have.

    No machine is an excuse for a message that is lost.
    """
    for _ in range(RUNS_MAX):
        run = asyncio.run(run_fault(cluster, fault))
        show(f"Apache RocketMQ {cluster.version}. {fault.__doc__}\n{run.table()}")
        if run.stall < STALL_MAX or run.lost or is_kept(run):
            break
        show(f"A healthy broker took {run.stall:.2f} s to answer: once more.")
        cluster.heal()
    return run


def is_kept(run: Run) -> bool:
    return not run.failures() and not run.lost and run.figures("java5").sick_share < SICK_SHARE_MAX


@pytest.mark.final
@pytest.mark.parametrize("fault", FAULTS.values(), ids=list(FAULTS))
def test_no_send_fails_and_no_message_is_lost(
    cluster: Cluster, fault: Fault, show: Callable[[str], None]
) -> None:
    run = undisturbed_run(cluster, fault, show)
    assert not run.lost
    if not is_kept(run):
        pytest.fail(f"{run.failures()}, {run.figures('java5').sick_share} went to the sick one")
    # An embedded NameServer knows at once who was killed: who has nothing in flight feels nothing.
    if fault is freeze or (fault is kill and not isinstance(cluster, EmbeddedCluster)):
        figures = map(run.figures, POLICIES)
        felt = {each.policy for each in figures if each.retries > 0 and each.warned > 0}
        if felt != set(POLICIES):
            pytest.fail(f"only {felt} felt it")


def test_without_a_nameserver_known_topics_go_on_and_others_wait_for_it(cluster: Cluster) -> None:
    async def main() -> None:
        known, unknown = new_topic("known"), new_topic("unknown")
        async with producer_at(cluster, request_timeout=1.0) as producer:
            await producer.send(Message(known, b"x"))
            await asyncio.to_thread(cluster.nameserver.kill)
            assert (await producer.send(Message(known, b"x"))).status is SendStatus.SEND_OK
            with pytest.raises(NoNameServer, match=cluster.namesrv):
                await producer.send(Message(unknown, b"x"))
            await asyncio.to_thread(cluster.nameserver.start)
            assert (await producer.send(Message(unknown, b"x"))).status is SendStatus.SEND_OK

    asyncio.run(main())
