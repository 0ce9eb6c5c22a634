"""Runs our NameServer on any free port until it is killed, and prints where.

python tests/serve_nameserver.py [apacheSetting=value ...]
"""

import asyncio
import sys

from rocketpipe.nameserver.server import NameServer
from rocketpipe.nameserver.settings import NameServerSettings
from rocketpipe.remoting.address import Address
from rocketpipe.remoting.network import AsyncioNetwork


async def main() -> None:
    config = dict(argument.split("=", 1) for argument in sys.argv[1:])
    server = NameServer(AsyncioNetwork(), NameServerSettings().updated(config))
    address = await server.start(Address("127.0.0.1", 0))
    sys.stdout.write(f"{address}\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
