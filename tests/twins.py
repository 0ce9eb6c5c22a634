"""Compares a function of the compiled part with its twin in Python, also on damaged bytes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from hypothesis import strategies as st

from rocketpipe.broker import plain_sends
from rocketpipe.broker.store import key_index, layout, plain_puts, queue_read
from rocketpipe.compiled import compiled
from rocketpipe.spark import compiled_columns
from rocketpipe.wire import batch, frame, message_id, record

USERS = (
    *(frame, batch, message_id, record, layout, key_index, queue_read, compiled_columns),
    *(plain_sends, plain_puts),  # their twins: tests/unit/broker/test_plain_ways.py
)


@contextmanager
def pure() -> Iterator[None]:
    for user in USERS:
        user.compiled = None  # type: ignore[attr-defined]
    try:
        yield
    finally:
        for user in USERS:
            user.compiled = compiled  # type: ignore[attr-defined]


def same(work: Callable[[], Any]) -> Any:
    """What both give, after seeing that it is the same."""
    outcome = _outcome(work)
    with pure():
        expected = _outcome(work)
    assert outcome == expected
    return outcome


def _outcome(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except Exception as error:
        return type(error), str(error)


texts = st.text(max_size=20) | st.text('ab\x01\x02"\\/\n\x1f\x7fé\ud800\udc00', max_size=20)
int32 = st.integers(-(1 << 31), (1 << 31) - 1)
cuts = st.lists(
    st.tuples(st.integers(0, 400), st.integers(0, 3), st.binary(max_size=3)), max_size=3
)


def mutilated(data: bytes, changes: list[tuple[int, int, bytes]]) -> bytes:
    for at, removed, added in changes:
        data = data[:at] + added + data[at + removed :]
    return data


def damaged(data: bytes) -> Iterator[bytes]:
    for at in range(len(data)):
        yield data[:at]
        for bit in range(8):
            yield data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]
