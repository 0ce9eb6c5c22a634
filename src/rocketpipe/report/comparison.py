"""The same run under several policies, side by side."""

from collections.abc import Sequence
from html import escape

from rocketpipe.report.facts import PolicySummary
from rocketpipe.report.figure import Figure, draw_faults, time_axis
from rocketpipe.report.numbers import count, milliseconds, percent
from rocketpipe.report.shares import broker_names, colours, effects
from rocketpipe.report.svg import HALF, NARROW, Size, Svg
from rocketpipe.report.tables import Cell, table
from rocketpipe.report.traffic_figures import draw_shares


def comparison_section(runs: Sequence[PolicySummary]) -> str:
    multiples = "".join(_multiple(run).render() for run in runs)
    return (
        f'<div class="card">{_table(runs)}<p class="reading">{escape(reading(runs))}</p></div>'
        f'<div class="multiples">{multiples}</div>'
    )


def _table(runs: Sequence[PolicySummary]) -> str:
    names = ["policy", "sends", "failed", "retries", "lost", "stored twice", "p50", "p99", "max"]
    return table([*names, "to faulty brokers"], [_row(run) for run in runs])


def _row(run: PolicySummary) -> list[str | Cell]:
    totals, stored = run.facts.totals, run.facts.reconciliation
    sick = faulty_share(run)
    lost = None if stored is None else sum(row.lost for row in stored)
    twice = None if stored is None else sum(row.repeated for row in stored)
    return [
        run.policy,
        count(totals.sends),
        Cell(count(totals.failed), "bad" if totals.failed else ""),
        count(totals.retries),
        Cell("–" if lost is None else count(lost), "bad" if lost else ""),
        "–" if twice is None else count(twice),
        *(milliseconds(each) for each in (totals.p50_ms, totals.p99_ms, totals.max_ms)),
        "–" if sick is None else percent(sick),
    ]


def faulty_share(run: PolicySummary) -> float | None:
    """What part of all attempts went to brokers, on average, while they were faulty."""
    told = [each.during for each in effects(run.facts, failed=True) if each.during is not None]
    return sum(told) / len(told) if told else None


def reading(runs: Sequence[PolicySummary]) -> str:
    timed = [run for run in runs if run.facts.totals.p99_ms is not None]
    if not timed:
        return "Nothing was sent."
    best = min(timed, key=lambda run: run.facts.totals.p99_ms or 0)
    worst = max(timed, key=lambda run: run.facts.totals.p99_ms or 0)
    failed = sum(run.facts.totals.failed for run in runs)
    lost = sum(row.lost for run in runs for row in run.facts.reconciliation or ())
    text = (
        f"{best.policy} had the lowest p99, {milliseconds(best.facts.totals.p99_ms)}, "
        f"{worst.policy} the highest, {milliseconds(worst.facts.totals.p99_ms)}"
        if best is not worst
        else f"{best.policy} had a p99 of {milliseconds(best.facts.totals.p99_ms)}"
    )
    ends = f"{count(failed)} sends failed" if failed else "no send failed"
    lost_text = f"{count(lost)} messages were lost" if lost else "nothing was lost"
    return f"{text}; {ends}, and {lost_text} under any of them."


def _multiple(run: PolicySummary) -> Figure:
    facts, colour = run.facts, colours(run.facts)

    def draw(size: Size, label: str) -> Svg:
        svg = Svg(size, 0, label)
        axis = time_axis(facts, size)
        top = draw_faults(svg, facts, axis, 4, colour) + 6
        draw_shares(svg, facts, axis, top, top + 130)
        axis.draw(svg, top, top + 130)
        svg.height = top + 130 + size.font + 12
        return svg

    sick = faulty_share(run)
    share = "" if sick is None else f", {percent(sick)} of the traffic to faulty brokers"
    totals = facts.totals
    return Figure(
        title=run.policy,
        reading=f"p99 {milliseconds(totals.p99_ms)}, {count(totals.retries)} retries{share}.",
        draw=draw,
        legend=[(colour[name], name) for name in broker_names(facts) if colour[name] != "rest"],
        sizes=(HALF, NARROW),
    )
