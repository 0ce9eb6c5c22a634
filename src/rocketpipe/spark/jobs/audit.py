"""The audit: from what producers recorded and what is stored to tables, and to a report's facts.

    found = audit(spark, AuditSettings(attempts="attempts", messages=["archive"]))
    found.lost, found.reconciliation
    found.write("out/audit")
    write_report("out/report.html", found.facts("Orders, Monday"))

Spark works everything out, however much there is of it. Only what a report shows comes to the
driver, and of that no more than `audit_facts.py` allows.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from rocketpipe.errors import InvalidSetting, JobError
from rocketpipe.report.facts import Reconciled, ReportFacts
from rocketpipe.spark.jobs import reconciliation, traffic
from rocketpipe.spark.jobs.attempts import is_readable, read_records, read_traces, with_defaults
from rocketpipe.spark.jobs.audit_facts import collect_facts, collect_reconciliation
from rocketpipe.spark.jobs.failures import one_line_errors
from rocketpipe.spark.jobs.folders import Folder
from rocketpipe.spark.jobs.isolation import isolations, moved, passed_over, queue_counts
from rocketpipe.spark.jobs.retries import needless_retries
from rocketpipe.spark.jobs.skew import skew
from rocketpipe.spark.jobs.stored import Stored, broker_names, read_cluster, read_table

__all__ = ["Audit", "AuditSettings", "audit"]

TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
TOPICS_MAX = 1000  # where none are named: more than a report can tell of
WINDOWS_WANTED = 120
_WINDOW_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 43200)
_TABLES_AT_ONCE = 4
_HALF = ".half"
_GAP_MS_MIN = 1000  # evidence of an isolation that lies closer together is of one


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSettings:
    """What to look at: what was sent, by `attempts` or `trace` or both, and what is stored, by
    `messages` or else `source`; without these two nothing is reconciled."""

    attempts: str | None = None  # a folder of ParquetRecorder's, or a file of JsonLinesRecorder's
    trace: str | None = None  # the trace topic, which tells of producers without a recorder
    messages: Sequence[str] = ()  # archived tables
    source: Mapping[str, str] = field(default_factory=dict)  # of format("rocketmq"): namesrv, ...
    topics: Sequence[str] = ()  # none: all that something was sent to
    window: float | None = None  # seconds; None: such that there are about 120
    since_ms: int | None = None  # attempts before it are left out,
    until_ms: int | None = None  # and those from then on
    reconciles: bool = True  # False: with a source too, only for its trace topic

    def __post_init__(self) -> None:
        if self.attempts is None and self.trace is None:
            raise InvalidSetting("give attempts, trace, or both: an audit is about sends")
        if self.trace is not None and not self.source:
            raise InvalidSetting("trace is read from a cluster: give source with its namesrv")
        if isinstance(self.messages, str) or isinstance(self.topics, str):
            raise InvalidSetting("messages and topics are lists: of tables, and of names")
        if self.window is not None and not 0.001 <= self.window < math.inf:
            raise InvalidSetting(f"window is {self.window}: it must be seconds, 0.001 at least")
        if None not in (since := self.since_ms, until := self.until_ms) and since >= until:  # type: ignore[operator]
            raise InvalidSetting(f"until_ms is {until}: it must be after since_ms, {since}")


@one_line_errors()
def audit(
    spark: SparkSession, settings: AuditSettings, on_table: Callable[[], None] | None = None
) -> "Audit":
    """All that can be told of these sends; JobError where there is nothing to read. `on_table` is
    called for each table that is worked out."""
    return Audit(spark, settings, on_table or (lambda: None))


class Audit:
    """What an audit found. Tables are worked out once, when first asked for; `close` gives back
    what Spark keeps of them."""

    def __init__(
        self, spark: SparkSession, settings: AuditSettings, on_table: Callable[[], None]
    ) -> None:
        self.settings = settings
        self._on_table = on_table
        self._is_worked_out = False
        self.notes: list[str] = []  # what was left out, or could not be read
        self._spark = spark
        self._kept: list[DataFrame] = []
        self._committed: DataFrame | None = None
        try:
            self._attempts = self._keep(with_defaults(self._sent()))
            self._measure()
            self.stored = self._find_stored()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Give back what Spark keeps of the tables."""
        for frame in self._kept:
            frame.unpersist()
        self._kept.clear()

    # What was sent.

    def _sent(self) -> DataFrame:
        settings, spark = self.settings, self._spark
        parts = []
        if settings.attempts is not None:
            records = read_records(spark, settings.attempts)
            self._complain(records, settings.attempts)
            parts.append(records.where(is_readable()).withColumn("source", f.lit("recorder")))
        if settings.trace is not None:
            names = broker_names(settings.source)
            traces = self._keep(read_traces(spark, settings.source, settings.trace, names))
            if bad := traces.where("kind = 'bad'").count():
                self.notes.append(f"{bad} records of {settings.trace} make no sense")
            ends = traces.where(f.col("state") == reconciliation.COMMITTED)
            self._committed = ends.select("topic", f.col("message_ids")[0].alias("message_id"))
            told = traces.where("kind = 'Pub'").withColumn("source", f.lit("trace"))
            told = told.drop("kind", "state", "bad")
            if parts:  # a recorder knows more of its sends
                first = f.element_at("message_ids", 1).alias("id")
                known = parts[0].select(first).distinct()
                told = told.join(known, f.element_at("message_ids", 1) == f.col("id"), "left_anti")
            parts.append(told)
        sent = parts[0] if len(parts) == 1 else parts[0].unionByName(parts[1])
        if settings.since_ms is not None:
            sent = sent.where(f.col("started_ms") >= settings.since_ms)
        if settings.until_ms is not None:
            sent = sent.where(f.col("started_ms") < settings.until_ms)
        return sent.where(f.col("topic").isin(*settings.topics)) if settings.topics else sent

    def _complain(self, records: DataFrame, path: str) -> None:
        row = records.agg(f.count("*"), f.count_if(~is_readable())).first()
        assert row is not None
        count, bad = row
        if count and bad == count:
            raise JobError(f"{path}: none of its {count} records is one of an attempt")
        if bad:
            self.notes.append(f"{bad} of {count} records in {path} can't be read")

    def _measure(self) -> None:
        """From when to when; and with that, how long a window is."""
        ended = f.max(f.col("started_ms") + f.col("elapsed_ms"))
        row = self._attempts.agg(f.min("started_ms"), ended).first()
        assert row is not None
        self.started_ms = int(row[0] or 0)
        self.ended_ms = math.ceil(row[1] or 0)
        self.window_ms = round((self.settings.window or self._fitting_window()) * 1000)

    def _fitting_window(self) -> float:
        span = (self.ended_ms - self.started_ms) / 1000
        steps = (step for step in _WINDOW_STEPS if span / step <= WINDOWS_WANTED)
        return next(steps, math.ceil(span / WINDOWS_WANTED / 86400) * 86400)

    # What is stored.

    def _find_stored(self) -> Stored | None:
        settings = self.settings
        if not settings.reconciles or not (settings.messages or settings.source):
            return None
        topics = tuple(settings.topics) or self._topics()
        if settings.messages:
            return read_table(self._spark, settings.messages, topics)
        stored = read_cluster(self._spark, settings.source, topics)
        self.notes += [f"the cluster has no topic {topic}" for topic in stored.missing]
        return stored

    def _topics(self) -> tuple[str, ...]:
        rows = self._attempts.select("topic").distinct().limit(TOPICS_MAX + 1).collect()
        if len(rows) > TOPICS_MAX:
            raise JobError(f"there are sends to more than {TOPICS_MAX} topics: name those you mean")
        return tuple(sorted(row.topic for row in rows))

    # The tables.

    @cached_property
    def tables(self) -> Mapping[str, DataFrame]:
        """Every table by its name; docs/audit.md says what is in them."""
        attempts = self._attempts
        in_windows = traffic.with_window(attempts, self.window_ms)
        sends = self._keep(traffic.sends(attempts))
        of_attempts = self._keep(traffic.of_attempts(in_windows))
        of_sends = self._keep(traffic.of_sends(sends))
        evidence = passed_over(attempts)
        counts = self._keep(queue_counts(attempts))
        stored = None if self.stored is None else self.stored.messages
        tables = {
            **{name: traffic.table(of_sends, name) for name in traffic.SENDS_BY},
            "attempts_per_send": self._keep(traffic.attempts_per_send(sends)),
            **{name: traffic.table(of_attempts, name) for name in traffic.ATTEMPTS_BY},
            "heat": self._keep(traffic.heat(in_windows)),
            "isolations": self._keep(isolations(evidence, max(self.window_ms, _GAP_MS_MIN))),
            "moved": self._keep(moved(counts, evidence)),
            "skew": self._keep(skew(counts)),
            "needless_retries": self._keep(needless_retries(attempts, stored)),
        }
        if self.stored is not None:
            messages = self._keep(
                reconciliation.messages(
                    self._spark,
                    reconciliation.Evidence(
                        attempts=attempts,
                        stored=self.stored.messages,
                        committed=self._committed,
                        first_offsets=self.stored.first_offsets,
                    ),
                )
            )
            tables["reconciliation"] = self._keep(reconciliation.counts(messages))
            for name in reconciliation.SUSPECT:
                tables[name] = reconciliation.which(messages, name)
        return tables

    def _work_out(self) -> None:
        """What all tables are made from, once. Several at a time: each is little work for Spark,
        and mostly waits for its turn, to be planned and compiled."""
        if self._is_worked_out:
            return
        assert self.tables
        with ThreadPoolExecutor(_TABLES_AT_ONCE) as pool:
            for _ in pool.map(lambda frame: frame.count(), self._kept):
                self._on_table()  # an error of any of them comes out here
        self._is_worked_out = True

    @cached_property
    def reconciliation(self) -> Sequence[Reconciled] | None:
        """A row for each topic, with some ids; all of them are in the tables. None if nobody
        looked at what is stored."""
        return None if self.stored is None else collect_reconciliation(self.tables)

    @property
    def lost(self) -> int:
        """How many acknowledged messages are not stored."""
        return sum(row.lost for row in self.reconciliation or ())

    @one_line_errors()
    def write(self, folder: str) -> None:
        """Every table as Parquet files, in a folder of its name; older ones are replaced, when all
        of the new are there."""
        self._work_out()
        target = Folder(self._spark, folder)
        target.delete(_HALF)
        try:
            with ThreadPoolExecutor(_TABLES_AT_ONCE) as pool:
                halves = [target.child(f"{_HALF}/{name}") for name in self.tables]
                for _ in pool.map(_write, self.tables.values(), halves):
                    pass  # an error of any of them comes out here
            for name in self.tables:
                target.delete(name)
                target.move(f"{_HALF}/{name}", name)
        finally:
            target.delete(_HALF)

    @one_line_errors()
    def facts(self, title: str) -> ReportFacts:
        """For `write_report`; dataclasses.replace adds events, the pipeline, settings and so on."""
        self._work_out()
        facts = ReportFacts(
            title=title,
            started_ms=self.started_ms,
            ended_ms=self.ended_ms,
            window_ms=self.window_ms,
            reconciliation=self.reconciliation,
        )
        told = collect_facts(self.tables, facts)
        notes = [*self.notes, *told.notes]
        if twice := sum(row.rows_twice for row in self.reconciliation or ()):
            notes.append(f"{twice} rows of the table tell of a place that another row tells of")
        return replace(told, notes=notes)

    def _keep(self, frame: DataFrame) -> DataFrame:
        self._kept.append(frame.persist(StorageLevel.MEMORY_AND_DISK))
        return frame


def _write(table: DataFrame, path: str) -> None:
    table.write.parquet(path)
