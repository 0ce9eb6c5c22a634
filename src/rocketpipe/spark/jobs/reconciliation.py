"""What producers were told of each message against what is stored of it.

A message is known by its topic and by the id that its producer gave it (UNIQ_KEY, the column
`messageId`). Every attempt sends the same id, so however often a message was tried, it should be
stored once. Two rows of a table that tell of the same place are one stored message.

What a message without a stored copy means depends on what it was:

    acknowledged          lost; but
      a half message      did not become one (`uncommitted`), unless the trace says it was committed
      a delayed message   may not be due (`waiting`): a broker keeps it elsewhere until then
      deleted since       `expired`: its place lies before the first that its queue still holds
    one-way               nobody promised anything (`oneway_missing`)
    anything else         failed, as its producer was told
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from rocketpipe.message import MessageQueue

PLACE = ("brokerName", "queueId", "queueOffset")
STORED = "topic string, brokerName string, queueId int, queueOffset bigint, messageId string"
COMMITTED = "COMMIT_MESSAGE"
SUSPECT = ("lost", "repeated", "unacknowledged")  # whose messages are listed one by one


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What a reconciliation is made from."""

    attempts: DataFrame
    stored: DataFrame  # with the columns of STORED
    committed: DataFrame | None  # topic and message_id of committed half messages, if known
    first_offsets: Mapping[MessageQueue, int]  # what queues still hold, where that is known


def messages(spark: SparkSession, evidence: Evidence) -> DataFrame:
    """A row for each message that was sent or is stored, with what it is: columns `is_...`."""
    told = _told(evidence.attempts)
    if evidence.committed is not None:
        committed = evidence.committed.distinct().withColumn("is_committed", f.lit(True))
        told = told.join(committed, ["topic", "message_id"], "left")
    else:
        told = told.withColumn("is_committed", f.lit(None).cast("boolean"))
    if evidence.first_offsets:
        told = told.join(f.broadcast(_first_offsets(spark, evidence)), list(_ACK), "left")
    else:
        told = told.withColumn("first_offset", f.lit(None).cast("bigint"))
    both = told.join(_stored(evidence.stored), ["topic", "message_id"], "full_outer")
    return _judged(both)


_ACK = ("topic", "broker", "queue_id")


def _told(attempts: DataFrame) -> DataFrame:
    """What producers know of each message."""
    each = attempts.select(
        *("producer_group", "topic", "policy", "attempt", "started_ms", "broker", "queue_id"),
        *("status", "is_stored", "is_late", "is_oneway", "is_transaction", "is_delayed"),
        "queue_offset",
        f.posexplode("message_ids").alias("place_in_batch", "message_id"),
    )
    # Where it was acknowledged; the safest status goes first, as SEND_OK is what promises most.
    is_safe = f.col("status") == "SEND_OK"
    answer = f.struct(
        f.when(is_safe, 0).otherwise(1).alias("rank"),
        *("status", "broker", "queue_id"),
        (f.col("queue_offset") + f.col("place_in_batch")).alias("queue_offset"),
    )
    return (
        each.groupBy("topic", "message_id")
        .agg(
            f.min("started_ms").alias("started_ms"),
            f.first("producer_group").alias("producer_group"),
            f.count_if(~f.col("is_late")).alias("attempts"),
            f.max("is_oneway").alias("is_oneway"),
            f.max("is_transaction").alias("is_transaction"),
            f.max("is_delayed").alias("is_delayed"),
            f.min(f.when(f.col("is_stored"), answer)).alias("answer"),
        )
        .withColumn("is_acknowledged", f.col("answer").isNotNull())
        .select("*", "answer.status", "answer.broker", "answer.queue_id", "answer.queue_offset")
        .drop("answer")
        .withColumn("is_sent", f.lit(True))
    )


def _stored(stored: DataFrame) -> DataFrame:
    """How often, and where, each message is stored."""
    place = f.struct(*PLACE)
    return stored.groupBy("topic", f.col("messageId").alias("message_id")).agg(
        f.count_distinct(place).alias("copies"),
        f.count("*").alias("rows"),
        f.min(place).alias("first_place"),
        f.max(place).alias("last_place"),
    )


def _judged(both: DataFrame) -> DataFrame:
    flags = ("is_oneway", "is_transaction", "is_delayed", "is_acknowledged", "is_sent")
    rows = both.withColumns(
        {name: _yes(name) for name in (*flags, "is_committed")}
        | {name: f.coalesce(name, f.lit(0)) for name in ("copies", "rows")}
    )
    sent, acknowledged, oneway = (_is(name) for name in ("sent", "acknowledged", "oneway"))
    stored = f.col("copies") > 0
    missing = sent & acknowledged & ~stored
    uncommitted = missing & _is("transaction") & ~_is("committed")
    waiting = missing & _is("delayed")
    expired = missing & ~uncommitted & ~waiting & f.coalesce(_is_before_first(), f.lit(False))
    return rows.withColumns(
        {
            "is_stored": stored,
            "is_lost": missing & ~uncommitted & ~waiting & ~expired,
            "is_repeated": sent & (f.col("copies") > 1),
            "is_unacknowledged": sent & stored & ~acknowledged & ~oneway,
            "is_other": ~sent,
            "is_failed": sent & ~acknowledged & ~stored & ~oneway,
            "is_oneway_missing": sent & oneway & ~acknowledged & ~stored,
            "is_waiting": waiting,
            "is_uncommitted": uncommitted,
            "is_expired": expired,
        }
    )


def counts(messages: DataFrame) -> DataFrame:
    """A row for each topic: how many messages are what."""

    def count(condition: Column, name: str) -> Column:
        return f.count_if(condition).alias(name)

    names = ("lost", "repeated", "unacknowledged", "failed", "oneway_missing")
    more = ("waiting", "uncommitted", "expired")
    return messages.groupBy("topic").agg(
        count(_is("sent"), "sent"),
        count(_is("acknowledged"), "acknowledged"),
        count(_is("sent") & _is("stored"), "stored"),
        *(count(_is(name), name) for name in names),
        count(_is("other"), "others"),
        count(_is("oneway"), "oneway"),
        *(count(_is(name), name) for name in more),
        f.sum(f.col("rows") - f.col("copies")).alias("rows_twice"),
    )


def which(messages: DataFrame, name: str) -> DataFrame:
    """The messages that are lost, repeated or unacknowledged, and what is known of each."""
    return messages.where(f.col(f"is_{name}")).select(
        *("topic", "message_id", "producer_group", "started_ms", "attempts", "status"),
        *("broker", "queue_id", "queue_offset", "copies", "first_place", "last_place"),
    )


def _first_offsets(spark: SparkSession, evidence: Evidence) -> DataFrame:
    rows = [
        (queue.topic, queue.broker_name, queue.queue_id, offset)
        for queue, offset in evidence.first_offsets.items()
    ]
    return spark.createDataFrame(
        rows, "topic string, broker string, queue_id bigint, first_offset bigint"
    )


def _is_before_first() -> Column:
    return f.col("queue_offset") < f.col("first_offset")


def _is(name: str) -> Column:
    return f.col(f"is_{name}")


def _yes(name: str) -> Column:
    return f.coalesce(name, f.lit(False))
