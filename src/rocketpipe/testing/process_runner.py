"""A server in a process of its own, as the process sees it that started it.

The two speak in lines of JSON over the child's stdin and stdout (see `server_process`); what it
writes to stderr is logged here, and told when it does not start.
"""

import json
import logging
import math
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

import rocketpipe
from rocketpipe.broker.faults import (
    DOWN,
    Fault,
    FaultControl,
    FaultOrders,
    control,
    decode_faults,
)
from rocketpipe.clock import SystemClock
from rocketpipe.errors import ClientError, InvalidSetting
from rocketpipe.testing.embedded_servers import ServerPlan
from rocketpipe.testing.kept_faults import KeptFaults

log = logging.getLogger(__name__)

ANSWER_TIMEOUT = 30.0  # what is asked of a server that runs takes milliseconds
START_TIMEOUT = 120.0  # a large store after a crash, on a busy machine
STOP_TIMEOUT = 60.0
COME_BACK_INTERVAL = 1.0  # after a failure
STDERR_LINES_KEPT = 50

# Not `-m`: the package may be where only our own sys.path leads to, and goes last there, as a
# PYTHONPATH would not.
_CHILD = """
import sys
sys.path.append(sys.argv.pop())
from rocketpipe.testing.server_process import main
main()
"""


class ProcessRunner:
    """Runs a server by its plan; see ServerRunner.

    One that a fault ended is brought back when that is over; with `restarts`, so is one that ended
    for whatever reason, if nobody here asked it to.
    """

    def __init__(self, plan: ServerPlan, *, restarts: bool = False) -> None:
        self.plan = plan
        self.is_frozen = False
        self.faults: FaultControl = _ProcessFaults(self)
        self.on_back: Callable[[], None] = lambda: None  # when it came back by itself
        self._restarts = restarts
        self._child: _Child | None = None
        # Held by whoever brings it up or down; told of that, and of faults while it is down.
        self.changed = threading.Condition(threading.RLock())

    @property
    def is_running(self) -> bool:
        return self._child is not None and not self._child.has_ended

    @property
    def process_id(self) -> int | None:
        return self._child.process.pid if self._child is not None and self.is_running else None

    def start_nowait(self) -> "Future[None]":
        started: Future[None] = Future()
        with self.changed:
            if self.is_running:
                started.set_result(None)
                return started
            self._forget_child()
            self._child = child = _Child(self.plan, self._lost)
        plan = child.order(asdict(self.plan))

        def on_ready(_: object) -> None:
            if (error := plan.exception()) is not None:
                started.set_exception(error)
            else:
                self.plan = ServerPlan(**plan.result())
                started.set_result(None)

        plan.add_done_callback(on_ready)
        return started

    def stop(self) -> None:
        with self.changed:
            self.thaw()
            if self._child is not None and self.is_running:
                self._child.told_to_end = True
                try:
                    self._child.order("stop").result(STOP_TIMEOUT)
                    self._child.process.wait(STOP_TIMEOUT)
                except (TimeoutError, subprocess.TimeoutExpired):
                    log.warning("%s does not stop, and is killed", self.plan.name)
                except ClientError as error:
                    log.warning("%s", error)
            self.kill()

    def kill(self) -> None:
        with self.changed:
            if self._child is not None:
                self._child.told_to_end = True
                self._child.process.kill()
            self.is_frozen = False
            self._forget_child()
            self.changed.notify_all()

    def freeze(self) -> None:
        if self._child is not None and self.is_running and not self.is_frozen:
            self.ask("before freezing")
            self._child.process.send_signal(signal.SIGSTOP)
            if hasattr(os, "waitid"):  # else it stands still in a moment
                os.waitid(os.P_PID, self._child.process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
            self.is_frozen = True

    def thaw(self) -> None:
        if self.is_frozen and self._child is not None:
            self._child.process.send_signal(signal.SIGCONT)
        self.is_frozen = False

    def register(self) -> None:
        if self.is_running:
            self.ask("register")

    def cut_connections(self) -> None:
        if self.is_running:
            self.ask("cut connections")

    def ask(self, order: object) -> Any:
        """Have the child do this; its answer."""
        if self.is_frozen:
            raise ClientError(f"{self.plan.name} is frozen: it does nothing until it is thawed")
        assert self._child is not None
        return self._child.order(order).result(ANSWER_TIMEOUT)

    def abandon(self) -> None:
        # The child is our parent's, and is to notice its end: so no copy of its stdin may be left.
        if self._child is not None:
            self._child.abandon()
        self._child = None
        self.is_frozen = False

    def kept_faults(self) -> KeptFaults:
        """The faults as they are in the file: while it is down, nobody else changes them."""
        assert self.plan.faults_file is not None, "a NameServer has no faults"
        return KeptFaults(SystemClock().monotonic, Path(self.plan.faults_file))

    def _lost(self, child: "_Child") -> None:
        """It ended, and nobody here asked it to."""
        name = f"rocketpipe-{self.plan.name}-comes-back"
        threading.Thread(target=self._bring_back, args=(child,), name=name, daemon=True).start()

    def _bring_back(self, child: "_Child") -> None:
        with self.changed:
            is_wanted = self._restarts
            while self._child is child and (left := self._seconds_down()) > 0:
                is_wanted = True
                self.changed.wait(None if left == math.inf else left)
            while is_wanted and self._child is child:
                try:
                    self.start_nowait().result(START_TIMEOUT)
                    break
                except (ClientError, TimeoutError) as error:
                    log.error("%s does not come back: %s", self.plan.name, error)
                child = self._child  # which did not start
                child.told_to_end = True
                child.process.kill()
                self.changed.wait(COME_BACK_INTERVAL)
        if self.is_running:
            self.on_back()

    def _seconds_down(self) -> float:
        """For how long a fault still keeps it down."""
        if self.plan.faults_file is None:
            return 0.0
        faults = self.kept_faults()
        lasting = [each for each in faults.active() if each.kind in DOWN]
        return max(map(faults.seconds_left, lasting), default=0.0)

    def _forget_child(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.close()


class _Child:
    """A process that was started, and what is awaited from it."""

    def __init__(self, plan: ServerPlan, on_lost: "Callable[[_Child], None]") -> None:
        self.name = f"{plan.name} {plan.id}" if plan.id else plan.name
        self.told_to_end = False
        self._is_up = False
        self._on_lost = on_lost
        level = logging.getLevelName(logging.getLogger(rocketpipe.__name__).getEffectiveLevel())
        source = str(Path(rocketpipe.__file__).parents[1])
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", _CHILD, level, source],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,  # or a fork could copy a lock that some thread holds
            process_group=0,  # a Ctrl-C in the terminal is ours to act on
        )
        self._said: deque[str] = deque(maxlen=STDERR_LINES_KEPT)
        self._lock = threading.Lock()
        self._awaited: deque[Future[Any]] = deque()
        self.has_ended = False
        self._readers = [
            threading.Thread(
                target=self._read,
                args=(pipe, each_line),
                name=f"rocketpipe-{self.name}-{number}",
                daemon=True,
            )
            for number, (pipe, each_line) in enumerate(
                [(self.process.stderr, self._log), (self.process.stdout, self._answered)]
            )
        ]
        for reader in self._readers:
            reader.start()

    def order(self, order: object) -> "Future[Any]":
        """What becomes of it; ClientError when the child ends before it answers."""
        future: Future[Any] = Future()
        with self._lock:
            if self.has_ended:
                future.set_exception(ClientError(f"{self.name} has ended"))
                return future
            self._awaited.append(future)
            assert self.process.stdin is not None
            try:
                _write_all(self.process.stdin, f"{json.dumps(order)}\n".encode())
            except BrokenPipeError:
                pass  # it is ending, and the reader will say so
        return future

    def close(self) -> None:
        """Wait for its end, and leave nothing open."""
        self.process.wait()
        for reader in self._readers:
            reader.join()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()

    def abandon(self) -> None:
        """In a forked process: all of this is the parent's."""
        self.process.returncode = 0  # else it is warned about as still running
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()

    def _read(self, pipe: IO[bytes], each_line: Callable[[str], None]) -> None:
        with open(pipe.fileno(), encoding="utf-8", errors="replace", closefd=False) as lines:
            for line in lines:
                each_line(line.rstrip("\n"))
        if pipe is self.process.stdout:
            self._ended()

    def _answered(self, line: str) -> None:
        with self._lock:
            future = self._awaited.popleft()
        match json.loads(line):
            case {"done": done}:
                self._is_up = True
                future.set_result(done)
            case {"failed": "InvalidSetting", "text": text}:
                future.set_exception(InvalidSetting(text))
            case {"text": text}:
                future.set_exception(ClientError(text))

    def _log(self, line: str) -> None:
        self._said.append(line)
        word, _, text = line.partition(" ")
        level = logging.getLevelNamesMapping().get(word)
        if level is None:
            level, text = logging.ERROR, line  # a traceback, or the interpreter's own words
        log.log(level, "%s: %s", self.name, text)

    def _ended(self) -> None:
        code = self.process.wait()
        self._readers[0].join()  # all that it said
        how = f"with {code}" if code >= 0 else f"by {signal.Signals(-code).name}"
        text = f"{self.name} ended {how}"
        with self._lock:
            self.has_ended = True
            awaited = list(self._awaited)
        said = "\n".join(self._said)
        for future in awaited:
            future.set_exception(ClientError(f"{text}: {said}" if said else text))
        if self._is_up and not self.told_to_end:
            log.warning("%s", text)
            self._on_lost(self)


class _ProcessFaults(FaultOrders):
    """The faults of a broker, in its process or, while there is none, in the file it will read."""

    def __init__(self, runner: ProcessRunner) -> None:
        self._runner = runner

    def _order(self, order: dict[str, Any]) -> list[Fault]:
        if self._runner.is_running:
            try:
                return decode_faults(json.dumps(self._runner.ask({"faults": order})).encode())
            except ClientError:
                if self._runner.is_running:
                    raise  # else a fault has just ended it
        with self._runner.changed:
            active = control(self._runner.kept_faults(), json.dumps(order).encode())
            self._runner.changed.notify_all()
            return active


def _write_all(pipe: IO[bytes], data: bytes) -> None:
    while data:
        data = data[pipe.write(data) :]
