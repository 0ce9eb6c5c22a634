"""The page of a report: all sections in order, in one HTML file."""

import os
from pathlib import Path

from rocketpipe.report.facts import ReportFacts


def write_report(path: str | os.PathLike[str], facts: ReportFacts) -> None:
    """Write the report to this file; it appears when it is whole."""
    file = Path(path)
    half = file.with_name(f".{file.name}.half")
    half.write_text(render(facts), encoding="utf-8")
    half.replace(file)


def render(facts: ReportFacts) -> str:
    return f"<!doctype html><title>{facts.title}</title>"
