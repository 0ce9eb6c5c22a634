"""Clusters that check who asks and speak TLS: read, streamed and written by options alone."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from rocketpipe import Credentials
from tests.certificates import Certificates
from tests.interop.acl_clusters import (
    GROUP,
    KINDS,
    READER,
    STRANGER,
    TOPIC,
    WRITER,
    AclCluster,
    acl_cluster_of,
)
from tests.interop.clusters import new_topic
from tests.interop.tls_clusters import tls_cluster_of
from tests.spark.test_stream import SCHEMA, numbers, run

COUNT = 300


def write(spark: SparkSession, topic: str, **options: Any) -> None:
    frame = spark.range(0, COUNT, 1, 2).selectExpr("string(id) AS body")
    frame.write.format("rocketmq").options(topic=topic, **options).mode("append").save()


def read(spark: SparkSession, topic: str, **options: Any) -> DataFrame:
    return spark.read.format("rocketmq").options(topic=topic, **options).load()


def copy(spark: SparkSession, topic: str, folder: Path, **options: Any) -> None:
    """As a stream, to Parquet."""
    reader = spark.readStream.format("rocketmq").schema(SCHEMA)
    reader = reader.options(topic=topic, startingOffsets="earliest", **options)
    run(reader.load(), folder)


def found(frame: DataFrame) -> list[int]:
    return sorted(int(row.body) for row in frame.select("body").collect())


@pytest.fixture
def tls_options(cluster_name: str, certificates: Certificates) -> Iterator[dict[str, str]]:
    cert, key = certificates.client
    with tls_cluster_of(cluster_name, certificates, "enforcing") as namesrv:
        yield {
            "namesrv": namesrv,
            "tlsCaFile": certificates.ca,
            "tlsCertFile": cert,
            "tlsKeyFile": key,
        }


def test_over_tls(spark: SparkSession, tls_options: dict[str, str], tmp_path: Path) -> None:
    topic = new_topic("spark-tls")
    write(spark, topic, **tls_options)
    assert found(read(spark, topic, **tls_options)) == list(range(COUNT))
    assert found(read(spark, topic, dropRepeats=True, **tls_options)) == list(range(COUNT))
    copy(spark, topic, tmp_path, **tls_options)
    assert numbers(spark, tmp_path) == list(range(COUNT))
    plain = {"namesrv": tls_options["namesrv"], "retries": "0", "requestTimeout": "2s"}
    with pytest.raises(PySparkException, match="no NameServer answered"):
        read(spark, topic, **plain).collect()
    with pytest.raises(PySparkException, match="the certificate is not trusted"):
        read(spark, topic, tls=True, **plain).collect()


_MARKS = {kind: [pytest.mark.slow, *[pytest.mark.apache] * (kind[0] != "e")] for kind in KINDS}


@pytest.fixture(params=[pytest.param(kind, marks=marks) for kind, marks in _MARKS.items()])
def acl_cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[AclCluster]:
    with acl_cluster_of(request.param, tmp_path) as cluster:
        yield cluster


def as_user(cluster: AclCluster, user: Credentials) -> dict[str, str]:
    options = {"accessKey": user.access_key, "secretKey": user.secret_key}
    return {"namesrv": cluster.namesrv, **options}


def test_with_credentials(spark: SparkSession, acl_cluster: AclCluster, tmp_path: Path) -> None:
    write(spark, TOPIC, **as_user(acl_cluster, WRITER))
    reader = {**as_user(acl_cluster, READER), "group": GROUP}
    frame = read(spark, TOPIC, **reader)
    assert found(frame) == list(range(COUNT))
    assert found(read(spark, TOPIC, dropRepeats=True, **reader)) == list(range(COUNT))
    copy(spark, TOPIC, tmp_path, **reader)
    assert numbers(spark, tmp_path) == list(range(COUNT))
    plan = frame._jdf.queryExecution().toString()
    assert "rocketmq" in plan.lower()
    assert READER.secret_key not in plan
    wrong = {**reader, "secretKey": "wrong-secret", "retries": "0"}
    refused: list[tuple[Callable[[], object], str]]
    refused = [(lambda: read(spark, TOPIC, **wrong).collect(), "wrong-secret")]
    if acl_cluster.generation == 2:  # under ACL 1 brokers do not look at batches
        stranger = as_user(acl_cluster, STRANGER)
        refused += [(partial(write, spark, TOPIC, **stranger), STRANGER.secret_key)]
    for work, secret in refused:
        with pytest.raises(PySparkException) as caught:
            work()
        assert secret not in str(caught.value)
        # 4.9.4 has no code of its own for it.
        assert "NO_PERMISSION" in str(caught.value) or "AclException" in str(caught.value)
