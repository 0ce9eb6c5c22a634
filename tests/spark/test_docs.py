"""The examples of the documents that use a Spark session, all in one."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from rocketpipe import Message
from rocketpipe.testing import EmbeddedCluster
from tests.docs.documents import DOCUMENTS, examples, name_of
from tests.docs.session import NAMESRV
from tests.spark.topics import TIMEOUT, send

WITH_SPARK = [
    pytest.param(document, id=name_of(document))
    for document in DOCUMENTS
    if any(each.is_run and each.needs_session for each in examples(document))
]


@pytest.mark.parametrize("document", WITH_SPARK)
def test_the_examples_of_a_document_run_in_one_session(
    document: Path, spark: SparkSession, embedded_cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    orders = [Message("orders", b'{"id": %d}' % n, tags="paid", keys=[f"o-{n}"]) for n in (1, 2)]
    send(embedded_cluster, [*orders, Message("orders-eu", b"{}")])
    found: dict[str, Any] = {"spark": spark}
    try:
        for example in examples(document):
            if example.is_run and example.needs_session:
                text = example.text.replace(NAMESRV, embedded_cluster.namesrv)
                text = text.replace('"/data', f'"{tmp_path}/data')
                # Blank lines before it, so that a traceback names the document's own line.
                code = "\n" * (example.line - 1) + text
                exec(compile(code, str(document), "exec"), found)
        for query in spark.streams.active:
            query.processAllAvailable()
            assert query.exception() is None
    finally:
        for query in spark.streams.active:
            query.stop()
            query.awaitTermination(TIMEOUT)


def test_what_the_stream_of_the_docs_wrote_can_be_read(
    spark: SparkSession, embedded_cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    """The document's promise: a stream to Parquet that holds what was sent."""
    send(embedded_cluster, [Message("orders-us", b"1")])
    (document,) = [each for each in DOCUMENTS if each.name == "spark.md"]
    (stream,) = [each for each in examples(document) if "readStream" in each.text and each.is_run]
    text = stream.text.replace(NAMESRV, embedded_cluster.namesrv)
    found: dict[str, Any] = {"spark": spark}
    exec(text.replace('"/data', f'"{tmp_path}/data'), found)
    try:
        found["query"].processAllAvailable()
    finally:
        found["query"].stop()
        found["query"].awaitTermination(TIMEOUT)
    assert spark.read.parquet(str(tmp_path / "data" / "orders")).count() >= 1
