"""A connection from each task to its driver: how far the task is, and whether it is to end.

Spark tells of a task when it has ended, and cancels it by killing its Python some seconds later,
whatever that has sent meanwhile. So tasks that send messages hold a line: over it they tell how
many are acknowledged, and when the driver lets go of it, or dies, they end at once and in order.
"""

import secrets
import select
import socket
from contextlib import suppress
from threading import Event, Lock, Thread
from typing import NamedTuple, Self

CONNECT_SECONDS = 5.0
_TOKEN_BYTES = 32


class Address(NamedTuple):
    """Where the driver listens, and what proves that a task is one of its own."""

    host: str
    port: int
    token: str


class Lifeline:
    """The driver's end, for the tasks of one job: `with Lifeline(...) as line: ...`"""

    def __init__(self, bind: str, host: str) -> None:
        self._server = socket.create_server((bind, 0))
        self.address = Address(
            host, self._server.getsockname()[1], secrets.token_hex(_TOKEN_BYTES // 2)
        )
        self._lock = Lock()
        self._lines: set[socket.socket] = set()
        self._is_over = False
        self.rows = 0  # that all tasks have told of

    def __enter__(self) -> Self:
        Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self.let_go()
        self._server.close()

    def let_go(self) -> None:
        """Have all tasks end, and those that are still to begin."""
        with self._lock:
            self._is_over = True
            for line in self._lines:
                with suppress(OSError):  # the task is gone already
                    line.shutdown(socket.SHUT_WR)

    def _accept(self) -> None:
        while True:
            try:
                line, _ = self._server.accept()
            except OSError:  # closed
                return
            Thread(target=self._hear, args=(line,), daemon=True).start()

    def _hear(self, line: socket.socket) -> None:
        with line, suppress(OSError, ValueError):
            line.settimeout(CONNECT_SECONDS)
            with line.makefile("rb") as lines:
                if lines.readline(_TOKEN_BYTES + 2).decode().strip() != self.address.token:
                    return
                line.settimeout(None)
                with self._lock:
                    if self._is_over:
                        return
                    self._lines.add(line)
                try:
                    for told in lines:
                        with self._lock:
                            self.rows += int(told)
                finally:
                    with self._lock:
                        self._lines.discard(line)


class TaskLine:
    """A task's end. Where the driver can't be reached, nothing is told, and nobody ends it."""

    def __init__(self, address: Address) -> None:
        self._line: socket.socket | None = None
        with suppress(OSError):
            self._line = socket.create_connection(address[:2], CONNECT_SECONDS)
            self._line.sendall(f"{address.token}\n".encode())
        self.is_cut = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._line is not None:
            self._line.close()

    def tell(self, rows: int) -> None:
        """So many more are acknowledged."""
        if self._line is not None and rows:
            with suppress(OSError):
                self._line.sendall(f"{rows}\n".encode())

    def wait(self, seconds: float) -> bool:
        """Let so much time pass; True, and at once, when it is time to end."""
        if self._line is None:
            Event().wait(seconds)
        elif not self.is_cut:
            readable, _, _ = select.select([self._line], [], [], max(0.0, seconds))
            self.is_cut = bool(readable)  # the driver says nothing: it is gone
        return self.is_cut
