"""How attempts and sends fared: by broker, by queue, by window of time, and altogether."""

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from rocketpipe.report.facts import BUCKETS_PER_DECADE

_ACCURACY = 10_000  # of quantiles: the rank is wrong by 1/10,000 at most
_LATENCY_MS_MIN = 0.01  # a logarithm has no place for 0


# The tables about attempts, and about sends, by what tells their rows apart.
ATTEMPTS_BY = {
    "brokers": ("broker",),
    "queues": ("topic", "broker", "queue_id"),
    "windows": ("start_ms", "broker"),
    "latency": ("start_ms",),
}
SENDS_BY: dict[str, tuple[str, ...]] = {"totals": (), "totals_by_topic": ("topic", "policy")}


def of_attempts(attempts: DataFrame) -> DataFrame:
    """How attempts ended and how long they took: the tables of ATTEMPTS_BY in one pass."""
    return _in_one_pass(
        attempts.where(~f.col("is_late")),
        ATTEMPTS_BY,
        f.count("*").alias("attempts"),
        f.count_if("is_stored").alias("stored"),
        f.count_if("is_failed").alias("failed"),
        f.count_if(f.col("attempt") > 1).alias("retries"),
        f.coalesce(f.sum(f.when(f.col("is_stored"), f.col("messages"))), f.lit(0)).alias(
            "messages"
        ),
        # A one-way send takes no time that would tell anything.
        *_quantiles(f.when(~f.col("is_oneway"), f.col("elapsed_ms"))),
    )


def of_sends(sends: DataFrame) -> DataFrame:
    """How sends ended and how long they took: the tables of SENDS_BY in one pass."""
    is_failed = ~f.col("is_acknowledged") & ~f.col("is_oneway")
    return _in_one_pass(
        sends,
        SENDS_BY,
        f.count("*").alias("sends"),
        f.coalesce(f.sum("messages"), f.lit(0)).alias("messages"),
        f.count_if("is_acknowledged").alias("acknowledged"),
        f.count_if("is_oneway").alias("oneway"),
        f.count_if(is_failed).alias("failed"),
        f.sum("attempts").alias("attempts"),
        f.sum(f.col("attempts") - 1).alias("retries"),
        *_quantiles(f.when(~f.col("is_oneway"), f.col("elapsed_ms"))),
    )


def table(rows: DataFrame, name: str) -> DataFrame:
    """One of those that `of_attempts` or `of_sends` made."""
    tables = ATTEMPTS_BY if name in ATTEMPTS_BY else SENDS_BY
    others = [column for column in _columns(tables) if column not in tables[name]]
    # Few rows, from a pass that ended in as many parts as it needed.
    return rows.where(f.col("table") == name).drop("table", *others).coalesce(1)


def _in_one_pass(
    rows: DataFrame, tables: Mapping[str, Sequence[str]], *counts: Column
) -> DataFrame:
    columns = _columns(tables)
    # Which table a row is of: a bit for each column that it is not told apart by, the first
    # column's in front.
    bits = [
        sum((name not in own) << at for at, name in enumerate(reversed(columns)))
        for own in tables.values()
    ]
    name = f.element_at(
        f.create_map(*(f.lit(each) for pair in zip(bits, tables, strict=True) for each in pair)),
        f.grouping_id().cast("int"),
    )
    grouped = rows.groupingSets(list(tables.values()), *columns).agg(name.alias("table"), *counts)
    names = ("p50_ms", "p90_ms", "p99_ms")
    quantiles = {name: f.col("quantiles")[at] for at, name in enumerate(names)}
    return grouped.withColumns(quantiles).drop("quantiles")


def _columns(tables: Mapping[str, Sequence[str]]) -> list[str]:
    return list(dict.fromkeys(name for own in tables.values() for name in own))


def with_window(attempts: DataFrame, window_ms: int) -> DataFrame:
    start = f.floor(f.col("started_ms") / window_ms) * window_ms
    return attempts.withColumn("start_ms", start.cast("bigint"))


def heat(attempts: DataFrame) -> DataFrame:
    """How many attempts of each window took how long, in buckets of a logarithmic scale."""
    took = f.greatest(f.col("elapsed_ms"), f.lit(_LATENCY_MS_MIN))
    return (
        attempts.where(~f.col("is_oneway") & ~f.col("is_late"))
        .withColumn("bucket", f.floor(f.log10(took) * BUCKETS_PER_DECADE).cast("int"))
        .groupBy("start_ms", "bucket")
        .agg(f.count("*").alias("attempts"))
    )


def sends(attempts: DataFrame) -> DataFrame:
    """A row for each send: how many attempts it took, how it ended and how long that took."""
    ended = f.col("started_ms") + f.col("elapsed_ms")
    return attempts.groupBy("producer_group", "topic", "message_id").agg(
        f.first("policy").alias("policy"),
        f.max("messages").alias("messages"),
        f.count_if(~f.col("is_late")).alias("attempts"),
        f.max("is_stored").alias("is_acknowledged"),
        f.max(f.col("is_oneway") & ~f.col("is_failed")).alias("is_oneway"),
        (f.max(ended) - f.min("started_ms")).alias("elapsed_ms"),
    )


def attempts_per_send(sends: DataFrame) -> DataFrame:
    return sends.groupBy("policy", "attempts").agg(
        f.count("*").alias("sends"), f.count_if(f.col("is_acknowledged")).alias("acknowledged")
    )


def _quantiles(latency: Column) -> tuple[Column, Column]:
    shares = f.array(f.lit(0.5), f.lit(0.9), f.lit(0.99))
    return (
        f.percentile_approx(latency, shares, _ACCURACY).alias("quantiles"),
        f.max(latency).alias("max_ms"),
    )
