"""`archive` as a function: what is in the table, and what is not."""

import json
import subprocess
import sys
from pathlib import Path
from threading import Event
from typing import Any

import pyarrow.dataset
import pytest
from pyspark.sql import SparkSession

from rocketpipe import Admin, Message
from rocketpipe.errors import InvalidSetting, JobError
from rocketpipe.spark.jobs.archive import (
    ArchiveReport,
    ArchiveSettings,
    archive,
    settle,
    start_archive,
)
from rocketpipe.spark.jobs.progress import Progress
from rocketpipe.testing import EmbeddedCluster
from tests.interop.clusters import Cluster
from tests.spark.topics import TIMEOUT, make_topic, numbered, send
from tests.unit.spark.jobs.test_avro_bodies import record, written

HOLDS_LOCK = """
import fcntl, sys, time
file = open(sys.argv[1], "w")
fcntl.lockf(file, fcntl.LOCK_EX)
print("held", flush=True)
time.sleep(600)
"""
BAD = {
    b"xx": "not JSON",
    b'{"id": "text"}': "field 'id' is a text, not bigint",
    b'{"id": 1.5}': "field 'id' is a number",
    b'[{"id": 1}, {"id": 2}]': "not a JSON object, but a list",
    b'{"id": 1} {"id": 2}': "not JSON: Extra data",
    b'{"id": 1} more': "not JSON: Extra data",
    b'{"id": 1}}': "not JSON: Extra data",
    b'{"id": 1}, {"id": 2}': "not JSON: Extra data",
    b'{"id": 1, "at": {"x": ["no"]}}': "does not fit the schema",
    b'{"id": 1': "not JSON",
    b"null": "not a JSON object, but null",
    b"\xff\xfe": "not UTF-8",
}


def run(
    spark: SparkSession, cluster: Cluster, table: Path, topic: str, **settings: Any
) -> ArchiveReport:
    source = {"namesrv": cluster.namesrv, "topic": topic, **settings.pop("source", {})}
    return archive(spark, ArchiveSettings(source=source, table=str(table), once=True, **settings))


def test_a_table_has_each_message_once_and_any_reader_can_read_it(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    topic = make_topic(cluster, "archive")
    send(cluster, [Message(topic, b"%d" % n, tags="a", keys=[f"k{n}"]) for n in range(300)])
    table = tmp_path / "table"
    report = run(spark, cluster, table, topic)
    assert (report.archived, report.quarantined) == (300, 0)
    send(cluster, numbered(topic, 200, start=300))
    report = run(spark, cluster, table, topic)
    assert (report.archived, report.archived_in_all) == (200, 500)
    assert run(spark, cluster, table, topic).read == 0

    rows = spark.read.parquet(str(table)).collect()
    assert sorted(int(row.body) for row in rows) == list(range(500))
    (first,) = [row for row in rows if bytes(row.body) == b"7"]
    assert (first.topic, first.tags, first.keys) == (topic, "a", ["k7"])
    assert first.date == first.storeTimestamp.date()
    # Without Spark: the same rows, and nothing of what stands behind an underscore.
    files = pyarrow.dataset.dataset(table, partitioning="hive")
    assert files.to_table(columns=["body"]).num_rows == 500
    assert not list(table.glob("_rocketpipe/open/*.parquet"))


def test_bodies_of_json_become_columns_and_others_go_to_quarantine(
    spark: SparkSession, embedded_cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    topic = make_topic(embedded_cluster, "json")
    good = [{"id": n, "name": f"n{n}", "at": {"x": [n]}} for n in range(50)]
    send(embedded_cluster, [Message(topic, json.dumps(each).encode()) for each in good])
    send(embedded_cluster, [Message(topic, b' {"id": 7, "new": 1}\n'), Message(topic, b"{}")])
    send(embedded_cluster, [Message(topic, body) for body in BAD])
    table = tmp_path / "table"
    schema = "id BIGINT, name STRING, at STRUCT<x: ARRAY<BIGINT>>"
    report = run(spark, embedded_cluster, table, topic, body="json", schema=schema)
    assert (report.archived, report.quarantined) == (52, len(BAD))

    frame = spark.read.parquet(str(table))
    assert "body" not in frame.columns
    values = [row.value.asDict(recursive=True) for row in frame.collect()]
    assert {"id": 3, "name": "n3", "at": {"x": [3]}} in values
    assert {"id": 7, "name": None, "at": None} in values
    quarantined = spark.read.parquet(report.quarantine).collect()
    told = {bytes(row.body): row.reason for row in quarantined}
    assert told.keys() == BAD.keys()
    for body, reason in BAD.items():
        assert reason in told[body], body
    row = quarantined[0]
    assert row.topic == topic
    assert row.queueOffset is not None
    assert row.messageId


def test_the_schema_of_the_first_run_stays(
    spark: SparkSession, embedded_cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    topic = make_topic(embedded_cluster, "schema")
    send(embedded_cluster, [Message(topic, b'{"id": 1}')])
    run(spark, embedded_cluster, tmp_path / "t", topic, body="json", keep_body=True)
    send(embedded_cluster, [Message(topic, b'{"id": 2, "more": true}')])
    run(spark, embedded_cluster, tmp_path / "t", topic, body="json", keep_body=True)
    frame = spark.read.parquet(str(tmp_path / "t"))
    assert frame.schema["value"].dataType.simpleString() == "struct<id:bigint>"
    assert sorted(row.value.id for row in frame.collect()) == [1, 2]
    assert sorted(bytes(row.body) for row in frame.collect())[1] == b'{"id": 2, "more": true}'


def test_a_table_is_tied_to_its_settings(
    spark: SparkSession, embedded_cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    topic = make_topic(embedded_cluster, "tied")
    send(embedded_cluster, [Message(topic, b'{"id": 1}')])
    table = tmp_path / "t"
    run(spark, embedded_cluster, table, topic, body="json", schema="id INT")
    with pytest.raises(InvalidSetting, match=f"archived with topic {topic}, not other"):
        run(spark, embedded_cluster, table, "other", body="json")
    with pytest.raises(InvalidSetting, match="archived with body json, not binary"):
        run(spark, embedded_cluster, table, topic)
    with pytest.raises(InvalidSetting, match="another schema"):
        run(spark, embedded_cluster, table, topic, body="json", schema="id BIGINT")
    assert run(spark, embedded_cluster, table, topic, body="json", schema="id int").read == 0
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine")
    with pytest.raises(JobError, match="no archive of ours"):
        run(spark, embedded_cluster, tmp_path / "full", topic)


def test_text_and_what_is_none(
    spark: SparkSession, embedded_cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    topic = make_topic(embedded_cluster, "text")
    send(embedded_cluster, [Message(topic, "grüße".encode()), Message(topic, b"\xff")])
    report = run(spark, embedded_cluster, tmp_path / "t", topic, body="text")
    assert (report.archived, report.quarantined) == (1, 1)
    assert [row.text for row in spark.read.parquet(str(tmp_path / "t")).collect()] == ["grüße"]
    (bad,) = spark.read.parquet(report.quarantine).collect()
    assert (bytes(bad.body), bad.reason) == (b"\xff", "the body is not UTF-8")


def test_small_batches_become_few_files(
    spark: SparkSession, embedded_cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    topic = make_topic(embedded_cluster, "small")
    send(embedded_cluster, numbered(topic, 400))
    report = run(spark, embedded_cluster, tmp_path / "t", topic, rows_per_batch=100)
    files = list((tmp_path / "t").glob("topic=*/date=*/*.parquet"))
    assert report.files == len(files) == 1
    rows = spark.read.parquet(str(tmp_path / "t")).collect()
    assert sorted(int(row.body) for row in rows) == list(range(400))


def test_a_query_that_runs_beside_other_work(
    spark: SparkSession, embedded_cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    topic = make_topic(embedded_cluster, "beside")
    send(embedded_cluster, numbered(topic, 100))
    source = {"namesrv": embedded_cluster.namesrv, "topic": topic}
    settings = ArchiveSettings(source=source, table=str(tmp_path / "t"), interval=0.1)
    query = start_archive(spark, settings)
    try:
        send(embedded_cluster, numbered(topic, 100, start=100))
        query.processAllAvailable()
        # Nothing is large or old enough: readers see nothing, rather than many small files.
        assert not list((tmp_path / "t").glob("topic=*"))
    finally:
        query.stop()
    assert query.awaitTermination(TIMEOUT)
    assert settle(spark, settings).archived == 200
    assert spark.read.parquet(str(tmp_path / "t")).count() == 200


def test_what_waits_is_published_in_time_though_nothing_more_comes(
    spark: SparkSession, embedded_cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    topic = make_topic(embedded_cluster, "idle")
    send(embedded_cluster, numbered(topic, 10))
    source = {"namesrv": embedded_cluster.namesrv, "topic": topic}
    settings = ArchiveSettings(source=source, table=str(tmp_path / "t"), file_age=1.0)
    stop = Event()

    def seen(progress: Progress) -> None:
        if list((tmp_path / "t").glob("topic=*/date=*/*.parquet")):
            stop.set()

    report = archive(spark, settings, seen, stop=stop)
    assert (report.archived, report.lag) == (10, 0)


def test_two_archives_of_one_table(
    spark: SparkSession, embedded_cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    topic = make_topic(embedded_cluster, "two")
    home = tmp_path / "t" / "_rocketpipe"
    home.mkdir(parents=True)
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDS_LOCK, str(home / "lock")], stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None
        holder.stdout.readline()
        with pytest.raises(JobError, match="another archive is writing to"):
            run(spark, embedded_cluster, tmp_path / "t", topic)
    finally:
        holder.kill()
        holder.wait()
        if holder.stdout is not None:
            holder.stdout.close()
    assert run(spark, embedded_cluster, tmp_path / "t", topic).read == 0


def test_bodies_of_avro_become_columns(
    spark: SparkSession, embedded_cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    topic = make_topic(embedded_cluster, "avro")
    schema = record("long", ["null", "string"], {"type": "map", "values": "int"})
    values = [{"f0": n, "f1": None if n % 2 else "x", "f2": {"a": n}} for n in range(20)]
    send(embedded_cluster, [Message(topic, written(schema, each)) for each in values])
    send(embedded_cluster, [Message(topic, b"\xff")])
    report = run(spark, embedded_cluster, tmp_path / "t", topic, body="avro", schema=schema)
    assert (report.archived, report.quarantined) == (20, 1)
    rows = spark.read.parquet(str(tmp_path / "t")).collect()
    found = sorted((row.value.asDict() for row in rows), key=lambda each: each["f0"])
    assert found == values
    (bad,) = spark.read.parquet(report.quarantine).collect()
    assert "not Avro of this schema" in bad.reason


def test_a_pattern_and_a_dead_letter_topic_whose_name_is_no_folder_name(
    spark: SparkSession, embedded_cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    topic = make_topic(embedded_cluster, "pattern")
    dead = f"%DLQ%{topic}"
    with Admin(namesrv=embedded_cluster.namesrv) as admin:
        admin.create_topic(dead, queues=1)
    send(embedded_cluster, numbered(topic, 10))
    send(embedded_cluster, numbered(dead, 5))
    source = {"topic": f"{topic},{dead}"}
    report = run(spark, embedded_cluster, tmp_path / "t", topic, source=source)
    assert report.archived == 15
    counts = spark.read.parquet(str(tmp_path / "t")).groupBy("topic").count().collect()
    assert {row.topic: row["count"] for row in counts} == {topic: 10, dead: 5}
