"""The line between a driver and its tasks."""

import socket
import time
from collections.abc import Callable

from rocketpipe.spark.jobs.lifeline import Address, Lifeline, TaskLine

HOST = "127.0.0.1"
DEADLINE = 30.0


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_the_driver_hears_what_all_tasks_have_done() -> None:
    with Lifeline(HOST, HOST) as line:
        with TaskLine(line.address) as one, TaskLine(line.address) as other:
            one.tell(3)
            other.tell(4)
            one.tell(5)
            assert not one.wait(0.0)
        until(lambda: line.rows == 12)


def test_who_waits_ends_at_once_when_the_driver_lets_go_or_is_gone() -> None:
    with Lifeline(HOST, HOST) as line, TaskLine(line.address) as task:
        task.tell(1)
        until(lambda: line.rows == 1)
        line.let_go()
        assert task.wait(DEADLINE)
        with TaskLine(line.address) as late:
            assert late.wait(DEADLINE)
        task.tell(2)  # what was on its way still counts
        until(lambda: line.rows == 3)


def test_a_stranger_is_not_heard() -> None:
    with Lifeline(HOST, HOST) as line:
        with TaskLine(Address(HOST, line.address.port, "wrong")) as stranger:
            stranger.tell(1000)
            assert stranger.wait(DEADLINE)
        assert line.rows == 0


def test_a_task_without_a_driver_goes_on() -> None:
    with socket.create_server((HOST, 0)) as server:
        port = server.getsockname()[1]
    with TaskLine(Address(HOST, port, "token")) as task:
        task.tell(1)
        assert not task.wait(0.001)
