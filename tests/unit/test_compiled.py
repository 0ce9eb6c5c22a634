"""The compiled part and its twin in Python: the same values and the same errors for any bytes."""

import json
import os
import pickle
import re
import subprocess
import sys
from array import array
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rocketpipe.broker.names import SCHEDULE_TOPIC
from rocketpipe.broker.store.consume_queue import ENTRY
from rocketpipe.broker.store.key_index import KEYED, index_entries
from rocketpipe.broker.store.layout import Place, lay_out
from rocketpipe.broker.store.queue_read import read_queue
from rocketpipe.broker.store.settings import StoreSettings
from rocketpipe.broker.store.values import MessageDraft
from rocketpipe.client.consumer.ranges import queue_offset
from rocketpipe.codes import LanguageCode
from rocketpipe.compiled import compiled
from rocketpipe.wire import frame
from rocketpipe.wire.batch import join_alike, join_batch
from rocketpipe.wire.frame import FrameDecoder, RemotingCommand, SerializeType
from rocketpipe.wire.message_id import UniqueIdGenerator, offset_message_ids
from rocketpipe.wire.record import decode_records, pack_record, record_starts
from rocketpipe.wire.requests.reading import PullAnswer, PullMessageReply
from rocketpipe.wire.sys_flag import COMPRESSED, INNER_BATCH, NEEDS_UNWRAP
from tests.twins import USERS, cuts, damaged, int32, mutilated, pure, same, texts


def test_it_is_there_unless_it_was_left_out_on_purpose() -> None:
    if not os.environ.get("CI") or os.environ.get("ROCKETPIPE_PURE"):
        pytest.skip("only CI insists on a C compiler")
    assert compiled is not None


def test_every_user_has_a_twin_that_is_tested_here() -> None:
    source = Path(frame.__file__).parents[1]
    imported = re.compile(r"^from rocketpipe\.compiled import .*\bcompiled$", re.M)
    users = [path for path in source.rglob("*.py") if imported.search(path.read_text())]
    assert {Path(str(each.__file__)) for each in USERS} == set(users)


@pytest.mark.slow
def test_it_can_be_left_alone() -> None:
    program = "from rocketpipe.compiled import compiled; print(compiled)"
    environment = {**os.environ, "ROCKETPIPE_PURE": "1"}
    told = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert told.stdout == "None\n"


# Frames.

commands = st.builds(
    RemotingCommand,
    code=int32,
    ext_fields=st.dictionaries(texts, texts, max_size=5),
    body=st.binary(max_size=20),
    remark=st.none() | texts,
    opaque=int32,
    flag=int32,
    language=st.sampled_from(LanguageCode),
    version=int32,
)


def decoded(data: bytes) -> list[object]:
    decoder = FrameDecoder(2000)
    decoder.feed(data)
    return [*iter(decoder.next_command, None), decoder.has_partial_frame]


@given(commands, st.integers(1 << 31, 1 << 70))
@example(RemotingCommand(1, {"a": "x" * (1 << 20), "b": "\x02" * (1 << 20)}), 1 << 40)
def test_a_frame_is_written_the_same(command: RemotingCommand, large: int) -> None:
    same(command.encode)
    command.opaque = large
    same(command.encode)


@given(st.lists(commands, max_size=3), cuts)
def test_frames_are_read_the_same(sent: list[RemotingCommand], changes: list[Any]) -> None:
    data = b"".join([command.encode() for command in sent])
    same(lambda: decoded(data))
    same(lambda: decoded(mutilated(data, changes)))


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=3,
)
names = st.sampled_from(
    (
        *("code", "flag", "opaque", "version", "remark", "language", "extFields", "other"),
        *("serializeTypeCurrentRPC", "c\\u006fde"),
    )
)


@given(
    st.lists(st.tuples(names, values | st.dictionaries(texts, texts)), max_size=6),
    st.booleans(),
    st.sampled_from([(",", ":"), (", ", ": ")]),
    cuts,
    st.binary(max_size=5),
)
@example([("code", 1), ("code", 2)], True, (",", ":"), [], b"")
@example([("code", -0), ("flag", 1 << 31), ("opaque", 10**11)], True, (",", ":"), [], b"")
def test_any_header_is_read_the_same(
    members: list[tuple[str, Any]],
    ascii_only: bool,
    separators: tuple[str, str],
    changes: list[Any],
    body: bytes,
) -> None:
    comma, colon = separators
    text = comma.join(
        f'"{name}"{colon}{json.dumps(value, ensure_ascii=ascii_only, separators=separators)}'
        for name, value in members
    )
    header = mutilated(f"{{{text}}}".encode("utf-8", "replace"), changes)
    rest = len(header).to_bytes(4, "big") + header + body
    same(lambda: decoded(len(rest).to_bytes(4, "big") + rest))


@pytest.mark.parametrize(
    "header",
    [
        b'{"code":01}',
        b'{"code":-}',
        b'{"code":1.0}',
        b'{"code":1,}',
        b'{"remark":"\\ud83d\\ude00"}',
        b'{"remark":"\\u12"}',
        b'{"remark":"\\u00zz"}',
        b'{"remark":"\\x"}',
        b'{"remark":"\\',
        b'{"remark":"\t"}',
        b'{"remark":"\\u00e9\\u20ac\\/\\b\\f"}',
        b'{"remark":"\xff"}',
        b'{"extFields":{"a":"b",}}',
        b'{"extFields":{"a":"\xff"}}',
        b'{"extFields":{"a":"1","a":"2"},"extFields":{"b":"3"}}',
        b'{"extFields":{"a":"b"',
        b'{"language":7}',
        b'{"language":"NEW"}',
        b'{"code":1}x',
        b'{"serializeTypeCurrentRPC":"\xff"}',
        b'{"code',
        b"{",
        b"{}",
        b"",
    ],
)
def test_odd_headers_are_read_the_same(header: bytes) -> None:
    rest = len(header).to_bytes(4, "big") + header
    same(lambda: decoded(len(rest).to_bytes(4, "big") + rest))


# What is stored.

property_texts = st.lists(
    st.sampled_from(
        (
            *("TAGS", "KEYS", "UNIQ_KEY", "XTAGS", "\x01", "\x02", "\x01a\x02", "k1 k2  k3", " "),
            *("é", "TAGS\x01\x02", "KEYS\x01k\x02", "\x02TAGS\x01tag\x02", "UNIQ_KEY\x01id\x02"),
        )
    ),
    max_size=8,
).map("".join)
property_bytes = property_texts.map(str.encode) | st.sampled_from(
    [b"\0", b"a\0b", b"a" + bytes(64) + b"b", b"x" * 32768, b"TAGS\x01\xff\x02"]
)
members = st.lists(
    st.tuples(st.binary(max_size=40), property_bytes.filter(lambda p: len(p) < 32768), int32),
    max_size=4,
)
hosts = st.sampled_from([bytes(range(8)), bytes(range(20))])
drafts = st.builds(
    MessageDraft,
    topic=st.sampled_from(["T", "é" * 70, "x" * 127, "x" * 128, SCHEDULE_TOPIC]),
    queue_id=int32,
    body=st.binary(max_size=300),
    properties=st.just(""),
    born_timestamp_ms=st.integers(-(1 << 63), (1 << 63) - 1) | st.just(1 << 63),
    born_host=hosts,
    store_host=hosts,
    flag=int32 | st.just(1 << 31),
    sys_flag=int32,
    reconsume_times=int32 | st.just(-(1 << 31) - 1),
    prepared_transaction_offset=st.integers(-(1 << 63), (1 << 63) - 1),
)
places = st.builds(
    Place,
    topic=st.just(b""),
    queue_offset=st.integers(0, 1 << 40),
    queue_step=st.integers(0, 1),
    physical_offset=st.integers(0, 1 << 40),
    store_timestamp_ms=st.integers(0, 1 << 41),
)
SETTINGS = StoreSettings()


@given(drafts, property_bytes, places)
def test_a_message_is_laid_out_the_same(
    draft: MessageDraft, properties: bytes, place: Place
) -> None:
    place = place._replace(topic=draft.topic.encode())
    same(lambda: lay_out(draft, properties, place, SETTINGS))


DRAFT = MessageDraft("T", 0, b"", "", 0, bytes(8), bytes(8))


@given(drafts, members, places, cuts)
# The last of them only the twin may judge: once it was left out, and the others stored.
@example(DRAFT, [(b"", b"", 0), (b"", b"\0", 0)], Place(b"", 0, 0, 0, 0), [])
@example(DRAFT, [(b"", b"", 0), (b"", b"TAGS\x01\xff\x02", 0)], Place(b"", 0, 0, 0, 0), [])
def test_a_batch_is_laid_out_the_same(
    draft: MessageDraft, parts: list[tuple[bytes, bytes, int]], place: Place, changes: list[Any]
) -> None:
    place = place._replace(topic=draft.topic.encode())
    whole = draft._replace(body=join_batch(parts))
    same(lambda: lay_out(whole, None, place, SETTINGS))
    damaged = draft._replace(body=mutilated(whole.body, changes))
    same(lambda: lay_out(damaged, None, place, SETTINGS))
    same(lambda: lay_out(draft, None, place, SETTINGS))


@given(st.binary(min_size=0, max_size=200), st.binary(max_size=20))
def test_checksums_are_those_of_zlib(body: bytes, unique_id: bytes) -> None:
    draft = MessageDraft("T", 0, body, "", 0, bytes(8), bytes(8))
    if not unique_id or b"\0" in unique_id or b"\x02" in unique_id:
        return
    place = Place(b"T", 0, 1, 0, 0)
    records, _, _, keyed = lay_out(draft, b"UNIQ_KEY\x01" + unique_id, place, SETTINGS)
    assert int.from_bytes(records[8:12], "big") == crc32(body) & 0x7FFFFFFF
    assert KEYED.unpack(keyed) == (crc32(b"T#" + unique_id), 0)


@given(st.integers(1, 9), st.integers(0, 99), st.binary(max_size=120), st.integers(-9, 1 << 30))
def test_index_entries_are_the_same(slots: int, count: int, data: bytes, seconds: int) -> None:
    keyed = data[: len(data) // KEYED.size * KEYED.size]

    def add() -> tuple[bytes, list[int]]:
        table = array("I", range(slots))
        return index_entries(table, count, keyed, seconds), list(table)

    same(add)


class FakeLog:
    min_offset = 0

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.max_offset = len(data)

    def read(self, offset: int, size: int) -> bytes:
        return self.data[max(offset, 0) : max(offset, 0) + size]

    def segment_end(self, offset: int) -> int:
        return 1 << 62


class FakeQueue:
    min_offset = 0

    def __init__(self, entries: bytes) -> None:
        self.all = entries
        self.max_offset = len(entries) // ENTRY.size

    def entries(self, offset: int, count: int) -> bytes:
        return self.all[offset * ENTRY.size : (offset + count) * ENTRY.size]


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 9000)), min_size=1, max_size=5),
    st.integers(1, 2000) | st.just(1 << 20),
    st.integers(1, 6),
    cuts,
    st.lists(st.tuples(st.integers(0, 4), st.integers(-5, 500), st.integers(-5, 500)), max_size=2),
)
def test_records_are_read_the_same(
    sizes: list[tuple[int, int]],
    bytes_max: int,
    count_max: int,
    changes: list[Any],
    wrong: list[tuple[int, int, int]],
) -> None:
    data, entries = b"", []
    for body_bytes, gap in sizes:
        record = pack_record(
            b"T", bytes(body_bytes), b"", 0, 0, 0, len(data), 0, 0, bytes(8), 0, bytes(8), 0, 0
        )
        entries.append((len(data), len(record), 0))
        data += record + bytes(gap)
    for index, offset, size in wrong:
        if index < len(entries):
            entries[index] = (max(entries[index][0] + offset, 0), max(size, 0), 0)
    queue: Any = FakeQueue(b"".join([ENTRY.pack(*each) for each in entries]))

    def read(log: Any) -> object:
        limits = {"count_max": count_max, "bytes_max": bytes_max}
        return read_queue(log, queue, 0, **limits, accepts=None, matches=None)

    same(partial(read, FakeLog(data)))
    same(partial(read, FakeLog(mutilated(data, changes))))


@pytest.mark.skipif(compiled is None, reason="nothing is compiled")
def test_records_far_apart_or_too_many_for_an_answer_are_no_reason_to_give_up() -> None:
    assert compiled is not None
    entries = b"".join([ENTRY.pack(place, 100, 0) for place in (0, 100, 5000, 5100, 5250)])
    sizes = (100,) * 5
    near, far = ([(0, 5350, 5)], sizes), ([(0, 200, 2), (5000, 350, 3)], sizes)
    assert compiled.choose_spans(entries, 500, 4800, 9999) == near
    assert compiled.choose_spans(entries, 500, 4799, 9999) == far
    assert compiled.choose_spans(entries, 500, 4800, 5349) == (
        [(0, 5200, 4), (5250, 100, 1)],
        sizes,
    )
    assert compiled.choose_spans(entries, 499, 4800, 9999) == ([(0, 5200, 4)], sizes[:4])
    assert compiled.choose_spans(entries, 1, 4800, 9999) == ([(0, 100, 1)], sizes[:1])


# What a consumer decodes.

record_bytes = st.builds(
    pack_record,
    topic=st.sampled_from([b"T", "é".encode(), b"x" * 127, b"x" * 128, b"\xff"]),
    body=st.binary(max_size=30),
    properties=property_bytes.filter(lambda data: len(data) < 32768),
    queue_id=int32,
    flag=int32,
    queue_offset=st.integers(-(1 << 63), (1 << 63) - 1),
    physical_offset=st.integers(0, 1 << 40),
    sys_flag=st.sampled_from([0, 8, -1, COMPRESSED, INNER_BATCH, INNER_BATCH | NEEDS_UNWRAP]),
    born_timestamp_ms=st.integers(0, 1 << 41),
    born_host=hosts | st.just(bytes(8)),
    store_timestamp_ms=st.integers(-(1 << 63), (1 << 63) - 1),
    store_host=hosts | st.just(bytes(8)),
    reconsume_times=int32,
    prepared_transaction_offset=st.integers(-1, 1 << 40),
)


@given(st.lists(record_bytes, max_size=3), st.booleans(), st.sampled_from([None, "b"]), cuts)
def test_records_are_decoded_the_same(
    records: list[bytes], check_crc: bool, broker_name: str | None, changes: list[Any]
) -> None:
    def decode(data: bytes) -> object:
        return decode_records(data, check_crc=check_crc, broker_name=broker_name)

    same(partial(decode, b"".join(records)))
    same(partial(record_starts, b"".join(records)))
    same(partial(decode, mutilated(b"".join(records), changes)))


def test_a_decoded_message_is_as_any_other() -> None:
    data = pack_record(
        *(b"T", b"body", b"a\x01b\x02", 1, 2, 3, 4, 0, 6, bytes(8), 8, bytes(8), 10, 11)
    )
    (message,) = decode_records(data)
    assert message.properties == {"a": "b"}
    assert pickle.loads(pickle.dumps(message)) == message
    assert replace(message, body=b"x").body == b"x"
    with pytest.raises(AttributeError):
        message.body = b"x"  # type: ignore[misc]
    with pytest.raises(AttributeError):
        _ = message.other  # type: ignore[attr-defined]


# Answers to pulls: what is read of a plain one is what three twins tell together.

counts = st.integers(0, 10) | st.integers(0, (1 << 63) - 1)
pull_headers = st.builds(
    PullMessageReply,
    suggest_which_broker_id=counts,
    next_begin_offset=counts,
    min_offset=counts,
    max_offset=counts,
    offset_delta=st.none() | counts,
    topic_sys_flag=st.none() | int32,
)


def pull_answer(
    header: PullMessageReply,
    records: int = 2,
    *,
    first: int = 7,
    step: int = 1,
    code: int = 0,
    flag: int = 1,
    opaque: int = 5,
    remark: str | None = "FOUND",
) -> bytes:
    host = bytes(8)
    body = b"".join(
        pack_record(b"T", b"b" * n, b"", 1, 0, first + n * step, n, 0, 6, host, 8, host, 0, 0)
        for n in range(records)
    )
    fields = header.to_ext_fields()
    return RemotingCommand(code, fields, body, remark, opaque=opaque, flag=flag).encode()


def pull_by_twins(data: bytes) -> Any:
    """What `read_pull` tells, if it tells anything."""
    with pure():
        decoder = FrameDecoder()
        decoder.feed(data)
        command = decoder.next_command()
        assert command is not None
        assert (command.code, command.is_response) == (0, True)
        _, _, header, body = PullAnswer.from_answer(command)
        offsets = [queue_offset(body, each) for each in record_starts(body)]
    assert offsets == list(range(offsets[0], offsets[0] + len(offsets)))
    return (
        *(4 + int.from_bytes(data[:4], "big"), command.opaque, header.suggest_which_broker_id),
        *(header.next_begin_offset, header.min_offset, header.max_offset),
        *(offsets[0], len(offsets), body),
    )


def read_pull(data: bytes) -> Any:
    decoder = FrameDecoder()
    decoder.feed(data)
    return decoder.next_pull({5})


PLAIN_PULL = PullMessageReply(
    suggest_which_broker_id=1, next_begin_offset=9, min_offset=0, max_offset=123456789012
)


def test_plain_answers_to_pulls_are_read_at_once() -> None:
    if compiled is None:
        pytest.skip("nothing is, without the compiled part")
    for data in (pull_answer(PLAIN_PULL), pull_answer(PLAIN_PULL, 32, remark=None)):
        assert read_pull(data) == pull_by_twins(data)


def test_what_is_not_a_plain_answer_to_a_pull_is_left_to_the_twins() -> None:
    plain = pull_answer(PLAIN_PULL)
    binary = RemotingCommand(0, PLAIN_PULL.to_ext_fields(), plain[-200:], opaque=5, flag=1)
    binary.serialize_type = SerializeType.ROCKETMQ
    odd = (
        pull_answer(PLAIN_PULL, 0),
        pull_answer(PLAIN_PULL, step=2),
        pull_answer(PLAIN_PULL, step=0),
        pull_answer(PLAIN_PULL, first=-1),
        pull_answer(PLAIN_PULL, first=(1 << 63) - 1, records=1),
        pull_answer(PLAIN_PULL, code=19),
        pull_answer(PLAIN_PULL, flag=0),
        pull_answer(PLAIN_PULL, opaque=6),  # another's
        pull_answer(PLAIN_PULL, remark='"'),
        pull_answer(PLAIN_PULL, remark="é"),
        pull_answer(replace(PLAIN_PULL, min_offset=-1)),
        RemotingCommand(0, {"nextBeginOffset": "1"}, plain[-200:], opaque=5, flag=1).encode(),
        RemotingCommand(0, {}, plain[-200:], opaque=5, flag=1).encode(),
        binary.encode(),
        plain[:-1],
        plain.replace(b'"9"', b'"x"'),
        plain.replace(b'"9"', b'"09"')[1:],
        plain.replace(b'"version"', b'"v\\u0065r"'),
        b"",
    )
    for data in odd:
        assert read_pull(data) is None


@given(pull_headers, st.integers(0, 3), st.integers(0, 2), st.none() | texts, cuts)
def test_answers_to_pulls_are_read_the_same(
    header: PullMessageReply, records: int, step: int, remark: str | None, changes: list[Any]
) -> None:
    plain = pull_answer(header, records, step=step, remark=remark)
    for data in (plain, mutilated(plain, changes)):
        if (found := read_pull(data)) is not None:
            assert found == pull_by_twins(data)


# Every bit of each, and every length.


def test_a_flipped_bit_or_a_cut_makes_no_difference_between_the_two() -> None:
    host = bytes([127, 0, 0, 1, 0, 0, 1, 1])
    properties = b"TAGS\x01t\x02KEYS\x01k1 k2\x02UNIQ_KEY\x01id\x02"
    record = pack_record(b"T", b"body", properties, 1, 2, 3, 0, 0, 6, host, 8, host, 10, 11)
    other = pack_record(
        *(b"T", b"", b"", 1, 2, 3, len(record), 0, 6, bytes(16) + host[4:], 8, host, 10, 11)
    )
    for data in damaged(record + other):
        same(partial(decode_records, data))
        same(partial(record_starts, data))
        same(partial(decode_records, data, check_crc=False))
    found = 0
    for data in damaged(pull_answer(PLAIN_PULL)):
        if (pull := read_pull(data)) is not None:
            assert pull == pull_by_twins(data)
            found += 1
    assert found > 100 or compiled is None
    entries = [(0, len(record), 0), (len(record), len(other), 0)]
    queue: Any = FakeQueue(b"".join([ENTRY.pack(*each) for each in entries]))
    for data in damaged(record + other):
        log: Any = FakeLog(data)
        limits = {"count_max": 9, "bytes_max": 9999}
        same(partial(read_queue, log, queue, 0, **limits, accepts=None, matches=None))
    members = [(b"one", properties, 7), (b"two", b"a\x01b\x02", 0)]
    place = Place(b"T", 5, 1, 99, 1_700_000_000_000)
    for data in damaged(join_batch(members)):
        same(partial(lay_out, DRAFT._replace(body=data), None, place, SETTINGS))
    for data in damaged(properties):
        same(partial(lay_out, DRAFT, data, place, SETTINGS))
    command = RemotingCommand(10, {"a": "b\x01\n", "é": ""}, b"body", "why")
    for data in damaged(command.encode() + command.encode()):
        same(partial(decoded, data))


# What a producer makes.


@given(
    st.lists(st.binary(max_size=20), min_size=1, max_size=4),
    int32 | st.just(1 << 31),
    st.binary(max_size=20) | st.just(b"x" * 32767),
    st.sampled_from(["ID", "é,", "0123"]),
    st.binary(max_size=20),
)
def test_members_alike_are_joined_the_same(
    bodies: list[bytes], flag: int, before: bytes, name: str, after: bytes
) -> None:
    same(lambda: join_alike(bodies, flag, before, [name] * len(bodies), after))
    same(lambda: join_alike(bodies, flag, before, [name], after))


@given(st.text("0123456789ABCDEF", max_size=40), st.lists(st.integers(0, (1 << 63) - 1)))
def test_offset_ids_are_the_same(prefix: str, offsets: list[int]) -> None:
    same(lambda: offset_message_ids(prefix, tuple(offsets)))


@given(st.integers(0, 1 << 32), st.lists(st.integers(0, 70_000), max_size=3))
@example(0, [65535, 1, 2])
def test_unique_ids_are_the_same(process: int, quantities: list[int]) -> None:
    def ids() -> list[list[str]]:
        generator = UniqueIdGenerator(bytes(4), 1, process, lambda: 1_700_000_000_000)
        return [generator.many(quantity) for quantity in quantities]

    same(ids)
