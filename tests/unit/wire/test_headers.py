from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketpipe.codes import RequestCode
from rocketpipe.errors import MalformedHeader
from rocketpipe.wire.frame import RemotingCommand
from rocketpipe.wire.headers import Header, Request, _slots
from rocketpipe.wire.requests.admin import DeleteSubscriptiongroup
from rocketpipe.wire.requests.clients import UnregisterClient
from rocketpipe.wire.requests.reading import GetMaxOffset, Offset
from rocketpipe.wire.requests.sending import SendMessage, SendMessageV2
from tests.all_requests import REQUESTS

every_request = pytest.mark.parametrize("request_type", REQUESTS.values(), ids=lambda r: r.__name__)
HEADERS: list[type[Header]] = [
    *REQUESTS.values(),
    *{reply for request in REQUESTS.values() if issubclass(reply := request.reply, Header)},
]


def values_of(header: type[Header]) -> st.SearchStrategy[Header]:
    fields = {}
    for slot in _slots(header):
        kind: st.SearchStrategy[Any]
        if slot.read is str:
            kind = st.text(max_size=10)
        elif slot.write is str:
            kind = st.integers(-0x80000000, 0x7FFFFFFF)
        else:
            kind = st.booleans()
        fields[slot.attribute] = kind
    return st.builds(header, **fields)


def send(**changes: Any) -> dict[str, Any]:
    return {
        "producer_group": "g",
        "topic": "t",
        "default_topic": "TBW102",
        "default_topic_queue_nums": 4,
        "queue_id": 1,
        "sys_flag": 0,
        "born_timestamp": 1_700_000_000_123,
        "flag": 0,
        **changes,
    }


def test_every_request_code_has_its_request() -> None:
    assert set(REQUESTS) == set(RequestCode)


@every_request
def test_a_request_is_named_after_its_code(request_type: type[Request[Any]]) -> None:
    words = request_type.code.name.split("_")
    assert request_type.__name__ == "".join(word.capitalize() for word in words)


@given(st.sampled_from(HEADERS).flatmap(values_of))
def test_what_is_written_is_read_again(header: Header) -> None:
    ext_fields = header.to_ext_fields()
    assert all(isinstance(text, str) for text in ext_fields.values())
    assert type(header).from_ext_fields(ext_fields) == header


@given(
    st.sampled_from(HEADERS),
    st.dictionaries(st.text(max_size=5), st.text(max_size=25)),
    st.text(max_size=25),
)
def test_no_fields_whatever_raise_anything_but_our_own_error(
    header: type[Header], ext_fields: dict[str, str], text: str
) -> None:
    ext_fields = dict.fromkeys((slot.name for slot in _slots(header)), text) | ext_fields
    try:
        header.from_ext_fields(ext_fields)
    except MalformedHeader:
        pass


def test_v1_and_v2_are_two_spellings_of_the_same_fields() -> None:
    fields = send(properties="p", batch=True, broker_name="broker-a")
    v1, v2 = SendMessage(**fields).to_ext_fields(), SendMessageV2(**fields).to_ext_fields()
    assert list(v2) == list("abcdefghimn")
    assert list(v1.values()) == list(v2.values())
    assert v1["defaultTopicQueueNums"] == v2["d"] == "4"
    assert v1["bname"] == v2["n"] == "broker-a"


def test_names_that_are_not_camel_case_are_spelled_as_in_java() -> None:
    assert UnregisterClient(client_id="c").to_ext_fields() == {"clientID": "c"}


def test_a_missing_field_is_named() -> None:
    with pytest.raises(MalformedHeader, match="GetMaxOffset: queueId is missing"):
        GetMaxOffset.from_ext_fields({"topic": "t"})


def test_a_field_with_a_default_may_be_missing() -> None:
    assert not DeleteSubscriptiongroup.from_ext_fields({"groupName": "g"}).clean_offset


@pytest.mark.parametrize(
    "text", ["", " 1", "1 ", "1_000", "0x10", "1.0", "٣", "2147483648", "-2147483649", "9" * 5000]
)
def test_an_int_of_anything_but_plain_digits_in_range_is_refused(text: str) -> None:
    with pytest.raises(MalformedHeader, match=r"queueId is .* not an integer of 32 bits"):
        GetMaxOffset.from_ext_fields({"topic": "t", "queueId": text})


def test_a_plus_is_read_as_java_reads_it() -> None:
    assert Offset.from_ext_fields({"offset": "+7"}).offset == 7


def test_a_long_has_64_bits() -> None:
    assert Offset.from_ext_fields({"offset": "9223372036854775807"}).offset == (1 << 63) - 1
    with pytest.raises(MalformedHeader, match="not an integer of 64 bits"):
        Offset.from_ext_fields({"offset": "9223372036854775808"})


@pytest.mark.parametrize(("text", "value"), [("TRUE", True), ("true", True), ("yes", False)])
def test_a_boolean_is_read_as_java_reads_it(text: str, value: bool) -> None:
    fields = {"topic": "t", "queueId": "0", "committed": text}
    assert GetMaxOffset.from_ext_fields(fields).committed is value


def test_unknown_fields_are_ignored() -> None:
    assert Offset.from_ext_fields({"offset": "3", "newInJava9": "x"}) == Offset(offset=3)


def test_a_request_becomes_a_command() -> None:
    command = GetMaxOffset(topic="t", queue_id=0).to_command(b"body")
    assert command == RemotingCommand(30, {"topic": "t", "queueId": "0"}, b"body")
