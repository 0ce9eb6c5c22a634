"""Trace records: the lines a client writes to the trace topic about its sends and consumes.

Fields are joined by 0x01 and every record ends with 0x02 (Java's TraceDataEncoder). Java prints a
missing value as `null`, and so do we; where a field may be missing, that text is read as None.
The classes are named as the records are, and their fields stand in the order of the wire.
"""

from collections.abc import Callable, Iterable
from dataclasses import MISSING, fields
from typing import Any

from rocketpipe.errors import InvalidMessage, MalformedRecord
from rocketpipe.lazy_dataclass import dataclass
from rocketpipe.wire.java_text import read_bool, read_integer, write_bool


@dataclass(frozen=True, slots=True)
class Pub:
    """A message, or a batch with its ids joined by commas, was sent."""

    timestamp_ms: int
    region_id: str | None
    group: str
    topic: str
    message_id: str
    tags: str | None
    keys: str | None  # joined by spaces, here and below
    store_host: str | None  # the broker's address
    body_length: int
    cost_ms: int
    message_type: int  # 0 normal, 1 half, 2 commit, 3 delay, 4 order
    offset_message_id: str | None = None  # old clients do not write it
    is_success: bool = True


@dataclass(frozen=True, slots=True)
class SubBefore:
    """A message is about to be consumed."""

    timestamp_ms: int
    region_id: str | None
    group: str
    request_id: str
    message_id: str
    retry_times: int
    keys: str | None


@dataclass(frozen=True, slots=True)
class SubAfter:
    """A message was consumed. Time and group are missing together: from old clients and clouds."""

    request_id: str
    message_id: str
    cost_ms: int
    is_success: bool
    keys: str | None
    context_code: int = 0  # 0 success, 1 timeout, 2 exception, 3 returned null, 4 failed
    timestamp_ms: int | None = None
    group: str | None = None


@dataclass(frozen=True, slots=True)
class EndTransaction:
    """A half message was committed or rolled back."""

    timestamp_ms: int
    region_id: str | None
    group: str
    topic: str
    message_id: str
    tags: str | None
    keys: str | None
    store_host: str | None
    message_type: int
    transaction_id: str | None
    state: str  # COMMIT_MESSAGE, ROLLBACK_MESSAGE or UNKNOW, RocketMQ's spelling
    is_from_check: bool


@dataclass(frozen=True, slots=True)
class Recall:
    """A timer message was taken back."""

    timestamp_ms: int
    region_id: str | None
    group: str
    topic: str
    message_id: str
    is_success: bool


Trace = Pub | SubBefore | SubAfter | EndTransaction | Recall


def encode_traces(traces: Iterable[Trace]) -> str:
    """The body of a trace message, still to be made UTF-8."""
    return "".join(map(_encode, traces))


def trace_keys(traces: Iterable[Trace]) -> tuple[str, ...]:
    """The keys to send a trace message with, so that it is found by the messages it tells of."""
    keys: dict[str, None] = {}
    for trace in traces:
        own = "" if isinstance(trace, Recall) else trace.keys or ""
        keys.update(dict.fromkeys((trace.message_id, *own.split(" "))))
    return tuple(key for key in keys if key)


def decode_traces(text: str) -> list[Trace]:
    """Every record of a trace message, also of older clients, which wrote less, or newer ones."""
    lines = text.split("\x02")
    if not lines[-1]:
        lines.pop()
    return [_decode(line) for line in lines]


def _encode(trace: Trace) -> str:
    values = [getattr(trace, field.name) for field in fields(trace)]
    if isinstance(trace, SubAfter) and trace.timestamp_ms is None:
        values[-2:] = [""]  # Java leaves out two fields, but not the separator before them
    line = "\x01".join([type(trace).__name__, *map(_text, values)])
    if line.count("\x01") != len(values) or "\x02" in line:
        raise InvalidMessage(f"no field of a trace may contain 0x01 or 0x02: {trace}")
    return line + "\x02"


def _decode(line: str) -> Trace:
    name, *values = line.split("\x01")
    kind = _KINDS.get(name)
    if kind is None:
        raise MalformedRecord(f"a trace of unknown type: {line!r:.200}")
    if kind is Pub and len(values) == 12:
        values.insert(11, "null")  # the success alone, from before there was an offset id
    if kind is SubAfter and values[-1:] == [""]:
        values.pop()
    if len(values) < _REQUIRED[kind]:
        raise MalformedRecord(f"a trace that lacks fields: {line!r:.200}")
    try:
        # Java looks at no field past those it knows, nor do we.
        readings = zip(_READERS[kind], values, strict=False)
        trace: Trace = kind(*[read(value) for read, value in readings])
    except ValueError as error:
        raise MalformedRecord(f"a trace with {error}: {line!r:.200}") from error
    return trace


def _text(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return write_bool(value)
    return str(value)


def _read_long(text: str) -> int:
    return read_integer(text, bits=64)


def _read_optional(text: str) -> str | None:
    return None if text == "null" else text


_KINDS: dict[str, type[Any]] = {
    kind.__name__: kind for kind in (Pub, SubBefore, SubAfter, EndTransaction, Recall)
}
_READER_OF: dict[object, Callable[[str], object]] = {
    int: _read_long,
    int | None: _read_long,
    bool: read_bool,
    str: str,
    str | None: _read_optional,
}
_READERS = {kind: [_READER_OF[field.type] for field in fields(kind)] for kind in _KINDS.values()}
_REQUIRED = {
    kind: sum(field.default is MISSING for field in fields(kind)) for kind in _KINDS.values()
}
