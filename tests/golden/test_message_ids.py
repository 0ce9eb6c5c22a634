"""Message ids and recall handles against those of Apache RocketMQ 5.5.0."""

import json
import re
import time
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from rocketpipe.wire.message_id import (
    RecallHandle,
    UniqueIdGenerator,
    offset_message_id,
    parse_offset_message_id,
    parse_recall_handle,
    parse_unique_id,
)

CASES = json.loads((Path(__file__).parent / "message_ids.json").read_text("utf-8"))["cases"]


@pytest.mark.parametrize("case", CASES["offset_msg_id"], ids=lambda case: case["offset_msg_id"])
def test_an_offset_message_id_is_made_and_parsed_as_in_java(case: dict[str, Any]) -> None:
    ip = f"[{case['ip']}]" if ":" in case["ip"] else case["ip"]
    host = f"{ip}:{case['port']}"
    assert offset_message_id(host, case["offset"]) == case["offset_msg_id"]
    assert len(case["offset_msg_id"]) == case["length"]
    assert parse_offset_message_id(case["offset_msg_id"]) == (host, case["offset"])
    java = re.fullmatch(r"/\[?(.+?)]?:(\d+) @(\d+)", case["decoded"])
    assert java
    assert (ip_address(java[1]), int(java[2]), int(java[3])) == (
        ip_address(case["ip"]),
        case["port"],
        case["offset"],
    )


@pytest.mark.parametrize("case", CASES["uniq_key"], ids=lambda case: case["uniq_key"])
def test_a_unique_id_is_parsed_as_in_java(case: dict[str, Any]) -> None:
    unique_id = parse_unique_id(case["uniq_key"])
    assert ip_address(unique_id.ip) == ip_address(case["ip"])
    assert unique_id.pid == case["pid_low_16_bits"]


@pytest.mark.parametrize("case", CASES["uniq_key"], ids=lambda case: case["uniq_key"])
def test_a_unique_id_of_java_could_have_been_ours(case: dict[str, Any]) -> None:
    parts = parse_unique_id(case["uniq_key"])
    # As if it had been made in January 2024, in whatever time zone this runs.
    now_ms = int(time.mktime((2024, 1, 1, 0, 0, 0, 0, 0, -1))) * 1000 + parts.month_ms
    generator = UniqueIdGenerator(
        ip_address(parts.ip).packed, parts.pid, parts.process_unique, lambda: now_ms
    )
    for _ in range(parts.counter):
        generator()
    assert generator() == case["uniq_key"]


@pytest.mark.parametrize("case", CASES["recall_handle"], ids=lambda case: case["uniq"])
def test_a_recall_handle_is_made_and_parsed_as_in_java(case: dict[str, Any]) -> None:
    handle = RecallHandle(case["topic"], case["broker"], int(case["timestamp"]), case["uniq"])
    assert handle.encode() == case["handle"]
    assert parse_recall_handle(case["handle"]) == handle
