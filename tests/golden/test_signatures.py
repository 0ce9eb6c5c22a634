"""ACL signatures against those of Apache RocketMQ 5.5.0."""

import json
from pathlib import Path
from typing import Any

import pytest

from rocketpipe.wire.signature import (
    Credentials,
    is_signed_by,
    sign,
    signature,
    signed_content,
    signed_fields,
)

CASES = json.loads((Path(__file__).parent / "acl_signature.json").read_text("utf-8"))["cases"]
REQUESTS = [case for case in CASES if "ext_fields_sorted" in case]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_content_is_signed_as_java_signs_it(case: dict[str, Any]) -> None:
    content = bytes.fromhex(case["content_hex"])
    assert signature(content, case["secret_key"]) == case["signature"]


@pytest.mark.parametrize("case", REQUESTS, ids=lambda case: case["name"])
def test_a_request_is_signed_as_java_signs_it(case: dict[str, Any]) -> None:
    sent = case["ext_fields_sorted"]
    body = None if case["body_hex"] is None else bytes.fromhex(case["body_hex"])
    credentials = Credentials(case["access_key"], case["secret_key"], case["security_token"])
    added = {"AccessKey", "SecurityToken", "Signature"}
    # In another order than it will be signed in.
    plain = {name: sent[name] for name in reversed(sent) if name not in added}

    assert signed_fields(plain, body, credentials) == sent
    assert signed_content(sent, body).hex() == case["content_hex"]
    assert sign(sent, body, case["secret_key"]) == case["signature"]
    assert is_signed_by(sent, body, case["secret_key"])
