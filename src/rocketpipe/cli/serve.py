"""`serve`: a NameServer and brokers, in this process or in one each."""

import argparse
import asyncio
import gc
import json
import signal
import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rocketpipe.cli.texts import pair
from rocketpipe.errors import InvalidSetting, MQError

if TYPE_CHECKING:
    from rocketpipe.testing.cluster_settings import ClusterSettings
    from rocketpipe.testing.embedded_cluster import EmbeddedBroker
    from rocketpipe.testing.embedded_servers import ServerCore, ServerPlan

NAMESRV_PORT = 9876


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    serve = commands.add_parser(
        "serve",
        help="run a NameServer and brokers",
        description="Run a NameServer and brokers until SIGINT or SIGTERM. When they are ready, "
        "the address of the NameServer is printed. With --join there are only brokers, which "
        "belong to the cluster of that NameServer: so a cluster can be spread over machines.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = serve.add_argument
    add(
        "--brokers",
        type=_brokers,
        default=1,
        metavar="N",
        help="how many: broker-a, broker-b, ...; or their names, with commas between them",
    )
    add(
        "--slaves",
        type=_slaves,
        nargs="?",
        const=1,
        default=0,
        metavar="N",
        help="how many slaves each of them has (1 without a number); or some of them: broker-a=1",
    )
    add("--processes", action="store_true", help="each server in a process of its own")
    add("--join", metavar="HOST:PORT", help="no NameServer here: the brokers join those there")
    add("--namesrv-port", type=int, metavar="PORT", help=f"0: any that is free ({NAMESRV_PORT})")
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
        "namesrv.* are the NameServer's, tls.* of all servers",
    )
    add("--faults", action="store_true", help="let other processes make the brokers misbehave")
    add("--json", action="store_true", help="print the addresses as JSON")
    add("--debug", action="store_true", help="log much, and show tracebacks")
    serve.set_defaults(run=run)


def _brokers(text: str) -> int | list[str]:
    return int(text) if text.isdecimal() else text.split(",")


def _slaves(text: str) -> int | dict[str, int]:
    if text.isdecimal():
        return int(text)
    try:
        return {name: int(number) for name, number in map(pair, text.split(","))}
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: write N, or NAME=N,NAME=N") from None


def run(args: argparse.Namespace) -> None:
    gc.disable()  # nothing of what is made until we serve is garbage: see _tell
    # Late, here and below: brokers take long to import, and no other command needs them.
    from rocketpipe.testing.cluster_settings import ClusterSettings

    if args.join is not None and args.namesrv_port is not None:
        raise InvalidSetting("--namesrv-port is of a NameServer here, --join of one elsewhere")
    options = {
        "brokers": args.brokers,
        "slaves": args.slaves,
        "join": args.join,
        "host": args.host,
        "namesrv_port": NAMESRV_PORT if args.namesrv_port is None else args.namesrv_port,
        "port": args.port,
        "settings": {"faultsEnable": args.faults, **dict(args.settings)},
    }
    settings = ClusterSettings(**options)
    settings.check()
    if ignored := settings.without_effect():
        print(f"rocketpipe: no effect here: {', '.join(ignored)}", file=sys.stderr)
    try:
        if args.processes:
            serve_processes(options, folder=args.data, is_json=args.json)
        else:
            asyncio.run(serve_cluster(settings, folder=args.data, is_json=args.json))
    except InvalidSetting as error:  # the settings are well: it is the port or the folder
        raise MQError(str(error)) from error


async def serve_cluster(settings: "ClusterSettings", *, folder: Path | None, is_json: bool) -> None:
    """Run a cluster until SIGINT or SIGTERM comes; without a folder its data goes with it."""
    from rocketpipe.testing.embedded_servers import BrokerCore, NameServerCore

    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    with ExitStack() as stack:
        if folder is None:
            import tempfile

            temporary = tempfile.TemporaryDirectory(prefix="rocketpipe-serve-")
            folder = Path(stack.enter_context(temporary))
        started: list[ServerCore] = []

        async def start(server: "ServerCore") -> None:
            await server.start()
            started.append(server)

        try:
            namesrv = settings.join
            if (plan := settings.nameserver_plan(folder)) is not None:
                await start(nameserver := NameServerCore(plan))
                namesrv = nameserver.plan.address
            assert namesrv is not None
            brokers = [BrokerCore(plan) for plan in settings.broker_plans(folder, namesrv)]
            for broker in brokers:
                await start(broker)
            _tell(namesrv, [_told(broker.plan) for broker in brokers], is_json=is_json)
            await ended.wait()
        finally:
            for server in reversed(started):
                await server.stop()


def serve_processes(options: dict[str, Any], *, folder: Path | None, is_json: bool) -> None:
    """The same, but each server in a process of its own; one that ends by itself is replaced."""
    from rocketpipe.testing.embedded_cluster import EmbeddedCluster

    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    cluster = EmbeddedCluster(**options, folder=folder, processes=True)
    cluster.restarts_lost = True
    with cluster:
        brokers = [{**_told(each), "process": each.process_id} for each in cluster.brokers]
        _tell(cluster.namesrv, brokers, is_json=is_json)
        ended.wait()


def _told(broker: "ServerPlan | EmbeddedBroker") -> dict[str, object]:
    return {"name": broker.name, "id": broker.id, "address": broker.address}


def _tell(namesrv: str, brokers: list[dict[str, object]], *, is_json: bool) -> None:
    print(json.dumps({"namesrv": namesrv, "brokers": brokers}) if is_json else namesrv, flush=True)
    gc.freeze()  # what is there will stay: nobody has to look at it ever again
    gc.enable()
