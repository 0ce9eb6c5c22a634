"""The data source `rocketmq`: what Spark asks for a reader or a writer.

Spark imports this in a process of its own to find out which sources exist, and an error would hide
all of them. So whatever needs more than PySpark itself is imported when it is used.
"""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )


class RocketMQSource(DataSource):
    """Topics as tables: `spark.read.format("rocketmq").option("namesrv", ...).load()`."""

    @classmethod
    def name(cls) -> str:
        return "rocketmq"

    def schema(self) -> StructType:
        from rocketpipe.spark.read_options import ReadOptions
        from rocketpipe.spark.schema import all_columns

        return all_columns(with_properties=ReadOptions.parse(self.options).include_properties)

    def reader(self, schema: StructType) -> "DataSourceReader":
        from rocketpipe.spark.reader import batch_reader

        return batch_reader(self.options, schema)

    def streamReader(self, schema: StructType) -> "DataSourceStreamReader":
        from rocketpipe.spark.stream_reader import stream_reader

        return stream_reader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> "DataSourceWriter":
        from rocketpipe.spark.writer import batch_writer

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> "DataSourceStreamWriter":
        from rocketpipe.spark.writer import stream_writer

        return stream_writer(self.options, schema, overwrite)
