"""A streaming query whose tasks fail at first: `python copying_query.py SETTINGS`, a JSON object.

It copies all of one topic to another and prints `done`. The first attempt of each task fails when
it has sent some rows: Spark has to be told to try again (`master`).
"""

import json
import sys
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession

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
    failing = read.load().select("body").mapInArrow(fail_at_first, "body binary")
    writing = failing.writeStream.format("rocketmq").option("namesrv", settings["namesrv"])
    writing = writing.option("topic", settings["copy"])
    writing = writing.option("checkpointLocation", settings["checkpoint"])
    query = writing.trigger(availableNow=True).start()
    query.awaitTermination()
    sys.stdout.write("done\n")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
