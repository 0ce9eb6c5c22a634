"""Whole frames as Apache's Java code writes them."""

import json
from pathlib import Path
from typing import Any

import pytest

from rocketpipe.wire.frame import FrameDecoder, RemotingCommand
from rocketpipe.wire.headers import Header
from rocketpipe.wire.requests.reading import PullMessage, PullMessageReply
from rocketpipe.wire.requests.sending import (
    EndTransaction,
    SendMessage,
    SendMessageReply,
    SendMessageV2,
)

CASES = json.loads(Path(__file__).with_name("remoting_frames.json").read_text())["cases"]
every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])


def decode(frame: bytes) -> RemotingCommand:
    decoder = FrameDecoder()
    decoder.feed(frame)
    whole = decoder.next_frame()
    assert whole is not None
    assert not decoder.has_partial_frame
    return RemotingCommand.decode(whole)


@every_case
def test_every_field_is_read_as_java_wrote_it(case: dict[str, Any]) -> None:
    command = decode(bytes.fromhex(case["frame_hex"]))
    fields = case["fields"]
    assert command.code == fields["code"]
    assert command.language.name == fields["language"]
    assert command.version == fields["version"]
    assert command.opaque == fields["opaque"]
    assert command.flag == fields["flag"]
    assert command.remark == fields["remark"]
    assert command.ext_fields == (fields["extFields"] or {})
    assert command.body == bytes.fromhex(fields["body_hex"] or "")
    assert command.serialize_type == fields["serialize_type"]


@every_case
def test_what_was_read_is_written_again_byte_for_byte(case: dict[str, Any]) -> None:
    frame = bytes.fromhex(case["frame_hex"])
    assert decode(frame).encode() == frame


@pytest.mark.parametrize(
    ("name", "header"),
    [
        ("send_v1_json", SendMessage),
        ("send_v2_json", SendMessageV2),
        ("send_v2_rocketmq_fast", SendMessageV2),
        ("send_response_json", SendMessageReply),
        ("pull_request_json", PullMessage),
        ("pull_not_found_response_rocketmq", PullMessageReply),
        ("end_tx_oneway_json", EndTransaction),
    ],
)
def test_a_header_declared_by_us_holds_every_field_of_javas(
    name: str, header: type[Header]
) -> None:
    (case,) = (case for case in CASES if case["name"] == name)
    ext_fields = case["fields"]["extFields"]
    assert header.from_ext_fields(ext_fields).to_ext_fields() == ext_fields
