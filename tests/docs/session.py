"""Follows a document as a reader would: in a new folder, one example after another."""

import os
import re
import socket
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from rocketpipe.testing import EmbeddedCluster
from tests.docs.documents import ROOT, Example
from tests.docs.shell import Shell, Typed

END_SECONDS_MAX = 900.0  # a Spark on a busy machine takes minutes
NAMESRV = "127.0.0.1:9876"  # where documents expect a cluster: that of `rocketpipe serve`
BROKER_PORTS = (10911, 10921, 10931)


class Session:
    """The folder, a terminal, and the cluster: one of our own until the document starts another."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ending = ExitStack()
        self._shell: Shell | None = None
        self._namesrv: str | None = None
        self._broker_port: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
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
        if example.file is not None:
            (self._folder / example.file).write_text(self._here(example.text))
            return ""
        ended = self._type(example) if example.language == "sh" else self._run(example)
        told = f"{example.place} ended with {ended.code}:\n{ended.output}\n{ended.errors}"
        assert ended.code == example.exit_code, told
        if example.exit_code == 0:  # a broker that was killed may log that, but nothing is wrong
            assert "Traceback" not in ended.errors, told
            assert "Warning" not in ended.errors, told
        return ended.output

    def _type(self, example: Example) -> Typed:
        if example.serves:
            self._choose_ports()
        text = self._here(example.text)
        if self._shell is None:
            assert self.namesrv  # it is there before the shell, whose environment tells of it
            self._shell = Shell(self._folder, self._environment())
            self._ending.callback(self._shell.close)
        if example.is_in_background:
            text = text.rstrip() + " &\n"
        is_late = threading.Timer(END_SECONDS_MAX, self._shell.close)
        is_late.start()
        try:
            ended = self._shell.type(text, may_fail=example.exit_code != 0)
        finally:
            in_time = is_late.is_alive()
            is_late.cancel()
        assert in_time, f"{example.place} does not end: {ended.output}\n{ended.errors}"
        if "rocketpipe serve" in example.text:
            first = self._shell.wait_printed(END_SECONDS_MAX)
            assert first, f"{example.place} does not get ready: {ended.errors}"
        return ended

    def _run(self, example: Example) -> Typed:
        if example.is_test:
            file = self._folder / f"test_line_{example.line}.py"
            command = ["-m", "pytest", "-q", "-c", os.devnull, "-p", "no:cacheprovider", str(file)]
        else:
            # Its own name in a traceback tells where to look.
            file = self._folder / f"{example.document.stem}_line_{example.line}.py"
            command = ["-W", "error", str(file)]
        file.write_text(self._here(example.text))
        process = subprocess.run(
            [sys.executable, *command],
            cwd=self._folder,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=END_SECONDS_MAX,
        )
        return Typed(process.returncode, process.stdout, process.stderr)

    def _choose_ports(self) -> None:
        """For a cluster that the document starts: the ports it names may be taken here."""
        assert self._namesrv is None, "a document has one cluster"
        port, self._broker_port = _free_ports()
        self._namesrv = f"127.0.0.1:{port}"

    def _here(self, text: str) -> str:
        """The example with the addresses of this cluster."""
        if self._broker_port is not None:
            port = self.namesrv.rpartition(":")[2]
            options = f"--namesrv-port {port} --port {self._broker_port}"
            text = re.sub(r"\brocketpipe serve\b(?!.*--join)", rf"\g<0> {options}", text)
            for number, told in enumerate(BROKER_PORTS):
                text = text.replace(str(told), str(self._broker_port + 10 * number))
        return text.replace(NAMESRV, self.namesrv) if NAMESRV in text else text

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
