"""Apache's mqadmin 5.5.0 against our cluster: every command that people use daily."""

import asyncio
import re
from collections.abc import Iterator
from typing import Any

import pytest

from rocketpipe.remoting.address import Address
from rocketpipe.remoting.connection import connect
from rocketpipe.remoting.network import AsyncioNetwork
from rocketpipe.wire.headers import Request
from rocketpipe.wire.properties import encode_properties
from rocketpipe.wire.requests.nameserver import GetBrokerClusterInfo
from rocketpipe.wire.requests.reading import UpdateConsumerOffset
from rocketpipe.wire.requests.sending import SendMessageV2
from tests.apache.programs import mqadmin_session
from tests.cluster_process import ClusterProcess

TIMEOUT = 300.0

pytestmark = pytest.mark.parametrize("apache_version", ["5.5.0"], indirect=True)


@pytest.fixture(scope="module")
def namesrv(apache_version: str) -> Iterator[str]:
    with ClusterProcess(brokers="2", slaves="") as cluster:
        yield cluster.address


def run(version: str, namesrv: str, *commands: str) -> list[str]:
    outputs = mqadmin_session(version, namesrv, *commands, timeout=TIMEOUT)
    for command, output in zip(commands, outputs, strict=True):
        assert "Exception" not in output, f"{command}: {output}"
    return outputs


def rows(output: str, name: str) -> list[list[str]]:
    """The lines of a table that begin with this."""
    return [line.split() for line in output.splitlines() if line.startswith(name)]


def addresses(namesrv: str) -> dict[tuple[str, int], str]:
    async def ask() -> dict[tuple[str, int], str]:
        connection = await connect(AsyncioNetwork(), Address.parse(namesrv), timeout=10)
        try:
            info = await connection.request(GetBrokerClusterInfo(), timeout=10)
        finally:
            await connection.close()
        return {
            (name, broker_id): address
            for name, data in info.broker_addr_table.items()
            for broker_id, address in data.broker_addrs.items()
        }

    return asyncio.run(ask())


def ask(address: str, request: Request[Any], body: bytes = b"") -> None:
    async def main() -> None:
        connection = await connect(AsyncioNetwork(), Address.parse(address), timeout=10)
        try:
            await connection.request(request, body, timeout=10)
        finally:
            await connection.close()

    asyncio.run(main())


def send(address: str, topic: str, queue_id: int, body: bytes, **properties: str) -> None:
    """Sends a message ourselves: mqadmin's command works once in a Java."""
    header = SendMessageV2(
        producer_group="admin",
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=queue_id,
        sys_flag=0,
        born_timestamp=0,
        flag=0,
        properties=encode_properties(properties),
    )
    ask(address, header, body)


def test_a_cluster_is_listed_with_its_brokers(apache_version: str, namesrv: str) -> None:
    clusters, config, status = run(
        apache_version,
        namesrv,
        "clusterList",
        "getBrokerConfig -c DefaultCluster",
        "brokerStatus -c DefaultCluster",
    )
    known = addresses(namesrv)
    listed = {
        (row[1], int(row[2])): (row[3], row[4], row[-1]) for row in rows(clusters, "DefaultCluster")
    }
    assert listed == {
        (name, broker_id): (address, "V5_5_0", "true" if broker_id == 0 else "false")
        for (name, broker_id), address in known.items()
    }
    assert len(listed) == 4
    assert re.search(r"brokerClusterName\s+=\s+DefaultCluster", config)
    master = known["broker-a", 0]
    told = {row[1].rstrip(":"): row[-1] for row in rows(status, master)}
    assert told["brokerVersionDesc"] == "V5_5_0"
    assert told["commitLogMinOffset"] == "0"
    assert {"putTps", "getTransferredTps", "runtime", "bootTimestamp"} <= told.keys()


def test_a_topic_is_made_sent_to_read_and_deleted(apache_version: str, namesrv: str) -> None:
    topic = "admin-orders"
    made, route, topics, sent = run(
        apache_version,
        namesrv,
        f"updateTopic -t {topic} -c DefaultCluster -r 2 -w 2",
        f"topicRoute -t {topic} -l",
        "topicList",
        f"sendMessage -t {topic} -p hello -k order-1 -c TagA -b broker-a -i 1",
    )
    assert made.count(" success.") == 2
    assert f"topicName={topic}, readQueueNums=2, writeQueueNums=2, perm=RW-" in made
    assert "broker-a" in route
    assert "broker-b" in route
    assert topic in topics.split()
    ((_, queue_id, result, message_id),) = rows(sent, "broker-a")
    assert (queue_id, result) == ("1", "SEND_OK")

    ids = [message_id, "A" * 32]
    broker = addresses(namesrv)["broker-a", 0]
    send(broker, topic, 1, b"goodbye", KEYS="order-1", TAGS="TagB", UNIQ_KEY=ids[1])
    status, consumed, by_key, by_offset = run(
        apache_version,
        namesrv,
        f"topicStatus -t {topic}",
        f"consumeMessage -t {topic} -b broker-a -i 1 -o 0 -c 2",
        f"queryMsgByKey -t {topic} -k order-1",
        f"queryMsgByOffset -t {topic} -b broker-a -i 1 -o 1",
    )
    queues = {(row[0], row[1]): (row[2], row[3]) for row in rows(status, "broker-")}
    assert queues == {
        ("broker-a", "0"): ("0", "0"),
        ("broker-a", "1"): ("0", "2"),
        ("broker-b", "0"): ("0", "0"),
        ("broker-b", "1"): ("0", "0"),
    }
    assert re.findall(r"MSGID: (\w+) .* BODY: (\w+)", consumed) == list(
        zip(ids, ("hello", "goodbye"), strict=True)
    )
    assert {(row[0], row[1], row[2]) for message_id in ids for row in rows(by_key, message_id)} == {
        (ids[0], "1", "0"),
        (ids[1], "1", "1"),
    }
    assert re.search(r"Queue Offset:\s+1\b", by_offset)
    assert re.search(r"Tags:\s+\[TagB", by_offset)
    (offset_id,) = re.findall(r"OffsetID:\s+(\w+)", by_offset)

    by_unique_id, by_id, deleted, topics = run(
        apache_version,
        namesrv,
        f"queryMsgByUniqueKey -t {topic} -i {ids[0]}",
        f"queryMsgById -t {topic} -i {offset_id}",
        f"deleteTopic -t {topic} -c DefaultCluster",
        "topicList",
    )
    assert re.search(r"Tags:\s+\[TagA", by_unique_id)
    assert re.search(rf"Topic:\s+{topic}", by_id)
    assert re.search(r"Tags:\s+\[TagB", by_id)
    assert f"delete topic [{topic}] from cluster [DefaultCluster] success." in deleted
    assert f"delete topic [{topic}] from NameServer success." in deleted
    assert topic not in topics.split()


def test_a_group_is_made_followed_and_reset(apache_version: str, namesrv: str) -> None:
    topic, group = "admin-bills", "admin-readers"
    _, made, _ = run(
        apache_version,
        namesrv,
        f"updateTopic -t {topic} -c DefaultCluster -r 1 -w 1",
        f"updateSubGroup -c DefaultCluster -g {group} -r 5",
        # Made by the group's first consumer otherwise; mqadmin finds a group by it.
        f"updateTopic -t %RETRY%{group} -c DefaultCluster -r 1 -w 1",
    )
    assert made.count("create subscription group to ") == 2
    assert f"groupName={group}, " in made
    assert "retryMaxTimes=5" in made
    (mode,) = run(
        apache_version,
        namesrv,
        f"setConsumeMode -c DefaultCluster -t {topic} -g {group} -m POP -q 4",
    )
    assert mode.count("set consume mode to ") == 2
    broker = addresses(namesrv)["broker-b", 0]
    for number in range(3):
        send(broker, topic, 0, b"%d" % number)
    ask(
        broker,
        UpdateConsumerOffset(consumer_group=group, topic=topic, queue_id=0, commit_offset=2),
    )
    progress, all_progress, reset, after = run(
        apache_version,
        namesrv,
        f"consumerProgress -g {group}",
        "consumerProgress",
        f"resetOffsetByTime -g {group} -t {topic} -s -1",
        f"consumerProgress -g {group}",
    )
    (row,) = [row for row in rows(progress, topic) if row[1] == "broker-b"]
    # Queue, offset of the broker, of the consumer, and what is between; nothing is in flight.
    assert row[2:7] == ["0", "3", "2", "1", "0"]
    assert "Consume Diff Total: 1" in progress
    (row,) = rows(all_progress, group)
    assert (row[1], row[2], row[-1]) == ("0", "OFFLINE", "1")
    assert re.search(r"broker-b\s+0\s+3", reset)
    (row,) = [row for row in rows(after, topic) if row[1] == "broker-b"]
    assert row[2:6] == ["0", "3", "3", "0"]
