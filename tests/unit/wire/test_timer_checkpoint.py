"""How far a broker is with its timers, in Apache's bytes and ours."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketpipe.errors import MalformedBody
from rocketpipe.wire.bodies.timers import TimerCheckpoint

# The answer of a broker of 5.5.0 that had read four timers.
APACHES = bytes.fromhex(
    "000001a1e7d18758 00000000000000d0 0000000000000004 0000000000000004"
    "0000000000000000 000001a1e7d189a5 0000000000000004"
)
OFFSETS = st.integers(0, 2**63 - 1)


def test_apaches_is_read() -> None:
    assert TimerCheckpoint.decode(APACHES) == TimerCheckpoint(
        last_read_time_ms=0x1A1E7D18758, first_waiting_offset=4, queue_offset=4
    )


@given(OFFSETS, OFFSETS, OFFSETS, st.none() | OFFSETS)
def test_what_is_written_is_read(at_ms: int, first: int, last: int, end: int | None) -> None:
    first, last = sorted((first, last))
    checkpoint = TimerCheckpoint(
        last_read_time_ms=at_ms, first_waiting_offset=first, queue_offset=last, log_offset=end
    )
    body = checkpoint.encode()
    assert TimerCheckpoint.decode(body) == checkpoint
    assert len(body) == len(APACHES) + (0 if end is None else 8)


@pytest.mark.parametrize(
    "body",
    [b"", APACHES[:-1], APACHES[:23] + b"\5" + APACHES[24:], b"\xff" * 64],
)
def test_what_makes_no_sense_is_refused(body: bytes) -> None:
    with pytest.raises(MalformedBody):
        TimerCheckpoint.decode(body)
