"""Our NameServer and brokers in a process of their own, for those who come from other processes."""

from pathlib import Path

from tests.nameserver_process import NameServerProcess


class ClusterProcess(NameServerProcess):
    """`rocketpipe serve` with these options: `brokers="2"`, `slaves=""`.

    `address` is its NameServer's. It is killed on leaving the `with`, and its data is gone then.
    """

    def _arguments(self, folder: Path, settings: dict[str, str]) -> list[str]:
        options = {"port": "0", "namesrv-port": "0", "data": str(folder / "data"), **settings}
        arguments = ["-m", "rocketpipe", "serve"]
        for name, value in options.items():
            arguments += [f"--{name}", *([value] if value else [])]
        return arguments
