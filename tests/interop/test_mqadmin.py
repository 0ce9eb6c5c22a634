"""Apache's mqadmin 5.5.0 against our cluster: every command that people use daily."""

import asyncio
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

from rocketpipe.remoting.address import Address
from rocketpipe.remoting.connection import connect
from rocketpipe.remoting.network import AsyncioNetwork
from rocketpipe.wire.headers import Request
from rocketpipe.wire.properties import encode_properties
from rocketpipe.wire.requests.admin import GetBrokerHaStatus
from rocketpipe.wire.requests.nameserver import GetBrokerClusterInfo
from rocketpipe.wire.requests.reading import UpdateConsumerOffset
from rocketpipe.wire.requests.sending import SendMessageV2
from tests.cluster_process import ClusterProcess
from tests.interop.mqadmin import rows, run

pytestmark = pytest.mark.parametrize("apache_version", ["5.5.0"], indirect=True)


@pytest.fixture(scope="module")
def namesrv(apache_version: str) -> Iterator[str]:
    with ClusterProcess(brokers="2", slaves="") as cluster:
        yield cluster.address


def ask(address: str, request: Request[Any], body: bytes = b"") -> Any:
    async def main() -> Any:
        connection = await connect(AsyncioNetwork(), Address.parse(address), timeout=10)
        try:
            return await connection.request(request, body, timeout=10)
        finally:
            await connection.close()

    return asyncio.run(main())


def addresses(namesrv: str) -> dict[tuple[str, int], str]:
    return {
        (name, broker_id): address
        for name, data in ask(namesrv, GetBrokerClusterInfo()).broker_addr_table.items()
        for broker_id, address in data.broker_addrs.items()
    }


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


def test_a_cluster_is_listed_with_its_brokers(namesrv: str) -> None:
    clusters, config, status = run(
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


def test_a_topic_is_made_sent_to_read_and_deleted(namesrv: str) -> None:
    topic = "admin-orders"
    made, route, topics, sent = run(
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


def test_a_group_is_made_followed_and_reset(namesrv: str) -> None:
    topic, group = "admin-bills", "admin-readers"
    _, made, _ = run(
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
    # Its topics are deleted with it, on slaves as well.
    (deleted,) = run(namesrv, f"deleteSubGroup -c DefaultCluster -g {group} -r true")
    assert deleted.count(" success.") == 2


def test_slaves_are_told_of_and_tell(namesrv: str) -> None:
    known = addresses(namesrv)
    master, slave = known["broker-a", 0], known["broker-a", 1]
    send(master, "admin-copied", 0, bytes(1000))

    def are_in_step() -> bool:
        told = [ask(known[name, 0], GetBrokerHaStatus()) for name in ("broker-a", "broker-b")]
        return [[link.diff for link in each.ha_connection_info] for each in told] == [[0], [0]]

    deadline = time.monotonic() + 60
    while not are_in_step():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    of_all, of_slave = run(namesrv, "haStatus -c DefaultCluster", f"haStatus -b {slave}")
    assert of_all.count("#SlaveNum\t1\n#InSyncSlaveNum\t1\n") == 2
    assert f"#MasterAddr\t{master}\n" in of_all
    told = [line.split() for line in of_all.splitlines() if line.startswith("127.0.0.1:")]
    assert [(row[2], row[4]) for row in told] == [("0", "OK")] * 2
    (end,) = re.findall(r"#CommitLogMaxOffset\t(\d+)\n", of_slave)
    assert end in [row[1] for row in told]
