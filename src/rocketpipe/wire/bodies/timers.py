"""How far a broker is with its timers: what it saves, and what its slaves copy."""

from struct import Struct
from typing import Self

from rocketpipe.errors import MalformedBody
from rocketpipe.lazy_dataclass import dataclass
from rocketpipe.wire.frame import RemotingCommand

# Apache's: when it read last, how much of its timer log is flushed, two offsets of the queue, and
# the three numbers of a DataVersion.
_APACHE = Struct(">7q")
_OURS = Struct(">q")


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerCheckpoint:
    """The answer to 60, and config/timercheck: Apache's TimerCheckpoint, and one number more.

    Of the timers before `queue_offset`, those due at `last_read_time_ms` or earlier are done with,
    and so are all before `first_waiting_offset`.
    """

    last_read_time_ms: int = 0
    first_waiting_offset: int = 0  # Apache: lastTimerQueueOffset
    queue_offset: int = 0  # Apache: masterTimerQueueOffset
    log_offset: int | None = None  # where the log ended then; Apache does not tell

    def encode(self) -> bytes:
        body = _APACHE.pack(
            self.last_read_time_ms, 0, self.first_waiting_offset, self.queue_offset, 0, 0, 0
        )
        return body if self.log_offset is None else body + _OURS.pack(self.log_offset)

    @classmethod
    def decode(cls, body: bytes) -> Self:
        """What it holds, or MalformedBody."""
        if len(body) < _APACHE.size:
            raise MalformedBody(f"a timer checkpoint of {len(body)} bytes")
        read_time_ms, _, first_offset, queue_offset, *_ = _APACHE.unpack_from(body)
        if not 0 <= first_offset <= queue_offset:
            raise MalformedBody(f"a timer checkpoint of {first_offset} and {queue_offset}")
        ours = body[_APACHE.size : _APACHE.size + _OURS.size]
        return cls(
            last_read_time_ms=read_time_ms,
            first_waiting_offset=first_offset,
            queue_offset=queue_offset,
            log_offset=_OURS.unpack(ours)[0] if len(ours) == _OURS.size else None,
        )

    @classmethod
    def from_answer(cls, answer: RemotingCommand) -> Self:
        return cls.decode(answer.body)
