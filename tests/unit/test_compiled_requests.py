"""Requests that a broker takes at once: read, and answered, as their twins in Python do it."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketpipe.broker.plain_sends import answer_texts
from rocketpipe.broker.processors.sending import read_send
from rocketpipe.broker.pull_checks import Pull
from rocketpipe.broker.pull_checks import read_pull as read_pull_header
from rocketpipe.broker.sent_properties import WORDS, PropertyTreatment
from rocketpipe.broker.settings import BrokerSettings
from rocketpipe.codes import RequestCode
from rocketpipe.compiled import compiled
from rocketpipe.wire.frame import FrameDecoder, RemotingCommand
from rocketpipe.wire.message_id import offset_message_ids
from tests.twins import cuts, damaged, mutilated, pure, texts

TREATMENT = PropertyTreatment(BrokerSettings(), lambda: "made")
PLAIN_SEND = {
    **dict.fromkeys("degh", "7"),
    **dict(zip("abcfjkm", ("group", "orders", "TBW102", "0", "2", "false", "false"), strict=True)),
    "i": 'a\x01"\\\x02UNIQ_KEY\x01U1\x02',
}
PLAIN_PULL_REQUEST = {
    "consumerGroup": "g",
    "topic": "orders",
    "queueId": "1",
    "queueOffset": "123456789012",
    "maxMsgNums": "32",
    "sysFlag": "4",
    "commitOffset": "0",
    "suspendTimeoutMillis": "15",
    "subVersion": "0",
    "subscription": "*",
    "expressionType": "TAG",
    "maxMsgBytes": "9",
}
some_numbers = st.sampled_from(["0", "7", "-1", "07", "", "x", "2147483648", "9" * 19, "1e3", "٣"])
some_properties = st.lists(
    st.sampled_from([word.decode() for word in WORDS])
    | st.sampled_from(
        ["UNIQ_KEY", "WAIT", "\x01", "\x02", "true", "KEYS", "a", "é", '"', "\\", "\0"]
    ),
    max_size=8,
).map("".join)
send_changes = st.dictionaries(
    st.sampled_from("abcdefghijklmn"), some_numbers | some_properties | st.none(), max_size=3
)
pull_changes = st.dictionaries(
    st.sampled_from([*PLAIN_PULL_REQUEST, "other"]), some_numbers | texts | st.none(), max_size=3
)


def a_request(code: int, fields: dict[str, str], changes: Any, **others: Any) -> RemotingCommand:
    present = {name: text for name, text in {**fields, **changes}.items() if text is not None}
    return RemotingCommand(code, present, **{"opaque": 5, **others})


def sends_at_once(data: bytes) -> list[Any]:
    decoder = FrameDecoder(2000)
    decoder.feed(data)
    return list(decoder.plain_sends(3, WORDS, TREATMENT.suffix))


def sends_by_twins(data: bytes, quantity: int) -> Iterator[Any]:
    with pure():
        decoder = FrameDecoder(2000)
        decoder.feed(data)
        end = 0
        for _ in range(quantity):
            command = decoder.next_command()
            assert command is not None
            assert (command.code, command.flag, command.body != b"") == (310, 0, True)
            end += 4 + int.from_bytes(data[end : end + 4], "big")
            send = read_send(command, is_v1=False)
            properties = TREATMENT.treat(send.properties)
            assert (properties.decoded, properties.wait_store_ok) == (None, True)
            assert (send.is_batch, send.unit_mode) == (False, False)
            yield (
                *(end, command.opaque, send.topic, send.queue_id, send.flag, send.sys_flag),
                *(send.born_timestamp, send.reconsume_times, properties.unique_id),
                *(properties.text.encode(), command.body),
            )


def see_that_sends_are_the_same(data: bytes) -> int:
    found = sends_at_once(data)
    assert found == list(sends_by_twins(data, len(found)))
    return len(found)


def test_plain_sends_are_read_at_once_and_no_more_than_asked_for() -> None:
    if compiled is None:
        pytest.skip("nothing is, without the compiled part")
    plain = a_request(310, PLAIN_SEND, {}, body=b"hello").encode()
    other = a_request(310, PLAIN_SEND, {"m": "true"}, body=b"hello").encode()
    assert see_that_sends_are_the_same(plain) == 1
    assert see_that_sends_are_the_same(plain * 5) == 3
    assert see_that_sends_are_the_same(plain + other + plain) == 1
    assert see_that_sends_are_the_same(plain + plain[:-1]) == 1


@given(
    st.lists(
        st.builds(
            a_request,
            st.sampled_from([310, 310, 310, 320, 10]),
            st.just(PLAIN_SEND),
            send_changes,
            body=st.sampled_from([b"hello", b""]),
            flag=st.sampled_from([0, 0, 1, 2]),
            remark=st.none() | texts,
        ),
        max_size=3,
    ),
    cuts,
)
def test_sends_are_read_the_same(sent: list[RemotingCommand], changes: list[Any]) -> None:
    data = b"".join([command.encode() for command in sent])
    see_that_sends_are_the_same(data)
    see_that_sends_are_the_same(mutilated(data, changes))


@given(
    st.lists(
        st.tuples(*[st.integers(0, (1 << 31) - 1)] * 4, st.text("AZ09é", min_size=1)), max_size=4
    )
)
def test_answers_to_sends_are_written_the_same(rows: list[Any]) -> None:
    if compiled is None:
        pytest.skip("only the compiled part writes them so")
    host = bytes([10, 0, 0, 1, 0, 0, 42, 159])
    region = {"MSG_REGION": 'Default"R', "TRACE_ON": "true"}
    expected = b""
    for opaque, place, queue_id, offset, unique_id in rows:
        fields = {"msgId": offset_message_ids(host.hex().upper(), (place,))}
        fields |= {"queueId": str(queue_id), "queueOffset": str(offset), **region}
        fields |= {"transactionId": unique_id}
        request = RemotingCommand(RequestCode.SEND_MESSAGE_V2, opaque=opaque)
        expected += request.answer(0, None, fields).encode()
    assert compiled.write_sent(rows, *answer_texts(host, region)) == expected


def pull_at_once(data: bytes) -> Any:
    decoder = FrameDecoder(2000)
    decoder.feed(data)
    return decoder.plain_pull()


def see_that_the_pull_is_the_same(data: bytes) -> bool:
    found = pull_at_once(data)
    if found is None:
        return False
    with pure():
        decoder = FrameDecoder(2000)
        decoder.feed(data)
        command = decoder.next_command()
        assert command is not None
        assert command.flag == 0
        end = 4 + int.from_bytes(data[:4], "big")
        pull = read_pull_header(command)
    assert (*found[:3], Pull._make(found[3])) == (end, command.code, command.opaque, pull)
    return True


def test_plain_pulls_are_read_at_once() -> None:
    if compiled is None:
        pytest.skip("nothing is, without the compiled part")
    for code in (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE):
        assert see_that_the_pull_is_the_same(a_request(code, PLAIN_PULL_REQUEST, {}).encode())
        few = {"subscription": None, "expressionType": None, "maxMsgBytes": None}
        assert see_that_the_pull_is_the_same(a_request(code, PLAIN_PULL_REQUEST, few).encode())


@given(
    st.builds(
        a_request,
        st.sampled_from([11, 11, 361, 310]),
        st.just(PLAIN_PULL_REQUEST),
        pull_changes,
        flag=st.sampled_from([0, 0, 1, 2]),
        remark=st.none() | texts,
    ),
    cuts,
)
def test_pulls_are_read_the_same(request: RemotingCommand, changes: list[Any]) -> None:
    see_that_the_pull_is_the_same(request.encode())
    see_that_the_pull_is_the_same(mutilated(request.encode(), changes))


def test_a_flipped_bit_or_a_cut_is_seen_by_both() -> None:
    sends = a_request(310, PLAIN_SEND, {}, body=b"hello").encode() * 2
    assert sum(map(see_that_sends_are_the_same, damaged(sends))) > 1000 or compiled is None
    pulls = damaged(a_request(11, PLAIN_PULL_REQUEST, {}).encode())
    assert sum(map(see_that_the_pull_is_the_same, pulls)) > 100 or compiled is None
