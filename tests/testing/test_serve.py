"""`rocketpipe serve`, as a process: used by our producer and by Apache's."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import rocketpipe
from rocketpipe import Admin, Message, MessageQueue, Producer, SendStatus
from rocketpipe.errors import (
    BrokerError,
    ConnectFailed,
    ConnectionLost,
    RequestTimeout,
    SendFailed,
)
from rocketpipe.testing import BrokerFaults
from tests.apache.programs import java_program

pytestmark = pytest.mark.slow

FREE = ("--port", "0", "--namesrv-port", "0")
END_SECONDS_MAX = 60.0


def launch(*arguments: str) -> "subprocess.Popen[str]":
    source = str(Path(rocketpipe.__file__).parents[1])
    return subprocess.Popen(
        [sys.executable, "-m", "rocketpipe", "serve", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": source},
    )


@contextmanager
def serving(*arguments: str) -> Iterator["subprocess.Popen[str]"]:
    process = launch(*arguments)
    try:
        yield process
    finally:
        process.terminate()  # so that it takes its files along
        process.communicate(timeout=END_SECONDS_MAX)


def ended(process: "subprocess.Popen[str]") -> tuple[int, str, str]:
    output, errors = process.communicate(timeout=END_SECONDS_MAX)
    return process.returncode, output, errors


def said(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_it_keeps_data_and_ends_in_order(tmp_path: Path) -> None:
    offsets = []
    for number in (signal.SIGTERM, signal.SIGINT):
        with serving(*FREE, "--data", str(tmp_path)) as process:
            with Producer("g", namesrv=said(process), send_timeout=20.0) as producer:
                results = [producer.send(Message("kept", b"x")) for _ in range(8)]
                assert {each.status for each in results} == {SendStatus.SEND_OK}
                offsets.append(max(each.queue_offset for each in results))
            process.send_signal(number)
            assert ended(process) == (0, "", "")
    assert offsets[1] > offsets[0]


def test_programs_get_the_addresses_as_json_and_may_cause_faults() -> None:
    arguments = ("--brokers", "2", "--slaves", "--json", "--faults", "--set", "appendAckAsync=true")
    with serving(*FREE, *arguments) as process:
        addresses = json.loads(said(process))
        names = [(each["name"], each["id"]) for each in addresses["brokers"]]
        assert names == [("broker-a", 0), ("broker-b", 0), ("broker-a", 1), ("broker-b", 1)]
        faults = BrokerFaults(addresses["brokers"][0]["address"], timeout=30.0)
        fault = faults.busy(topic="orders")
        with Producer("g", namesrv=addresses["namesrv"], send_timeout=20.0) as producer:
            for _ in range(8):  # once around the queues: the busy broker has its turns
                assert producer.send(Message("orders", b"x")).queue.broker_name == "broker-b"
        assert faults.active()[0].hits > 0
        faults.clear(fault)
        process.terminate()
        assert ended(process) == (0, "", "rocketpipe: no effect here: appendAckAsync\n")


def test_each_server_may_have_a_process_of_its_own(tmp_path: Path) -> None:
    """Which is replaced when it ends by itself, and ends in order with the program."""
    options = ("--processes", "--json", "--brokers", "2", "--slaves", "broker-b=1", "--faults")
    with serving(*FREE, *options, "--data", str(tmp_path)) as process:
        ready = json.loads(said(process))
        brokers = {(each["name"], each["id"]): each for each in ready["brokers"]}
        assert list(brokers) == [("broker-a", 0), ("broker-b", 0), ("broker-b", 1)]
        assert len({each["process"] for each in brokers.values()} | {process.pid}) == 4
        broker = brokers["broker-a", 0]
        BrokerFaults(broker["address"], timeout=30.0).delay(0.0, topic="kept")
        with Producer("g", namesrv=ready["namesrv"], send_timeout=20.0) as producer:
            queue = MessageQueue("kept", "broker-a", 0)
            while producer.send(Message("kept", b"x")).queue != queue:
                pass
            os.kill(broker["process"], signal.SIGKILL)
            assert producer.send(Message("kept", b"x")).queue.broker_name == "broker-b"
            for _ in range(600):  # until it is back, on the same port
                with suppress(SendFailed):
                    assert producer.send(Message("kept", b"x"), queue=queue).queue_offset > 0
                    break
                threading.Event().wait(0.1)
            else:
                pytest.fail("the broker did not come back")
        assert BrokerFaults(broker["address"], timeout=30.0).active()[0].hits > 0
        process.terminate()
        code, _, errors = ended(process)
        assert code == 0
        assert "broker-a ended by SIGKILL" in errors
    folders = {each.name for each in tmp_path.iterdir()}
    assert folders == {"broker-a", "broker-b", "broker-b-1"}


@pytest.mark.parametrize("how", [(), ("--processes",)], ids=["one", "processes"])
def test_brokers_may_join_a_nameserver_elsewhere(how: tuple[str, ...]) -> None:
    with serving(*FREE, *how) as first:
        namesrv = said(first)
        options = ("--join", namesrv, "--brokers", "x,y", "--port", "0", "--json")
        with serving(*options, *how) as second, Admin(namesrv=namesrv) as admin:
            ready = json.loads(said(second))
            assert ready["namesrv"] == namesrv
            assert [each["name"] for each in ready["brokers"]] == ["x", "y"]
            assert {each.name for each in admin.brokers()} == {"broker-a", "x", "y"}
            slave = ("--brokers", "x", "--set", "brokerRole=SLAVE", "--join", namesrv)
            with serving(*slave, "--port", "0", "--json", *how) as third:
                assert json.loads(said(third))["brokers"][0]["id"] == 1
                (x,) = (each for each in admin.brokers() if each.name == "x")
                assert x.addresses.keys() == {0, 1}
            second.terminate()
            assert ended(second) == (0, "", "")
            assert {each.name for each in admin.brokers()} == {"broker-a"}


def test_a_nameserver_can_not_be_both_here_and_elsewhere() -> None:
    with serving("--join", "127.0.0.1:9876", "--namesrv-port", "9876") as process:
        code, _, errors = ended(process)
    assert (code, len(errors.splitlines())) == (2, 1)


@pytest.mark.parametrize("how", [(), ("--processes",)], ids=["one", "processes"])
def test_others_may_stop_and_kill_a_broker_for_a_time(how: tuple[str, ...]) -> None:
    with serving(*FREE, "--brokers", "2", "--json", "--faults", *how) as process:
        ready = json.loads(said(process))
        faults = BrokerFaults(ready["brokers"][0]["address"], timeout=30.0)
        queue = MessageQueue("down", "broker-a", 0)
        with Producer("g", namesrv=ready["namesrv"], send_timeout=20.0) as producer:
            while producer.send(Message("down", b"x")).queue.broker_name != "broker-a":
                pass  # until the topic is there
            for end in (faults.stop, faults.kill):
                end(seconds=2.0)
                with pytest.raises((ConnectFailed, ConnectionLost)):
                    for _ in range(200):  # it goes when it has answered
                        faults.active()
                for _ in range(600):
                    with suppress(SendFailed):
                        producer.send(Message("down", b"x"), queue=queue)
                        break
                    threading.Event().wait(0.1)
                else:
                    pytest.fail("the broker did not come back")
                assert faults.active() == []


@pytest.mark.parametrize("how", [(), ("--processes",)], ids=["one", "processes"])
def test_others_may_make_a_broker_stand_still(how: tuple[str, ...]) -> None:
    """And with it those that share its process."""
    with serving(*FREE, "--brokers", "2", "--json", "--faults", *how) as process:
        first, second = (each["address"] for each in json.loads(said(process))["brokers"])
        BrokerFaults(first, timeout=30.0).cut_connections()  # of which there are none
        BrokerFaults(first, timeout=30.0).stand_still(seconds=5.0)
        threading.Event().wait(0.5)  # it has answered, and goes on for a moment
        with pytest.raises(RequestTimeout):
            BrokerFaults(first, timeout=0.5).active()
        if how:
            assert BrokerFaults(second, timeout=3.0).active() == []
        else:
            with pytest.raises(RequestTimeout):
                BrokerFaults(second, timeout=0.5).active()
        assert BrokerFaults(first, timeout=30.0).active() == []


def test_faults_must_be_allowed() -> None:
    with serving(*FREE, "--json") as process:
        (broker,) = json.loads(said(process))["brokers"]
        with pytest.raises(BrokerError, match="not supported"):
            BrokerFaults(broker["address"], timeout=30.0).cut()


def test_misuse_and_failure_are_one_line_each(tmp_path: Path) -> None:
    with serving("--set", "nobodyKnows=1") as process:
        message = "rocketpipe: nobodyKnows is not a setting of this broker\n"
        assert ended(process) == (2, "", message)
    for wrong in ("broker-a=x", "x", "-1"):
        with serving("--slaves", wrong) as process:
            code, _, errors = ended(process)
            assert (code, len(errors.splitlines())) == (2, 1), errors
    with serving("--set", "nothing") as process:
        code, _, errors = ended(process)
        assert code == 2
        assert errors == (
            "rocketpipe: argument --set: 'nothing': write KEY=VALUE. "
            "'rocketpipe serve --help' tells more\n"
        )
    file = tmp_path / "file"
    file.touch()
    with serving(*FREE, "--data", str(file)) as process:
        code, output, errors = ended(process)
        assert (code, output, len(errors.splitlines())) == (1, "", 1)
        assert "Traceback" not in errors
    with serving(*FREE, "--data", str(file), "--debug") as process:
        code, _, errors = ended(process)
        assert code == 1
        assert "Traceback" in errors


@pytest.mark.parametrize("how", [(), ("--processes",)], ids=["one", "processes"])
def test_a_folder_that_another_uses_is_told(how: tuple[str, ...], tmp_path: Path) -> None:
    arguments = (*FREE, "--data", str(tmp_path))
    with (
        serving(*arguments) as first,
        Producer("g", namesrv=said(first), send_timeout=20.0) as producer,
    ):
        with serving(*arguments, *how) as second:
            code, output, errors = ended(second)
        assert (code, output) == (1, "")
        assert errors == f"rocketpipe: {tmp_path}/broker-a is open in another broker\n"
        # And the other has lost nothing by it.
        assert producer.send(Message("kept", b"x")).status is SendStatus.SEND_OK


def test_a_taken_port_is_told() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        with serving("--port", "0", "--namesrv-port", port) as process:
            code, _, errors = ended(process)
    assert code == 1
    assert errors.startswith(f"rocketpipe: cannot listen on 127.0.0.1:{port}")


@pytest.mark.parametrize("apache_version", ["5.5.0"], indirect=True)
def test_apaches_quickstart_producer_can_use_it(apache_version: str) -> None:
    with serving(*FREE) as process:
        finished = java_program(
            apache_version,
            "org.apache.rocketmq.example.quickstart.Producer",
            namesrv=said(process),
            timeout=180,
        )
        assert finished.exit_code == 0, finished.output
        assert finished.output.count("SEND_OK") == 1000
