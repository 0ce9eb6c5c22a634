"""The audit: from what producers recorded and what is stored to tables, and to a report's facts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rocketpipe.report.facts import Reconciled, ReportFacts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSettings:
    """What to look at. At least one of `attempts` and `trace` is given."""

    attempts: str | None = None  # a folder of ParquetRecorder's, or a file of JsonLinesRecorder's
    trace: str | None = None  # the trace topic, for producers without a recorder
    messages: str | None = None  # an archived table; None: the topics themselves, if `source` is
    source: Mapping[str, str] = field(default_factory=dict)  # format("rocketmq"): namesrv, ...
    topics: Sequence[str] = ()  # none: all that something was sent to
    window: float | None = None  # seconds; None: as long as makes about 120 of them
    since_ms: int | None = None  # attempts and messages before it are left out
    until_ms: int | None = None


class Audit:
    """The tables of an audit, worked out once; `close` gives back what Spark keeps of them."""

    settings: AuditSettings
    tables: "Mapping[str, DataFrame]"
    reconciliation: Sequence[Reconciled] | None

    @property
    def lost(self) -> int:
        """How many acknowledged messages are not stored."""
        return sum(row.lost for row in self.reconciliation or ())

    def write(self, folder: str | Path) -> None:
        """Every table as Parquet files in a folder of its name."""
        raise NotImplementedError

    def facts(self, title: str) -> ReportFacts:
        """For `write_report`; use dataclasses.replace to add events, pipeline and so on."""
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


def audit(spark: "SparkSession", settings: AuditSettings) -> Audit:
    """All tables of this audit."""
    raise NotImplementedError
