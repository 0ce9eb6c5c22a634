"""Property strings against those that Apache RocketMQ 5.5.0 wrote and read."""

import json
from pathlib import Path
from typing import Any

import pytest

from rocketpipe.wire.properties import (
    decode_properties,
    encode_properties,
    encode_properties_bytes,
)

CASES = json.loads((Path(__file__).parent / "properties.json").read_text("utf-8"))["cases"]


@pytest.mark.parametrize("case", CASES["encode"])
def test_properties_are_written_as_java_writes_them(case: dict[str, Any]) -> None:
    assert encode_properties(case["properties"]) == case["text"]
    assert encode_properties_bytes(case["properties"]).hex() == case["utf8_hex"]
    assert decode_properties(case["text"]) == case["decoded_again"]


@pytest.mark.parametrize("case", CASES["decode"])
def test_properties_are_read_as_java_reads_them(case: dict[str, Any]) -> None:
    assert decode_properties(case["text"]) == case["decoded"]
