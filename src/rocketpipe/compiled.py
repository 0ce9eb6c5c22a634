"""The compiled part, where it was built: hot loops in C, each with a twin in Python beside its use.

Who uses a function asks its twin when there is none, or when it returns None: what is not plain,
and every error, is the twin's. The sources are in `csrc/`; ROCKETPIPE_PURE=1 leaves it alone.
"""

import os
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Protocol, TypeVar, cast

from rocketpipe.message import StoredMessage

_VERSION = 6  # what is built from other sources is not used: its functions may be others

# Of a column: how many rows are null, and where in a block the buffers of its Arrow array begin and
# how many bytes they have: first that which tells what is null.
Buffers = tuple[int, tuple[int, int], *tuple[tuple[int, int], ...]]
Block = TypeVar("Block")
Frame = tuple[int, int, dict[str, str], bytes, str | None, int, int, str | None, int]
Pull = tuple[int, int, int, int, int, int, int, int, bytes]
# Of a request to pull: where its frame ends, code and opaque, and the header's fields as
# `broker.pull_checks.Pull` has them.
PullFields = tuple[str, str, int, int, int, int, int, int, int, int | None, str | None, str | None]
PlainPull = tuple[int, int, int, PullFields]
# Of a send: where its frame ends, opaque, topic, queue, flag of the message, its system flag, when
# it was born, how often it was consumed, its id, properties and body.
PlainSend = tuple[int, int, str, int, int, int, int, int, str, bytes, bytes]
# Of an answer to one: opaque, offset in the log, queue, offset there, and the message's id.
SentRow = tuple[int, int, int, int, str]


class Compiled(Protocol):
    """The functions of `rocketpipe._compiled`."""

    def read_frame(
        self, data: bytes | bytearray, start: int, frame_bytes_max: int, /
    ) -> Frame | None: ...

    def read_pull(
        self, data: bytes | bytearray, start: int, frame_bytes_max: int, /
    ) -> Pull | None: ...

    def read_pull_request(
        self, data: bytes | bytearray, start: int, frame_bytes_max: int, /
    ) -> PlainPull | None: ...

    def read_sends(
        self,
        data: bytes | bytearray,
        start: int,
        frame_bytes_max: int,
        most: int,
        words: tuple[bytes, ...],
        suffix: bytes,
        /,
    ) -> list[PlainSend]: ...

    def write_sent(
        self, rows: list[SentRow], first: bytes, second: bytes, third: bytes, fourth: bytes, /
    ) -> bytes: ...

    def write_frame(
        self,
        code: int,
        flag: int,
        opaque: int,
        version: int,
        language: str,
        remark: str | None,
        ext_fields: dict[str, str],
        body: bytes,
        /,
    ) -> bytes | None: ...

    def join_alike(
        self, bodies: list[bytes], flag: int, before: bytes, ids: list[str], after: bytes, /
    ) -> bytes | None: ...

    def offset_ids(self, prefix: str, offsets: tuple[int, ...], /) -> str | None: ...

    def counted_ids(self, head: str, first: int, quantity: int, /) -> list[str]: ...

    def decode_records(
        self,
        kind: type[StoredMessage],
        data: bytes,
        check_crc: bool,
        unpack_host: Callable[[bytes], str],
        broker_name: str | None,
        /,
    ) -> list[StoredMessage] | None: ...

    def read_columns(
        self,
        answers: list[bytes],
        kinds: tuple[int, ...],
        topic_of: Callable[[bytes], str],
        host_of: Callable[[bytes], str],
        block_of: Callable[[int], Block],
        /,
    ) -> tuple[int, Block, list[Buffers]] | None: ...

    def lay_out(
        self,
        body: bytes,
        properties: bytes | None,
        flag: int,
        topic: bytes,
        queue_id: int,
        queue_offset: int,
        queue_step: int,
        physical_offset: int,
        sys_flag: int,
        born_timestamp_ms: int,
        born_host: bytes,
        store_timestamp_ms: int,
        store_host: bytes,
        reconsume_times: int,
        prepared_transaction_offset: int,
        /,
    ) -> tuple[bytes, tuple[int, ...], bytes, bytes] | None: ...

    def record_starts(self, data: bytes | bytearray | memoryview, /) -> list[int] | None: ...

    def index_entries(
        self, slots: Sequence[int], count: int, keyed: bytes, seconds: int, /
    ) -> bytes: ...

    def choose_spans(
        self, entries: bytes, bytes_max: int, gap_bytes_max: int, span_bytes_max: int, /
    ) -> tuple[list[tuple[int, int, int]], tuple[int, ...]] | None: ...

    def cut_span(self, span: bytes, entries: bytes, /) -> bytes | None: ...


def _load() -> Compiled | None:
    if os.environ.get("ROCKETPIPE_PURE", "0") != "0":
        return None
    try:
        module = import_module("rocketpipe._compiled")
    except ImportError:  # not built, or we are in a zip
        return None
    return cast(Compiled, module) if module.VERSION == _VERSION else None


compiled = _load()
