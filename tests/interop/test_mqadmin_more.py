"""The rest of mqadmin that people use, 5.5.0's own, on real brokers and on ours: the same answers.

A Java takes seconds to start, so each test runs all its commands in one.
"""

import asyncio
import re
import time
from collections.abc import Callable
from typing import TypeVar

import pytest

from rocketpipe import Message, MessageQueue, Producer, PushConsumer
from rocketpipe.testing.embedded_cluster import EmbeddedCluster
from rocketpipe.wire.headers import Reply, Request
from rocketpipe.wire.requests.admin import GetBrokerConsumeStats, GetBrokerHaStatus
from tests.interop.clusters import TIMEOUT, Cluster, Reader, new_topic
from tests.interop.mqadmin import rows, run

PATIENCE = 90.0

R = TypeVar("R", bound=Reply)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.parametrize(
        "cluster_name",
        [pytest.param("5.5.0", marks=pytest.mark.apache), "embedded"],
        scope="session",
    ),
]


def until(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < deadline, f"waited in vain until {what}"
        time.sleep(0.05)


def ask(address: str, request: Request[R]) -> R:
    async def main() -> R:
        async with Reader("") as reader:
            return await (await reader.at(address)).request(request, timeout=TIMEOUT)

    return asyncio.run(main())


def create_topic(cluster: Cluster, topic: str, queues: int = 1) -> None:
    async def main() -> None:
        async with Reader(cluster.namesrv) as reader:
            await reader.create_topic(topic, cluster.brokers, queues=queues)

    asyncio.run(main())


def send(cluster: Cluster, topic: str, *to_brokers: str) -> None:
    """A message to queue 0 of each; the tags of odd ones are `odd`."""
    with Producer(f"{topic}-sender", namesrv=cluster.namesrv) as producer:
        for number, broker in enumerate(to_brokers):
            message = Message(topic, b"body-%d" % number, tags="odd" if number % 2 else "even")
            producer.send(message, queue=MessageQueue(topic, broker, 0))


def consume_all(cluster: Cluster, topic: str, group: str, count: int) -> None:
    """Leaves a group behind that has read all of a topic."""
    seen: list[object] = []
    with PushConsumer(
        group,
        seen.extend,
        namesrv=cluster.namesrv,
        subscriptions={topic: "*"},
        consume_from="first",
    ):
        until(lambda: len(seen) >= count, "all was consumed")


def test_who_is_connected(cluster: Cluster) -> None:
    topic, group, writers = new_topic("more-who"), new_topic("more-who"), new_topic("more-who")
    create_topic(cluster, topic)
    seen: list[object] = []
    with (
        Producer(writers, namesrv=cluster.namesrv) as producer,
        PushConsumer(
            group,
            seen.extend,
            namesrv=cluster.namesrv,
            subscriptions={topic: "a || b"},
            consume_from="first",
        ) as consumer,
    ):
        for broker in cluster.brokers:
            producer.send(Message(topic, b"x", tags="a"), queue=MessageQueue(topic, broker.name, 0))
        until(lambda: len(seen) == 2, "all was consumed")
        client_id, producer_id = consumer.client_id, producer.client_id
        consumers, at_broker, producers, status, detail = run(
            cluster.namesrv,
            f"consumerConnection -g {group}",
            f"consumerConnection -g {group} -b {cluster.brokers[0].address}",
            f"producerConnection -g {writers} -t {topic}",
            f"consumerStatus -g {group}",
            f"consumerStatus -g {group} -i {client_id}",
        )
    for output in (consumers, at_broker):
        ((_, address, language, version),) = rows(output, client_id)
        assert address.startswith("127.0.0.1:")
        assert (language, version) == ("PYTHON", "V5_5_0")
        assert re.search(rf"^{topic}\s+a \|\| b$", output, re.MULTILINE)
        assert re.search(rf"^%RETRY%{group}\s+\*$", output, re.MULTILINE)
        for line in (
            "ConsumeType: CONSUME_PASSIVELY",
            "MessageModel: CLUSTERING",
            "ConsumeFromWhere: CONSUME_FROM_FIRST_OFFSET",
        ):
            assert line in output
    ((_, told_id, _, language, version),) = rows(producers, "0001")
    assert (told_id, language, version) == (producer_id, "PYTHON", "V5_5_0")
    ((_, told_id, version, _),) = rows(status, "1 ")
    assert (told_id, version) == (client_id, "V5_5_0")
    assert "Same subscription in the same group of consumer" in status
    assert "Rebalance OK" in status
    for broker in cluster.brokers:
        assert re.search(rf"^{topic}\s+{broker.name}\s+0\s+1\s*$", detail, re.MULTILINE)


def test_messages_are_printed_and_counted(cluster: Cluster) -> None:
    topic, group = new_topic("more-count"), new_topic("more-count")
    create_topic(cluster, topic)
    send(cluster, topic, "broker-a", "broker-a", "broker-a", "broker-b")
    consume_all(cluster, topic, group, 4)
    first = cluster.brokers[0].address
    printed, chosen, by_queue, by_tag, sent, progress, *rest = run(
        cluster.namesrv,
        f"printMsg -t {topic}",
        f"printMsg -t {topic} -s odd -d false",
        f"printMsgByQueue -t {topic} -a broker-a -i 0 -p true -d true",
        f"printMsgByQueue -t {topic} -a broker-a -i 0 -f true",
        f"checkMsgSendRT -t {topic} -a 4 -s 64",
        f"brokerConsumeStats -b {first}",
        f"topicClusterList -t {topic}",
        f"haStatus -b {first}",
        f"cleanExpiredCQ -b {first}",
        "cleanExpiredCQ -c DefaultCluster",
        f"statsAll -t {topic}",
        f"statsAll -t {topic} -a",
    )
    clusters, replication, cleaned, all_cleaned, stats, active = rest
    bodies = re.findall(r"brokerName=(\S+), .* BODY: (\S+)", printed)
    assert sorted(bodies) == [
        *(("broker-a", f"body-{number}") for number in range(3)),
        ("broker-b", "body-3"),
    ]
    assert f"minOffset=0, maxOffset=3, MessageQueue [topic={topic}, brokerName=broker-a" in printed
    assert len(rows(chosen, "MSGID:")) == 2
    assert "body-" not in chosen
    assert re.findall(r"BODY: (\S+)", by_queue) == ["body-0", "body-1", "body-2"]
    assert re.findall(r"Tag: (\S+)\s+Count: (\d+)", by_tag) == [("even", "2"), ("odd", "1")]
    assert [row[:3] for row in rows(sent, "broker-")] == [
        [broker, "0", "true"] for _ in range(2) for broker in ("broker-a", "broker-b")
    ]
    assert re.search(r"^Avg RT: [\d.]+$", sent, re.MULTILINE)
    # Topic, group, broker, queue, its offset, the group's, and what is between.
    ((*queue, behind),) = [row[:7] for row in rows(progress, topic) if row[1] == group]
    assert queue == [topic, group, "broker-a", "0", "5", "3"]
    assert behind == "2"
    assert re.search(r"^Diff Total: \d+$", progress, re.MULTILINE)
    assert rows(clusters, "DefaultCluster")
    assert f"#MasterAddr\t{first}\n" in replication
    assert "#SlaveNum\t0\n#InSyncSlaveNum\t0\n" in replication
    by_itself = ask(first, GetBrokerHaStatus())
    assert (by_itself.master, by_itself.ha_connection_info) == (True, ())
    assert by_itself.master_commit_log_max_offset > 0
    assert rows(cleaned, "success")
    assert rows(all_cleaned, "success")
    ((_, _, behind, _, _, came, went),) = rows(stats, topic)
    assert behind == "4"
    if isinstance(cluster, EmbeddedCluster):  # Apache's look at their counters now and then
        assert (came, went) == ("8", "4")
        assert len(rows(active, topic)) == 1


def test_settings_and_permissions_are_changed(cluster: Cluster) -> None:
    topic = new_topic("more-perm")
    create_topic(cluster, topic, queues=2)
    first = cluster.brokers[0].address

    def perms(output: str) -> dict[str, str]:
        return dict(re.findall(r'"brokerName":"(\S+)",\s+"perm":(\d)', output))

    order = "broker-a:2;broker-b:1"
    changed, settings, all_changed, all_settings, *rest = run(
        cluster.namesrv,
        f"updateBrokerConfig -b {first} -k defaultQueryMaxNum -v 17",
        f"getBrokerConfig -b {first}",
        "updateBrokerConfig -c DefaultCluster -k defaultQueryMaxNum -v 32",
        "getBrokerConfig -c DefaultCluster",
        "wipeWritePerm -b broker-a",
        f"topicRoute -t {topic}",
        "addWritePerm -b broker-a",
        f"topicRoute -t {topic}",
        f"updateTopicPerm -t {topic} -b {first} -p 4",
        f"updateTopicPerm -t {topic} -b {first} -p 4",
        f"topicRoute -t {topic}",
        f"updateTopicPerm -t {topic} -c DefaultCluster -p 6",
        f"topicRoute -t {topic}",
        f"updateOrderConf -t {topic} -m put -v {order}",
        f"updateOrderConf -t {topic} -m get",
        f"updateOrderConf -t {topic} -m delete",
        "updateKvConfig -s MORE -k key -v value",
        "deleteKvConfig -s MORE -k key",
    )
    assert f"update broker config success, {first}" in changed
    assert re.search(r"^defaultQueryMaxNum\s+=\s+17$", settings, re.MULTILINE)
    assert all_changed.count("update broker config success, ") == 2
    assert len(re.findall(r"^defaultQueryMaxNum\s+=\s+32$", all_settings, re.MULTILINE)) == 2

    both, one = {"broker-a": "6", "broker-b": "6"}, {"broker-a": "4", "broker-b": "6"}
    wiped, route, added, restored, *rest = rest
    (count,) = re.findall(r"wipe write perm of broker\[broker-a\] in name .* OK, (\d+)", wiped)
    assert re.search(rf"add write perm of broker\[broker-a\] in name .* OK, {count}$", added, re.M)
    assert (perms(route), perms(restored)) == (one, both)

    read_only, again, route, all_of_them, restored, *rest = rest
    assert f"update topic perm from 6 to 4 in {first} success." in read_only
    assert f"topicName={topic}, readQueueNums=2, writeQueueNums=2, perm=R--" in read_only
    assert "new perm equals to the old one!" in again
    assert len(re.findall(r"update topic perm from \d to 6 in \S+ success", all_of_them)) == 2
    assert (perms(route), perms(restored)) == (one, both)

    put, kept, deleted, kv, no_kv = rest
    assert f"update orderConf success. topic=[{topic}], orderConf=[{order}]" in put
    assert f"get orderConf success. topic=[{topic}], orderConf=[{order}]" in kept
    assert f"delete orderConf success. topic=[{topic}]" in deleted
    assert "create or update kv config to namespace success." in kv
    assert "delete kv config from namespace success." in no_kv


def test_offsets_are_moved_and_groups_deleted(cluster: Cluster) -> None:
    topic, group = new_topic("more-offsets"), new_topic("more-offsets")
    other = f"{group}-2"
    create_topic(cluster, topic)
    send(cluster, topic, "broker-a", "broker-a", "broker-a", "broker-b")
    consume_all(cluster, topic, group, 4)
    first = cluster.brokers[0].address

    def offsets(output: str) -> dict[str, str]:
        return {row[0]: row[2] for row in rows(output, "broker-")}

    def consumed(output: str) -> dict[str, str]:
        return {row[1]: row[4] for row in rows(output, topic)}

    begin, end = {"broker-a": "0", "broker-b": "0"}, {"broker-a": "3", "broker-b": "1"}
    to_begin, progress, to_end, to_time, to_offset, moved, skipped, after, *rest = run(
        cluster.namesrv,
        f"resetOffsetByTime -g {group} -t {topic} -s 0",
        f"consumerProgress -g {group}",
        f"resetOffsetByTime -g {group} -t {topic} -s now",
        f"resetOffsetByTime -g {group} -t {topic} -s 0 -b {first} -q 0",
        f"resetOffsetByTime -g {group} -t {topic} -s 0 -b {first} -q 0 -o 1",
        f"consumerProgress -g {group}",
        f"skipAccumulatedMessage -g {group} -t {topic}",
        f"consumerProgress -g {group}",
        f"updateSubGroup -c DefaultCluster -g {other}",
        f"cloneGroupOffset -s {group} -d {other} -t {topic} -o true",
        f"brokerConsumeStats -b {first}",
        f"deleteSubGroup -c DefaultCluster -g {other} -r true",
        f"deleteSubGroup -b {first} -g {group} -r true",
    )
    assert offsets(to_begin) == consumed(progress) == begin
    assert offsets(to_end) == end
    assert "reset consumer offset to 0" in to_time
    assert "reset consumer offset to 1" in to_offset
    assert consumed(moved) == end | {"broker-a": "1"}
    assert offsets(skipped) == consumed(after) == end

    made, cloned, there, deleted, gone = rest
    assert made.count("create subscription group to ") == 2
    assert f"clone group offset success. srcGroup[{group}], destGroup=[{other}]" in cloned
    assert {row[1]: row[5] for row in rows(there, topic)} == {group: "3", other: "3"}
    assert deleted.count(f"delete subscription group [{other}] from broker [") == 2
    assert f"delete subscription group [{group}] from broker [{first}] success." in gone
    told = ask(first, GetBrokerConsumeStats(is_order=False))
    assert not {name for each in told.consume_stats_list for name in each} & {group, other}
