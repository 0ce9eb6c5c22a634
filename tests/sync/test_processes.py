"""Blocking clients at the borders of a process: signals, forks, the end of the interpreter."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sync.tiny_cluster import TinyCluster

SOURCE = Path(__file__).parents[2] / "src"
START = """
import multiprocessing, os, signal, socket, sys, threading, time
from rocketpipe import Message, Producer
from rocketpipe.errors import IllegalState

namesrv = sys.argv[1]
message = Message("orders", b"parent")
"""

pytestmark = [
    pytest.mark.slow,  # each starts an interpreter
    pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here"),
]


def run(script: str, cluster: TinyCluster, *, is_file: Path | None = None) -> str:
    """What the script prints to its end, which it has to reach by itself."""
    if is_file is not None:
        is_file.write_text(START + script)
    command = [str(is_file)] if is_file is not None else ["-c", START + script]
    finished = subprocess.run(
        [sys.executable, "-W", "error", *command, cluster.namesrv],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
    )
    assert finished.stderr == ""
    assert finished.returncode == 0
    return finished.stdout


def test_the_children_of_one_process_draw_different_numbers(cluster: TinyCluster) -> None:
    printed = run(
        """
from rocketpipe.client.instance import _default_environment
for _ in range(2):
    child = os.fork()
    if child == 0:
        print(_default_environment.dice.getrandbits(128), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
""",
        cluster,
    )
    assert len(set(printed.split())) == 2


def test_a_producer_in_use_at_a_fork_says_so_in_the_child_and_goes_on_in_the_parent(
    cluster: TinyCluster,
) -> None:
    printed = run(
        """
producer = Producer("g", namesrv=namesrv)
producer.start()
producer.send(message)
child = os.fork()
if child == 0:
    for use in (
        lambda: producer.send(message),
        lambda: producer.send_async(message),
        lambda: producer.send_many([message]),
        producer.start,
    ):
        try:
            use()
        except IllegalState as error:
            print(error)
    producer.close()
    sys.exit()  # not os._exit: the end of the interpreter is part of it
assert os.waitpid(child, 0)[1] == 0
producer.send(message)
producer.close()
""",
        cluster,
    )
    assert printed == "started in another process: make a new client in this one\n" * 4
    assert cluster.bodies == [b"parent", b"parent"]


def test_a_full_queue_of_async_sends_does_not_block_the_child(cluster: TinyCluster) -> None:
    run(
        """
producer = Producer("g", namesrv=namesrv, async_sends_in_flight_max=1)
producer.start()
waiting = producer.send_async(Message("silent", b"x"), timeout=60)
child = os.fork()
if child == 0:
    try:
        producer.send_async(message)
    except IllegalState:
        os._exit(3)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
waiting.cancel()
producer.close()
""",
        cluster,
    )


def test_a_producer_started_in_a_forked_child_works(cluster: TinyCluster) -> None:
    run(
        """
made_before = Producer("made-before", namesrv=namesrv)
with Producer("g", namesrv=namesrv) as producer:
    producer.send(message)
    child = os.fork()
    if child == 0:
        with Producer("g", namesrv=namesrv) as own, made_before:
            own.send(Message("orders", b"child"))
            made_before.send(Message("orders", b"child"))
        assert threading.active_count() == 1
        sys.exit()  # through the with of the parent's producer
    assert os.waitpid(child, 0)[1] == 0
    producer.send(message)
""",
        cluster,
    )
    assert cluster.bodies == [b"parent", b"child", b"child", b"parent"]


def test_a_child_that_lives_on_keeps_no_connection_of_its_parent_open(
    cluster: TinyCluster,
) -> None:
    printed = run(
        """
def connections():
    count = 0
    for number in map(int, os.listdir("/dev/fd")):
        try:
            with socket.socket(fileno=os.dup(number)) as sock:
                count += sock.family == socket.AF_INET
        except OSError:
            pass  # not a socket
    return count

with Producer("g", namesrv=namesrv) as producer:
    producer.send(message)
    child = os.fork()
    if child == 0:
        print("child", connections(), flush=True)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    print("parent", connections())
""",
        cluster,
    )
    assert printed == "child 0\nparent 1\n"


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_multiprocessing_children_send_with_producers_of_their_own(
    cluster: TinyCluster, method: str, tmp_path: Path
) -> None:
    run(
        f"""
def work(namesrv, name):
    with Producer("g", namesrv=namesrv) as producer:
        for _ in range(10):
            producer.send(Message("orders", name))

if __name__ == "__main__":
    with Producer("g", namesrv=namesrv) as producer:
        producer.send(message)
        context = multiprocessing.get_context("{method}")
        children = [context.Process(target=work, args=(namesrv, b"%d" % n)) for n in range(2)]
        for child in children:
            child.start()
        for child in children:
            child.join()
            assert child.exitcode == 0
        producer.send(message)
""",
        cluster,
        is_file=tmp_path / "script.py",
    )
    assert sorted(cluster.bodies) == [b"0"] * 10 + [b"1"] * 10 + [b"parent"] * 2


def test_a_program_that_closes_nothing_ends_and_loses_nothing(cluster: TinyCluster) -> None:
    run(
        """
producer = Producer("g", namesrv=namesrv)
producer.start()
for _ in range(100):
    producer.send_async(message)
""",
        cluster,
    )
    assert cluster.bodies == [b"parent"] * 100
    assert cluster.goodbyes == 1


def test_a_program_ends_soon_even_when_a_broker_does_not_answer(cluster: TinyCluster) -> None:
    run(
        """
import rocketpipe.sync.loop_thread as loop_thread
loop_thread.EXIT_TIMEOUT = 0.1
producer = Producer("g", namesrv=namesrv)
producer.start()
producer.send_async(Message("silent", b"x"), timeout=600)


def send():
    try:
        producer.send(Message("silent", b"x"), timeout=600)
    except IllegalState:
        pass  # told or not before the end comes

threading.Thread(target=send, daemon=True).start()
""",
        cluster,
    )


def test_ctrl_c_cancels_a_blocked_send_and_the_producer_goes_on(cluster: TinyCluster) -> None:
    printed = run(
        """
def press_ctrl_c():
    time.sleep(1)
    os.kill(os.getpid(), signal.SIGINT)

class Ended(Exception): pass
def on_alarm(*_): raise Ended

signal.signal(signal.SIGALRM, on_alarm)
with Producer("g", namesrv=namesrv) as producer:
    producer.send(message)
    threading.Thread(target=press_ctrl_c).start()
    try:
        producer.send(Message("silent", b"x"), timeout=600)
    except KeyboardInterrupt:
        print("interrupted")
    signal.setitimer(signal.ITIMER_REAL, 1)
    try:
        producer.send_many([Message("silent", b"x")] * 2, timeout=600)
    except Ended:
        print("ended")
    producer.send(message)
""",  # were the silent ones not cancelled, close() would wait for them
        cluster,
    )
    assert printed == "interrupted\nended\n"
    assert cluster.bodies == [b"parent", b"parent"]
