"""With nothing but `wire` and `remoting`: what clusters understand, and answer."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from rocketpipe.clock import SystemClock
from rocketpipe.codes import LanguageCode, ResponseCode
from rocketpipe.errors import BrokerError
from rocketpipe.message import StoredMessage
from rocketpipe.remoting.address import Address
from rocketpipe.remoting.connection import Connection, connect
from rocketpipe.remoting.network import AsyncioNetwork
from rocketpipe.remoting.settings import RemotingSettings
from rocketpipe.wire.bodies.route import TopicRouteData
from rocketpipe.wire.frame import RemotingCommand, SerializeType
from rocketpipe.wire.properties import encode_properties
from rocketpipe.wire.record import decode_records
from rocketpipe.wire.requests.admin import UpdateAndCreateTopic
from rocketpipe.wire.requests.nameserver import GetBrokerClusterInfo, GetRouteinfoByTopic
from rocketpipe.wire.requests.reading import (
    PULL_SUBSCRIPTION,
    GetMaxOffset,
    PullMessage,
    PullMessageReply,
    ViewMessageById,
)
from rocketpipe.wire.requests.sending import SendMessage, SendMessageReply, SendMessageV2
from tests.interop.clusters import Cluster

TIMEOUT = 10.0
BODY = b"\x00\x01 binary, and \xff no text \x02"
PROPERTIES = {
    "TAGS": "TagA",
    "KEYS": "k1 k2",
    "UNIQ_KEY": "0A0B0C0D000118B4AAC20000000A0001",
    "WAIT": "true",
    "名字": "值 é",
}
_numbers = itertools.count()


@asynccontextmanager
async def connected(
    address: str, serialize_type: SerializeType = SerializeType.JSON
) -> AsyncIterator[Connection]:
    settings = RemotingSettings(serialize_type=serialize_type)
    connection = await connect(
        AsyncioNetwork(), Address.parse(address), timeout=TIMEOUT, settings=settings
    )
    try:
        yield connection
    finally:
        await connection.close()


async def create_topic(broker: Connection) -> str:
    topic = f"wire-and-remoting-{next(_numbers)}"
    await broker.request(
        UpdateAndCreateTopic(
            topic=topic,
            default_topic="TBW102",
            read_queue_nums=2,
            write_queue_nums=2,
            perm=6,
            topic_filter_type="SINGLE_TAG",
            order=False,
        ),
        timeout=TIMEOUT,
    )
    return topic


async def route(namesrv: Connection, topic: str) -> TopicRouteData:
    """The route, which a NameServer has a little after the broker has the topic."""
    async with asyncio.timeout(TIMEOUT):
        while True:
            try:
                return await namesrv.request(GetRouteinfoByTopic(topic=topic), timeout=TIMEOUT)
            except BrokerError as error:
                assert error.code == ResponseCode.TOPIC_NOT_EXIST
            await asyncio.sleep(0.05)


def send_header(
    header: type[SendMessage], topic: str, born_timestamp: int, queue_id: int = 1
) -> SendMessage:
    return header(
        producer_group="wire-and-remoting",
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=queue_id,
        sys_flag=0,
        born_timestamp=born_timestamp,
        flag=7,
        properties=encode_properties(PROPERTIES),
        reconsume_times=0,
        unit_mode=False,
        batch=False,
    )


async def pull(broker: Connection, topic: str, queue_offset: int) -> list[StoredMessage]:
    request = PullMessage(
        consumer_group="wire-and-remoting",
        topic=topic,
        queue_id=1,
        queue_offset=queue_offset,
        max_msg_nums=32,
        sys_flag=PULL_SUBSCRIPTION,
        commit_offset=0,
        suspend_timeout_millis=0,
        subscription="*",
        sub_version=0,
    )
    async with asyncio.timeout(TIMEOUT):
        while True:  # the queue's index follows the log a moment later
            answer = await broker.invoke(request.to_command(), timeout=TIMEOUT)
            if answer.code == ResponseCode.SUCCESS:
                reply = PullMessageReply.from_ext_fields(answer.ext_fields)
                assert reply.next_begin_offset > queue_offset
                return decode_records(answer.body)
            assert answer.code in PullMessage.accepts, answer
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("serialize_type", SerializeType, ids=lambda kind: kind.name)
@pytest.mark.parametrize("header", [SendMessage, SendMessageV2], ids=["V1", "V2"])
def test_a_message_comes_back_as_it_was_sent(
    cluster: Cluster, header: type[SendMessage], serialize_type: SerializeType
) -> None:
    async def main() -> None:
        async with (
            connected(cluster.namesrv, serialize_type) as namesrv,
            connected(cluster.broker("broker-a").address, serialize_type) as broker,
        ):
            topic = await create_topic(broker)
            found = await route(namesrv, topic)
            assert [data.broker_name for data in found.queue_datas] == ["broker-a"]
            assert (found.queue_datas[0].write_queue_nums, found.queue_datas[0].perm) == (2, 6)
            assert found.broker_datas[0].broker_addrs == {0: broker.address}
            assert found.broker_datas[0].cluster == "DefaultCluster"

            born = SystemClock().wall_ms()
            sent: SendMessageReply = await broker.request(
                send_header(header, topic, born), BODY, timeout=TIMEOUT
            )
            assert (sent.queue_id, sent.queue_offset) == (1, 0)
            if cluster.version != "4.9.4":  # which does not repeat it
                assert sent.transaction_id == PROPERTIES["UNIQ_KEY"]

            (message,) = await pull(broker, topic, queue_offset=0)
            assert (message.topic, message.body, message.flag) == (topic, BODY, 7)
            kept = dict(PROPERTIES)
            if cluster.version == "4.9.4":
                del kept["WAIT"]  # 4.9.4 drops it: it was for the broker
            assert message.properties.items() >= kept.items()
            assert (message.tags, message.keys) == ("TagA", ("k1", "k2"))
            assert (message.queue_id, message.queue_offset) == (1, 0)
            assert (message.sys_flag, message.reconsume_times) == (0, 0)
            assert message.born_timestamp_ms == born
            assert abs(message.store_timestamp_ms - born) < 60_000
            assert message.store_host == broker.address
            assert message.born_host.startswith("127.0.0.1:")
            assert message.prepared_transaction_offset == 0
            assert message.message_id == PROPERTIES["UNIQ_KEY"]
            assert message.offset_message_id == sent.msg_id

            viewed = await broker.request(
                ViewMessageById(offset=message.physical_offset), timeout=TIMEOUT
            )
            assert decode_records(viewed) == [message]
            end = await broker.request(GetMaxOffset(topic=topic, queue_id=1), timeout=TIMEOUT)
            assert end.offset == 1

    asyncio.run(main())


def test_a_hundred_sends_in_flight_are_all_answered(cluster: Cluster) -> None:
    async def main() -> None:
        async with connected(cluster.broker("broker-a").address) as broker:
            topic = await create_topic(broker)
            born = SystemClock().wall_ms()
            replies = await asyncio.gather(
                *(
                    broker.request(send_header(SendMessageV2, topic, born), BODY, timeout=TIMEOUT)
                    for _ in range(100)
                )
            )
            assert sorted(reply.queue_offset for reply in replies) == list(range(100))

    asyncio.run(main())


def test_both_brokers_are_in_the_cluster(cluster: Cluster) -> None:
    async def main() -> None:
        async with connected(cluster.namesrv) as namesrv:
            known = await namesrv.request(GetBrokerClusterInfo(), timeout=TIMEOUT)
            assert set(known.broker_addr_table) == {"broker-a", "broker-b"}
            assert sorted(known.cluster_addr_table["DefaultCluster"]) == ["broker-a", "broker-b"]

    asyncio.run(main())


@pytest.mark.parametrize("version", [300, 513], ids=["integer keys", "standard JSON"])
def test_routes_are_read_in_both_of_their_dialects(cluster: Cluster, version: int) -> None:
    async def main() -> None:
        async with connected(cluster.namesrv) as namesrv:
            command = GetRouteinfoByTopic(topic="TBW102").to_command()
            command.version = version
            command.language = LanguageCode.PYTHON
            answer = await namesrv.invoke(command, timeout=TIMEOUT)
            assert (b'{"0":' in answer.body) == (version == 513)
            found = TopicRouteData.decode(answer.body)
            assert {data.broker_name for data in found.broker_datas} == {"broker-a", "broker-b"}

    asyncio.run(main())


def test_what_a_server_does_not_know_it_says_so(cluster: Cluster) -> None:
    async def main() -> None:
        async with (
            connected(cluster.namesrv) as namesrv,
            connected(cluster.broker("broker-a").address) as broker,
        ):
            # 4.9.4's NameServer says nothing at all: then a deadline is all that helps.
            for connection in (namesrv, broker) if cluster.version != "4.9.4" else (broker,):
                answer = await connection.invoke(RemotingCommand(31999), timeout=TIMEOUT)
                assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
                assert answer.remark == " request type 31999 not supported"
            with pytest.raises(BrokerError) as raised:
                await namesrv.request(GetRouteinfoByTopic(topic="no-such"), timeout=TIMEOUT)
            assert raised.value.code == ResponseCode.TOPIC_NOT_EXIST
            assert "No topic route info in name server for the topic: no-such" in str(raised.value)

    asyncio.run(main())
