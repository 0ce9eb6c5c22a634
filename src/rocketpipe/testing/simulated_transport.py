"""Connections in memory: asyncio transports, and the streams between them.

How it works
- A connection is two transports and two streams, one for each direction. A stream is a queue of
  pieces, each with its moment of arrival: what is written never overtakes what was written before,
  and nothing is lost as long as the connection lives.
- A stream waits while its link is cut or one of its hosts is frozen; so does the news that the
  peer is gone. When that ends it all arrives, as TCP would send it again.
- Protocols are called by the event loop alone, and in asyncio's order; but for `pause_writing`,
  which asyncio too calls from within `write`.
"""

import asyncio
import errno
import os
import random
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from typing import Any

from rocketpipe.lazy_dataclass import dataclass
from rocketpipe.remoting.address import Address

PIECE_BYTES_MAX = 256 * 1024  # what asyncio reads at once
TRACE_MAX = 10_000
_SAME_MOMENT = 1e-6  # the loop may call a little before the time


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkOptions:
    """How the network behaves when nothing is broken."""

    delay_min: float = 0.0002
    delay_max: float = 0.002
    spike_chance: float = 0.005
    """Of a piece that takes longer, and with it all that is written after it."""
    spike_max: float = 0.2
    split_chance: float = 0.2
    """Of a written chunk that arrives in several pieces."""
    merge_chance: float = 0.5
    """Of a piece that is read together with the one before it, if both are there."""


class Conditions:
    """What all connections of a network share: its dice, its faults and its diary."""

    def __init__(self, dice: random.Random, options: NetworkOptions) -> None:
        self.dice = dice
        self.options = options
        self.loop: asyncio.AbstractEventLoop | None = None  # until the network is used
        self.cut: set[tuple[str, str]] = set()
        self.frozen: set[str] = set()
        self.crashed: set[str] = set()
        self.transports: dict[Transport, None] = {}  # those that live; a dict, for its order
        self.trace: deque[tuple[float, str]] = deque(maxlen=TRACE_MAX)
        self.fingerprint = 0

    def is_blocked(self, source: str, target: str) -> bool:
        return (source, target) in self.cut or source in self.frozen or target in self.frozen

    def retry(self) -> None:
        """Send again what waits; to be called when less is blocked than before."""
        for transport in list(self.transports):
            transport.incoming.retry()
            if transport.outgoing.target.is_lost:
                transport.outgoing.retry()

    def delay(self) -> float:
        delay = self.dice.uniform(self.options.delay_min, self.options.delay_max)
        if self.dice.random() < self.options.spike_chance:
            spike = self.dice.uniform(0, self.options.spike_max)
            self.note(f"a piece takes {spike:.6f} s longer")
            delay += spike
        return delay

    def split(self, data: bytes) -> Iterator[bytes]:
        places = {*range(PIECE_BYTES_MAX, len(data), PIECE_BYTES_MAX), len(data)}
        if len(data) > 1 and self.dice.random() < self.options.split_chance:
            places |= {self.dice.randrange(1, len(data)) for _ in range(3)}
        start = 0
        for place in sorted(places):
            yield data[start:place]
            start = place

    def note(self, event: str) -> None:
        now = self.loop.time() if self.loop else 0.0
        self.trace.append((now, event))
        self.fingerprint = zlib.crc32(f"{now!r} {event}\n".encode(), self.fingerprint)


def join(
    conditions: Conditions,
    client_address: Address,
    server_address: Address,
    accept: Callable[[], asyncio.Protocol | None],
) -> "Transport":
    """The client's end of a new connection.

    The other end begins when the server's host can get to it, with the protocol that `accept`
    makes; if it has none to give, the connection is reset.
    """
    client = Transport(conditions, client_address, server_address)
    server = Transport(conditions, server_address, client_address)
    client.outgoing = server.incoming = _Stream(conditions, client, server)
    server.outgoing = client.incoming = _Stream(conditions, server, client)
    conditions.transports[client] = conditions.transports[server] = None
    client.outgoing.put_accept(accept)
    return client


class _Sign(Enum):
    """What travels in a stream besides bytes."""

    ACCEPT = "accept"
    EOF = "eof"


class _Stream:
    """One direction of a connection: what was written and is not yet read."""

    def __init__(self, conditions: Conditions, source: "Transport", target: "Transport") -> None:
        self.source = source
        self.target = target
        self.size = 0  # in bytes, signs not counted
        self._conditions = conditions
        self._loop = asyncio.get_running_loop()
        self._pieces: deque[tuple[float, bytes | _Sign]] = deque()
        self._reset_at: float | None = None
        self._is_held = False
        self._timer: asyncio.TimerHandle | None = None
        self._accept: Callable[[], asyncio.Protocol | None] = lambda: None

    def put(self, data: bytes) -> None:
        self.size += len(data)
        for piece in self._conditions.split(data):
            self._pieces.append((self._arrival(), piece))
        self.schedule()

    def put_accept(self, accept: Callable[[], asyncio.Protocol | None]) -> None:
        self._accept = accept
        self._pieces.append((self._loop.time(), _Sign.ACCEPT))
        self.schedule()

    def put_eof(self) -> None:
        self._pieces.append((self._arrival(), _Sign.EOF))
        self.schedule()

    def put_reset(self) -> None:
        """Tell the target that the source is gone, as soon as it can know."""
        if self._reset_at is None:
            self._reset_at = self._arrival()
            self.schedule()

    def drop(self) -> None:
        """Lose all that is on its way."""
        self._pieces.clear()
        self.size = 0

    def drop_some(self) -> None:
        """Lose the end of what is on its way: nobody knows how much had left before a crash."""
        for _ in range(self._conditions.dice.randint(0, len(self._pieces))):
            self._pieces.pop()
        self.size = 0

    def retry(self) -> None:
        """Send again what was held, if that may help now."""
        if self._is_held and not self._is_blocked():
            self._is_held = False
            soon = self._arrival()
            self._pieces = deque((max(soon, arrival), piece) for arrival, piece in self._pieces)
            self.schedule()

    def schedule(self) -> None:
        """See to it that the next piece arrives, if there is one and the target may take it."""
        if self._timer is not None:
            return
        if self._pieces and self.target.may_take(self._pieces[0][1]):
            self._timer = self._loop.call_at(self._pieces[0][0], self._arrive)
        elif self._reset_at is not None:
            self._timer = self._loop.call_at(self._reset_at, self._arrive)

    def _is_blocked(self) -> bool:
        return self._conditions.is_blocked(self.source.host, self.target.host)

    def _arrival(self) -> float:
        # A piece behind one that takes longer waits for it.
        return self._loop.time() + self._conditions.delay()

    def _arrive(self) -> None:
        self._timer = None
        if self._is_blocked():
            self._is_held = True
            return
        now = self._loop.time() + _SAME_MOMENT
        if self._pieces and self.target.may_take(self._pieces[0][1]):
            if self._pieces[0][0] <= now:
                self._deliver(now)
        elif self._reset_at is not None and self._reset_at <= now:
            self._reset_at = None
            self.target.fall(reset_error(), tell_peer=False)
        self.schedule()

    def _deliver(self, now: float) -> None:
        """Hand over one piece, and those behind it that happen to be read with it."""
        _, piece = self._pieces.popleft()
        if piece is _Sign.ACCEPT:
            if protocol := self._accept():
                self.target.begin(protocol)
            else:
                self.target.fall(None)
        elif piece is _Sign.EOF:
            self.target.take_eof()
        else:
            data = piece
            while (
                self._pieces
                and self._pieces[0][0] <= now
                and len(data) < PIECE_BYTES_MAX
                and isinstance(following := self._pieces[0][1], bytes)
                and self._conditions.dice.random() < self._conditions.options.merge_chance
            ):
                data += following
                self._pieces.popleft()
            self.size = max(0, self.size - len(data))  # 0 already, if the source has fallen
            self.target.take(data)
            self.source.on_taken()


class Transport(asyncio.Transport):
    """One end of a connection. Bytes count as buffered until the other end has read them."""

    outgoing: _Stream
    incoming: _Stream

    def __init__(self, conditions: Conditions, address: Address, peer: Address) -> None:
        super().__init__({"sockname": tuple(address), "peername": tuple(peer)})
        self.host = address.host
        self.peer_host = peer.host
        self.is_lost = False
        self._conditions = conditions
        self._loop = asyncio.get_running_loop()
        self._name = f"{address} -> {peer}"
        self._protocol: asyncio.Protocol | None = None  # the server's end has none at first
        self._is_made = False
        self._is_closing = False
        self._is_eof_written = False
        self._is_reading_paused = False
        self._is_writing_paused = False
        self._high_water, self._low_water = 64 * 1024, 16 * 1024  # asyncio's

    def __repr__(self) -> str:
        state = "lost" if self.is_lost else "closing" if self._is_closing else "open"
        return f"<simulated transport {self._name}, {state}>"

    # The life of a connection.

    def begin(self, protocol: asyncio.Protocol) -> None:
        self._conditions.note(f"{self._name} made")
        self._protocol = protocol
        self._loop.call_soon(protocol.connection_made, self)
        self._loop.call_soon(self._start_reading)

    def _start_reading(self) -> None:
        self._is_made = True
        self.incoming.schedule()

    def close(self) -> None:
        if not self._is_closing:
            self.write_eof()
            self._is_closing = True
            self.incoming.schedule()  # even if reading is paused: what comes is thrown away now
            self.on_taken()

    def is_closing(self) -> bool:
        return self._is_closing

    def abort(self) -> None:
        self.fall(None)

    def fall(self, error: Exception | None, *, tell_peer: bool = True) -> None:
        """End at once, whatever is still on its way."""
        if self.is_lost:
            return
        if tell_peer:
            self.outgoing.drop_some()
            self.outgoing.put_reset()
        else:
            self.outgoing.drop()
        self._lose(error)

    def _lose(self, error: Exception | None) -> None:
        self._conditions.note(f"{self._name} lost: {error}")
        self._is_closing = self.is_lost = True
        del self._conditions.transports[self]
        if self._protocol is not None:
            self._loop.call_soon(self._protocol.connection_lost, error)

    # Reading.

    def may_take(self, piece: bytes | _Sign) -> bool:
        if piece is _Sign.ACCEPT or self._is_closing:
            return True
        return self._is_made and not self._is_reading_paused

    def take(self, data: bytes) -> None:
        if self.is_lost:
            self.outgoing.put_reset()
        elif not self._is_closing:
            self._conditions.note(f"{self._name} reads {len(data)} bytes, crc {zlib.crc32(data)}")
            self._call_or_fall("data_received", data)

    def take_eof(self) -> None:
        if not self._is_closing:
            self._conditions.note(f"{self._name} reads the end")
            if not self._call_or_fall("eof_received"):
                self.close()

    def is_reading(self) -> bool:
        return not self._is_closing and not self._is_reading_paused

    def pause_reading(self) -> None:
        self._is_reading_paused = True

    def resume_reading(self) -> None:
        self._is_reading_paused = False
        self.incoming.schedule()

    # Writing.

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not isinstance(data, bytes | bytearray | memoryview):
            raise TypeError(f"data is to be bytes, not {type(data).__name__}")
        if self._is_closing or not data:
            return
        if self._is_eof_written:
            raise RuntimeError("Cannot call write() after write_eof()")
        self.outgoing.put(bytes(data))
        self._pause_if_full()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        if not self._is_closing and not self._is_eof_written:
            self._is_eof_written = True
            self.outgoing.put_eof()

    def get_write_buffer_size(self) -> int:
        return self.outgoing.size

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low_water, self._high_water

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if high is None:
            high = 64 * 1024 if low is None else 4 * low
        if low is None:
            low = high // 4
        if not high >= low >= 0:
            raise ValueError(f"high ({high!r}) must be >= low ({low!r}) must be >= 0")
        self._high_water, self._low_water = high, low
        self._pause_if_full()

    def _pause_if_full(self) -> None:
        if self.outgoing.size > self._high_water and not self._is_writing_paused:
            self._is_writing_paused = True
            self._call("pause_writing")

    def on_taken(self) -> None:
        """Go on as there is less to write than before."""
        if not self.is_lost and self._is_writing_paused and self.outgoing.size <= self._low_water:
            self._is_writing_paused = False
            self._call("resume_writing")
        if not self.is_lost and self._is_closing and not self.outgoing.size:
            self._lose(None)

    # The protocol.

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        assert isinstance(protocol, asyncio.Protocol), "no other kind is simulated"
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self._protocol is not None
        return self._protocol

    def _call(self, name: str, *args: object) -> Any:
        try:
            return getattr(self._protocol, name)(*args)
        except Exception as error:
            self._report(name, error)

    def _call_or_fall(self, name: str, *args: object) -> Any:
        try:
            return getattr(self._protocol, name)(*args)
        except Exception as error:
            self._report(name, error)
            self.fall(error)
            return True

    def _report(self, name: str, error: Exception) -> None:
        self._loop.call_exception_handler(
            {"message": f"protocol.{name}() failed", "exception": error, "transport": self}
        )


def os_error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


def reset_error() -> OSError:
    return os_error(errno.ECONNRESET)
