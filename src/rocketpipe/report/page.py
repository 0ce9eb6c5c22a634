"""The page of a report: all sections in order, in one HTML file without scripts."""

import os
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path

from rocketpipe.report import readings, tables
from rocketpipe.report.comparison import comparison_section
from rocketpipe.report.facts import ReportFacts
from rocketpipe.report.latency_figures import heat_figure, latency_figure, pipeline_figure
from rocketpipe.report.numbers import count, duration, milliseconds, utc
from rocketpipe.report.style import STYLE
from rocketpipe.report.traffic_figures import (
    attempts_figure,
    availability_figure,
    share_figure,
    skew_figure,
)

# Were some text ever not escaped, a browser would still run and fetch nothing.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_TICK = "M5 13.5l5 5L21 7"
_CROSS = "M6 6l14 14M20 6L6 20"


def write_report(path: str | os.PathLike[str], facts: ReportFacts) -> None:
    """Write the report to this file; it appears when it is whole."""
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    half = file.with_name(f".{file.name}.half")
    try:
        half.write_text(render(facts), encoding="utf-8")
        half.replace(file)
    except OSError:
        half.unlink(missing_ok=True)
        raise


def render(facts: ReportFacts) -> str:
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(facts.title)}</title><style>{STYLE}</style></head>"
        f"<body><main>{''.join(_sections(facts))}</main></body></html>\n"
    )


def _sections(facts: ReportFacts) -> Iterable[str]:
    yield _head(facts)
    if facts.reconciliation:
        yield _section("Reconciliation", tables.reconciliation(facts.reconciliation))
    if facts.comparison:  # which was asked for; what follows is about one of them
        yield _section("Policies side by side", comparison_section(facts.comparison))
    if facts.windows:
        figures = share_figure(facts).render() + availability_figure(facts).render()
        yield _section("Traffic", figures + tables.brokers(facts) + tables.moved(facts))
    if facts.latency or facts.heat:
        yield _section("Latency", latency_figure(facts).render() + heat_figure(facts).render())
    pair = [attempts_figure(facts).render()] if facts.attempts_per_send else []
    pair += [skew_figure(facts).render()] if readings.main_topic(facts) else []
    if pair:
        more = tables.needless_retries(facts) + tables.skew(facts)
        yield _section("Sends and queues", f'<div class="pair">{"".join(pair)}</div>{more}')
    if facts.pipeline:
        yield _section("Pipeline", pipeline_figure(facts).render())
    yield _foot(facts)


def _head(facts: ReportFacts) -> str:
    span = facts.ended_ms - facts.started_ms
    when = f"{utc(facts.started_ms)} UTC, {duration(span)}" if facts.totals.sends else "no sends"
    policies = f", {', '.join(facts.policies)}" if facts.policies else ""
    return (
        f"<h1>{escape(facts.title)}</h1>"
        f'<p class="when">{escape(when + policies)}</p>{_verdict(facts)}{_tiles(facts)}'
        f"{_list(facts.remarks)}"
    )


def _verdict(facts: ReportFacts) -> str:
    rows = facts.reconciliation
    if rows is None:
        return '<p class="verdict unknown">Nobody looked at what is stored.</p>'
    is_bad = any(row.lost for row in rows)
    mark = (
        f'<svg viewBox="0 0 26 26" aria-hidden="true"><path d="{_CROSS if is_bad else _TICK}" '
        'fill="none" stroke="currentColor" stroke-width="3.4" stroke-linecap="round"/></svg>'
    )
    text = escape(readings.reconciliation(rows))
    return f'<div class="verdict {"bad" if is_bad else "good"}">{mark}<span>{text}</span></div>'


def _tiles(facts: ReportFacts) -> str:
    totals, rows = facts.totals, facts.reconciliation
    tiles: list[tuple[str, str, bool]] = [
        (count(totals.messages), "messages sent", False),
        (count(totals.acknowledged), "sends acknowledged", False),
    ]
    if rows is not None:
        lost = sum(row.lost for row in rows)
        tiles += [
            (count(sum(row.stored for row in rows)), "messages stored", False),
            (count(lost), "lost", lost > 0),
            (count(sum(row.repeated for row in rows)), "stored more than once", False),
        ]
    tiles += [
        (count(totals.failed), "sends failed", totals.failed > 0),
        (count(totals.retries), "retries", False),
        (milliseconds(totals.p50_ms), "half of the sends took up to", False),
        (milliseconds(totals.p99_ms), "99 of 100 took up to", False),
        (milliseconds(totals.max_ms), "the slowest send", False),
    ]
    cells = "".join(
        f'<div class="tile{" bad" if is_bad else ""}"><b>{escape(value)}</b>'
        f"<span>{escape(name)}</span></div>"
        for value, name, is_bad in tiles
    )
    return f'<div class="tiles">{cells}</div>'


def _foot(facts: ReportFacts) -> str:
    parts = []
    if facts.notes:
        parts.append(f"<h3>Left out</h3>{_list(facts.notes)}")
    if facts.settings:
        parts.append(f"<h3>Settings</h3>{_facts(facts.settings)}")
    if facts.versions:
        parts.append(f"<h3>Versions</h3>{_facts(facts.versions)}")
    if facts.how_to_reproduce:
        parts.append(f"<h3>How to reproduce</h3><pre>{escape(facts.how_to_reproduce)}</pre>")
    if not parts:
        return ""
    return _section("About this report", f'<div class="card">{"".join(parts)}</div>')


def _list(lines: Sequence[str]) -> str:
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f'<ul class="notes">{items}</ul>' if items else ""


def _facts(values: Mapping[str, str]) -> str:
    rows = "".join(
        f"<dt>{escape(name)}</dt><dd><code>{escape(str(value))}</code></dd>"
        for name, value in values.items()
    )
    return f"<dl>{rows}</dl>"


def _section(title: str, content: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{content}</section>"


__all__: Sequence[str] = ["render", "write_report"]
