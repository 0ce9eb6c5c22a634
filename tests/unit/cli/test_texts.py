"""What people type and read."""

import argparse
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from rocketpipe.cli.texts import (
    count,
    harmless,
    moment_ms,
    pair,
    perm,
    queue_name,
    rate,
    seconds,
    show_body,
    show_perm,
    show_time,
)
from rocketpipe.clock import SystemClock
from rocketpipe.message import MessageQueue
from rocketpipe.wire.bodies.route import Perm


@pytest.mark.parametrize(
    ("text", "value"),
    [("1.5", 1.5), ("500ms", 0.5), ("10s", 10.0), ("5m", 300.0), ("2h", 7200.0), ("1d", 86400.0)],
)
def test_durations(text: str, value: float) -> None:
    assert seconds(text) == pytest.approx(value)


def test_rates() -> None:
    assert (rate("0.5"), rate("1e3")) == (0.5, 1000.0)


def test_moments_are_of_day_of_so_long_ago_or_in_ms() -> None:
    noon = datetime(2026, 11, 16, 12, tzinfo=UTC)
    assert moment_ms("2026-11-16T12:00+00:00") == noon.timestamp() * 1000
    local = noon.astimezone().replace(tzinfo=None)
    assert moment_ms(local.isoformat()) == noon.timestamp() * 1000
    assert moment_ms("1794830400000") == 1794830400000
    ago = SystemClock().wall_ms() - moment_ms("10m")
    assert 600_000 - 1 <= ago + 1 <= 660_000  # however slow this machine is


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (seconds, "0"),
        (seconds, "-1s"),
        (seconds, "soon"),
        (moment_ms, "yesterday"),
        (rate, "0"),
        (rate, "-1"),
        (rate, "nan"),
        (rate, "inf"),
        (rate, "fast"),
        (moment_ms, "5"),
        (pair, "novalue"),
        (pair, "=value"),
        (perm, "x"),
        (count, "0"),
        (count, "-1"),
        (queue_name, "broker-a"),
        (queue_name, ":0"),
        (queue_name, "broker-a:x"),
    ],
)
def test_what_makes_no_sense_is_refused(read: Callable[[str], object], text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=r"write|whole number"):
        read(text)


def test_names_and_permissions() -> None:
    assert queue_name("broker-a:3").of("orders") == MessageQueue("orders", "broker-a", 3)
    assert pair("a = b=c ") == ("a", "b=c")
    for text in ("rw", "r", "w"):
        assert show_perm(perm(text)) == text
    assert show_perm(Perm(0)) == "none"


def test_what_is_shown_is_harmless() -> None:
    assert harmless("a\x1b[31mb\x07\n\tc") == "a\ufffd[31mb\ufffd\n\tc"
    assert show_body(b"\xff\x00") == "0xff00"
    assert show_time(None) == show_time(-1) == "-"
    assert show_time(1794830400123).endswith(".123")
