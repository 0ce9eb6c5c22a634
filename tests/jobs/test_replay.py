"""`replay`: stored messages again, and none of them twice."""

import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from rocketpipe import Admin, Message, PushConsumer, Retry, StoredMessage
from rocketpipe.errors import InvalidSetting, NoRoute
from rocketpipe.spark.jobs.replay import ReplayReport, ReplaySettings, replay
from rocketpipe.testing import EmbeddedCluster
from tests.interop.clusters import Cluster
from tests.spark.topics import TIMEOUT, make_topic, numbered, read, send


def run(
    spark: SparkSession, cluster: Cluster, topic: str, to: str | None, **settings: Any
) -> ReplayReport:
    target = {"namesrv": cluster.namesrv}
    source = {**target, "topic": topic, **settings.pop("source", {})}
    return replay(spark, ReplaySettings(source=source, target=target, to=to, **settings))


@pytest.fixture
def dead_letters(cluster: Cluster) -> tuple[str, str]:
    """A topic, and the dead letters of a group that could not consume five of its messages."""
    topic = make_topic(cluster, "letters")
    group = f"group-{topic}"
    send(cluster, numbered(topic, 5))

    def fail(messages: list[StoredMessage]) -> Retry:
        return Retry(delay_level=1)

    with (
        Admin(namesrv=cluster.namesrv) as admin,
        PushConsumer(
            group,
            fail,
            subscriptions={topic: "*"},
            namesrv=cluster.namesrv,
            max_reconsume_times=0,
            consume_from="first",
        ),
    ):
        deadline = time.monotonic() + TIMEOUT
        while stored(admin, f"%DLQ%{group}") < 5:
            assert time.monotonic() < deadline, "no dead letters came"
            time.sleep(0.1)
    return topic, f"%DLQ%{group}"


def stored(admin: Admin, topic: str) -> int:
    try:
        return sum(admin.max_offset(queue) for queue in admin.subscribe_queues(topic))
    except NoRoute:
        return 0


def test_messages_are_sent_again_as_they_were_but_once(
    spark: SparkSession, cluster: Cluster
) -> None:
    topic, other = make_topic(cluster, "replay"), make_topic(cluster, "again")
    messages = [
        Message(
            topic, b"%d" % n, tags="ab"[n % 2], keys=[f"k{n}"], properties={"n": str(n)},
            sharding_key=f"s{n % 3}",
        )
        for n in range(200)
    ]  # fmt: skip
    send(cluster, messages)
    tagged = {"tags": "a"}
    dry = run(spark, cluster, topic, other, source=tagged, dry_run=True)
    assert (dry.selected, dry.sent.rows, dry.already) == (100, 100, 0)
    report = run(spark, cluster, topic, other, source=tagged)
    assert (report.selected, report.already, report.sent.rows) == (100, 0, 100)
    # Another range or filter is the same replay: only what was not sent yet is.
    report = run(spark, cluster, topic, other)
    assert (report.selected, report.already, report.sent.rows) == (200, 100, 100)
    assert run(spark, cluster, topic, other).sent.rows == 0

    firsts = {bytes(row.body): row for row in read(spark, cluster, topic=topic).collect()}
    seconds = read(spark, cluster, topic=other).collect()
    assert len(seconds) == 200
    for row in seconds:
        first = firsts[bytes(row.body)]
        assert (row.tags, row.keys) == (first.tags, first.keys)
        assert row.properties["n"] == first.properties["n"]
        assert row.properties["__SHARDINGKEY"] == first.properties["__SHARDINGKEY"]
        assert row.properties["REPLAY_ID"] == report.replay_id
        assert row.properties["REPLAY_OF"] == first.messageId
    queues = {row.properties["__SHARDINGKEY"]: (row.brokerName, row.queueId) for row in seconds}
    assert all(
        queues[row.properties["__SHARDINGKEY"]] == (row.brokerName, row.queueId) for row in seconds
    )


def test_another_id_sends_them_again_and_a_topic_can_be_replayed_to_itself(
    spark: SparkSession, embedded_cluster: EmbeddedCluster
) -> None:
    topic = make_topic(embedded_cluster, "itself")
    send(embedded_cluster, numbered(topic, 10))
    assert run(spark, embedded_cluster, topic, topic, replay_id="one").sent.rows == 10
    assert run(spark, embedded_cluster, topic, topic, replay_id="one").sent.rows == 0
    assert run(spark, embedded_cluster, topic, topic, replay_id="two").sent.rows == 20


def test_dead_letters_go_back_to_where_they_came_from(
    spark: SparkSession, cluster: Cluster, dead_letters: tuple[str, str]
) -> None:
    topic, dead = dead_letters
    report = run(spark, cluster, dead, None)
    assert report.targets == {topic: 5}
    assert report.sent.rows == 5
    rows = read(spark, cluster, topic=topic).collect()
    again = [row for row in rows if "REPLAY_ID" in row.properties]
    assert sorted(bytes(row.body) for row in again) == [b"%d" % n for n in range(5)]
    assert run(spark, cluster, dead, None).sent.rows == 0


def test_what_can_not_be_replayed(
    spark: SparkSession, embedded_cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    topic = make_topic(embedded_cluster, "unreplayed")
    with pytest.raises(InvalidSetting, match="to is missing"):
        run(spark, embedded_cluster, topic, None)
    send(embedded_cluster, numbered(topic, 1))
    with pytest.raises(NoRoute):
        run(spark, embedded_cluster, topic, "no-such-topic")
