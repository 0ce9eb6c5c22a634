"""Spark's own daemon for Python workers, which imports what they need before it forks them.

Spark starts Python for every plan of a read, every stream and many a task. Each would import
pyarrow, pandas and us, for a second or two: so it has done that already when it comes into being.

    spark.python.daemon.module=rocketpipe.spark.daemon

The jobs and the demo set it; any other session on a driver with rocketpipe may do so too.
"""

import pandas  # type: ignore[import-untyped]  # noqa: F401
import pyarrow.parquet  # noqa: F401
from pyspark.daemon import manager

import rocketpipe.spark.source
import rocketpipe.spark.stream_reader
import rocketpipe.spark.stream_writer  # noqa: F401

if __name__ == "__main__":
    manager()
