"""The program `rocketpipe`: data to stdout, the rest to stderr.

It exits with 0 when done, 1 when something failed, 2 when misused, 130 when interrupted; but a
server that was asked to end, by whichever signal, is done.
"""

import argparse
import asyncio
import json
import logging
import signal
import sys
import tempfile
import traceback
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from rocketpipe.errors import MQError
from rocketpipe.testing.embedded_servers import ClusterSettings, ServerCore, cluster_cores


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the answer is the program's exit code."""
    args = _parser().parse_args(arguments)
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.DEBUG if args.debug else logging.WARNING,
        format="%(levelname)s %(name)s: %(message)s",
    )
    failure = 2
    try:
        settings = _cluster_settings(args)
        failure = 1
        asyncio.run(serve(settings, folder=args.data, is_json=args.json))
    except KeyboardInterrupt:
        return 130
    except (MQError, OSError) as error:
        if args.debug:
            traceback.print_exc()
        else:
            print(f"rocketpipe: {error}", file=sys.stderr)
        return failure
    return 0


def _parser() -> argparse.ArgumentParser:
    program = argparse.ArgumentParser(prog="rocketpipe", description="RocketMQ for Python.")
    commands = program.add_subparsers(title="commands", required=True, metavar="command")
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
        type=_setting,
        dest="settings",
        help="a setting of the brokers by RocketMQ's own name, such as flushDiskType=SYNC_FLUSH",
    )
    add("--faults", action="store_true", help="let other processes make the brokers misbehave")
    add("--json", action="store_true", help="print the addresses as JSON")
    add("--debug", action="store_true", help="log much, and show tracebacks")
    return program


def _setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"{text!r}: write KEY=VALUE")
    return key.strip(), value.strip()


def _cluster_settings(args: argparse.Namespace) -> ClusterSettings:
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
    settings.broker_settings()  # what can't be used is refused here
    return settings


async def serve(settings: ClusterSettings, *, folder: Path | None, is_json: bool) -> None:
    """Run a cluster until SIGINT or SIGTERM comes; without a folder its data goes with it."""
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
