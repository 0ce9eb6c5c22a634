"""Queries in a process of their own: `python -m tests.spark.query JSON`.

The JSON says where (`master` or `remote`), with which `settings` of Spark and `options` of source
and sink, which `topic` is read, to which a `copy` goes, the `folder` for what a stream writes, and
the `limit` of rows in a micro-batch. `follow` runs until it is killed: a stream to Parquet, and
one to the copy. Otherwise it reads and writes once as a batch and once as a stream, and prints what
it found as a line of JSON.
"""

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

# Of a message, where it stood: so that each has a body of its own in the copy.
PLACE = "concat_ws(' ', brokerName, queueId, queueOffset) AS body"


def main(task: dict[str, Any]) -> None:
    builder = SparkSession.builder
    if "remote" in task:
        builder = builder.remote(task["remote"])
    else:
        builder = builder.master(task["master"])
        for name, value in task["settings"].items():
            builder = builder.config(name, value)
    spark = builder.getOrCreate()
    if task.get("follow"):
        to_parquet(spark, task, processingTime="50 milliseconds")
        to_topic(spark, task, processingTime="50 milliseconds")
        spark.streams.awaitAnyTermination()
        return
    rows = read(spark, task, task["topic"]).select("body", "queueOffset").collect()
    written = read(spark, task, task["topic"]).selectExpr("concat('batch ', body) AS body")
    sink = written.write.format("rocketmq").options(**task["options"])
    sink.option("topic", task["copy"]).mode("append").save()
    for query in (
        to_parquet(spark, task, availableNow=True),
        to_topic(spark, task, availableNow=True),
    ):
        assert query.awaitTermination(540)
    streamed = spark.read.parquet(str(Path(task["folder"]) / "output")).count()
    copy = read(spark, task, task["copy"], dropRepeats="true").select("body").distinct().count()
    spark.stop()
    print(json.dumps({"rows": len(rows), "streamed": streamed, "copied": copy}))  # noqa: T201


def read(spark: SparkSession, task: dict[str, Any], topic: str, **options: Any) -> DataFrame:
    reader = spark.read.format("rocketmq").options(**task["options"]).options(**options)
    return reader.option("topic", topic).load()


def read_stream(spark: SparkSession, task: dict[str, Any]) -> DataFrame:
    reader = spark.readStream.format("rocketmq").options(**task["options"])
    reader = reader.options(startingOffsets="earliest", maxOffsetsPerTrigger=task["limit"])
    return reader.option("topic", task["topic"]).load()


def to_parquet(spark: SparkSession, task: dict[str, Any], **trigger: Any) -> StreamingQuery:
    folder = Path(task["folder"])
    return (
        read_stream(spark, task)
        .select("brokerName", "queueId", "queueOffset", "body")
        .writeStream.format("parquet")
        .option("path", str(folder / "output"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(**trigger)
        .start()
    )


def to_topic(spark: SparkSession, task: dict[str, Any], **trigger: Any) -> StreamingQuery:
    return (
        read_stream(spark, task)
        .selectExpr(PLACE)
        .writeStream.format("rocketmq")
        .options(**task["options"])
        .option("topic", task["copy"])
        .option("checkpointLocation", str(Path(task["folder"]) / "copying"))
        .trigger(**trigger)
        .start()
    )


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
