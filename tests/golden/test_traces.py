"""Trace records against those that Apache RocketMQ 5.5.0 wrote."""

import json
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

# Numbers that stand side by side differ wherever the vectors make them differ.
MEANT: dict[str, list[Trace]] = {
    "Pub": [
        Pub(AT, REGION, GROUP, TOPIC, ID_1, "TagA", KEYS, HOST, 12, 15, 0, OFFSET_ID, True),
    ],
    "Pub_null_tags_keys": [
        Pub(AT, REGION, GROUP, TOPIC, ID_1, None, None, HOST, 12, 15, 0, OFFSET_ID, True),
    ],
    "SubBefore": [
        SubBefore(AT, REGION, GROUP, REQUEST, ID_1, 2, KEYS),
        SubBefore(AT, REGION, GROUP, REQUEST, ID_2, 2, None),
    ],
    "SubAfter": [
        SubAfter(REQUEST, ID_1, 15, True, KEYS, 3, AT, GROUP),
        SubAfter(REQUEST, ID_2, 15, True, None, 3, AT, GROUP),
    ],
    "SubAfter_CLOUD": [
        SubAfter(REQUEST, ID_1, 15, True, KEYS, 3),
        SubAfter(REQUEST, ID_2, 15, True, None, 3),
    ],
    "EndTransaction": [
        EndTransaction(
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
        ),
    ],
    "Recall": [Recall(AT, REGION, GROUP, TOPIC, ID_1, True)],
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
