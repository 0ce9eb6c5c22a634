"""What one sees of a run, in a terminal of any width and in a pipe."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from rocketpipe.demo.scenario import Event, Trouble
from rocketpipe.demo.tally import BrokerNow
from rocketpipe.demo.view import LINE_SECONDS, Lines, PipelineNow, Snapshot, draw, show_latency

KILLED = Event(20.0, 30.0, "broker-a", Trouble.KILLED)
SLOW = Event(40.0, 50.0, "broker-b", Trouble.SLOW)
MOMENT = Snapshot(
    title="rocketpipe demo · all · java5 · 400 msg/s",
    phase="sending",
    elapsed=23.0,
    seconds=70.0,
    brokers=[
        BrokerNow("broker-a", 0.0, 0.0, None, None, "down, isolated 3/3"),
        BrokerNow("broker-b", 210.0, 0.525, 0.0021, 0.034, "available"),
        BrokerNow("broker-c", 190.0, 0.475, 0.0019, 1.25, "available"),
    ],
    sends=9200,
    acknowledged=9100,
    failed=0,
    retried=31,
    on_their_way=60,
    waiting=140,
    resent=88,
    pipeline=PipelineNow(messages=8800, behind=300, attempts=9005),
    events=[KILLED, SLOW],
)


def drawn(snapshot: Snapshot, width: int) -> list[str]:
    console = Console(width=width, file=io.StringIO(), color_system=None)
    with console.capture() as capture:
        console.print(draw(snapshot, width))
    return [line.rstrip() for line in capture.get().splitlines()]


@pytest.mark.parametrize("width", [80, 120, 200])
def test_a_picture_says_what_goes_on_and_fits(width: int) -> None:
    lines = drawn(MOMENT, width)
    assert len(lines) <= 23
    assert all(len(line) <= width for line in lines)
    text = "\n".join(lines)
    assert "23 of 70 s" in lines[0]
    assert "broker-a is killed, and comes back (7 s more)" in text
    assert "next, in 17 s: broker-b answers after" in text
    rows = {line.split()[0]: line for line in lines if line.startswith("broker-")}
    assert rows["broker-a"].endswith("down, isolated 3/3")
    assert "52%" in rows["broker-b"]
    assert "2.1 ms" in rows["broker-b"]
    assert "1.2 s" in rows["broker-c"]
    for fact in ("9,200 sent", "9,100 acknowledged", "8,800 messages", "300 behind", "140 wait"):
        assert fact in text


def test_a_narrow_terminal_still_gets_a_picture() -> None:
    assert all(len(line) <= 40 for line in drawn(MOMENT, 40))


def test_without_trouble_all_is_well() -> None:
    text = "\n".join(drawn(replace(MOMENT, elapsed=60.0), 80))
    assert "all is well" in text
    assert "that was all" in text


def test_before_it_begins_there_is_a_phase_and_nothing_else() -> None:
    lines = drawn(Snapshot(title="rocketpipe demo", phase="starting the brokers and Spark"), 80)
    assert lines[0].startswith("rocketpipe demo")
    assert "starting the brokers and Spark" in lines


def test_a_pipe_gets_a_line_now_and_then_and_one_for_whatever_happens() -> None:
    file = io.StringIO()
    with Lines(file) as lines:
        for tenth in range(320):
            lines.show(replace(MOMENT, elapsed=tenth / 10))
    told = file.getvalue().splitlines()
    assert told[0] == "sending"
    assert "  20 s  broker-a is killed, and comes back" in told
    assert "  30 s  broker-a is itself again" in told
    counts = [line for line in told if "sent 9,200, acknowledged 9,100, failed 0" in line]
    assert len(counts) == 32 // LINE_SECONDS
    assert "\x1b" not in file.getvalue()


@pytest.mark.parametrize(
    ("seconds", "text"), [(None, "-"), (0.00123, "1.2 ms"), (0.0456, "46 ms"), (1.26, "1.3 s")]
)
def test_latencies_are_short(seconds: float | None, text: str) -> None:
    assert show_latency(seconds) == text
