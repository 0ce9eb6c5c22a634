"""Numbers as people read them."""

import pytest

from rocketpipe.report.numbers import (
    count,
    duration,
    milliseconds,
    moment,
    percent,
    plural,
    short_count,
    utc,
)


@pytest.mark.parametrize(
    ("share", "text"),
    [
        *((0, "0 %"), (1, "100 %"), (1 / 3, "33 %"), (0.05, "5 %"), (0.012, "1 %")),
        *((0.004, "0.4 %"), (0.0004, "0.04 %"), (0.000004, "under 0.001 %")),
        *((0.994, "99.4 %"), (0.9997, "99.97 %"), (0.9999999, "over 99.999 %")),
    ],
)
def test_nearly_all_is_not_all_and_nearly_none_not_none(share: float, text: str) -> None:
    assert percent(share) == text


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        *((0.4189, "0.419 ms"), (3.14159, "3.14 ms"), (99.94, "99.9 ms"), (812.4, "812 ms")),
        *((1234, "1.23 s"), (65_000, "65 s"), (3_600_000, "3,600 s"), (None, "–"), (0, "0 ms")),
    ],
)
def test_latencies(ms: float | None, text: str) -> None:
    assert milliseconds(ms) == text


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        *((800, "800 ms"), (4200, "4.2 s"), (59_949, "59.9 s"), (60_000, "1 min")),
        *((125_000, "2 min 5 s"), (3_600_000, "1 h"), (5_400_000, "1 h 30 min")),
    ],
)
def test_durations(ms: float, text: str) -> None:
    assert duration(ms) == text


def test_counts() -> None:
    assert [count(1234567), plural(1, "send"), plural(2000, "send")] == [
        *("1,234,567", "1 send", "2,000 sends"),
    ]
    assert [short_count(n) for n in (0, 950, 1200, 35_000, 2e6)] == [
        "0",
        "950",
        "1.2k",
        "35k",
        "2M",
    ]


def test_moments() -> None:
    start = 1_794_943_534_000
    assert utc(start) == "2026-11-17 19:25:34"
    assert moment(start + 62_500, start, 90_000) == "1:02"
    assert moment(start + 62_500, start, 4_000_000) == "19:26"
    assert moment(start, start, 10 * 86_400_000) == "17 Nov"
    assert utc(1 << 62) == "1970-01-01 00:00:00"  # a clock that was wrong breaks no report
