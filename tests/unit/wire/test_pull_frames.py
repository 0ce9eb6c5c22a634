"""Pulls of one queue: made from one form, and the same as if each was made anew."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketpipe.errors import InvalidMessage
from rocketpipe.wire.frame import SerializeType
from rocketpipe.wire.pull_frames import PullFrames
from rocketpipe.wire.requests.reading import PullMessage
from rocketpipe.wire.signature import Credentials, signed_fields

PULL = PullMessage(
    consumer_group="g",
    topic="%RETRY%g",
    queue_id=3,
    queue_offset=0,
    max_msg_nums=0,
    sys_flag=4,
    commit_offset=0,
    suspend_timeout_millis=0,
    subscription="*",
    sub_version=0,
    broker_name="b",
)
texts = st.text(max_size=30) | st.sampled_from(
    ['"queueOffset":"9223372036854775807"', '\\"maxMsgNums":"2147483647"', "%d", '"opaque":1,']
)
opaques = st.integers(1, 0x7FFFFFFF)
offsets = st.integers(0, (1 << 63) - 1)
counts = st.integers(1, 0x7FFFFFFF)


def anew(
    pull: PullMessage,
    opaque: int,
    offset: int,
    count: int,
    kind: SerializeType = SerializeType.JSON,
    credentials: Credentials | None = None,
) -> bytes:
    command = replace(pull, queue_offset=offset, max_msg_nums=count).to_command()
    command.opaque, command.serialize_type = opaque, kind
    if credentials is not None:
        command.ext_fields = signed_fields(command.ext_fields, b"", credentials)
    return command.encode()


@given(texts, texts, opaques, offsets, counts)
def test_a_frame_is_as_if_made_anew(
    subscription: str, topic: str, opaque: int, offset: int, count: int
) -> None:
    pull = replace(PULL, subscription=subscription, topic=topic)
    frames = PullFrames(pull)
    for numbers in ((opaque, offset, count), (1, 0, 1)):
        assert frames.encode(*numbers) == anew(pull, *numbers)


def test_signed_or_binary_ones_are_made_anew() -> None:
    who = Credentials("user", "secret")
    frames = PullFrames(PULL, serialize_type=SerializeType.ROCKETMQ, credentials=who)
    assert frames.encode(5, 6, 7) == anew(PULL, 5, 6, 7, SerializeType.ROCKETMQ, who)
    frames = PullFrames(PULL, credentials=who)
    assert frames.encode(5, 6, 7) == anew(PULL, 5, 6, 7, credentials=who)


def test_a_filter_that_no_header_has_room_for_is_refused() -> None:
    with pytest.raises(InvalidMessage, match="too long"):
        PullFrames(replace(PULL, subscription="x" * (1 << 24)))
