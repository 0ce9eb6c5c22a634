"""The small part of an audit's tables that a report shows, as plain values.

Everything is bounded here, so that a report of many millions of sends stays a report; what was cut
is said in its notes.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar

from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as f

from rocketpipe.report.facts import (
    AttemptsPerSend,
    HeatCell,
    Isolation,
    Moved,
    NeedlessRetries,
    Reconciled,
    ReportFacts,
    Skew,
    Totals,
    Traffic,
)
from rocketpipe.spark.jobs.attempts import UNKNOWN_POLICY
from rocketpipe.spark.jobs.reconciliation import SUSPECT

BROKERS_MAX = 50
QUEUES_MAX = 400
WINDOWS_MAX = 400  # whoever wants finer windows has them in the tables
ROWS_MAX = 500  # of any other table
TOPICS_SHOWN_MAX = 100
IDS_SHOWN_MAX = 20

Tables = Mapping[str, DataFrame]
T = TypeVar("T")


def collect_facts(tables: Tables, facts: ReportFacts) -> ReportFacts:
    """The same facts, with what the tables tell."""
    notes: list[str] = []

    def rows(name: str, kind: type[T], limit: int, *order: Column | str) -> list[T]:
        found = tables[name].orderBy(*order).limit(limit + 1).collect()
        if len(found) > limit:
            notes.append(f"{name.replace('_', ' ')}: only {limit} rows are shown")
        return [_value(kind, row) for row in found[:limit]]

    brokers = rows("brokers", Traffic, BROKERS_MAX, f.desc("attempts"), "broker")
    names = [each.broker for each in brokers]
    last = tables["latency"].orderBy(f.desc("start_ms")).limit(WINDOWS_MAX + 1).collect()
    latency = [_value(Traffic, row) for row in reversed(last[:WINDOWS_MAX])]
    since = (latency[0].start_ms or 0) if latency else 0
    if len(last) > WINDOWS_MAX:
        notes.append(f"only the last {WINDOWS_MAX} windows of time are shown")
    in_time = f.col("start_ms") >= since
    windows = tables["windows"].where(in_time & f.col("broker").isin(*names))
    totals = tables["totals"].first()
    policies = tables["totals_by_topic"].select("policy").distinct().limit(ROWS_MAX).collect()
    per_send = (
        tables["attempts_per_send"]
        .groupBy("attempts")
        .agg(f.sum("sends").alias("sends"), f.sum("acknowledged").alias("acknowledged"))
    )
    return replace(
        facts,
        totals=_value(Totals, totals) if totals is not None else Totals(),
        policies=sorted(row.policy for row in policies if row.policy != UNKNOWN_POLICY),
        brokers=sorted(brokers, key=lambda each: each.broker or ""),
        queues=rows("queues", Traffic, QUEUES_MAX, "topic", "broker", "queue_id"),
        windows=sorted(
            (_value(Traffic, row) for row in windows.collect()),
            key=lambda each: (each.start_ms or 0, each.broker or ""),
        ),
        latency=latency,
        heat=sorted(
            (_value(HeatCell, row) for row in tables["heat"].where(in_time).collect()),
            key=lambda cell: (cell.start_ms, cell.bucket),
        ),
        attempts_per_send=[
            _value(AttemptsPerSend, row)
            for row in per_send.orderBy("attempts").limit(ROWS_MAX).collect()
        ],
        isolations=rows("isolations", Isolation, ROWS_MAX, "start_ms", "broker"),
        moved=rows("moved", Moved, ROWS_MAX, "policy", "broker"),
        skew=rows("skew", Skew, ROWS_MAX, "policy", "topic", "broker"),
        needless_retries=_needless(tables["needless_retries"]),
        notes=notes,
    )


def collect_reconciliation(tables: Tables) -> list[Reconciled]:
    """Topics with something to tell first."""
    rows = tables["reconciliation"].collect()  # one for each topic: TOPICS_MAX at most
    rows.sort(key=lambda row: (-row.lost, -sum(row[name] for name in SUSPECT), row.topic))
    ids = {name: _ids(tables[name]) if any(row[name] for row in rows) else {} for name in SUSPECT}
    return [
        replace(
            _value(Reconciled, row),
            lost_ids=ids["lost"].get(row.topic, ()),
            repeated_ids=ids["repeated"].get(row.topic, ()),
            unacknowledged_ids=ids["unacknowledged"].get(row.topic, ()),
        )
        for row in rows
    ]


def _ids(messages: DataFrame) -> dict[str, Sequence[str]]:
    """The first ids of each topic."""
    in_time = Window.partitionBy("topic").orderBy("started_ms", "message_id")
    # A rank with a limit: Spark drops the others before it brings a topic together.
    first = messages.withColumn("rank", f.row_number().over(in_time)).where(
        f.col("rank") <= IDS_SHOWN_MAX
    )
    found: defaultdict[str, list[str]] = defaultdict(list)
    for row in sorted(first.select("topic", "rank", "message_id").collect()):
        found[row.topic].append(row.message_id)
    return dict(found)


def _needless(retries: DataFrame) -> list[NeedlessRetries]:
    kinds = retries.groupBy("kind").agg(
        f.count("*").alias("retries"), f.min("message_id").alias("sample")
    )
    return [
        NeedlessRetries(kind=row.kind, retries=row.retries, sample=(row.sample,))
        for row in kinds.orderBy("kind").collect()
    ]


def _value(kind: type[T], row: Row) -> T:
    """A row as one of the report's values; columns that it has no place for are left out."""
    told: dict[str, Any] = row.asDict()
    names = {each.name for each in fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: value for name, value in told.items() if name in names})
