"""Hashes, tag codes, subscriptions and CRCs against those of Apache RocketMQ 5.5.0."""

import json
from pathlib import Path
from typing import Any

import pytest

from rocketpipe.wire.hashing import body_crc, index_key_hash, java_string_hash, tags_code
from rocketpipe.wire.subscription import TagFilter, parse_tag_expression

CASES = json.loads((Path(__file__).parent / "hashes.json").read_text("utf-8"))["cases"]


@pytest.mark.parametrize("case", CASES["tags"], ids=lambda case: case["tag"])
def test_a_tag_hashes_as_in_java(case: dict[str, Any]) -> None:
    assert len(case["tag"].encode("utf-16-be")) == 2 * case["utf16_units"]
    assert java_string_hash(case["tag"]) == case["java_string_hash"]
    assert tags_code(case["tag"]) == case["tags_code"]
    in_consume_queue = tags_code(case["tag"]).to_bytes(8, "big", signed=True)
    assert in_consume_queue.hex() == case["consume_queue_tags_code_hex"]


@pytest.mark.parametrize("case", CASES["subscriptions"], ids=lambda case: repr(case["expression"]))
def test_a_subscription_is_parsed_as_in_java(case: dict[str, Any]) -> None:
    assert parse_tag_expression(case["expression"]) == TagFilter(
        case["subString"], frozenset(case["tagsSet"]), frozenset(case["codeSet"])
    )


@pytest.mark.parametrize("case", CASES["index_keys"], ids=lambda case: case["index_key"])
def test_an_index_key_hashes_as_in_java(case: dict[str, Any]) -> None:
    assert index_key_hash(case["index_key"]) == case["key_hash"]
    assert index_key_hash(case["index_key"]) % 5_000_000 == case["slot_of_5000000"]


@pytest.mark.parametrize("case", CASES["crc"], ids=lambda case: case["hex"])
def test_a_body_has_the_crc_java_gives_it(case: dict[str, Any]) -> None:
    assert body_crc(bytes.fromhex(case["hex"])) == case["body_crc"]
    assert case["crc32_unsigned"] & 0x7FFFFFFF == case["body_crc"]
