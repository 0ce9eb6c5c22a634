"""The examples in docs/jobs.md run."""

import re
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet
import pytest
from pyspark.sql import SparkSession

from rocketpipe import Admin, Message
from rocketpipe.testing import EmbeddedCluster
from tests.spark.topics import send

DOCS = (Path(__file__).parents[2] / "docs" / "jobs.md").read_text()


def test_the_examples_of_jobs_run(
    spark: SparkSession,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    orders = pa.table({"order_id": ["1", "2"], "state": ["paid", "new"]})
    pyarrow.parquet.write_table(orders, tmp_path / "new-orders.parquet")
    with EmbeddedCluster(1) as cluster:
        with Admin(namesrv=cluster.namesrv) as admin:
            admin.create_topic("orders", queues=1)
            admin.create_topic("%DLQ%billing", queues=1)
        send(cluster, [Message("orders", b'{"id": 1}')])
        for example in re.findall(r"```python\n(.*?)```", DOCS, re.DOTALL):
            example = example.replace("127.0.0.1:9876", cluster.namesrv)
            example = example.replace("/data", str(tmp_path))
            with patch("rocketpipe.spark.jobs.session.spark_session", return_value=spark):
                exec(compile(example, "docs/jobs.md", "exec"), {})
    archived, published, replayed = capsys.readouterr().out.splitlines()
    assert archived == "1 0 1"
    assert published.startswith("2 ")
    assert replayed == "0 0 0"
