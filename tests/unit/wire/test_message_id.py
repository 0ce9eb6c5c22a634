import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketpipe.errors import InvalidMessage, MalformedRecord
from rocketpipe.wire.message_id import (
    RecallHandle,
    UniqueIdGenerator,
    offset_message_id,
    parse_offset_message_id,
    parse_recall_handle,
    parse_unique_id,
)

IP = bytes([10, 11, 12, 13])
NOON = 1_700_000_000_000  # in the middle of a month, everywhere

hosts = st.builds("{}:{}".format, st.ip_addresses(v=4), st.integers(0, 65535)) | st.builds(
    "[{}]:{}".format, st.ip_addresses(v=6), st.integers(0, 65535)
)
words = st.text(st.characters(exclude_categories=["Cs", "Z", "Cc"]), min_size=1)


@given(hosts, st.integers(-(2**63), 2**63 - 1))
def test_any_place_survives_being_an_id(host: str, offset: int) -> None:
    message_id = offset_message_id(host, offset)
    assert parse_offset_message_id(message_id) == (host, offset)
    assert parse_offset_message_id(message_id.lower()) == (host, offset)


@given(st.text() | st.text(st.sampled_from("0123456789abcdefABCDEFxé ²")))
def test_any_other_text_is_malformed(text: str) -> None:
    for parse in (parse_offset_message_id, parse_unique_id, parse_recall_handle):
        try:
            parse(text)
        except MalformedRecord:
            pass


@pytest.mark.parametrize("text", ["", "0" * 31, "0" * 33, "0g" * 16, "00 " * 18 + "00", "²" * 32])
def test_an_id_is_32_or_56_hex_digits(text: str) -> None:
    for parse in (parse_offset_message_id, parse_unique_id):
        with pytest.raises(MalformedRecord, match="hex digits"):
            parse(text)


def test_an_id_with_an_impossible_port_is_malformed() -> None:
    with pytest.raises(MalformedRecord, match="port"):
        parse_offset_message_id("7F00000100010000" + "0" * 16)


@pytest.mark.parametrize(("ip", "length"), [(IP, 32), (bytes(15) + b"\1", 56)])
def test_a_unique_id_tells_who_made_it_and_when(ip: bytes, length: int) -> None:
    unique_id = UniqueIdGenerator(ip, 0x12345, -2, lambda: NOON)()
    assert len(unique_id) == length
    parts = parse_unique_id(unique_id)
    assert parts.ip == ("10.11.12.13" if length == 32 else "::1")
    assert (parts.pid, parts.process_unique, parts.counter) == (0x2345, -2, 0)
    assert parts.month_ms == NOON - int(time.mktime((2023, 11, 1, 0, 0, 0, 0, 0, -1))) * 1000


def test_ids_stay_unique_beyond_the_16_bits_of_the_counter() -> None:
    generator = UniqueIdGenerator(IP, 1, 2**31 - 1, lambda: NOON)
    assert len({generator() for _ in range(70_000)}) == 70_000


@pytest.mark.parametrize("quantity", [0, 1, 3, 70_000])
def test_many_ids_are_those_that_would_come_one_by_one(quantity: int) -> None:
    # Some before, so that the counter overflows in the middle of the 70,000.
    together, singly = (UniqueIdGenerator(IP, 1, 2**31 - 1, lambda: NOON) for _ in range(2))
    assert together.many(5) == [singly() for _ in range(5)]
    assert together.many(quantity) == [singly() for _ in range(quantity)]
    assert together() == singly()


@pytest.mark.parametrize("step_ms", [-1, -5000, -40 * 86_400_000, 31 * 86_400_000])
def test_ids_stay_unique_when_the_clock_steps(step_ms: int) -> None:
    # There and back again, so that after one round of the counter time and counter repeat.
    times: Iterator[int] = (NOON + step_ms * (number // 0x8000 % 2) for number in count())
    generator = UniqueIdGenerator(IP, 1, 7, lambda: next(times))
    ids = [generator() for _ in range(0x10001)]
    assert ids[0][-12:] == ids[-1][-12:]
    assert len(set(ids)) == len(ids)
    assert {len(unique_id) for unique_id in ids} == {32}


def test_each_month_starts_its_time_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        november = int(time.mktime((2023, 11, 1, 0, 0, 0, 0, 0, -1))) * 1000  # summer time
        december = int(time.mktime((2023, 12, 1, 0, 0, 0, 0, 0, -1))) * 1000  # winter time
        january = int(time.mktime((2024, 1, 1, 0, 0, 0, 0, 0, -1))) * 1000
        times = [november, december - 1, december, january - 1, january, december]
        generator = UniqueIdGenerator(IP, 1, 7, iter(times).__next__)
        spans = [parse_unique_id(generator()).month_ms for _ in times]
        assert spans == [0, december - november - 1, 0, january - december - 1, 0, 0]
        assert december - november == (30 * 24 + 1) * 3_600_000
    finally:
        monkeypatch.undo()
        time.tzset()


def test_threads_may_share_a_generator() -> None:
    generator = UniqueIdGenerator(IP, 1, 7, lambda: NOON)
    with ThreadPoolExecutor(8) as threads:
        batches = threads.map(lambda _: [generator() for _ in range(5000)], range(16))
    assert len({unique_id for batch in batches for unique_id in batch}) == 80_000


def test_a_generator_needs_an_ip() -> None:
    with pytest.raises(ValueError, match="5 bytes"):
        UniqueIdGenerator(bytes(5), 1, 7, lambda: NOON)


@given(words, words, st.integers(0, 2**63 - 1), words)
def test_any_recall_handle_survives_being_text(
    topic: str, broker_name: str, timestamp_ms: int, unique_id: str
) -> None:
    handle = RecallHandle(topic, broker_name, timestamp_ms, unique_id)
    assert parse_recall_handle(handle.encode()) == handle
    assert parse_recall_handle(handle.encode().rstrip("=")) == handle


@pytest.mark.parametrize("topic", ["", "a b", "\ud800"])
def test_a_recall_handle_that_would_be_read_otherwise_is_not_written(topic: str) -> None:
    with pytest.raises(InvalidMessage, match="recall handle"):
        RecallHandle(topic, "broker-a", 1, "id").encode()


@pytest.mark.parametrize("handle", ["", "????", "djIgYSBiIDEgYw==", "djEgYSBiIHggYw==", "djEgYSBi"])
def test_what_is_no_recall_handle_is_malformed(handle: str) -> None:
    with pytest.raises(MalformedRecord, match="recall handle"):
        parse_recall_handle(handle)
