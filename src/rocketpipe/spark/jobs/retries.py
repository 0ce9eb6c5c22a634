"""Retries that should not have been: each stored a message again, or had no chance.

    answer_lost     the broker had stored it, but its answer was lost or late
    stored_unsafe   the broker had said that it stored it, if not as safely as was wanted
                    (retry_another_broker_when_not_store_ok)
    hopeless        the broker had refused the message itself, as any other would
    oneway          of a one-way send, which has one attempt

An answer is known to be lost where it came late, or where the message is found stored at that very
queue, once more often than it was acknowledged there.
"""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from rocketpipe.client.send_flow import RETRY_CODES

KINDS = ("answer_lost", "stored_unsafe", "hopeless", "oneway")
_SEND = ["producer_group", "topic", "message_id"]
_QUEUE = ["topic", "message_id", "broker", "queue_id"]


def needless_retries(attempts: DataFrame, stored: DataFrame | None) -> DataFrame:
    """A row for each attempt after which there should not have been another."""
    # Nearly all sends have one attempt; what follows is about the others alone.
    again = attempts.where("attempt > 1 and not is_late").select(_SEND).distinct()
    tried = attempts.join(again, _SEND, "left_semi")
    late = tried.where("is_late").select(*_SEND, "attempt", f.lit(True).alias("is_answered_late"))
    in_turn = Window.partitionBy(*_SEND).orderBy("attempt")
    following = {
        "next_attempt": f.lead("attempt").over(in_turn),
        "next_broker": f.lead("broker").over(in_turn),
    }
    own = tried.where("not is_late").withColumns(following)
    # Whoever sends an id again, as a repeated task does, begins at 1 again.
    own = own.where("next_attempt > attempt")
    rows = own.join(late.distinct(), [*_SEND, "attempt"], "left")
    if stored is None:
        rows = rows.withColumn("is_found_stored", f.lit(None).cast("boolean"))
    else:
        rows = rows.join(_stored_unanswered(tried, stored), _QUEUE, "left")
    lost = f.col("is_failed") & f.coalesce("is_answered_late", "is_found_stored", f.lit(False))
    refused = f.col("code").isNotNull() & ~f.col("code").isin(*map(int, RETRY_CODES))
    kind = (
        f.when(f.col("is_oneway"), "oneway")
        .when(f.col("is_stored"), "stored_unsafe")
        .when(refused, "hopeless")
        .when(lost, "answer_lost")
    )
    return (
        rows.withColumn("kind", kind)
        .where("kind is not null")
        .select(
            *("kind", "topic", "message_id", "producer_group", "started_ms", "attempt", "broker"),
            *("queue_id", "elapsed_ms", "status", "error", "code", "next_attempt", "next_broker"),
        )
    )


def _stored_unanswered(tried: DataFrame, stored: DataFrame) -> DataFrame:
    """The queues that hold a message more often than they acknowledged it in time."""
    answered = tried.groupBy(_QUEUE).agg(
        f.count_if(f.col("is_stored") & ~f.col("is_late")).alias("answered")
    )
    places = stored.select(
        *("topic", f.col("messageId").alias("message_id"), f.col("brokerName").alias("broker")),
        f.col("queueId").cast("bigint").alias("queue_id"),
        "queueOffset",
    )
    copies = (
        places.join(tried.select("topic", "message_id").distinct(), _QUEUE[:2], "left_semi")
        .groupBy(_QUEUE)
        .agg(f.count_distinct("queueOffset").alias("copies"))
    )
    found = copies.join(answered, _QUEUE).where("copies > answered")
    return found.select(*_QUEUE, f.lit(True).alias("is_found_stored"))
