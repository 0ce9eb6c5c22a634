"""Follows a document as a reader would: in a new folder, one example after another."""

import os
import re
import selectors
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from rocketpipe.testing import EmbeddedCluster
from tests.docs.documents import ROOT, Example

END_SECONDS_MAX = 300.0
NAMESRV = "127.0.0.1:9876"  # where documents expect a cluster: that of `rocketpipe serve`
BROKER_PORT = 10911


class Session:
    """The folder, and the cluster: one of our own until the document starts another."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ending = ExitStack()
        self._namesrv: str | None = None
        self._broker_port: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ending.close()

    @property
    def namesrv(self) -> str:
        if self._namesrv is None:
            settings = {"enablePropertyFilter": True, "recallMessageEnable": True}
            cluster = self._ending.enter_context(EmbeddedCluster(1, settings=settings))
            self._namesrv = cluster.namesrv
        return self._namesrv

    def follow(self, example: Example) -> str:
        """What it printed; an AssertionError tells where it did not do what it should."""
        if example.is_in_background:
            self._serve(example)
            return ""
        if example.language == "sh":
            command = ["bash", "-euo", "pipefail", "-c", self._here(example.text)]
        elif example.is_test:
            file = self._folder / f"test_line_{example.line}.py"
            file.write_text(self._here(example.text))
            command = [sys.executable, "-m", "pytest", "-q", "-c", os.devnull, str(file)]
        else:
            # Its own name in a traceback tells where to look.
            file = self._folder / f"{example.document.stem}_line_{example.line}.py"
            file.write_text(self._here(example.text))
            command = [sys.executable, "-W", "error", str(file)]
        return self._run(example, command)

    def _run(self, example: Example, command: Sequence[str]) -> str:
        with subprocess.Popen(
            command,
            cwd=self._folder,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                output, errors = process.communicate(timeout=END_SECONDS_MAX)
            finally:
                _kill_group(process)
        told = f"{example.place} ended with {process.returncode}:\n{output}\n{errors}"
        assert process.returncode == example.exit_code, told
        if example.exit_code == 0:  # a broker that was killed may log that, but nothing is wrong
            assert "Traceback" not in errors, told
            assert "Warning" not in errors, told
        return output

    def _serve(self, example: Example) -> None:
        """Start a cluster, on ports that are free; it is ready when it prints where it is."""
        port, self._broker_port = _free_ports()
        options = f"--namesrv-port {port} --port {self._broker_port}"
        text = re.sub(r"\brocketpipe serve\b", rf"\g<0> {options}", example.text)
        process = subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", text],
            cwd=self._folder,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._ending.callback(_end, process)
        assert process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            assert selector.select(END_SECONDS_MAX), f"{example.place} does not get ready"
        first = process.stdout.readline()
        assert str(port) in first, f"{example.place} printed {first!r}"
        self._namesrv = f"127.0.0.1:{port}"

    def _here(self, text: str) -> str:
        """The example with the addresses of this cluster."""
        if NAMESRV in text or "namesrv" in text.lower() or "rocketpipe" in text:
            text = text.replace(NAMESRV, self.namesrv)
        if self._broker_port is not None:
            for number in range(3):
                told, here = BROKER_PORT + 10 * number, self._broker_port + 10 * number
                text = text.replace(f":{told}", f":{here}")
        return text

    def _environment(self) -> dict[str, str]:
        inherited = {
            name: value for name, value in os.environ.items() if not name.startswith("ROCKETMQ_")
        }
        tools = str(Path(sys.executable).parent)
        return {
            **inherited,
            "PATH": os.pathsep.join([tools, os.environ.get("PATH", os.defpath)]),
            "PYTHONPATH": str(ROOT / "src"),
            "NAMESRV_ADDR": self._namesrv or "",
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        }


def _end(process: "subprocess.Popen[str]") -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        pass
    _kill_group(process)
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def _kill_group(process: "subprocess.Popen[str]") -> None:
    """Whatever an example left running ends with it."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def _free_ports() -> tuple[int, int]:
    """Of a NameServer, and of the first of three brokers, which are ten apart."""
    while True:
        with ExitStack() as sockets:
            try:
                first = sockets.enter_context(socket.create_server(("127.0.0.1", 0)))
                base = first.getsockname()[1]
                # Besides each port, that two below and the one above are taken.
                others = [base + 10 * n + shift for n in range(3) for shift in (-2, 0, 1)]
                for port in set(others) - {base}:
                    sockets.enter_context(socket.create_server(("127.0.0.1", port)))
                server = sockets.enter_context(socket.create_server(("127.0.0.1", 0)))
                return server.getsockname()[1], base
            except OSError:
                continue

