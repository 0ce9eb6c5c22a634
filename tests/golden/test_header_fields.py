"""Our headers against the declarations in Apache's own classes."""

import json
from pathlib import Path
from typing import Any

import pytest

from rocketpipe.wire.headers import Header, Request, _slots
from rocketpipe.wire.requests import nameserver, pop, reading, sending
from tests.all_requests import REQUESTS

CASES = json.loads(Path(__file__).with_name("header_fields.json").read_text())["cases"]
BY_CODE = {case["code"]: case for case in CASES if case["code"] and "Response" not in case["class"]}
REPLIES = {case["class"].removesuffix("ResponseHeader"): case for case in CASES}

# 5.x lets every request carry these: namespaces and broker name (the latter ours where it matters),
# the logical-queue flag, and one-way said twice.
COMMON = {"ns", "nsd", "oway", "lo", "bname"}
# Ours, and put into the request by other means in Java, or (the last) by a class of 4.9.
NOT_IN_THE_CLASS = {"_UNIQUE_KEY_QUERY", "MSG_REGION", "TRACE_ON", "removeOffset"}
REQUIRED_OTHERWISE = {
    # Required by 5.5.0's class, but earlier releases send none and 5.5.0 takes that.
    ("GetAllTopicConfigRequestHeader", "topicSeq"),
    ("GetAllSubscriptionGroupRequestHeader", "groupSeq"),
    # Not marked as required in Java, which asks for nothing useful without them.
    *(("QueryConsumeQueueRequestHeader", name) for name in ("topic", "queueId", "index", "count")),
}


def declared(header: type[Header]) -> dict[str, tuple[str, bool]]:
    kinds = {}
    for slot in _slots(header):
        if slot.read is str:
            kind = "String"
        elif slot.write is not str:
            kind = "Boolean"
        else:
            try:
                slot.read("2147483648")
                kind = "Long"
            except ValueError:
                kind = "Integer"
        kinds[slot.name] = kind, slot.is_required
    return kinds


def assert_alike(header: type[Header], case: dict[str, Any]) -> None:
    ours = declared(header)
    boxed = {"int": "Integer", "long": "Long", "boolean": "Boolean", "BoundaryType": "String"}
    java = {}
    for name, text in case["fields"].items():
        kind = text.removesuffix("!")
        java[name] = boxed.get(kind, kind), text.endswith("!")
    for name, (kind, is_required) in java.items():
        if name not in ours:
            assert name in COMMON, f"{case['class']} has {name}"
            continue
        assert ours[name][0] == kind, f"{case['class']}.{name}"
        if (case["class"], name) not in REQUIRED_OTHERWISE:
            assert ours[name][1] == is_required, f"{case['class']}.{name}"
    assert set(ours) - set(java) <= NOT_IN_THE_CLASS


@pytest.mark.parametrize(
    "request_type",
    [request for code, request in REQUESTS.items() if code in BY_CODE],
    ids=lambda request: request.__name__,
)
def test_a_request_has_the_fields_that_java_declares(request_type: type[Request[Any]]) -> None:
    assert_alike(request_type, BY_CODE[request_type.code])


@pytest.mark.parametrize(
    ("header", "java_class"),
    [
        (sending.SendMessageReply, "SendMessage"),
        (sending.RecallMessageReply, "RecallMessage"),
        (reading.PullMessageReply, "PullMessage"),
        (reading.QueryMessageReply, "QueryMessage"),
        (reading.Offset, "GetMaxOffset"),
        (reading.EarliestMsgStoretime, "GetEarliestMsgStoretime"),
        (nameserver.RegisterBrokerReply, "RegisterBroker"),
        (nameserver.KvConfig, "GetKVConfig"),
        (nameserver.QueryDataVersionReply, "QueryDataVersion"),
        (nameserver.WipeWritePermReply, "WipeWritePermOfBroker"),
        (nameserver.AddWritePermReply, "AddWritePermOfBroker"),
        (pop.PopMessageReply, "PopMessage"),
        (pop.ChangeInvisibleTimeReply, "ChangeInvisibleTime"),
        (pop.NotificationReply, "Notification"),
        (pop.PollingInfoReply, "PollingInfo"),
    ],
)
def test_a_reply_has_the_fields_that_java_declares(header: type[Header], java_class: str) -> None:
    assert_alike(header, REPLIES[java_class])


# Java has no class for these, or none that names the code: the twins of a declared request, and
# requests that have a body, or nothing, in place of fields.
TWINS = {
    "SendBatchMessage": 310,
    "SendReplyMessageV2": 310,
    "SendReplyMessage": 10,
    "LitePullMessage": 11,
    "ResetConsumerClientOffset": 222,
    "GetConsumerStatusFromClient": 223,
}


def test_requests_that_java_declares_nowhere_are_twins_or_have_no_fields() -> None:
    for code, request in REQUESTS.items():
        if request.__name__ in TWINS:
            assert_alike(request, BY_CODE[TWINS[request.__name__]])
        elif code not in BY_CODE:
            assert not declared(request), request.__name__
