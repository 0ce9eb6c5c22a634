"""Pulls that find what they ask for at once, which most are: answered at half the cost.

All of it is said in `processors/pulling.py`. Here the header is read in C, and the answer's is
filled into a form. Where anything is unusual, a pull is left alone, and goes the ordinary way.
"""

import struct
from typing import TYPE_CHECKING

from rocketpipe.broker.pull_checks import Pull, PullChecks
from rocketpipe.broker.store.values import ReadStatus
from rocketpipe.codes import RequestCode, ResponseCode
from rocketpipe.remoting.connection import Connection
from rocketpipe.remoting.dispatch import Refusal
from rocketpipe.wire.frame import FrameDecoder, RemotingCommand
from rocketpipe.wire.requests.reading import PULL_COMMIT_OFFSET

if TYPE_CHECKING:
    from rocketpipe.broker.broker import Broker

_PREFIX = struct.Struct(">iI")
_BODY_BYTES_MAX = 4 * 1024 * 1024  # with that an answer surely fits into a frame


class PlainPulls:
    def __init__(self, broker: "Broker", checks: PullChecks) -> None:
        self._settings = broker.settings
        self._store = broker.store
        self._offsets = broker.offsets
        self._rates = broker.rates
        self._faults = broker.faults
        self._checks = checks
        self._header = _answer_header()

    def take(self, connection: Connection, decoder: FrameDecoder, most: int) -> int:
        """Take the next request and answer it, if it is plain; how many that were, one or none."""
        settings = self._settings
        if self._faults or self._offsets.has_resets or settings.slave_read_enable:
            return 0
        request = decoder.plain_pull()
        if request is None:
            return 0
        end, code, opaque, fields = request
        pull = Pull._make(fields)
        try:
            topic, group, wanted = self._checks.admit(pull, code, connection.address)
        except Refusal:
            return 0
        if wanted.accepts is not None or wanted.matches is not None:
            return 0
        if not self._store.has(pull.topic, pull.queue_id, pull.offset):
            return 0
        read = self._store.read(
            pull.topic,
            pull.queue_id,
            pull.offset,
            count_max=self._checks.count_max(pull),
            bytes_max=self._checks.bytes_max(pull),
        )
        if read.status is not ReadStatus.FOUND or len(read.records) > _BODY_BYTES_MAX:
            return 0
        decoder.take_to(end)
        self._rates.read(pull.group, pull.topic, len(read.sizes))
        self._offsets.note_pulled(pull.group, pull.topic, pull.queue_id, read.next_offset)
        if pull.sys_flag & PULL_COMMIT_OFFSET:
            self._offsets.commit(pull.group, pull.topic, pull.queue_id, pull.commit_offset)
        header = self._header % (
            read.next_offset,
            read.min_offset,
            read.max_offset,
            topic.topic_sys_flag,
            group.group_sys_flag,
            opaque,
        )
        size = len(header)
        prefix = _PREFIX.pack(4 + size + len(read.records), size)
        connection.answer_plainly(b"".join((prefix, header, read.records)))
        return 1


def _answer_header() -> bytes:
    """The header of an answer, with places for its numbers."""
    names = ("nextBeginOffset", "minOffset", "maxOffset", "topicSysFlag", "groupSysFlag")
    fields = {"suggestWhichBrokerId": "0", **dict.fromkeys(names, "%d")}
    opaque = 0x7FFF_FFFF
    pull = RemotingCommand(RequestCode.PULL_MESSAGE, opaque=opaque)
    frame = pull.answer(ResponseCode.SUCCESS, "FOUND", fields).encode()
    return frame[_PREFIX.size :].replace(b"%d" % opaque, b"%d")
