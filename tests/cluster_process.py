"""Our NameServer and brokers in a process of their own, for those who come from other processes."""

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
