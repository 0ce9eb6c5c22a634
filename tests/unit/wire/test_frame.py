import json
import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketpipe.codes import LanguageCode
from rocketpipe.errors import InvalidMessage, MalformedFrame
from rocketpipe.wire.frame import FrameDecoder, RemotingCommand, SerializeType

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
int32 = st.integers(-0x80000000, 0x7FFFFFFF)
commands = st.builds(
    RemotingCommand,
    code=st.integers(-32768, 32767) | st.sampled_from([32768, 200050, 200151]),
    ext_fields=st.dictionaries(texts, texts.filter(bool), max_size=6),
    body=st.binary(max_size=200),
    remark=st.none() | texts.filter(bool),
    opaque=int32,
    flag=st.integers(0, 3),
    language=st.sampled_from(LanguageCode),
    version=st.integers(0, 32767),
    serialize_type=st.sampled_from(SerializeType),
)


def frames(decoder: FrameDecoder) -> list[bytes]:
    return list(iter(decoder.next_frame, None))


def frame_of(header: bytes, kind: int = 0, body: bytes = b"") -> bytes:
    return (kind << 24 | len(header)).to_bytes(4, "big") + header + body


@given(commands)
def test_what_is_encoded_is_decoded_again(command: RemotingCommand) -> None:
    decoded = RemotingCommand.decode(command.encode()[4:])
    if command.code > 32767:
        assert decoded.serialize_type is SerializeType.JSON
        decoded.serialize_type = command.serialize_type
    assert decoded == command


@given(st.lists(commands, max_size=4), st.data())
def test_any_split_of_the_bytes_gives_the_same_frames(
    sent: list[RemotingCommand], data: st.DataObject
) -> None:
    stream = b"".join(command.encode() for command in sent)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    decoder = FrameDecoder()
    received = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        decoder.feed(stream[start:end])
        received += frames(decoder)
    assert received == [command.encode()[4:] for command in sent]
    assert not decoder.has_partial_frame


@given(st.binary(max_size=300))
def test_no_bytes_whatever_raise_anything_but_our_own_error(data: bytes) -> None:
    for frame in (data, frame_of(data), frame_of(data, kind=1)):
        try:
            RemotingCommand.decode(frame)
        except MalformedFrame:
            pass


@given(commands, st.data())
@settings(max_examples=300)
def test_a_damaged_frame_raises_nothing_but_our_own_error(
    command: RemotingCommand, data: st.DataObject
) -> None:
    frame = bytearray(command.encode()[4:])
    at = data.draw(st.integers(0, len(frame) - 1))
    frame[at] = data.draw(st.integers(0, 255))
    try:
        RemotingCommand.decode(bytes(frame[: data.draw(st.integers(0, len(frame)))]))
    except MalformedFrame:
        pass


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (b"", "no room for a header"),
        (b"\0\0", "no room for a header"),
        (b"\0\0\0\x05{}", "header of 5 bytes does not fit"),
        (frame_of(b"{}", kind=2), "unknown serialize type 2"),
        (frame_of(b"{"), "broken JSON"),
        (frame_of(b"[1]"), "not one object"),
        (frame_of(b"{}{}"), "not one object"),
        (frame_of(b"[" * 100_000), "broken JSON"),
        (frame_of(b'{"code":"\xff"}'), "broken JSON"),
        (frame_of(b'{"code":1.5}'), "code is '1.5'"),
        (frame_of(b'{"code":true}'), "code is 'True'"),
        (frame_of(b'{"code":10,"opaque":2147483648}'), "opaque is '2147483648'"),
        (frame_of(b'{"code":' + b"9" * 5000 + b"}"), "broken JSON"),
        (frame_of(b'{"code":10,"extFields":[]}'), "extFields is not an object"),
        (frame_of(b'{"code":10,"remark":7}'), "remark is not text"),
        (frame_of(b'{"code":10,"language":{}}'), "language is neither"),
        (frame_of(b"\0\x0a\0\0", kind=1), "ends in the middle"),
        (frame_of(bytes(13) + b"\0\0\0\x09abc", kind=1), "ends in the middle"),
        (frame_of(bytes(13) + b"\xff\xff\xff\xff", kind=1), "ends in the middle"),
        (frame_of(bytes(17) + b"\0\0\0\x03\0", kind=1), "should take 3 bytes"),
        (frame_of(bytes(17) + b"\0\0\0\0\0", kind=1), "should take 0 bytes"),
        (frame_of(bytes(17) + b"\0\0\0\x05\0\x09abc", kind=1), "ends in the middle"),
        (frame_of(bytes(17) + b"\0\0\0\x08\0\x01a\0\0\0\x02b", kind=1), "ends in the middle"),
        # Back to its own beginning: it would never end.
        (frame_of(bytes(17) + b"\0\0\0\x06\0\0\xff\xff\xff\xfa", kind=1), "ends in the middle"),
        (frame_of(bytes(13) + b"\0\0\0\x01\xff\0\0\0\0", kind=1), "not UTF-8"),
    ],
)
def test_every_kind_of_malformed_frame_has_a_clear_error(frame: bytes, reason: str) -> None:
    with pytest.raises(MalformedFrame, match=reason):
        RemotingCommand.decode(frame)


@pytest.mark.parametrize(
    ("stream", "reason"),
    [
        (b"\0\0\0\x03abc", "no room for a header"),
        # The length counts too: Netty's decoder takes 16777212 bytes after it, and no more.
        (b"\x00\xff\xff\xfd", "16777217 bytes is over the limit of 16777216"),
        (b"\xff\xff\xff\xff", "over the limit"),
        (b"HTTP/1.1 400 Bad Request\r\n", "this is HTTP, not RocketMQ"),
        (b"GET / HTTP/1.1\r\n", "this is HTTP, not RocketMQ"),
        (b"\x15\x03\x03\0\x02\x02\x28", "this is TLS"),
    ],
)
def test_a_stream_that_is_no_stream_of_frames_is_refused_at_once(
    stream: bytes, reason: str
) -> None:
    decoder = FrameDecoder()
    decoder.feed(stream)
    with pytest.raises(MalformedFrame, match=reason):
        decoder.next_frame()


def test_frames_before_a_malformed_one_are_still_read() -> None:
    decoder = FrameDecoder()
    decoder.feed(RemotingCommand(1).encode() + b"\0\0\0\0")
    assert decoder.next_frame() is not None
    with pytest.raises(MalformedFrame):
        decoder.next_frame()


def test_the_size_limit_can_be_set() -> None:
    frame = RemotingCommand(1, body=bytes(100)).encode()
    decoder = FrameDecoder(frame_bytes_max=len(frame))
    decoder.feed(frame)
    assert decoder.next_frame() == frame[4:]
    decoder = FrameDecoder(frame_bytes_max=len(frame) - 1)
    decoder.feed(frame)
    with pytest.raises(MalformedFrame, match="over the limit"):
        decoder.next_frame()


@pytest.mark.parametrize(
    ("value", "text"), [("5", "5"), ("true", "true"), ("false", "false"), ("1.5", "1.5")]
)
def test_numbers_and_booleans_in_ext_fields_become_text_as_in_java(value: str, text: str) -> None:
    command = RemotingCommand.decode(frame_of(f'{{"code":1,"extFields":{{"a":{value}}}}}'.encode()))
    assert command.ext_fields == {"a": text}


def test_a_header_with_a_code_alone_is_enough() -> None:
    command = RemotingCommand.decode(frame_of(b' {"code":7,"extFields":{"a":null},"new":[1]} '))
    assert command == RemotingCommand(7, {}, version=0, language=LanguageCode.JAVA)


@pytest.mark.parametrize(
    ("language", "code"),
    [('"GO"', LanguageCode.GO), ("9", LanguageCode.GO), ('"COBOL"', LanguageCode.OTHER)],
)
def test_a_language_comes_as_name_or_number_and_may_be_new_to_us(
    language: str, code: LanguageCode
) -> None:
    header = f'{{"code":7,"language":{language}}}'.encode()
    assert RemotingCommand.decode(frame_of(header)).language is code


def test_a_binary_header_may_have_a_new_language_and_empty_values() -> None:
    fields = b"\0\x01a\0\0\0\0" + b"\0\x01b\0\0\0\x01x"
    header = b"\0\x07\x63\0\0" + bytes(12) + len(fields).to_bytes(4, "big") + fields
    command = RemotingCommand.decode(frame_of(header, kind=1))
    assert (command.code, command.language) == (7, LanguageCode.OTHER)
    assert command.ext_fields == {"b": "x"}


def test_an_opaque_may_be_any_int_of_32_bits() -> None:
    for opaque in (-0x80000000, 0x7FFFFFFF):
        command = RemotingCommand(1, opaque=opaque)
        assert RemotingCommand.decode(command.encode()[4:]) == command


@pytest.mark.parametrize("serialize_type", SerializeType)
def test_a_lone_surrogate_goes_out_as_a_question_mark_as_in_java(
    serialize_type: SerializeType,
) -> None:
    command = RemotingCommand(1, {"a": "x\ud800y"}, serialize_type=serialize_type)
    assert RemotingCommand.decode(command.encode()[4:]).ext_fields == {"a": "x?y"}


def test_half_a_pair_of_surrogates_is_read_as_the_question_mark_it_would_become() -> None:
    header = rb'{"code":1,"extFields":{"a":"x\ud800y","b":"\uD83D\uDE80"},"remark":"\udc00"}'
    command = RemotingCommand.decode(frame_of(header))
    assert command.ext_fields == {"a": "x?y", "b": "🚀"}
    assert command.remark == "?"


def test_an_answer_repeats_opaque_and_serialization() -> None:
    request = RemotingCommand(34, opaque=77, serialize_type=SerializeType.ROCKETMQ)
    answer = request.answer(17, "no such topic", {"a": "b"}, b"body")
    assert answer.is_response
    assert (answer.opaque, answer.serialize_type) == (77, SerializeType.ROCKETMQ)
    assert (answer.code, answer.remark, answer.body) == (17, "no such topic", b"body")
    assert answer.name == "TOPIC_NOT_EXIST"
    assert request.name == "HEART_BEAT"


def test_a_large_frame_in_small_pieces_costs_no_more_than_its_size() -> None:
    frame = RemotingCommand(1, body=bytes(8 * 1024 * 1024)).encode()
    decoder = FrameDecoder()
    began = time.process_time()
    for start in range(0, len(frame), 1024):
        decoder.feed(frame[start : start + 1024])
        whole = decoder.next_frame()
    assert whole == frame[4:]
    assert time.process_time() - began < 1  # copied at each piece, it would take several


def test_what_was_read_is_not_kept() -> None:
    data = RemotingCommand(1, body=bytes(1000)).encode()
    held = sys.getrefcount(data)
    decoder = FrameDecoder()
    decoder.feed(data)
    assert decoder.next_frame() is not None
    assert sys.getrefcount(data) == held


@pytest.mark.parametrize("serialize_type", SerializeType)
def test_a_header_beyond_its_24_bits_of_length_is_not_sent(serialize_type: SerializeType) -> None:
    command = RemotingCommand(1, {"a": "x" * (1 << 24)}, serialize_type=serialize_type)
    with pytest.raises(InvalidMessage, match="header"):
        command.encode()


def test_a_field_name_that_java_could_not_read_is_not_sent() -> None:
    command = RemotingCommand(1, {"a" * 32767: "x"}, serialize_type=SerializeType.ROCKETMQ)
    assert RemotingCommand.decode(command.encode()[4:]) == command
    command.ext_fields["a" * 32768] = "x"
    with pytest.raises(InvalidMessage, match="field name"):
        command.encode()


def test_json_headers_are_json_that_anyone_can_read() -> None:
    frame = RemotingCommand(10, {"k\n": 'v"\x01é'}, remark="r", opaque=3).encode()
    header = json.loads(frame[8:])
    assert header["extFields"] == {"k\n": 'v"\x01é'}
    assert (header["language"], header["opaque"], header["remark"]) == ("PYTHON", 3, "r")
