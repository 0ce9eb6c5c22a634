"""Each job where the cluster says no: one line, and nothing left behind."""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from rocketpipe import Credentials
from rocketpipe.errors import MQError
from rocketpipe.spark.jobs.archive import ArchiveSettings, archive
from rocketpipe.spark.jobs.audit import AuditSettings, audit
from rocketpipe.spark.jobs.publish import PublishSettings, publish
from rocketpipe.spark.jobs.replay import ReplaySettings, replay
from tests.interop.acl_clusters import ADMIN, STRANGER, TOPIC, AclCluster, acl_cluster_of
from tests.jobs.ledger import Ledger
from tests.spark.topics import numbered

Job = Callable[[SparkSession, dict[str, str], str, Path], Any]


@pytest.fixture(scope="module")
def acl_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AclCluster]:
    with acl_cluster_of("embedded-2", tmp_path_factory.mktemp("acl")) as cluster:
        yield cluster


def run_archive(spark: SparkSession, cluster: dict[str, str], topic: str, folder: Path) -> Any:
    source = {**cluster, "topic": topic}
    return archive(spark, ArchiveSettings(source=source, table=str(folder / "t"), once=True))


def run_publish(spark: SparkSession, cluster: dict[str, str], topic: str, folder: Path) -> Any:
    (folder / "in.csv").write_text("id\n1\n")
    target = {**cluster, "topic": topic, "producer.sendTimeout": "2s"}
    files = (str(folder / "in.csv"),)
    settings = PublishSettings(target=target, files=files, state=str(folder / "state"))
    return publish(spark, settings)


def run_replay(spark: SparkSession, cluster: dict[str, str], topic: str, folder: Path) -> Any:
    target = {name: value for name, value in cluster.items() if name != "retries"}
    return replay(
        spark, ReplaySettings(source={**cluster, "topic": topic}, target=target, to=topic)
    )


def run_audit(spark: SparkSession, cluster: dict[str, str], topic: str, folder: Path) -> Any:
    books = Ledger()
    books.send("sent", topic=topic)
    attempts = books.write_attempts(folder / "attempts.jsonl")
    with closing(audit(spark, AuditSettings(attempts=attempts, source=cluster))) as found:
        found.write(str(folder / "t"))


def as_options(cluster: AclCluster, who: Credentials) -> dict[str, str]:
    return {
        "namesrv": cluster.namesrv,
        "accessKey": who.access_key,
        "secretKey": who.secret_key,
        "retries": "0",
    }


JOBS = [run_archive, run_publish, run_replay]  # an audit tells of a missing topic in its notes


@pytest.mark.parametrize("run", [*JOBS, run_audit])
def test_wrong_credentials(
    run: Job, spark: SparkSession, acl_cluster: AclCluster, tmp_path: Path
) -> None:
    from rocketpipe import Producer

    with Producer("bad-input", namesrv=acl_cluster.namesrv, credentials=ADMIN) as producer:
        producer.send_many(numbered(TOPIC, 5))
    options = as_options(acl_cluster, STRANGER)
    if run is run_publish:
        del options["retries"]
    with pytest.raises(MQError, match="has no permission") as raised:
        run(spark, options, TOPIC, tmp_path)
    assert "\n" not in str(raised.value)
    assert "Traceback" not in str(raised.value)
    assert not list((tmp_path / "t").glob("**/*"))


@pytest.mark.parametrize("run", JOBS)
def test_no_such_topic(
    run: Job, spark: SparkSession, acl_cluster: AclCluster, tmp_path: Path
) -> None:
    options = as_options(acl_cluster, ADMIN)
    del options["retries"]
    with pytest.raises(MQError, match="no route to topic 'nope'") as raised:
        run(spark, options, "nope", tmp_path)
    assert "\n" not in str(raised.value)
    assert not list((tmp_path / "t").glob("**/*"))
    assert not list((tmp_path / "state").glob("**/*"))


@pytest.mark.parametrize("run", [*JOBS, run_audit])
def test_no_cluster(run: Job, spark: SparkSession, tmp_path: Path) -> None:
    nowhere = {"namesrv": "127.0.0.1:1", "requestTimeout": "1s"}
    with pytest.raises(MQError, match=r"127\.0\.0\.1:1") as raised:
        run(spark, nowhere, "orders", tmp_path)
    assert "\n" not in str(raised.value)
    assert not list((tmp_path / "t").glob("**/*"))


def test_a_folder_that_can_not_be_written(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    source = {"namesrv": "127.0.0.1:1", "topic": "orders"}
    settings = ArchiveSettings(source=source, table=str(tmp_path / "file" / "t"), once=True)
    with pytest.raises(MQError, match="file") as raised:
        archive(spark, settings)
    assert "\n" not in str(raised.value)
