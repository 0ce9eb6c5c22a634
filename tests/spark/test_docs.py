"""The examples in docs/spark.md run."""

import re
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from rocketpipe import Message
from rocketpipe.testing import EmbeddedCluster
from tests.spark.topics import TIMEOUT, send

DOCS = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()


def test_the_examples_of_reading_run(
    spark: SparkSession, embedded_cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    send(embedded_cluster, [Message("orders", b"1"), Message("orders-eu", b"2")])
    batch, stream = re.findall(r"```python\n(.*?)```", DOCS, re.DOTALL)
    found: dict[str, Any] = {"spark": spark}
    for example in (batch, stream):
        example = example.replace("127.0.0.1:9876", embedded_cluster.namesrv)
        exec(compile(example.replace("/data", str(tmp_path)), "docs/spark.md", "exec"), found)
    try:
        assert found["orders"].count() >= 1
        found["query"].processAllAvailable()
    finally:
        found["query"].stop()
        found["query"].awaitTermination(TIMEOUT)
    assert spark.read.parquet(str(tmp_path / "orders")).count() >= 1
