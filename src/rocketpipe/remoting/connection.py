"""One connection, the same at both ends: requests and answers travel both ways at once.

How it works
- Answers are matched to requests by `opaque`, in any order. What is not an answer is a request of
  the peer's and goes to the handler.
- What is written during one turn of the event loop leaves in one system call: with many requests
  in flight that saves most of the cost of sending them. A request that is alone leaves at once,
  and what a client writes because of what it reads, when it has read that.
- One timer serves the deadlines of all requests (`unanswered.py`).
- Of many requests that came together a server takes some in each turn of the loop. So the first
  are answered while the others still wait, and both ends work at the same time: a client with 64
  sends in flight would else send them all, wait for all the answers, and send the next 64.
- Whatever ends a connection ends every request on it at once, with the reason.
"""

import asyncio
import copy
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import TypeVar

from rocketpipe.codes import ResponseCode
from rocketpipe.errors import (
    BrokerError,
    ConnectionLost,
    InvalidMessage,
    MalformedData,
    MQError,
    RequestTimeout,
    TooManyRequests,
)
from rocketpipe.remoting.address import Address
from rocketpipe.remoting.dispatch import Handler, Outcome, dispatch_by_code, failure_answer
from rocketpipe.remoting.network import Network
from rocketpipe.remoting.settings import RemotingSettings
from rocketpipe.remoting.tls import TlsSettings, client_context
from rocketpipe.remoting.unanswered import Late, PullWaiter, Unanswered, Waiter, Waiting
from rocketpipe.wire.frame import FrameDecoder, RemotingCommand
from rocketpipe.wire.headers import Reply, Request
from rocketpipe.wire.pull_frames import PullFrames
from rocketpipe.wire.signature import Credentials, signed_fields

log = logging.getLogger(__name__)

R = TypeVar("R", bound=Reply)

# Whether an answer is kept back by someone who may send it later, with `Connection.answer_now`.
HoldsAnswer = Callable[["Connection", RemotingCommand, Outcome], bool]

# Takes requests that came together out of the decoder, at most so many, and tells how many it took.
# What it leaves, as it leaves all that is not plain, goes to the handler one by one.
TakesPlain = Callable[["Connection", FrameDecoder, int], int]

_REQUESTS_PER_TURN = 16
_ANSWER_BYTES_PER_TURN = 24 * 1024
_refuse_all = dispatch_by_code({})


async def connect(
    network: Network,
    address: Address,
    *,
    timeout: float,
    handler: Handler = _refuse_all,
    on_lost: "Callable[[Connection], None] | None" = None,
    settings: RemotingSettings | None = None,
    tls: TlsSettings | None = None,
    credentials: Credentials | None = None,
) -> "Connection":
    """A connection to this address, or ConnectFailed within the timeout.

    With credentials, every request on it is signed.
    """
    return await network.connect(
        address,
        lambda: Connection(
            handler,
            settings or RemotingSettings(),
            address=address,
            on_lost=on_lost,
            credentials=credentials,
        ),
        timeout=timeout,
        # Read anew each time: connections are few, and certificates are replaced in their files.
        tls=client_context(tls) if tls is not None else None,
        server_hostname=tls.server_hostname if tls is not None else None,
    )


class Connection(asyncio.Protocol):
    """Both ends of a connection; made by `connect` or by a `Server`."""

    def __init__(
        self,
        handler: Handler,
        settings: RemotingSettings,
        *,
        address: Address | None = None,
        on_made: "Callable[[Connection], None] | None" = None,
        on_lost: "Callable[[Connection], None] | None" = None,
        holds_answer: "HoldsAnswer | None" = None,
        takes_plain: "TakesPlain | None" = None,
        credentials: Credentials | None = None,
    ) -> None:
        self.address = str(address) if address else "?"  # of the peer
        self.lost: MQError | None = None  # why this connection is of no more use
        self._credentials = credentials
        self._handler = handler
        self._on_made = on_made
        self._on_lost = on_lost
        self._holds_answer = holds_answer
        self._takes_plain = takes_plain
        self._settings = settings
        # Who was connected to must not let a peer that does not read fill its memory; who
        # connected has to go on reading, or two full ends would wait for each other forever.
        self._is_server_side = address is None
        self._is_stalled = False  # reads no more for now
        self._is_reading = False  # what it has been given, as a client
        self._next_turn: asyncio.Handle | None = None  # when it takes what is left of a burst
        self._loop = asyncio.get_running_loop()
        # When we asked for something that no sign of life has followed yet.
        self.unheard_since: float | None = None
        self._transport: asyncio.Transport | None = None
        self._gone = self._loop.create_future()
        self._decoder = FrameDecoder(settings.frame_bytes_max)
        self._unanswered = Unanswered(expired=self._offer_room)
        self._for_room: deque[asyncio.Event] = deque()  # the turns of those who wait, in order
        self._tasks: set[asyncio.Task[None]] = set()
        self._outbox: list[bytes] = []
        self._outbox_bytes = 0
        self._is_writing_paused = False
        self._idle_timer: asyncio.TimerHandle | None = None
        self._moved_at = self._loop.time()  # when bytes last moved, in or out
        self._unwritten_bytes = 0  # how many there were at the last look

    def __repr__(self) -> str:
        state = f"lost: {self.lost}" if self.lost else f"{len(self._unanswered)} in flight"
        return f"<Connection {self.address}, {state}>"

    # Asking the peer.

    async def request(self, request: Request[R], body: bytes = b"", *, timeout: float) -> R:
        """The reply to a request, or BrokerError when the peer says no."""
        command = request.to_command(body)
        command.serialize_type = self._settings.serialize_type
        answer = await self.invoke(command, timeout=timeout)
        if answer.code not in request.accepts:
            raise BrokerError(answer.code, answer.remark, self.address)
        return request.reply.from_answer(answer)

    async def invoke(
        self, command: RemotingCommand, *, timeout: float, late: Late | None = None
    ) -> RemotingCommand:
        """The answer to a command, whatever its code; `late` is told if it comes too late."""
        now = self._loop.time()
        if self._may_not_send(timeout):
            await self._wait_for_room(command, timeout)
        future: asyncio.Future[RemotingCommand] = self._loop.create_future()
        try:
            command.opaque = self._unanswered.next_opaque()
            frame = self._encode(self._signed(command))
            self._ask(frame, command.opaque, command.code, future, now, timeout)
            return await future
        except RequestTimeout:
            if late is not None:
                self._unanswered.expect_late(command.opaque, late)
            raise
        finally:
            self._unanswered.forget(command.opaque)  # still there when the caller was cancelled
            self._offer_room()

    def pull_nowait(
        self, pulls: PullFrames, offset: int, count: int, waiter: PullWaiter, *, timeout: float
    ) -> bool:
        """Send one of these pulls; False when it would have to wait for room.

        For who has many on their way: the waiter is told at once, in the midst of reading, so it
        costs a quarter of `invoke`.
        """
        if self._may_not_send(timeout):
            return False
        opaque = self._unanswered.next_opaque()
        frame = self._checked(pulls.encode(opaque, offset, count), pulls)
        self._ask(frame, opaque, pulls.code, waiter, self._loop.time(), timeout)
        self._unanswered.pulls[opaque] = waiter
        return True

    def _ask(
        self, frame: bytes, opaque: int, code: int, waiter: Waiter, since: float, timeout: float
    ) -> None:
        if self.unheard_since is None:
            self.unheard_since = since
        self._write(frame, at_once=not self._unanswered)
        waiting = Waiting(waiter, since + timeout, self.address, code, timeout)
        self._unanswered.expect(opaque, waiting)

    async def send_oneway(self, command: RemotingCommand, *, timeout: float) -> None:
        """Hand over a command that gets no answer: whether it arrives, nobody knows."""
        if self._may_not_send(timeout):
            await self._wait_for_room(command, timeout)
        command.mark_oneway()
        command.opaque = self._unanswered.next_opaque()
        self._write(self._encode(self._signed(command)))

    async def close(self) -> None:
        """Write what is on its way out, then go; whoever waits for an answer gets an error now."""
        self._leave(ConnectionLost(self.address, "closed on our side"))
        # Handlers too have ended then, so that what they work on can be closed next; but for one
        # that closes its own connection.
        ending = {self._gone, *self._tasks} - {asyncio.current_task()}
        if self._transport is not None:
            await asyncio.wait(ending)

    def abort(self, error: MQError | None = None) -> None:
        """Go at once."""
        self._end(error or ConnectionLost(self.address, "cut on our side"))
        if self._transport is not None:
            self._transport.abort()

    def _signed(self, command: RemotingCommand) -> RemotingCommand:
        if self._credentials is not None:
            fields = signed_fields(command.ext_fields, command.body, self._credentials)
            command.ext_fields = fields
        return command

    def _encode(self, command: RemotingCommand) -> bytes:
        return self._checked(command.encode(), command)

    def _checked(self, frame: bytes, what: RemotingCommand | PullFrames) -> bytes:
        limit = self._settings.frame_bytes_max
        if len(frame) > limit:
            # The peer would cut the connection without a word, and with it everybody's requests.
            size = f"{len(frame)} bytes is over the limit of {limit}"
            raise InvalidMessage(f"{what.name} of {size} for a frame")
        return frame

    # Room: how much may be on its way at once.

    def _is_full(self) -> bool:
        in_flight_max = self._settings.requests_in_flight_max
        return self._is_choked() or len(self._unanswered) >= in_flight_max

    def _is_choked(self) -> bool:
        """Whether as many bytes as may wait to be written do."""
        most = self._settings.write_buffer_bytes_max
        return self._is_writing_paused or self._outbox_bytes >= most

    def _may_not_send(self, timeout: float) -> bool:
        return (
            self.lost is not None
            or self._is_full()
            or len(self._for_room) > 0  # they came first
            or not timeout > 0
        )

    async def _wait_for_room(self, command: RemotingCommand, timeout: float) -> None:
        """Returns when it is this command's turn, to a caller who sends it there and then."""
        if self.lost is None and not timeout > 0:
            raise RequestTimeout(self.address, command.name, timeout)
        turn = asyncio.Event()
        self._for_room.append(turn)
        try:
            async with asyncio.timeout(timeout):
                while self.lost is None and (self._is_full() or self._for_room[0] is not turn):
                    turn.clear()
                    await turn.wait()
        except TimeoutError:
            many = len(self._unanswered) >= self._settings.requests_in_flight_max
            what = f"{len(self._unanswered)} requests" if many else "too many bytes"
            raise TooManyRequests(
                self.address, command.name, f"{what} on their way already"
            ) from None
        finally:
            self._for_room.remove(turn)
            self._offer_room()  # whatever became of us, the next may find room
        if self.lost is not None:
            raise copy.copy(self.lost)

    def _offer_room(self) -> None:
        if self._for_room and not self._is_full():
            self._for_room[0].set()

    # Writing.

    def _write(self, frame: bytes, *, at_once: bool = False) -> None:
        is_first = not self._outbox
        self._outbox.append(frame)
        self._outbox_bytes += len(frame)
        if not is_first or self._is_writing_paused or self._is_reading:
            return
        if at_once:
            self._flush()
        else:
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        if self._is_writing_paused or self.lost is not None:
            return
        self._moved_at = self._loop.time()
        self._hand_over()
        self._offer_room()
        if self._is_stalled:
            self._read_on()

    def _hand_over(self) -> None:
        if self._outbox and self._transport is not None:
            data = self._outbox[0] if len(self._outbox) == 1 else b"".join(self._outbox)
            self._outbox.clear()
            self._outbox_bytes = 0
            self._transport.write(data)

    def pause_writing(self) -> None:
        self._is_writing_paused = True

    def resume_writing(self) -> None:
        self._is_writing_paused = False
        self._flush()

    # Reading.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if self._is_server_side:
            peer = transport.get_extra_info("peername")
            if peer is not None:  # nobody knows the address of one who is gone already
                self.address = str(Address(*peer[:2]))
        transport.set_write_buffer_limits(high=self._settings.write_buffer_bytes_max)
        self._watch_idleness()
        if self._on_made is not None:
            self._on_made(self)

    def data_received(self, data: bytes) -> None:
        if self.lost is not None:
            return
        self._moved_at = self._loop.time()
        self.unheard_since = None
        self._decoder.feed(data)
        self._is_reading = not self._is_server_side
        self._read_on()
        self._is_reading = False
        if self._outbox and not self._is_server_side:
            self._flush()

    def _read_on(self) -> None:
        assert self._transport is not None
        taken = 0
        if self._next_turn is not None:
            self._next_turn.cancel()
            self._next_turn = None
        try:
            while not self._stalls() and self.lost is None:
                pulls = self._unanswered.pulls
                while pulls and (pull := self._decoder.next_pull(pulls)) is not None:
                    self._unanswered.hear_pull(pull)
                    if self._for_room:
                        self._offer_room()
                count = self._take_next(_REQUESTS_PER_TURN - taken)
                if not count:
                    break
                taken += count
                if self._is_server_side and (
                    taken >= _REQUESTS_PER_TURN or self._outbox_bytes >= _ANSWER_BYTES_PER_TURN
                ):
                    if self._decoder.has_partial_frame:
                        self._next_turn = self._loop.call_soon(self._read_on)
                    break
        except MalformedData as error:
            log.info("%s: cut the connection: %s", self.address, error)
            self.abort(type(error)(f"{self.address}: {error}"))
            return
        if self._stalls() != self._is_stalled:
            self._is_stalled = not self._is_stalled
            if self._is_stalled:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    def _take_next(self, most: int) -> int:
        """Take the next command, or plain requests that came together; how many."""
        if self._takes_plain is not None:
            taken = self._takes_plain(self, self._decoder, most)
            if taken:
                return taken
        command = self._decoder.next_command()
        if command is None:
            return 0
        self._take(command)
        return 1

    def _stalls(self) -> bool:
        return self._is_server_side and (self._is_choked() or self._next_turn is not None)

    def _take(self, command: RemotingCommand) -> None:
        if not command.is_response:
            self._take_request(command)
            return
        if not self._unanswered.hear(command):
            log.debug("%s: dropped a late answer, %s", self.address, command.name)
        if self._for_room:
            self._offer_room()

    def eof_received(self) -> None:
        """A peer that has said its last word is taken at that, even if it would still read."""
        self._leave(self._lost_by_peer("the peer closed it"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(self._lost_by_peer(str(exc or "the peer closed it")))
        self._gone.set_result(None)
        if self._on_lost is not None:
            self._on_lost(self)

    # Answering the peer.

    def _take_request(self, request: RemotingCommand) -> None:
        if len(self._tasks) >= self._settings.requests_in_flight_max:
            busy = "[OVERLOAD]system busy, start flow control for a while"
            self.answer(request, request.answer(ResponseCode.SYSTEM_BUSY, busy))
            return
        try:
            outcome = self._handler(self, request)
        except Exception as error:
            self.answer(request, failure_answer(request, error))
            return
        if outcome is None or isinstance(outcome, RemotingCommand):
            self.answer(request, outcome)
        else:
            task = self._loop.create_task(self._await_outcome(request, outcome))
            self._tasks.add(task)
            task.add_done_callback(partial(self._forget_task, outcome))

    def _forget_task(self, outcome: Awaitable[Outcome], task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if isinstance(outcome, Coroutine):
            outcome.close()  # it may never have begun, if we were lost as soon as it was asked for

    async def _await_outcome(self, request: RemotingCommand, pending: Awaitable[Outcome]) -> None:
        try:
            outcome = await pending
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # Not us: what the handler waited for was cancelled under it, by another who waited.
            outcome = failure_answer(request, error)
        except Exception as error:
            outcome = failure_answer(request, error)
        self.answer(request, outcome)

    def answer(self, request: RemotingCommand, answer: Outcome) -> None:
        """Answer a request whose handler returned None, from a callback: that costs no task.

        How many of them wait is for the handler to bound.
        """
        if self._holds_answer is None or not self._holds_answer(self, request, answer):
            self.answer_now(request, answer)

    def answer_now(self, request: RemotingCommand, answer: Outcome) -> None:
        """Send an answer, also one that was held."""
        if answer is None or request.is_oneway or self.lost is not None:
            return
        answer.opaque = request.opaque
        try:
            frame = self._encode(answer)
        except Exception as error:  # too large, or not to be encoded: the peer waits all the same
            frame = failure_answer(request, error).encode()
        self._write(frame)
        # A client does not stall, but neither is there an end to what its peer could ask for.
        waiting_max = 2 * self._settings.write_buffer_bytes_max
        if not self._is_server_side and self._outbox_bytes > waiting_max:
            self.abort(ConnectionLost(self.address, "the peer asks, but reads no answers"))

    def answer_plainly(self, frames: bytes) -> None:
        """Send answers that are encoded already, whatever holds other answers."""
        if self.lost is None:
            self._write(frames)

    # The end.

    def _watch_idleness(self) -> None:
        assert self._transport is not None
        unwritten_bytes = self._transport.get_write_buffer_size()
        if unwritten_bytes != self._unwritten_bytes:  # a slow peer reads, and nobody tells us
            self._unwritten_bytes = unwritten_bytes
            self._moved_at = self._loop.time()
        left = self._moved_at + self._settings.idle_timeout - self._loop.time()
        if left <= 0:
            self.abort(
                ConnectionLost(
                    self.address, f"nothing moved for {self._settings.idle_timeout:.3g} s"
                )
            )
        else:
            self._idle_timer = self._loop.call_later(left, self._watch_idleness)

    def _lost_by_peer(self, reason: str) -> ConnectionLost:
        cut_short = " in the middle of a frame" if self._decoder.has_partial_frame else ""
        return ConnectionLost(self.address, reason + cut_short)

    def _leave(self, error: MQError) -> None:
        """End, and let the peer have what is on its way out, if it takes that in time."""
        self._end(error)
        if self._transport is not None:
            self._transport.close()
            limit = self._loop.call_later(self._settings.close_timeout, self._transport.abort)
            self._gone.add_done_callback(lambda _: limit.cancel())

    def _end(self, error: MQError) -> None:
        """The first reason counts; everything that waits here ends with it."""
        if self.lost is not None:
            return
        self.lost = error
        self._hand_over()
        for timer in (self._idle_timer, self._next_turn):
            if timer is not None:
                timer.cancel()
        self._unanswered.end(error)
        for task in self._tasks:
            task.cancel()
        for turn in self._for_room:
            turn.set()
