"""A streaming query of its own process, for tests that kill it: SETTINGS, a JSON object, tells all.

It copies one topic to another until it is killed or all is copied. Then it
prints `done`. With `fails` the first attempt of each task fails when it has sent some rows: Spark
has to be told to try again (`master`).
"""

import json
import sys
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

BATCHES_BEFORE_FAILURE = 8


def fail_at_first(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """At a task's first attempt, lets some batches through before it fails."""
    context = TaskContext.get()
    assert context is not None
    for number, batch in enumerate(batches):
        if context.attemptNumber() == 0 and number == BATCHES_BEFORE_FAILURE:
            raise RuntimeError("as the test wants it")
        yield batch


def main(settings: dict[str, Any]) -> None:
    builder = SparkSession.builder.master(settings["master"])
    for name, value in settings["spark"].items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    read = spark.readStream.format("rocketmq").option("namesrv", settings["namesrv"])
    read = read.option("topic", settings["source"]).option("startingOffsets", "earliest")
    frame: DataFrame = read.option("maxOffsetsPerTrigger", settings["perTrigger"]).load()
    frame = frame.select("body")
    if settings["fails"]:
        frame = frame.mapInArrow(fail_at_first, "body binary")
    writing = frame.writeStream.format("rocketmq").option("namesrv", settings["namesrv"])
    writing = writing.option("topic", settings["copy"])
    writing = writing.option("checkpointLocation", settings["checkpoint"])
    query = writing.trigger(availableNow=True).start()
    query.awaitTermination()
    sys.stdout.write("done\n")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
