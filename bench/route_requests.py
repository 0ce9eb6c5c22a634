"""Asks a NameServer for a route with our connection: ADDRESS AT_ONCE SECONDS, after a warm-up."""

import asyncio
import sys
import time

from rocketpipe.codes import ResponseCode
from rocketpipe.remoting.address import Address
from rocketpipe.remoting.connection import Connection, connect
from rocketpipe.remoting.network import AsyncioNetwork
from rocketpipe.wire.requests.nameserver import GetRouteinfoByTopic


async def main(address: str, at_once: int, seconds: float) -> None:
    connection = await connect(AsyncioNetwork(), Address.parse(address), timeout=10)
    await ask_for(connection, at_once, seconds)
    cpu, began = time.process_time(), time.perf_counter()
    asked = await ask_for(connection, at_once, seconds)
    took = time.perf_counter() - began
    print(f"rate and CPU: {asked / took} {(time.process_time() - cpu) * 1e6 / asked}")
    await connection.close()


async def ask_for(connection: Connection, at_once: int, seconds: float) -> int:
    end = time.perf_counter() + seconds

    async def ask() -> int:
        asked = 0
        while time.perf_counter() < end:
            # The body stays unread on both sides: this measures the remoting.
            command = GetRouteinfoByTopic(topic="TBW102").to_command()
            answer = await connection.invoke(command, timeout=10)
            assert answer.code == ResponseCode.SUCCESS
            assert answer.body
            asked += 1
        return asked

    return sum(await asyncio.gather(*(ask() for _ in range(at_once))))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))
