"""The sink of streams; a module of its own, since PySpark 4.0 has no such writers."""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from rocketpipe.errors import InvalidSetting
from rocketpipe.spark.row_ids import task_digits
from rocketpipe.spark.write_options import WriteOptions
from rocketpipe.spark.writer import Written, report_abort, report_commit, this_task, write_rows

# What Spark tells the tasks of a micro-batch. Both are the same when the batch comes again, be it
# after a restart: the query's id is in its checkpoint.
QUERY_ID, BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"


class StreamWriter(DataSourceStreamArrowWriter):
    """A copy of it, pickled, writes each partition of each micro-batch."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        context = this_task()
        query, batch = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
        if query is None or batch is None:
            raise InvalidSetting("this Spark tells its tasks neither their query nor their batch")
        partition = context.partitionId()
        task = task_digits("stream", query, batch, partition)
        return write_rows(iterator, self._options, task, partition)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        report_commit(f"batch {batchId}", messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        report_abort(f"batch {batchId}", messages)
