"""What is particular to clusters whose servers have processes of their own."""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

import rocketpipe
from rocketpipe import Admin, Message, Producer, SendStatus
from rocketpipe.errors import ClientError, InvalidSetting, NoNameServer
from rocketpipe.testing import EmbeddedCluster
from rocketpipe.testing.process_runner import ProcessRunner

pytestmark = pytest.mark.slow

SECONDS_MAX = 60.0


def wait_until(is_so: Callable[[], bool]) -> None:
    for _ in range(int(SECONDS_MAX / 0.02)):
        if is_so():
            return
        threading.Event().wait(0.02)
    pytest.fail("it never came to be")


def is_gone(process: int) -> bool:
    """Whether it has ended; who reaps it may take his time."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def state_of(process: int) -> str:
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]


def test_each_server_has_a_process_and_a_port_of_its_own() -> None:
    with EmbeddedCluster(2, slaves={"broker-b": 1}, processes=True) as cluster:
        ids = {server.process_id for server in cluster.servers}
        assert len(ids) == 4
        assert not ids & {None, os.getpid()}
        assert len({server.address for server in cluster.servers}) == 4
        broker = cluster.broker("broker-b", 1)
        before = broker.process_id
        broker.stop()
        assert broker.process_id is None
        broker.start()
        assert broker.process_id not in (before, None)
    assert all(is_gone(process) for process in ids if process is not None)


def test_to_kill_is_sigkill_and_to_freeze_is_sigstop(caplog: pytest.LogCaptureFixture) -> None:
    with EmbeddedCluster(processes=True) as cluster:
        broker = cluster.broker("broker-a")
        process = broker.process_id
        assert process is not None
        with broker.frozen():
            assert state_of(process) == "T"
            with pytest.raises(ClientError, match="broker-a is frozen"):
                broker.faults.active()
        assert state_of(process) != "T"
        broker.freeze()
        broker.kill()
        assert is_gone(process)
        broker.start()
        assert "broker-a was not closed in order; recovering" in caplog.text


@pytest.mark.final
def test_nothing_acknowledged_is_lost_by_a_kill() -> None:
    settings = {"flushDiskType": "SYNC_FLUSH"}
    with (
        EmbeddedCluster(processes=True, settings=settings) as cluster,
        Producer("g", namesrv=cluster.namesrv, send_timeout=20.0) as producer,
    ):
        sent = [producer.send(Message("kept", b"x")) for _ in range(8)]
        if {each.status for each in sent} != {SendStatus.SEND_OK}:
            pytest.fail("this disk takes longer than 5 s: nothing was promised")
        cluster.broker("broker-a").kill()
        cluster.heal()
        again = [producer.send(Message("kept", b"x"), queue=each.queue) for each in sent]
        assert max(each.queue_offset for each in again) > max(each.queue_offset for each in sent)


def test_one_that_ends_by_itself_is_told_and_can_be_brought_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with EmbeddedCluster(processes=True) as cluster:
        broker = cluster.broker("broker-a")
        assert broker.process_id is not None
        os.kill(broker.process_id, signal.SIGKILL)
        wait_until(lambda: not broker.is_running)
        assert "broker-a ended by SIGKILL" in caplog.text
        broker.cut_connections()  # of which there are none
        cluster.heal()
        assert broker.is_running


def test_one_that_ends_by_itself_may_be_started_again_at_once() -> None:
    cluster = EmbeddedCluster(processes=True)
    cluster.restarts_lost = True
    with cluster, Admin(namesrv=cluster.namesrv) as admin:
        for server in cluster.servers:
            process = server.process_id
            assert process is not None
            os.kill(process, signal.SIGKILL)
            wait_until(lambda: server.process_id not in (process, None))  # noqa: B023
            with suppress(NoNameServer):
                wait_until(lambda: len(admin.brokers()) == 1)
        cluster.broker("broker-a").stop()
        threading.Event().wait(0.3)
        assert not cluster.broker("broker-a").is_running  # as it was asked to


def test_one_that_can_not_come_back_tries_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("rocketpipe.testing.process_runner.COME_BACK_INTERVAL", 0.1)
    with EmbeddedCluster(processes=True) as cluster:
        broker = cluster.broker("broker-a")
        host, _, port = broker.address.rpartition(":")
        fault = broker.faults.stop()
        wait_until(lambda: not broker.is_running)
        with socket.create_server((host, int(port))):
            broker.faults.clear(fault)
            wait_until(lambda: "broker-a does not come back: cannot listen" in caplog.text)
        wait_until(lambda: broker.is_running)


def test_a_port_that_is_taken_is_told_and_nothing_is_left() -> None:
    threads = threading.active_count()
    taken = socket.create_server(("127.0.0.1", 0))
    with taken, pytest.raises(InvalidSetting, match="cannot listen"):
        EmbeddedCluster(2, processes=True, port=taken.getsockname()[1]).start()
    assert threading.active_count() == threads


def test_what_a_child_says_before_it_dies_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = "import sys; sys.exit('no Python is broken like this one')"
    monkeypatch.setattr("rocketpipe.testing.process_runner._CHILD", broken)
    with pytest.raises(ClientError, match="namesrv ended with 1: no Python is broken like this"):
        EmbeddedCluster(processes=True).start()


def test_one_that_does_not_stop_is_killed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("rocketpipe.testing.process_runner.STOP_TIMEOUT", 0.1)
    monkeypatch.setattr(ProcessRunner, "thaw", lambda self: None)
    with EmbeddedCluster(processes=True) as cluster:
        broker = cluster.broker("broker-a")
        process = broker.process_id
        assert process is not None
        broker.freeze()
        broker.stop()
        assert is_gone(process)
    assert "broker-a does not stop, and is killed" in caplog.text


def test_delays_that_are_functions_can_not_travel() -> None:
    with (
        EmbeddedCluster(processes=True) as cluster,
        pytest.raises(InvalidSetting, match="a function can't travel"),
    ):
        cluster.broker("broker-a").faults.delay(lambda: 1.0)


def test_brokers_can_join_a_nameserver_elsewhere() -> None:
    with EmbeddedCluster(processes=True) as first:
        joined = EmbeddedCluster(["broker-x"], join=first.namesrv, processes=True)
        with joined, Producer("g", namesrv=joined.namesrv, send_timeout=20.0) as producer:
            with pytest.raises(ClientError, match="the NameServer is not ours, but at 127"):
                _ = joined.nameserver
            first.broker("broker-a").stop()
            assert producer.send(Message("far", b"x")).queue.broker_name == "broker-x"
            joined.broker("broker-x").kill()
            joined.heal()
            assert producer.send(Message("far", b"x")).queue.broker_name == "broker-x"


PARENT = """
import ctypes, os, signal, sys, threading

if sys.argv[1] == "reaper":  # as in some containers: orphans get a parent in their own session
    PR_SET_CHILD_SUBREAPER = 36
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    if os.fork():
        signal.pause()

from rocketpipe.testing import EmbeddedCluster

def start():
    global cluster
    cluster = EmbeddedCluster(2, processes=True)
    cluster.start()

starter = threading.Thread(target=start)
starter.start()
starter.join()
cluster.broker("broker-b").freeze()
print(os.getpid(), *(server.process_id for server in cluster.servers), flush=True)
if sys.argv[1] == "fork" and os.fork() == 0:  # who has copies of all that is open here
    signal.pause()
signal.pause()
"""


@pytest.mark.parametrize("how", ["alone", "fork", "reaper"])
def test_no_child_outlives_its_parent_whatever_ends_that(how: str) -> None:
    """Nor a frozen one; but the end of the thread that started them is not their end."""
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, how],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(rocketpipe.__file__).parents[1])},
        process_group=0,
    )
    try:
        assert parent.stdout is not None
        parent_id, *children = [int(each) for each in parent.stdout.readline().split()]
        assert [state_of(each) == "T" for each in children] == [False, False, True]
        os.kill(parent_id, signal.SIGKILL)
        wait_until(lambda: all(map(is_gone, children)))
    finally:
        os.killpg(parent.pid, signal.SIGKILL)
        parent.communicate()
