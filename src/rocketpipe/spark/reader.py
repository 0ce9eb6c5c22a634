"""Batch reading: the plan, made once in the driver, and the tasks that carry it out."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from rocketpipe.errors import InvalidSetting
from rocketpipe.spark.cluster_view import ClusterView
from rocketpipe.spark.columns import ColumnDecoder
from rocketpipe.spark.planning import QueueRange, all_knowing, name_of, split
from rocketpipe.spark.positions import EARLIEST, LATEST, Position, Positions
from rocketpipe.spark.read_options import ReadOptions
from rocketpipe.spark.repeats import Repeats
from rocketpipe.spark.schema import arrow_schema, check_schema
from rocketpipe.sync.consumer import PullConsumer


def batch_reader(options: Mapping[str, str], schema: StructType) -> "RocketMQReader":
    parsed = ReadOptions.parse(options).for_batch()
    check_schema(schema, with_properties=parsed.include_properties)
    return RocketMQReader(parsed, schema)


class RocketMQReader(DataSourceReader):
    """Reads what the queues hold between two offsets. It is pickled, so it holds nothing open."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        starting = options.starting or Positions(Position(EARLIEST))
        ending = options.ending or Positions(Position(LATEST))
        with ClusterView(options) as cluster:
            held = cluster.held(cluster.topics())
            starts = cluster.resolve(starting, held, is_start=True)
            ends = cluster.resolve(ending, held, is_start=False)
        for queue, start in starts.items():
            if start > ends[queue]:
                raise InvalidSetting(
                    f"{name_of(queue)} would be read from offset {start} up to {ends[queue]}: the"
                    " starting and the ending options contradict"
                )
        ranges = [QueueRange(queue, starts[queue], ends[queue]) for queue in sorted(held)]
        return plan(options, ranges)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, QueueRange)
        return read_range(self._options, self._schema, partition)


def plan(options: ReadOptions, ranges: list[QueueRange]) -> list[QueueRange]:
    """The tasks that read these ranges."""
    parts = split(
        ranges,
        partitions_min=options.partitions_min,
        records_max=options.records_per_partition_max,
    )
    return all_knowing(parts, ranges) if options.drop_repeats else parts


def read_range(
    options: ReadOptions, schema: StructType, wanted: QueueRange
) -> Iterator[pa.RecordBatch]:
    """The messages of a range as record batches, in order."""
    if wanted.size <= 0:
        return
    # A worker process of its own: connect here, never in __init__, which is pickled.
    with ExitStack() as ending:
        consumer = ending.enter_context(PullConsumer(**options.consumer_settings()))
        decoder = ColumnDecoder(
            arrow_schema(schema),
            broker_name=wanted.queue.broker_name,
            namespace=options.connection.namespace,
            tags=options.tags_wanted,
            repeats=ending.enter_context(Repeats(options, wanted)) if wanted.among else None,
        )
        answers = consumer.pull_range(
            wanted.queue, wanted.start, wanted.end, expression=options.expression
        )
        for gathered in _gather(answers, options.batch_bytes):
            yield from decoder.decode(gathered, wanted.start, wanted.end)


def _gather(answers: Iterable[bytes], bytes_min: int) -> Iterator[list[bytes]]:
    """Answers until there are so many bytes of them: a small batch costs as much as a large one."""
    gathered: list[bytes] = []
    size = 0
    for answer in answers:
        gathered.append(answer)
        size += len(answer)
        if size >= bytes_min:
            yield gathered
            gathered, size = [], 0
    if gathered:
        yield gathered
