"""Trace records against those that Apache RocketMQ 5.5.0 wrote."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rocketpipe.wire.trace import (
    EndTransaction,
    Pub,
    Recall,
    SubAfter,
    SubBefore,
    Trace,
    decode_traces,
    encode_traces,
    trace_keys,
)

CASES = json.loads((Path(__file__).parent / "trace_contexts.json").read_text("utf-8"))["cases"]

AT = 1700000000123
REGION = "DefaultRegion"
GROUP = "GroupVector"
TOPIC = "TopicVector"
ID_1 = "0A0B0C0D000118B4AAC20000000A0001"
ID_2 = "0A0B0C0D000118B4AAC20000000A0002"
REQUEST = "0A0B0C0D000118B4AAC20000000A00FF"
HOST = "127.0.0.1:10911"
OFFSET_ID = "7F00000100002A9F0000000000000100"
KEYS = "k1 k2"

# By keyword, so that two fields of one type cannot change places unseen.
PUB = Pub(
    timestamp_ms=AT,
    region_id=REGION,
    group=GROUP,
    topic=TOPIC,
    message_id=ID_1,
    tags="TagA",
    keys=KEYS,
    store_host=HOST,
    body_length=12,
    cost_ms=15,
    message_type=0,
    offset_message_id=OFFSET_ID,
    is_success=True,
)
SUB_BEFORE = SubBefore(
    timestamp_ms=AT,
    region_id=REGION,
    group=GROUP,
    request_id=REQUEST,
    message_id=ID_1,
    retry_times=2,
    keys=KEYS,
)
SUB_AFTER = SubAfter(
    request_id=REQUEST,
    message_id=ID_1,
    cost_ms=15,
    is_success=True,
    keys=KEYS,
    context_code=3,
    timestamp_ms=AT,
    group=GROUP,
)
CLOUD_AFTER = replace(SUB_AFTER, timestamp_ms=None, group=None)
END_TRANSACTION = EndTransaction(
    timestamp_ms=AT,
    region_id=REGION,
    group=GROUP,
    topic=TOPIC,
    message_id=ID_1,
    tags="TagA",
    keys=KEYS,
    store_host=HOST,
    message_type=0,
    transaction_id="TX1",
    state="COMMIT_MESSAGE",
    is_from_check=True,
)
RECALL = Recall(
    timestamp_ms=AT,
    region_id=REGION,
    group=GROUP,
    topic=TOPIC,
    message_id=ID_1,
    is_success=True,
)
MEANT: dict[str, list[Trace]] = {
    "Pub": [PUB],
    "Pub_null_tags_keys": [replace(PUB, tags=None, keys=None)],
    "SubBefore": [SUB_BEFORE, replace(SUB_BEFORE, message_id=ID_2, keys=None)],
    "SubAfter": [SUB_AFTER, replace(SUB_AFTER, message_id=ID_2, keys=None)],
    "SubAfter_CLOUD": [CLOUD_AFTER, replace(CLOUD_AFTER, message_id=ID_2, keys=None)],
    "EndTransaction": [END_TRANSACTION],
    "Recall": [RECALL],
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_traces_are_written_and_read_as_java_does(case: dict[str, Any]) -> None:
    meant = MEANT[case["name"]]
    assert encode_traces(meant) == case["text"]
    assert encode_traces(meant).encode().hex() == case["utf8_hex"]
    assert decode_traces(case["text"]) == meant


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_trace_messages_are_found_by_the_keys_java_gives_them(case: dict[str, Any]) -> None:
    keys = set(case["keys"])
    if case["name"] == "Recall":
        # The vector's message has keys, but no recall trace carries them: Java's hook knows none.
        keys -= {"k1", "k2"}
    assert set(trace_keys(MEANT[case["name"]])) == keys
