"""How attempts and sends fared: by broker, by queue, by window of time, and altogether."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from rocketpipe.report.facts import BUCKETS_PER_DECADE

_ACCURACY = 10_000  # of quantiles: the rank is wrong by 1/10,000 at most
_LATENCY_MS_MIN = 0.01  # a logarithm has no place for 0


def by(attempts: DataFrame, *columns: str) -> DataFrame:
    """Attempts, how they ended and how long they took, for each of what the columns tell apart."""
    own = attempts.where(~f.col("is_late"))
    rows = own.groupBy(*columns).agg(
        f.count("*").alias("attempts"),
        _count(f.col("is_stored")).alias("stored"),
        _count(f.col("is_failed")).alias("failed"),
        _count(f.col("attempt") > 1).alias("retries"),
        f.coalesce(f.sum(f.when(f.col("is_stored"), f.col("messages"))), f.lit(0)).alias(
            "messages"
        ),
        # A one-way send takes no time that would tell anything.
        *_quantiles(f.when(~f.col("is_oneway"), f.col("elapsed_ms"))),
    )
    return _flat(rows)


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
        _count(~f.col("is_late")).alias("attempts"),
        f.max("is_stored").alias("is_acknowledged"),
        f.max(f.col("is_oneway") & ~f.col("is_failed")).alias("is_oneway"),
        (f.max(ended) - f.min("started_ms")).alias("elapsed_ms"),
    )


def totals(sends: DataFrame, *columns: str) -> DataFrame:
    """All sends together, or for each of what the columns tell apart."""
    rows = sends.groupBy(*columns).agg(
        f.count("*").alias("sends"),
        f.coalesce(f.sum("messages"), f.lit(0)).alias("messages"),
        _count(f.col("is_acknowledged")).alias("acknowledged"),
        _count(f.col("is_oneway")).alias("oneway"),
        _count(~f.col("is_acknowledged") & ~f.col("is_oneway")).alias("failed"),
        f.coalesce(f.sum("attempts"), f.lit(0)).alias("attempts"),
        f.coalesce(f.sum(f.col("attempts") - 1), f.lit(0)).alias("retries"),
        *_quantiles(f.when(~f.col("is_oneway"), f.col("elapsed_ms"))),
    )
    return _flat(rows)


def attempts_per_send(sends: DataFrame) -> DataFrame:
    return sends.groupBy("policy", "attempts").agg(
        f.count("*").alias("sends"), _count(f.col("is_acknowledged")).alias("acknowledged")
    )


def _count(condition: Column) -> Column:
    return f.coalesce(f.count_if(condition), f.lit(0))


def _quantiles(latency: Column) -> tuple[Column, Column]:
    shares = f.array(f.lit(0.5), f.lit(0.9), f.lit(0.99))
    return (
        f.percentile_approx(latency, shares, _ACCURACY).alias("quantiles"),
        f.max(latency).alias("max_ms"),
    )


def _flat(rows: DataFrame) -> DataFrame:
    names = ("p50_ms", "p90_ms", "p99_ms")
    columns = {name: f.col("quantiles")[index] for index, name in enumerate(names)}
    return rows.withColumns(columns).drop("quantiles")
