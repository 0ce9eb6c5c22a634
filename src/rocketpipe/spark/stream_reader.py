"""Streaming: which offsets the next micro-batch ends at, and what it reads.

All but `read` runs in one process of its own, which Spark kills when the query ends: nothing waits
for a goodbye. Spark asks for the latest offset up to 80 times a second, so answers are remembered
for a moment.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from rocketpipe.clock import Clock, SystemClock
from rocketpipe.errors import MQError, NoRoute
from rocketpipe.message import MessageQueue
from rocketpipe.spark.cluster_view import ClusterView
from rocketpipe.spark.offsets import Offsets, from_json, to_json
from rocketpipe.spark.planning import (
    Held,
    QueueRange,
    limited,
    ranges_between,
    report_loss,
    rows_between,
)
from rocketpipe.spark.positions import LATEST, Position, Positions
from rocketpipe.spark.read_options import ReadOptions
from rocketpipe.spark.reader import plan, read_range
from rocketpipe.spark.schema import check_schema

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )

    HAS_LIMITS = True
else:
    try:
        from pyspark.sql.streaming.datasource import (
            ReadAllAvailable,
            ReadMaxRows,
            ReadMinRows,
            SupportsTriggerAvailableNow,
        )

        HAS_LIMITS = True
    except ImportError:  # PySpark before 4.2, which asks for no limits and has no such mixin
        HAS_LIMITS = False
        SupportsTriggerAvailableNow = object

log = logging.getLogger(__name__)


def stream_reader(options: Mapping[str, str], schema: StructType) -> "RocketMQStreamReader":
    parsed = ReadOptions.parse(options).for_stream()
    check_schema(schema, with_properties=parsed.include_properties)
    return RocketMQStreamReader(parsed, schema)


class RocketMQStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows topics from offset to offset. It is pickled, so it opens nothing before it is used.

    Its own state is of use only where the planning is done; tasks get all they need in a
    QueueRange.
    """

    def __init__(
        self, options: ReadOptions, schema: StructType, clock: Clock | None = None
    ) -> None:
        self._options = options
        self._schema = schema
        self._clock = clock or SystemClock()
        self._cluster: ClusterView | None = None
        self._topics: tuple[str, ...] = ()
        self._topics_at: float | None = None
        self._held: dict[MessageQueue, Held] = {}
        self._held_at: float | None = None
        self._initial: Offsets | None = None
        self._last_end: Offsets | None = None  # what latestOffset gave last
        self._last_batch_at: float | None = None
        self._behind_since: dict[MessageQueue, float] = {}
        self._target: Offsets | None = None  # where a query of Trigger.AvailableNow ends
        self._told: Offsets | None = None  # how far the group was last told it is

    # What Spark asks, in the order of a query's life.

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = {queue: now.end for queue, now in self._holdings().items()}

    def getDefaultReadLimit(self) -> "ReadLimit":
        options = self._options
        if options.rows_per_trigger_max is not None:
            return ReadMaxRows(options.rows_per_trigger_max)
        if options.rows_per_trigger_min is not None:
            return ReadMinRows(options.rows_per_trigger_min)
        return ReadAllAvailable()

    def initialOffset(self) -> dict[str, Any]:
        if self._initial is None:  # asked for more than once, and "latest" must stay the same
            starting = self._options.starting or Positions(Position(LATEST))
            held = self._holdings(is_first=True)
            self._initial = self._view().resolve(starting, held, is_start=True)
        return to_json(self._initial)

    def latestOffset(
        self, start: dict[str, Any] | None = None, limit: "ReadLimit | None" = None
    ) -> dict[str, Any]:
        rows_max, rows_min = self._limits(limit)
        begin = from_json(start) if start is not None else self._last_end or self._initial
        if begin is None:
            # PySpark before 4.2 does not say where a restarted query is. An end before that would
            # have it read again what it has read, so the first batch gets all there is.
            begin, rows_max, rows_min = {}, None, None
        elif begin != self._initial:
            # Spark asks for a micro-batch when all before it are finished, and tells so by `commit`
            # only when it has begun the next: an idle stream would seem to lag for ever.
            self._tell_group(begin)
        end = self._next_end(begin, rows_max=rows_max, rows_min=rows_min)
        self._last_end = end
        return to_json(end)

    def reportLatestOffset(self) -> dict[str, Any]:
        return to_json({queue: now.end for queue, now in self._holdings().items()})

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        options = self._options
        self._last_end = from_json(end)
        ranges = ranges_between(
            *(from_json(start), self._last_end, self._holdings()),
            fails_on_loss=options.fail_on_data_loss,
        )
        return plan(options, ranges)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, QueueRange)
        return read_range(self._options, self._schema, partition)

    def commit(self, end: dict[str, Any]) -> None:
        self._tell_group(from_json(end))

    def _tell_group(self, finished: Offsets) -> None:
        """Store how far it is, for those who watch only: the checkpoint is the truth."""
        if self._options.group is None or finished == self._told:
            return
        self._told = finished  # also if it fails: the next micro-batch is soon enough to try again
        try:
            self._view().commit(finished)
        except MQError as error:
            log.warning("group %s: how far it is was not stored: %s", self._options.group, error)

    # The next micro-batch.

    def _next_end(self, begin: Offsets, *, rows_max: int | None, rows_min: int | None) -> Offsets:
        """Where it ends: at least where it begins, for queues that nobody can be asked about."""
        held = self._holdings()
        available = {queue: now.end for queue, now in held.items()}
        if self._target is not None:
            available = {
                queue: min(at, self._target[queue])
                for queue, at in available.items()
                if queue in self._target
            }
        starts = {queue: begin.get(queue, held[queue].first) for queue in available}
        self._check_ends(starts, available, held)
        if rows_min is not None and not self._may_begin(rows_between(starts, available), rows_min):
            return begin
        if rows_max is not None:
            available = limited(starts, available, rows_max)
        end = {**begin, **available}
        if end != begin:
            self._last_batch_at = self._clock.monotonic()
        return end

    def _check_ends(
        self, starts: Offsets, ends: Offsets, held: Mapping[MessageQueue, Held]
    ) -> None:
        """A queue may end before we begin: a slave that answers for its master may not have all, so
        we wait for a while. If it stays so, messages are lost, or the topic was made anew."""
        now = self._clock.monotonic()
        for queue, start in starts.items():
            if ends[queue] >= start:
                self._behind_since.pop(queue, None)
            elif held[queue].end >= start:
                ends[queue] = start  # we are behind the target already
            elif now - self._behind_since.setdefault(queue, now) < self._options.pull_timeout:
                ends[queue] = start
            else:
                fails = self._options.fail_on_data_loss
                report_loss(queue, start, ends[queue], fails=fails)

    def _limits(self, asked: "ReadLimit | None") -> tuple[int | None, int | None]:
        """The most and the fewest rows. All that is available may be asked for in spite of the
        options, as Trigger.Once does."""
        options = self._options
        if HAS_LIMITS and isinstance(asked, ReadAllAvailable):
            return None, None
        is_bounded = self._target is not None  # nothing more will come to wait for
        return options.rows_per_trigger_max, None if is_bounded else options.rows_per_trigger_min

    def _may_begin(self, rows: int, rows_min: int) -> bool:
        """Whether enough waits for a micro-batch, or has waited for long enough."""
        now = self._clock.monotonic()
        if self._last_batch_at is None:
            self._last_batch_at = now
        return rows >= rows_min or now - self._last_batch_at >= self._options.trigger_delay_max

    # What the cluster holds.

    def _holdings(self, *, is_first: bool = False) -> dict[MessageQueue, Held]:
        """What each queue holds, not older than the options allow."""
        now = self._clock.monotonic()
        if self._held_at is None or now - self._held_at >= self._options.offsets_interval:
            try:
                self._held = self._view().held(self._current_topics(now))
            except NoRoute as error:
                if self._held_at is None:
                    raise  # a topic that never was
                # All its brokers may be on their way back; its offsets stay where they are.
                log.warning("%s", error)
                self._held = {}
            self._held_at = self._clock.monotonic()
        return self._held

    def _current_topics(self, now: float) -> tuple[str, ...]:
        if self._topics_at is None or now - self._topics_at >= self._options.discovery_interval:
            self._topics = self._view().topics()
            self._topics_at = now
        return self._topics

    def _view(self) -> ClusterView:
        if self._cluster is None:
            self._cluster = ClusterView(self._options).__enter__()
        return self._cluster
