"""The messages an audit compares with: rows of archived tables, or the topics themselves."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from rocketpipe.errors import JobError, NoRoute
from rocketpipe.message import MessageQueue
from rocketpipe.spark.cluster_view import ClusterView
from rocketpipe.spark.jobs.archive_table import QUARANTINE
from rocketpipe.spark.jobs.reconciliation import STORED
from rocketpipe.spark.read_options import ReadOptions
from rocketpipe.sync.admin import Admin


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """Stored messages, and what is known about those that are not there."""

    messages: DataFrame
    first_offsets: Mapping[MessageQueue, int] = field(default_factory=dict)
    missing: Sequence[str] = ()  # topics that the cluster does not have


def read_table(spark: SparkSession, paths: Sequence[str], topics: Sequence[str]) -> Stored:
    """The messages of these topics in archived tables."""
    frames = []
    for path in paths:
        frames.append(_table(spark, path))
        try:
            # What an archive could not read is stored all the same.
            frames.append(_parquet(spark, f"{path.rstrip('/')}/{QUARANTINE}"))
        except AnalysisException:
            pass  # nothing was ever wrong
    messages = frames[0]
    for frame in frames[1:]:
        messages = messages.unionByName(frame)
    return Stored(messages=messages.where(f.col("topic").isin(*topics)))


def _table(spark: SparkSession, path: str) -> DataFrame:
    try:
        _require_columns(spark.read.parquet(path), path)  # below, a missing one would be null
    except AnalysisException as error:
        if error.getCondition() in ("PATH_NOT_FOUND", "UNABLE_TO_INFER_SCHEMA"):
            raise JobError(f"messages: there is no table in {path}") from error
        raise
    return _parquet(spark, path)


def _parquet(spark: SparkSession, path: str) -> DataFrame:
    # With a schema, or a topic by the name of 2026 would be a number.
    return spark.read.schema(STORED).parquet(path)


def _require_columns(table: DataFrame, path: str) -> None:
    names = [column.split()[0] for column in STORED.split(", ")]
    missing = [name for name in names if name not in table.columns]
    if missing:
        raise JobError(f"messages: {path} is no archived table: it has no {', '.join(missing)}")


def read_cluster(spark: SparkSession, source: Mapping[str, str], topics: Sequence[str]) -> Stored:
    """All that these topics hold now, and from which offset on."""
    first_offsets: dict[MessageQueue, int] = {}
    missing = []
    # Any topic makes whole options; which, is said below.
    with ClusterView(ReadOptions.parse({**source, "topic": "any"})) as view:
        for topic in topics:
            try:
                held = view.held([topic])
            except NoRoute:
                missing.append(topic)
            else:
                first_offsets.update({queue: found.first for queue, found in held.items()})
    there = [topic for topic in topics if topic not in missing]
    if not there:
        return Stored(messages=spark.createDataFrame([], STORED), missing=missing)
    reader = spark.read.format("rocketmq").options(**source).option("topic", ",".join(there))
    return Stored(
        messages=reader.schema(STORED).load(), first_offsets=first_offsets, missing=missing
    )


def broker_names(source: Mapping[str, str]) -> dict[str, str]:
    """The brokers of a cluster by their addresses."""
    options = ReadOptions.parse({**source, "topic": "any"})
    with Admin(**options.connection.client_settings()) as admin:
        return {
            address: broker.name
            for broker in admin.brokers()
            for address in broker.addresses.values()
        }
