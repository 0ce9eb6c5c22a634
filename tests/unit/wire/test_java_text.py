"""Plain values as Java reads them from text."""

import math

import pytest

from rocketpipe.wire.java_text import read_double


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("5", 5.0), ("-5.", -5.0), ("+.5", 0.5), ("1e3", 1000.0), (" 5 \n", 5.0), ("1d", 1.0)),
        *(("2.5F", 2.5), ("0x1p3", 8.0), ("-0X.8P1d", -1.0), ("0x1p99999", math.inf)),
        *(("-0x1p99999", -math.inf), ("1e999", math.inf), ("-Infinity", -math.inf)),
    ],
)
def test_a_double_is_read_as_java_reads_it(text: str, value: float) -> None:
    assert read_double(text) == value


def test_nan_is_a_double() -> None:
    assert math.isnan(read_double("NaN"))
    assert math.copysign(1, read_double("-0.0")) == -1


@pytest.mark.parametrize(
    "text", ["", " ", ".", "1_0", "inf", "nan", "NaNd", "1 2", "0x10", "0x1", "e3", "\u00a05", "٣"]
)
def test_what_is_no_double_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="not a number"):
        read_double(text)


def test_long_texts_take_no_longer_than_they_are() -> None:
    with pytest.raises(ValueError, match="not a number"):
        read_double("1" * 32_000 + "x")
