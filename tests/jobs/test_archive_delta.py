"""Archives as tables of Delta: what delta-rs reads is what was archived, by any number of runs."""

import json
import sys
from pathlib import Path

import pyarrow.compute
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from rocketpipe import Message
from rocketpipe.clock import SystemClock
from rocketpipe.errors import InvalidSetting, JobError
from rocketpipe.spark.jobs.archive import ArchiveSettings
from rocketpipe.spark.jobs.archive_delta import APPLICATION, add_to_log
from rocketpipe.testing import EmbeddedCluster
from tests.jobs.test_archive import run
from tests.spark.topics import make_topic, numbered, send


def test_the_log_has_every_file_and_readers_of_delta_every_message(
    spark: SparkSession, embedded_cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    topic = make_topic(embedded_cluster, "delta")
    table = tmp_path / "table"
    for start in (0, 300):
        send(embedded_cluster, numbered(topic, 300, start=start))
        assert run(spark, embedded_cluster, table, topic, format="delta").archived == 300
    assert run(spark, embedded_cluster, table, topic, format="delta").archived == 0

    found = DeltaTable(table)
    assert found.metadata().partition_columns == ["topic", "date"]
    rows = found.to_pyarrow_table().to_pylist()
    assert sorted(int(row["body"]) for row in rows) == list(range(600))
    # By every column what Spark makes of the same files.
    files = spark.read.parquet(str(table))
    as_delta = spark.createDataFrame(found.to_pyarrow_table(), files.schema)
    assert sorted(map(str, as_delta.collect())) == sorted(map(str, files.collect()))
    # Files are skipped by what the log says of them, and none that has a row.
    low = found.to_pyarrow_dataset().filter(pyarrow.compute.field("queueOffset") < 5)
    assert low.count_rows() == sum(row["queueOffset"] < 5 for row in rows)
    assert {each.removeprefix("file://") for each in found.file_uris()} == {
        str(each) for each in table.glob("topic=*/date=*/*.parquet")
    }


def test_what_is_in_the_log_is_not_added_again_though_its_file_was_replaced(
    spark: SparkSession, embedded_cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    """A run was killed after it had added files, and somebody joined them before the next."""
    topic = make_topic(embedded_cluster, "delta-again")
    table = tmp_path / "table"
    for _ in range(2):
        send(embedded_cluster, numbered(topic, 10))
        run(spark, embedded_cluster, table, topic, format="delta")
    files = [str(each.relative_to(table)) for each in table.glob("topic=*/date=*/*.parquet")]
    found = DeltaTable(table)
    number = found.transaction_version(APPLICATION)
    assert number is not None
    found.optimize.compact()
    add_to_log(f"file:{table}", files, number, SystemClock())
    assert DeltaTable(table).to_pyarrow_table().num_rows == 20
    add_to_log(f"file:{table}", files, number + 1, SystemClock())
    assert DeltaTable(table).to_pyarrow_table().num_rows > 20


def test_quarantine_is_a_table_of_its_own(
    spark: SparkSession, embedded_cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    topic = make_topic(embedded_cluster, "delta-json")
    send(embedded_cluster, [Message(topic, json.dumps({"id": n}).encode()) for n in range(20)])
    send(embedded_cluster, [Message(topic, b"bad"), Message(topic, b'{"id": "text"}')])
    table = tmp_path / "table"
    settings = {"format": "delta", "body": "json", "schema": "id BIGINT, at TIMESTAMP_NTZ"}
    report = run(spark, embedded_cluster, table, topic, **settings)
    assert (report.archived, report.quarantined) == (20, 2)
    values = DeltaTable(table).to_pyarrow_table().column("value").to_pylist()
    assert sorted(value["id"] for value in values) == list(range(20))
    bad = DeltaTable(report.quarantine).to_pyarrow_table().to_pylist()
    assert {bytes(row["body"]) for row in bad} == {b"bad", b'{"id": "text"}'}
    assert all(row["reason"] for row in bad)


def test_names_that_an_address_has_to_escape(
    spark: SparkSession, embedded_cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    topic = make_topic(embedded_cluster, "%RETRY%delta")
    send(embedded_cluster, numbered(topic, 10))
    table = tmp_path / "a table, größer"
    run(spark, embedded_cluster, table, topic, format="delta")
    found = DeltaTable(table).to_pyarrow_table()
    assert found.num_rows == 10
    assert set(found.column("topic").to_pylist()) == {topic}


def test_a_table_stays_what_it_is(
    spark: SparkSession, embedded_cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    topic = make_topic(embedded_cluster, "delta-tied")
    send(embedded_cluster, numbered(topic, 5))
    run(spark, embedded_cluster, tmp_path / "parquet", topic)
    with pytest.raises(InvalidSetting, match="was archived with format parquet, not delta"):
        run(spark, embedded_cluster, tmp_path / "parquet", topic, format="delta")
    run(spark, embedded_cluster, tmp_path / "delta", topic, format="delta")
    assert DeltaTable(tmp_path / "delta").transaction_version(APPLICATION) is not None
    with pytest.raises(InvalidSetting, match="was archived with format delta, not parquet"):
        run(spark, embedded_cluster, tmp_path / "delta", topic)
    with pytest.raises(InvalidSetting, match="Unsupported Delta table type: 'time"):
        run(
            spark,
            embedded_cluster,
            tmp_path / "time",
            topic,
            format="delta",
            body="json",
            schema="t TIME",
        )
    assert not (tmp_path / "time").exists()


def test_without_delta_rs_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(JobError, match=r"pip install 'rocketpipe\[delta\]'"):
        ArchiveSettings(source={"topic": "x", "namesrv": "x:1"}, table="t", format="delta")
    with pytest.raises(InvalidSetting, match="format is 'orc': it must be one of parquet, delta"):
        ArchiveSettings(source={"topic": "x", "namesrv": "x:1"}, table="t", format="orc")
