"""Pulls all messages of a topic, NAMESRV TOPIC SERVER_PID, many pulls at once on one connection.

Each asks for as many messages as Apache's consumers do. What comes is counted and not decoded:
this measures the broker.
"""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.measuring import Stopwatch
from rocketpipe.codes import ResponseCode
from rocketpipe.remoting.address import Address
from rocketpipe.remoting.connection import Connection, connect
from rocketpipe.remoting.network import AsyncioNetwork
from rocketpipe.wire.requests.nameserver import GetRouteinfoByTopic
from rocketpipe.wire.requests.reading import PULL_SUBSCRIPTION, GetMaxOffset, PullMessage

IN_FLIGHT = 16
MESSAGES_MAX = 32  # in one answer: both brokers' default
TIMEOUT = 30.0


async def main(namesrv: str, topic: str, server_pid: int) -> None:
    network = AsyncioNetwork()
    nameserver = await connect(network, Address.parse(namesrv), timeout=TIMEOUT)
    route = await nameserver.request(GetRouteinfoByTopic(topic=topic), timeout=TIMEOUT)
    address = Address.parse(route.broker_datas[0].broker_addrs[0])
    broker = await connect(network, address, timeout=TIMEOUT)
    ends = [
        (await broker.request(GetMaxOffset(topic=topic, queue_id=each), timeout=TIMEOUT)).offset
        for each in range(route.queue_datas[0].read_queue_nums)
    ]
    watch = Stopwatch(server_pid=server_pid)
    parts = _parts(ends)
    await asyncio.gather(*(_pull_on(broker, topic, parts) for _ in range(IN_FLIGHT)))
    print(f"pulled {sum(ends)}; {watch.report(sum(ends))}")
    await broker.close()
    await nameserver.close()


def _parts(ends: list[int]) -> Iterator[tuple[int, int, int]]:
    """Queue, first offset and end of what each pull asks for; all queues advance together."""
    for start in range(0, max(ends), MESSAGES_MAX):
        for queue_id, end in enumerate(ends):
            if start < end:
                yield queue_id, start, min(start + MESSAGES_MAX, end)


async def _pull_on(broker: Connection, topic: str, parts: Iterator[tuple[int, int, int]]) -> None:
    for queue_id, offset, end in parts:
        while offset < end:
            request = PullMessage(
                consumer_group="benchmark",
                topic=topic,
                queue_id=queue_id,
                queue_offset=offset,
                max_msg_nums=end - offset,
                sys_flag=PULL_SUBSCRIPTION,
                commit_offset=0,
                suspend_timeout_millis=0,
                subscription="*",
                sub_version=0,
            )
            answer = await broker.invoke(request.to_command(), timeout=TIMEOUT)
            assert answer.code == ResponseCode.SUCCESS, answer
            assert answer.body
            offset = int(answer.ext_fields["nextBeginOffset"])


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
