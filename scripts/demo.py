"""Messages through a real broker and back, with nothing but the protocol core.

Starts Apache RocketMQ 5.5.0 on free ports of this machine, sends the same message in every form
the protocol has, reads each back, and stops it again.
"""

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from rocketpipe.clock import SystemClock
from rocketpipe.errors import MQError
from rocketpipe.message import Message
from rocketpipe.remoting.address import Address
from rocketpipe.remoting.connection import Connection, connect
from rocketpipe.remoting.network import AsyncioNetwork
from rocketpipe.remoting.settings import RemotingSettings
from rocketpipe.wire.bodies.route import TopicRouteData
from rocketpipe.wire.frame import SerializeType
from rocketpipe.wire.message_id import parse_offset_message_id
from rocketpipe.wire.properties import encode_properties, message_properties
from rocketpipe.wire.record import decode_record
from rocketpipe.wire.requests.nameserver import GetRouteinfoByTopic
from rocketpipe.wire.requests.reading import ViewMessageById
from rocketpipe.wire.requests.sending import SendMessage, SendMessageV2
from tests.apache.cluster import ApacheCluster, StartFailed
from tests.apache.jars import Unavailable

MESSAGE = Message("demo", "grüße, 世界".encode(), tags="paid", keys=["order-1"])


def main() -> int:
    print("starting Apache RocketMQ 5.5.0 (the first time, Maven fetches it) ...", flush=True)
    try:
        with ApacheCluster("5.5.0", brokers=1) as cluster:
            asyncio.run(send_and_read_back(cluster.namesrv))
    except (Unavailable, StartFailed, MQError) as error:
        print(f"rocketpipe: {error}", file=sys.stderr)
        return 1
    print("stopped it again; nothing is left running.")
    return 0


async def send_and_read_back(namesrv: str) -> None:
    connection = await connected(namesrv)
    route: TopicRouteData = await connection.request(GetRouteinfoByTopic(topic="TBW102"), timeout=5)
    await connection.close()
    (broker,) = route.broker_datas
    print(f"\nNameServer {namesrv} knows {broker.broker_name} at {broker.broker_addrs[0]}\n")
    print(f"{'header':<15}{'serialization':<15}{'stored as':<34}{'read back'}")
    for serialize_type in SerializeType:
        connection = await connected(broker.broker_addrs[0], serialize_type)
        for header in (SendMessage, SendMessageV2):
            stored_as, body = await round_trip(connection, header)
            print(f"{header.__name__:<15}{serialize_type.name:<15}{stored_as:<34}{body.decode()}")
        await connection.close()
    print()


async def round_trip(connection: Connection, header: type[SendMessage]) -> tuple[str, bytes]:
    sent = await connection.request(
        header(
            producer_group="demo",
            topic=MESSAGE.topic,
            default_topic="TBW102",
            default_topic_queue_nums=4,
            queue_id=0,
            sys_flag=0,
            born_timestamp=SystemClock().wall_ms(),
            flag=MESSAGE.flag,
            properties=encode_properties(message_properties(MESSAGE)),
        ),
        MESSAGE.body,
        timeout=5,
    )
    place = parse_offset_message_id(sent.msg_id)
    viewed = await connection.request(ViewMessageById(offset=place.physical_offset), timeout=5)
    stored = decode_record(viewed)
    assert (stored.body, stored.tags, stored.keys) == (MESSAGE.body, MESSAGE.tags, MESSAGE.keys)
    return sent.msg_id, stored.body


async def connected(address: str, serialize_type: SerializeType = SerializeType.JSON) -> Connection:
    settings = RemotingSettings(serialize_type=serialize_type)
    return await connect(AsyncioNetwork(), Address.parse(address), timeout=5, settings=settings)


if __name__ == "__main__":
    sys.exit(main())
