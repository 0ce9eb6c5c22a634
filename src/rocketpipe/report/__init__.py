"""The report: one HTML file, with its pictures in it, that needs no network and no script."""

from rocketpipe.report.facts import (
    AttemptsPerSend,
    Event,
    HeatCell,
    Isolation,
    MicroBatch,
    Moved,
    NeedlessRetries,
    PolicySummary,
    Reconciled,
    ReportFacts,
    Skew,
    Totals,
    Traffic,
)
from rocketpipe.report.page import write_report

__all__ = [
    "AttemptsPerSend",
    "Event",
    "HeatCell",
    "Isolation",
    "MicroBatch",
    "Moved",
    "NeedlessRetries",
    "PolicySummary",
    "Reconciled",
    "ReportFacts",
    "Skew",
    "Totals",
    "Traffic",
    "write_report",
]
