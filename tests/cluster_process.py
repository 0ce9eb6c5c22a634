"""Our NameServer and brokers in a process of their own, for those who come from other processes."""

import random
import socket
from collections.abc import Mapping
from pathlib import Path

from tests.nameserver_process import NameServerProcess


class ClusterProcess(NameServerProcess):
    """`rocketpipe serve` with these options: `brokers="2"`, `slaves=""`.

    `broker_settings` go by RocketMQ's names. `address` is its NameServer's. It is killed on leaving
    the `with`, and its data is gone then.
    """

    def __init__(self, broker_settings: Mapping[str, str] | None = None, **options: str) -> None:
        self._broker_settings = broker_settings or {}
        super().__init__(**options)

    def _arguments(self, folder: Path, settings: dict[str, str]) -> list[str]:
        options = {"port": "0", "namesrv-port": "0", "data": str(folder / "data"), **settings}
        arguments = ["-m", "rocketpipe", "serve"]
        for name, value in options.items():
            arguments += [f"--{name}", *([value] if value else [])]
        for name, value in self._broker_settings.items():
            arguments += ["--set", f"{name}={value}"]
        return arguments


def free_ports() -> tuple[int, int]:
    """The first of two brokers' and a NameServer's, below those that the kernel gives to whoever
    connects."""
    for _ in range(1000):
        port = random.randrange(20_000, 30_000)
        try:
            for each in (*range(port - 2, port + 3), *range(port + 8, port + 12)):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", each))
        except OSError:
            continue
        return port, port + 2
    raise AssertionError("no free ports")
