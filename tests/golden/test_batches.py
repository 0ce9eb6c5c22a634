"""Batch bodies against bytes that Apache RocketMQ 5.5.0 wrote."""

import json
from pathlib import Path
from typing import Any

import pytest

from rocketpipe.wire.batch import BatchMember, decode_batch, encode_batch

CASES = json.loads((Path(__file__).parent / "batch_body.json").read_text("utf-8"))["cases"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_a_batch_is_written_and_read_as_java_does(case: dict[str, Any]) -> None:
    members = [
        BatchMember(bytes.fromhex(message["body_hex"]), message["properties"], message["flag"])
        for message in case["messages"]
    ]
    assert encode_batch(members).hex() == case["body_hex"]
    assert decode_batch(bytes.fromhex(case["body_hex"])) == members


@pytest.mark.parametrize("message", [m for case in CASES for m in case["messages"]])
def test_a_member_of_a_batch_is_written_and_read_as_java_does(message: dict[str, Any]) -> None:
    member = BatchMember(bytes.fromhex(message["body_hex"]), message["properties"], message["flag"])
    assert encode_batch([member]).hex() == message["encoded_hex"]
    assert decode_batch(bytes.fromhex(message["encoded_hex"])) == [member]
