"""`serve`: a NameServer and brokers in this process."""

import argparse
import asyncio
import json
import signal
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from rocketpipe.cli.texts import pair
from rocketpipe.errors import InvalidSetting, MQError

if TYPE_CHECKING:
    from rocketpipe.testing.embedded_servers import ClusterSettings, ServerCore


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    serve = commands.add_parser(
        "serve",
        help="run a NameServer and brokers",
        description="Run a NameServer and brokers until SIGINT or SIGTERM. When they are ready, "
        "the address of the NameServer is printed.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = serve.add_argument
    add("--brokers", type=int, default=1, metavar="N", help="how many: broker-a, broker-b, ...")
    add("--slaves", action="store_true", help="a slave for each of them")
    add("--namesrv-port", type=int, default=9876, metavar="PORT", help="0: any that is free")
    add("--port", type=int, default=10911, help="of broker-a; each next has ten more. 0: any")
    add("--host", default="127.0.0.1", help="where to listen; loopback only, unless told")
    add("--data", type=Path, metavar="DIR", help="where data is kept; without it, it is not")
    add(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        type=pair,
        dest="settings",
        help="a setting of the brokers by RocketMQ's own name, such as flushDiskType=SYNC_FLUSH; "
        "tls.* are of all servers",
    )
    add("--faults", action="store_true", help="let other processes make the brokers misbehave")
    add("--json", action="store_true", help="print the addresses as JSON")
    add("--debug", action="store_true", help="log much, and show tracebacks")
    serve.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    settings = _cluster_settings(args)
    try:
        asyncio.run(serve_cluster(settings, folder=args.data, is_json=args.json))
    except InvalidSetting as error:  # the settings are well: it is the port or the folder
        raise MQError(str(error)) from error


def _cluster_settings(args: argparse.Namespace) -> "ClusterSettings":
    # Late, here and below: brokers take long to import, and no other command needs them.
    from rocketpipe.testing.embedded_servers import ClusterSettings

    settings = ClusterSettings(
        brokers=args.brokers,
        slaves=int(args.slaves),
        host=args.host,
        namesrv_port=args.namesrv_port,
        port=args.port,
        settings={"faultsEnable": args.faults, **dict(args.settings)},
    )
    if ignored := settings.without_effect():
        print(f"rocketpipe: no effect here: {', '.join(ignored)}", file=sys.stderr)
    settings.check()
    return settings


async def serve_cluster(settings: "ClusterSettings", *, folder: Path | None, is_json: bool) -> None:
    """Run a cluster until SIGINT or SIGTERM comes; without a folder its data goes with it."""
    from rocketpipe.testing.embedded_servers import cluster_cores

    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    with ExitStack() as stack:
        if folder is None:
            temporary = tempfile.TemporaryDirectory(prefix="rocketpipe-serve-")
            folder = Path(stack.enter_context(temporary))
        nameserver, brokers = cluster_cores(settings, folder)
        started: list[ServerCore] = []
        try:
            servers: list[ServerCore] = [nameserver, *brokers]
            for server in servers:
                await server.start()
                started.append(server)
            if is_json:
                addresses = [
                    {"name": broker.name, "id": broker.id, "address": broker.address}
                    for broker in brokers
                ]
                ready = json.dumps({"namesrv": nameserver.address, "brokers": addresses})
            else:
                ready = nameserver.address
            print(ready, flush=True)
            await ended.wait()
        finally:
            for server in reversed(started):
                await server.stop()
