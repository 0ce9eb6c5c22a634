"""The attempts an audit looks at: a recorder's, and those that the trace topic tells of."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from rocketpipe.errors import JobError, MalformedData
from rocketpipe.wire.trace import EndTransaction, Pub, decode_traces

if TYPE_CHECKING:
    import pyarrow

# As client/parquet_recorder.py writes them. Older recorders wrote less: what is missing is null.
RECORDS = """started_ms bigint, elapsed_ms double, producer_group string, topic string,
    message_ids array<string>, messages bigint, body_bytes bigint, is_oneway boolean,
    is_transaction boolean, is_delayed boolean, policy string, attempt bigint, is_late boolean,
    broker string, queue_id bigint, address string, status string, queue_offset bigint,
    error string, code bigint, remark string, reason string, passed_over map<string, string>"""

UNKNOWN_POLICY = "unknown"
# Who chose the queue, where it was not the policy: as client/sender.py writes it.
_CHOSEN_BY = {"the caller chose the queue": "caller", "the selector chose the queue": "selector"}


def read_records(spark: SparkSession, path: str) -> DataFrame:
    """A recorder's records as they are; those that can't be read have null everywhere."""
    reader = spark.read.schema(RECORDS)
    try:
        return reader.json(path) if _is_json(path) else reader.parquet(path)
    except AnalysisException as error:
        if error.getCondition() == "PATH_NOT_FOUND":
            raise JobError(f"attempts: {path} does not exist") from error
        raise


def is_readable() -> Any:
    """The condition that a record tells what no attempt can be without."""
    named = ("started_ms", "elapsed_ms", "topic", "broker", "attempt")
    condition = f.coalesce(f.size("message_ids"), f.lit(0)) > 0
    for name in named:
        condition &= f.col(name).isNotNull()
    return condition


def with_defaults(records: DataFrame) -> DataFrame:
    """All columns filled in, and some that follow from them:

    message_id      the first of a batch; with the group, it names a send
    chosen_by       the policy, `caller` or `selector`
    is_first        the first attempt of a send, and answered or not in its own time
    is_stored       a broker said so; late answers are `is_late` besides
    is_failed       it was waited for, and came to nothing
    """
    chosen_by = f.col("policy")
    for reason, name in _CHOSEN_BY.items():
        chosen_by = f.when(f.col("reason") == reason, name).otherwise(chosen_by)
    yes_no = ("is_oneway", "is_transaction", "is_delayed", "is_late")
    return (
        records.withColumns({name: f.coalesce(name, f.lit(False)) for name in yes_no})
        .withColumn("policy", f.coalesce(f.nullif("policy", f.lit("")), f.lit(UNKNOWN_POLICY)))
        .withColumn("message_id", f.element_at("message_ids", 1))
        .withColumn("chosen_by", chosen_by)
        .withColumn("is_first", (f.col("attempt") == 1) & ~f.col("is_late"))
        .withColumn("is_stored", f.col("status").isNotNull())
        # ClientError: the caller gave up, or an earlier attempt was answered meanwhile.
        .withColumn("is_failed", f.col("error").isNotNull() & (f.col("error") != "ClientError"))
    )


def _is_json(path: str) -> bool:
    if Path(path).is_dir():
        return any(Path(path).glob("*.json*")) and not any(Path(path).glob("*.parquet"))
    # A local file, a pattern, or a place on another machine: by its name.
    return ".json" in Path(path).name or (Path(path).is_file() and not path.endswith(".parquet"))


# The trace topic.

_TRACES = f"kind string, state string, bad string, {RECORDS}"


def read_traces(
    spark: SparkSession, options: Mapping[str, str], topic: str, brokers: Mapping[str, str]
) -> DataFrame:
    """What the trace topic tells: sends as records, and the ends of transactions.

    `kind` is Pub, EndTransaction or bad; Sub and Recall records are left out, as no send is in
    them. `brokers` has their names by address.
    """
    raw = spark.read.format("rocketmq").options(**options).option("topic", topic)
    bodies = raw.schema("body binary").load()
    return bodies.mapInArrow(_Decoder(dict(brokers)), _TRACES)


class _Decoder:
    """Bodies of trace messages into rows, a whole Arrow batch at a time."""

    def __init__(self, brokers: Mapping[str, str]) -> None:
        self._brokers = brokers
        described = StructType.fromDDL(_TRACES)  # here: workers have no Java to ask
        assert isinstance(described, StructType)
        self._schema = described

    def __call__(self, batches: "Iterable[pyarrow.RecordBatch]") -> "Iterator[pyarrow.RecordBatch]":
        import pyarrow
        from pyspark.sql.pandas.types import to_arrow_schema

        schema = to_arrow_schema(self._schema)
        for batch in batches:
            bodies = batch.column("body").to_pylist()
            rows = [row for body in bodies for row in trace_rows(body, self._brokers)]
            yield pyarrow.RecordBatch.from_pylist(rows, schema)


def trace_rows(body: bytes, brokers: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """What a trace message tells of sends; a record that makes no sense is a row that says so."""
    # One by one, so that a bad one does not take the others of its message with it.
    for line in body.decode("utf-8", "replace").split("\x02"):
        if not line:
            continue
        try:
            (trace,) = decode_traces(line + "\x02")
        except MalformedData as error:
            yield {"kind": "bad", "bad": str(error)}
            continue
        if isinstance(trace, Pub):
            yield _pub_row(trace, brokers)
        elif isinstance(trace, EndTransaction):
            yield {
                "kind": "EndTransaction",
                "state": trace.state,
                "topic": trace.topic,
                "message_ids": [trace.message_id],
            }


def _pub_row(pub: Pub, brokers: Mapping[str, str]) -> dict[str, Any]:
    """Only sends that a broker stored are traced. Which attempt it was, nobody tells."""
    ids = pub.message_id.split(",")
    return {
        "kind": "Pub",
        "started_ms": pub.timestamp_ms,
        "elapsed_ms": float(pub.cost_ms),
        "producer_group": pub.group,
        "topic": pub.topic,
        "message_ids": ids,
        "messages": len(ids),
        "body_bytes": pub.body_length,
        "is_transaction": pub.message_type == 1,
        "is_delayed": pub.message_type == 3,
        "policy": UNKNOWN_POLICY,
        "attempt": 1,
        "broker": brokers.get(pub.store_host or "", pub.store_host or "unknown"),
        "address": pub.store_host,
        "status": "SEND_OK" if pub.is_success else "NOT_SAFE",
        "passed_over": {},
    }
