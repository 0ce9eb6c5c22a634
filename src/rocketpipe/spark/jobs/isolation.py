"""When producers knew a broker to be sick and passed it over, and how much that moved away.

Attempts say so themselves: `passed_over` has the brokers that the policy did not choose, and why.
The texts are those of client/fault_table.py and client/peak_ewma.py.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

# "isolated for 2.0 s: took 812 ms", "unreachable, isolated for 30.0 s: gave no answer ..."
_ISOLATED = r"isolated for [0-9.]+ s: (.*)"
_BUSY = r"^busy, "  # peak-ewma isolates nobody else: it compares costs
_STEP_MS = 100  # what lies closer together is one piece of evidence


def is_isolated(why: Column) -> Column:
    return why.rlike(_ISOLATED) | why.rlike(_BUSY)


def passed_over(attempts: DataFrame) -> DataFrame:
    """Each broker that an attempt passed over as isolated: policy, topic, broker, time and why."""
    rows = attempts.where(~f.col("is_late")).select(
        *("policy", "chosen_by", "topic", "is_first", "started_ms"),
        f.explode("passed_over").alias("broker", "text"),
    )
    cause = f.regexp_extract("text", _ISOLATED, 1)
    return rows.where(is_isolated(f.col("text"))).withColumn(
        "why", f.when(cause == "", f.lit("was busy")).otherwise(cause)
    )


def isolations(evidence: DataFrame, gap_ms: int) -> DataFrame:
    """Times in which a broker was isolated: evidence without a longer gap in it.

    All producers of a policy together: each has a table of its own, and they mostly agree.
    """
    step = f.floor(f.col("started_ms") / _STEP_MS)
    # Millions of attempts may pass over one broker; so many steps there are not.
    steps = evidence.groupBy("policy", "broker", step.alias("step")).agg(
        f.min("started_ms").alias("first_ms"),
        f.max("started_ms").alias("last_ms"),
        f.count("*").alias("passed_over"),
        f.min_by("why", "started_ms").alias("why"),
    )
    in_time = Window.partitionBy("policy", "broker").orderBy("step")
    is_new = f.col("first_ms") - f.lag("last_ms").over(in_time) > gap_ms
    number = f.sum(f.when(is_new, 1).otherwise(0)).over(in_time)
    return (
        steps.withColumn("number", number)
        .groupBy("policy", "broker", "number")
        .agg(
            f.min("first_ms").alias("start_ms"),
            f.max("last_ms").alias("end_ms"),
            f.sum("passed_over").alias("passed_over"),
            f.min_by("why", "first_ms").alias("why"),
        )
        .drop("number")
    )


def queue_counts(attempts: DataFrame) -> DataFrame:
    """First attempts at each queue, by who chose it; also 0 where others sent to that queue."""
    known = attempts.where(f.col("queue_id").isNotNull() & ~f.col("is_late"))
    queues = known.select("topic", "broker", "queue_id").distinct()
    counts = (
        known.where("is_first")
        .groupBy("chosen_by", "topic", "broker", "queue_id")
        .agg(f.count("*").alias("sends"))
    )
    choosers = counts.select("chosen_by", "topic").distinct()
    keys = ["chosen_by", "topic", "broker", "queue_id"]
    return choosers.join(queues, "topic").join(counts, keys, "left").fillna(0, ["sends"])


def moved(queue_counts: DataFrame, evidence: DataFrame) -> DataFrame:
    """For each policy and broker: the sends it got, what uniform choice among the queues would
    have sent there, and how much of that came while it was isolated."""
    own = queue_counts.where(~f.col("chosen_by").isin("caller", "selector"))
    topic = Window.partitionBy("chosen_by", "topic")
    shares = (
        own.groupBy("chosen_by", "topic", "broker")
        .agg(f.sum("sends").alias("sends"), f.count("*").alias("queues"))
        .withColumn("share", f.col("queues") / f.sum("queues").over(topic))
        .withColumn("expected", f.col("share") * f.sum("sends").over(topic))
    )
    turned_away = (
        evidence.where("is_first")
        .groupBy("chosen_by", "topic", "broker")
        .agg(f.count("*").alias("turned_away"))
    )
    return (
        shares.join(turned_away, ["chosen_by", "topic", "broker"], "left")
        .groupBy(f.col("chosen_by").alias("policy"), "broker")
        .agg(
            f.sum("sends").alias("sends"),
            f.sum("expected").alias("expected"),
            f.sum(f.col("share") * f.coalesce("turned_away", f.lit(0))).alias("isolated"),
        )
    )
