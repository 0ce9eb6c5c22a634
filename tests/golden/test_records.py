"""Stored records against bytes that Apache RocketMQ 5.5.0 wrote."""

import json
import re
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from rocketpipe.wire.compression import compress, decompress
from rocketpipe.wire.properties import decode_properties, encode_crc_property
from rocketpipe.wire.record import decode_record, decode_records, encode_record
from rocketpipe.wire.sys_flag import COMPRESSED, COMPRESSION_MASK

VECTORS = json.loads((Path(__file__).parent / "stored_messages.json").read_text("utf-8"))["cases"]
RECORDS = [pytest.param(case, id=case["name"]) for case in VECTORS if "fields" in case]
COMPRESSED_RECORDS = [
    pytest.param(case, id=case["name"]) for case in VECTORS if "compressed_body_hex" in case
]


def python_host(java_text: str) -> str:
    """`/[2001:db8:0:0:0:0:1:2]:51234` as we write it."""
    found = re.fullmatch(r"/\[?(.+?)]?:(\d+)", java_text)
    assert found
    ip = ip_address(found[1])
    return f"{ip}:{found[2]}" if ip.version == 4 else f"[{ip}]:{found[2]}"


@pytest.mark.parametrize("case", RECORDS)
def test_every_field_of_a_record_is_read_as_java_reads_it(case: dict[str, Any]) -> None:
    message = decode_record(bytes.fromhex(case["wire_hex"]))
    ours = {
        "storeSize": message.store_size,
        "bodyCRC": message.body_crc,
        "queueId": message.queue_id,
        "flag": message.flag,
        "queueOffset": message.queue_offset,
        "commitLogOffset": message.physical_offset,
        "sysFlag_after_java_decode": message.sys_flag,
        "bornTimestamp": message.born_timestamp_ms,
        "bornHost": message.born_host,
        "storeTimestamp": message.store_timestamp_ms,
        "storeHost": message.store_host,
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "topic": message.topic,
        "properties": message.properties,
        "offsetMsgId": message.offset_message_id,
        "msgId_seen_by_client": message.message_id,
        "body_hex_uncompressed": message.body.hex(),
        "body_hex_after_java_decode": message.body.hex(),
    }
    javas = dict(case["fields"])
    del javas["sysFlag_on_wire"]
    javas["bornHost"] = python_host(javas["bornHost"])
    javas["storeHost"] = python_host(javas["storeHost"])
    assert ours == javas
    assert message.tags == javas["properties"]["TAGS"]
    assert message.keys == tuple(javas["properties"].get("KEYS", "").split())


@pytest.mark.parametrize("case", RECORDS)
def test_a_record_read_as_stored_is_written_to_the_same_bytes(case: dict[str, Any]) -> None:
    wire = bytes.fromhex(case["wire_hex"])
    message = decode_record(wire, decompressing=False)
    assert message.sys_flag == case["fields"]["sysFlag_on_wire"]
    # What the writer must work out by itself is first made wrong.
    assert encode_record(replace(message, store_size=1, body_crc=2)) == wire


@pytest.mark.parametrize("case", COMPRESSED_RECORDS)
def test_a_compressed_body_is_unfolded_and_folded_again(case: dict[str, Any]) -> None:
    sys_flag = case["fields"]["sysFlag_on_wire"]
    packed = bytes.fromhex(case["compressed_body_hex"])
    plain = bytes.fromhex(case["fields"]["body_hex_uncompressed"])
    stored = decode_record(bytes.fromhex(case["wire_hex"]), decompressing=False)
    assert (stored.body, stored.sys_flag & COMPRESSED) == (packed, COMPRESSED)
    assert decompress(packed, sys_flag) == plain
    # Compressed bytes may differ between the versions of a library, so they are unfolded again.
    assert decompress(compress(plain, sys_flag & COMPRESSION_MASK), sys_flag) == plain


def test_records_in_a_row_are_read_one_by_one() -> None:
    wires = [bytes.fromhex(case["wire_hex"]) for case in VECTORS if "fields" in case]
    messages = decode_records(b"".join(wires))
    assert messages == [decode_record(wire) for wire in wires]
    assert len(messages) == 9


def test_the_crc_property_is_written_as_the_broker_writes_it() -> None:
    (case,) = [case for case in VECTORS if case["name"] == "crc_property"]
    text = encode_crc_property(case["crc"])
    assert text.encode().hex() == case["wire_hex"]
    assert decode_properties(text) == {"__CRC32#": "9876543210"}
