"""The audit of real sends on real clusters: by a recorder, by the trace topic, by its command."""

import json
import re
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from pyspark.sql import SparkSession

from rocketpipe import (
    HalfMessage,
    Message,
    MessageQueue,
    ParquetRecorder,
    Producer,
    SendResult,
    StoredMessage,
    TransactionProducer,
    TransactionState,
)
from rocketpipe.codes import RequestCode
from rocketpipe.errors import SendFailed
from rocketpipe.spark.jobs.archive import ArchiveSettings, archive
from rocketpipe.spark.jobs.audit import TRACE_TOPIC, Audit, AuditSettings, audit
from rocketpipe.testing import EmbeddedCluster
from tests.cli.conftest import Program
from tests.interop.clusters import Cluster, java
from tests.spark.topics import make_topic, numbered, send

SENDS = (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)


class Half:
    """Commits what says so."""

    def execute(self, message: HalfMessage, arg: object) -> TransactionState:
        return TransactionState.COMMIT if message.body == b"commit" else TransactionState.ROLLBACK

    def check(self, message: StoredMessage) -> TransactionState:
        return TransactionState.ROLLBACK


def send_every_kind(cluster: EmbeddedCluster, topic: str, attempts: Path) -> dict[str, Any]:
    """Sends of every kind, with faults at both brokers; what is known of them here."""
    settings: dict[str, Any] = {
        "namesrv": cluster.namesrv,
        "policy": "java5",
        "send_timeout": 30.0,
        "attempt_timeout": 1.0,
    }
    a0 = MessageQueue(topic, "broker-a", 0)
    known: dict[str, Any] = {}
    with Producer("audited", hooks=[ParquetRecorder(attempts)], **settings) as producer:
        plain = [producer.send(Message(topic, b"%d" % number)) for number in range(20)]
        batch = producer.send_batch([Message(topic, b"batch")] * 5)
        known["acknowledged"] = [*(each.message_id for each in plain), *batch.message_ids]
        producer.send_oneway(Message(topic, b"one-way"))
        producer.send(Message(topic, b"delayed", delay_level=18))
        # Stored, the answer lost, stored again elsewhere.
        for broker in cluster.brokers:
            broker.faults.drop_answers(code=SENDS, topic=topic, times=1)
        known["repeated"] = producer.send(Message(topic, b"twice")).message_id
        for broker in cluster.brokers:
            broker.faults.clear()
        for _ in range(3):  # while the broker that answered last is the only one to be trusted
            known["acknowledged"].append(producer.send(Message(topic, b"around")).message_id)
        # Stored, the answer lost, and nobody tried again.
        cluster.broker("broker-a").faults.drop_answers(code=SENDS, topic=topic)
        with pytest.raises(SendFailed):
            producer.send(Message(topic, b"untold"), queue=a0, timeout=1.5)
        cluster.broker("broker-a").faults.clear()
    with TransactionProducer(
        "audited-half", Half(), hooks=[ParquetRecorder(attempts)], trace=True, **settings
    ) as producer:
        producer.send_in_transaction(Message(topic, b"commit"))
        producer.send_in_transaction(Message(topic, b"roll back"))
    return known


def test_the_reconciliation_says_what_was_removed_and_what_was_doubled(
    spark: SparkSession, program: Program, embedded_cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    cluster = embedded_cluster
    topic = make_topic(cluster, "audited")
    known = send_every_kind(cluster, topic, tmp_path / "attempts")
    send(cluster, numbered(topic, 7))  # of somebody else
    source = {"namesrv": cluster.namesrv}
    attempts = str(tmp_path / "attempts")

    # As the cluster has it: all is well.
    found = audit(spark, AuditSettings(attempts=attempts, source=source, trace=TRACE_TOPIC))
    rows = {row.topic: row for row in found.reconciliation or ()}
    row = rows[topic]
    assert (row.lost, row.others, row.failed, row.expired) == (0, 7, 0, 0)
    assert (row.oneway, row.oneway_missing, row.waiting, row.uncommitted) == (1, 0, 1, 1)
    assert (row.sent, row.stored) == (34, 32)
    assert known["repeated"] in row.repeated_ids
    assert row.unacknowledged >= 1
    facts = found.facts("Every kind")
    assert {each.kind for each in facts.needless_retries} == {"answer_lost"}
    assert {each.broker for each in facts.isolations} & {"broker-a", "broker-b"}
    found.close()

    # As a table has it, from which one is taken, and to which one is added.
    table = tmp_path / "archive"
    archive(spark, ArchiveSettings(source={**source, "topic": topic}, table=str(table), once=True))
    assert look(spark, attempts, table).lost == 0
    first, *_, last = known["acknowledged"]
    twice = known["acknowledged"][1]
    tamper(table, remove={first, last}, double=twice)
    finished = program(
        *("audit", "--attempts", attempts, "--messages", str(table), "--json"),
        *("--out", str(tmp_path / "out"), "--master", "local[1]"),
    )
    assert finished.code == 1, finished.errors
    assert "2 acknowledged messages are not stored" in finished.errors
    told = json.loads(finished.output)
    (row_told,) = told["reconciliation"]
    assert row_told["lost"] == 2
    assert set(row_told["lost_ids"]) == {first, last}
    assert twice in row_told["repeated_ids"]
    assert known["repeated"] in row_told["repeated_ids"]
    report = (tmp_path / "out" / "report.html").read_text()
    assert first in report
    assert '<div class="verdict bad">' in report
    lost = pyarrow.parquet.read_table(tmp_path / "out" / "tables" / "lost").to_pylist()
    assert {each["message_id"] for each in lost} == {first, last}


def look(spark: SparkSession, attempts: str, table: Path) -> Audit:
    return audit(spark, AuditSettings(attempts=attempts, messages=[str(table)]))


def tamper(table: Path, *, remove: set[str], double: str) -> None:
    """Take messages out of an archived table, and put one in once more, at another place."""
    for file in table.glob("topic=*/date=*/*.parquet"):
        parquet = pyarrow.parquet.ParquetFile(file)  # alone: the folders would become columns
        rows = parquet.read().to_pylist()
        kept = [row for row in rows if row["messageId"] not in remove]
        again = [
            {**row, "queueOffset": row["queueOffset"] + 1_000_000}
            for row in rows
            if row["messageId"] == double
        ]
        new = pyarrow.Table.from_pylist([*kept, *again], parquet.schema_arrow)
        pyarrow.parquet.write_table(new, file)
        crc = file.with_name(f".{file.name}.crc")
        crc.unlink(missing_ok=True)


@pytest.mark.parametrize(
    "cluster_name",
    [
        pytest.param("5.5.0", marks=[pytest.mark.apache]),
        pytest.param("embedded"),
    ],
    indirect=True,
)
def test_the_trace_topic_tells_of_java_producers(spark: SparkSession, cluster: Cluster) -> None:
    topic = make_topic(cluster, "traced")
    output = java(cluster, "Traced.java", topic, "12")
    ids = set(re.findall(r"^sent\t(\w+)", output, re.MULTILINE))
    assert len(ids) == 15
    with Producer("traced-by-python", namesrv=cluster.namesrv, trace=True) as producer:
        result = producer.send(Message(topic, b"x"))
        assert isinstance(result, SendResult)
        # What makes no sense is counted, and takes nothing else with it.
        producer.send(Message(TRACE_TOPIC, b"Pub\x01no time\x02Nonsense\x02\xff\xfe"))
    found = audit(
        spark,
        AuditSettings(trace=TRACE_TOPIC, source={"namesrv": cluster.namesrv}, topics=[topic]),
    )
    (row,) = found.reconciliation or ()
    assert (row.sent, row.acknowledged, row.stored) == (16, 16, 16)
    assert (row.lost, row.repeated, row.others) == (0, 0, 0)
    facts = found.facts("Traces")
    assert (facts.totals.sends, facts.totals.messages, facts.totals.retries) == (14, 16, 0)
    assert {each.broker for each in facts.brokers} <= {"broker-a", "broker-b"}
    assert facts.totals.p50_ms is not None
    assert any(re.fullmatch(r"\d+ records of \S+ make no sense", note) for note in found.notes)
    found.close()
