"""`publish`: files to a topic, each row once."""

import json
from pathlib import Path
from threading import Event
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from pyspark.sql import Row, SparkSession

from rocketpipe.errors import InvalidSetting, JobError, MQError, NoRoute
from rocketpipe.spark.jobs import publish_rows
from rocketpipe.spark.jobs.publish import PublishReport, PublishSettings, publish
from rocketpipe.testing import EmbeddedCluster
from tests.interop.clusters import Cluster
from tests.spark.topics import make_topic, read


def run(
    spark: SparkSession, cluster: Cluster, topic: str, folder: Path, *files: Path, **settings: Any
) -> PublishReport:
    """With the job's state in this folder."""
    target = {"namesrv": cluster.namesrv, "topic": topic}
    state = str(folder / "state")
    names = tuple(map(str, files))
    return publish(spark, PublishSettings(target=target, files=names, state=state, **settings))


def stored(spark: SparkSession, cluster: Cluster, topic: str) -> list[Row]:
    return read(spark, cluster, topic=topic).collect()


def write_parquet(path: Path, first: int, count: int) -> Path:
    numbers = list(range(first, first + count))
    columns = {"id": numbers, "name": [f"n{n}" for n in numbers], "kind": ["a"] * count}
    pyarrow.parquet.write_table(pa.table(columns), path)
    return path


def test_rows_of_parquet_become_messages_as_options_say(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    topic = make_topic(cluster, "publish")
    files = [write_parquet(tmp_path / f"{n}.parquet", n * 100, 100) for n in range(3)]
    report = run(
        spark,
        cluster,
        topic,
        tmp_path,
        *files,
        body="name",
        keys=("id", "name"),
        tag="kind",
        properties={"number": "id"},
        sharding_key="name",
    )
    assert (report.sent.rows, report.sent.skipped, report.sent.bad) == (300, 0, 0)
    rows = stored(spark, cluster, topic)
    assert sorted(int(bytes(row.body)[1:]) for row in rows) == list(range(300))
    (row,) = [row for row in rows if bytes(row.body) == b"n17"]
    assert (row.tags, row.keys) == ("a", ["17", "n17"])
    assert row.properties["number"] == "17"
    assert len({row.messageId for row in rows}) == 300
    where = {(topic, row.brokerName, row.queueId) for row in rows}
    assert set(report.sent.queues) == where
    assert sum(report.sent.queues.values()) == 300
    assert report.sent.bytes == sum(len(row.body) for row in rows)


def test_a_job_that_is_done_sends_nothing_more(
    spark: SparkSession, embedded_cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    topic = make_topic(embedded_cluster, "done")
    (tmp_path / "in.csv").write_text("id,name\n1,x\n2,\n")
    here = (spark, embedded_cluster, topic, tmp_path, tmp_path / "in.csv")
    assert run(*here, job_id="night-1").sent.rows == 2
    assert [json.loads(bytes(row.body)) for row in stored(spark, embedded_cluster, topic)] in (
        [{"id": "1", "name": "x"}, {"id": "2"}],
        [{"id": "2"}, {"id": "1", "name": "x"}],
    )
    again = run(*here, job_id="night-1")
    assert (again.sent.rows, again.sent.skipped) == (0, 2)
    assert run(*here, job_id="night-2").sent.rows == 2
    with pytest.raises(InvalidSetting, match="job night-1 began with tag None, not 'name'"):
        run(*here, job_id="night-1", tag="name")
    (tmp_path / "in.csv").write_text("id,name\n1,x\n2,\n3,\n")
    with pytest.raises(JobError, match=r"in\.csv has changed"):
        run(*here, job_id="night-1")
    assert len(stored(spark, embedded_cluster, topic)) == 4


def test_a_job_that_ended_in_the_middle_goes_on_where_it_was(
    spark: SparkSession,
    embedded_cluster: EmbeddedCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic = make_topic(embedded_cluster, "middle")
    files = [write_parquet(tmp_path / f"{n}.parquet", n * 1000, 1000) for n in range(4)]
    # Each file a task of its own, so that there is a moment between two of them.
    monkeypatch.setattr(publish_rows, "BLOCK_BYTES", files[0].stat().st_size)
    stop = Event()
    settings = PublishSettings(
        target={"namesrv": embedded_cluster.namesrv, "topic": topic},
        files=tuple(map(str, files)),
        state=str(tmp_path / "state"),
        job_id="j",
        rate=500.0,
    )
    report = publish(
        spark, settings, lambda progress: stop.set() if progress.rows else None, stop=stop
    )
    before = len(stored(spark, embedded_cluster, topic))
    assert report.stopped
    assert 0 < before == report.sent.rows < 4000
    again = run(spark, embedded_cluster, topic, tmp_path, *files, job_id="j")
    rows = stored(spark, embedded_cluster, topic)
    assert len(rows) == len({row.messageId for row in rows}) == 4000
    assert again.sent.rows == 4000 - before


def test_a_dry_run_names_all_bad_rows_and_sends_nothing(
    spark: SparkSession, embedded_cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    topic = make_topic(embedded_cluster, "dry")
    lines = [{"id": n, "body": f"b{n}", "level": "1"} for n in range(100)]
    lines[17] |= {"body": ""}
    lines[40] |= {"level": "x"}
    text = "\n".join(map(json.dumps, lines)) + '\n{"id": 100, "bo\n'
    (tmp_path / "in.json").write_text(text)
    here = (spark, embedded_cluster, topic, tmp_path, tmp_path / "in.json")
    report = run(*here, body="body", delay_level="level", dry_run=True)
    assert (report.sent.rows, report.sent.bad) == (98, 3)
    assert [each.split(":")[0] for each in sorted(report.sent.bad_rows)] == [
        "in.json, row 100",
        "in.json, row 17",
        "in.json, row 40",
    ]
    reasons = " ".join(report.sent.bad_rows)
    assert "the body is empty" in reasons
    assert "this line can't be read" in reasons
    assert not list(tmp_path.glob("state/*"))
    assert stored(spark, embedded_cluster, topic) == []
    with pytest.raises(MQError, match=r"in\.json, row \d+: "):
        run(*here, body="body", delay_level="level")


def test_what_can_not_be_published(
    spark: SparkSession, embedded_cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    topic = make_topic(embedded_cluster, "wrong")
    file = write_parquet(tmp_path / "in.parquet", 0, 3)
    here = (spark, embedded_cluster, topic, tmp_path)
    with pytest.raises(InvalidSetting, match="no column 'nope'; there are id, name, kind"):
        run(*here, file, body="nope")
    with pytest.raises(NoRoute):
        run(spark, embedded_cluster, "no-such-topic", tmp_path, file)
    with pytest.raises(JobError, match=r"missing\.parquet"):
        run(*here, tmp_path / "missing.parquet")
    (tmp_path / "text.parquet").write_text("this is no Parquet")
    with pytest.raises(JobError, match=r"text\.parquet"):
        run(*here, tmp_path / "text.parquet")
    with pytest.raises(InvalidSetting, match="format is missing"):
        run(*here, tmp_path / "in.txt")
