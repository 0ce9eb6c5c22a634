"""The program's exit codes, and what it does without what it may be installed without."""

import sys
from random import Random

import pytest

from rocketpipe.cli import main
from rocketpipe.cli.load import Load
from rocketpipe.cli.send import paced
from rocketpipe.clock import SystemClock
from rocketpipe.message import Message


@pytest.fixture(autouse=True)
def nameserver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "127.0.0.1:1")


def test_without_rich_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "rich", None)
    assert main(["topic", "list"]) == 1
    assert "pip install 'rocketpipe[cli]'" in capsys.readouterr().err


def test_without_shtab_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["completion", "bash"]) == 1
    assert "pip install 'rocketpipe[cli]'" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["nonsense"], ["topic"], ["send"], ["group", "reset"]])
def test_misuse_is_told_in_a_line(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(arguments)
    assert exit_.value.code == 2
    told = capsys.readouterr().err
    assert told.startswith("rocketpipe: ")
    assert told.endswith(" --help' tells more\n")
    assert told.count("\n") == 1


class _Clock(SystemClock):
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


def test_a_load_tells_how_fast_it_was() -> None:
    clock = _Clock()
    load = Load(clock)
    latencies = [each / 1000 for each in range(1, 101)]
    Random(1).shuffle(latencies)
    for latency in latencies:
        clock.now = 10.0
        load.finished(10.0 - latency, None)
    error = OSError("no")
    load.finished(9.0, error)
    report = load.report()
    assert (report["sent"], report["failed"], report["seconds"]) == (100, 1, 10.0)
    assert (report["per_second"], report["max_ms"]) == (10.0, 100.0)
    assert report["p50_ms"] == pytest.approx(50, abs=1)
    assert report["p99_ms"] == pytest.approx(99, abs=1)
    assert load.first_error is error
    assert Load(clock).report()["p99_ms"] == 0.0


def test_without_a_rate_nothing_waits() -> None:
    messages = [Message("orders", b"x")] * 3
    assert list(paced(messages, None, _Clock())) == messages
