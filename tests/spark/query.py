"""A query in a process of its own: `python -m tests.spark.query JSON`.

The JSON says where (`master` or `remote`), with which `settings` of Spark and `options` of the
source, into which `folder` a stream writes, and the `limit` of rows in a micro-batch. `follow` runs
until it is killed; otherwise it reads once as a batch and once as a stream, and prints what it
found as a line of JSON.
"""

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery


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
        stream(spark, task, processingTime="50 milliseconds").awaitTermination()
        return
    frame = spark.read.format("rocketmq").options(**task["options"]).load()
    rows = frame.selectExpr("topic", "brokerName", "queueId", "queueOffset", "body").collect()
    query = stream(spark, task, availableNow=True)
    assert query.awaitTermination(540)
    written = spark.read.parquet(str(Path(task["folder"]) / "output")).count()
    spark.stop()
    print(json.dumps({"rows": len(rows), "streamed": written}))  # noqa: T201


def stream(spark: SparkSession, task: dict[str, Any], **trigger: Any) -> StreamingQuery:
    folder = Path(task["folder"])
    reader = spark.readStream.format("rocketmq").options(**task["options"])
    frame = reader.options(startingOffsets="earliest", maxOffsetsPerTrigger=task["limit"]).load()
    return (
        frame.select("brokerName", "queueId", "queueOffset", "body")
        .writeStream.format("parquet")
        .option("path", str(folder / "output"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(**trigger)
        .start()
    )


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
