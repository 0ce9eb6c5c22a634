"""One server of a cluster in a process of its own, as that process sees it.

It reads lines of JSON and answers each with one. The first is its ServerPlan, the others are
orders. When there are no more, whoever started it is gone: then it goes too.
"""

import asyncio
import json
import logging
import os
import signal
import sys
from dataclasses import asdict
from typing import Any

from rocketpipe.broker.faults import FaultKind, control, encode_faults
from rocketpipe.errors import InvalidSetting, MQError
from rocketpipe.testing.embedded_servers import NAMESRV, BrokerCore, NameServerCore, ServerPlan

LINE_BYTES_MAX = 16 * 1024 * 1024


async def serve_orders() -> None:
    orders = asyncio.StreamReader(limit=LINE_BYTES_MAX)
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(orders), sys.stdin
    )
    plan = ServerPlan(**json.loads(await orders.readline()))
    core = NameServerCore(plan) if plan.name == NAMESRV else _BrokerOfProcess(plan)
    starting = asyncio.create_task(_do("start", core))
    while True:
        line = await orders.readline()
        if not line:
            os._exit(1)  # at once: nobody is left who could wait for an end in order
        await starting
        order = json.loads(line)
        await _do(order, core)
        if order == "stop":
            return


class _BrokerOfProcess(BrokerCore):
    """A broker that takes its process along when a fault ends it; the parent makes another."""

    async def _go_down(self, kind: FaultKind) -> None:
        if kind is FaultKind.KILL:
            os.kill(os.getpid(), signal.SIGKILL)
        await super()._go_down(kind)
        os._exit(0)


async def _do(order: Any, core: NameServerCore | BrokerCore) -> None:
    try:
        answer = {"done": await _outcome(order, core)}
    except (MQError, OSError) as error:
        kind = InvalidSetting if isinstance(error, InvalidSetting) else MQError
        answer = {"failed": kind.__name__, "text": str(error)}
    os.write(sys.stdout.fileno(), f"{json.dumps(answer)}\n".encode())


async def _outcome(order: Any, core: NameServerCore | BrokerCore) -> object:
    match order:
        case "start":
            await core.start()
            return asdict(core.plan)
        case "stop":
            await core.stop()
        case "before freezing":
            _thaw_with_parent()
        case "register" if isinstance(core, BrokerCore):
            await core.register()
        case "cut connections" if isinstance(core, BrokerCore):
            await core.cut_connections()
        case {"faults": dict(what)} if isinstance(core, BrokerCore):
            return json.loads(encode_faults(control(core.faults, json.dumps(what).encode())))
        case _:
            raise AssertionError(f"nobody knows how to do {order!r}")
    return None


def _thaw_with_parent() -> None:
    """Frozen we can't see that our parent is gone: have the kernel wake us when it is.

    Not with SIGKILL: to the kernel the parent is the thread that started us, which may end long
    before its process does. Elsewhere than on Linux a process group that loses its parent is sent
    SIGHUP when it stands still, and we are in one of our own.
    """
    if sys.platform == "linux":
        import ctypes  # late, as it takes as long as a fifth of the start

        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGCONT)


def main() -> None:
    """What the parent runs; its only argument is the level of what is logged, to stderr."""
    logging.basicConfig(
        stream=sys.stderr, level=sys.argv[1], format="%(levelname)s %(name)s: %(message)s"
    )
    asyncio.run(serve_orders())
