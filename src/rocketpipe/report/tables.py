"""The tables of a report. On a narrow screen a row becomes a block of names and values."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape

from rocketpipe.report import readings
from rocketpipe.report.facts import Moved, NeedlessRetries, Reconciled, ReportFacts
from rocketpipe.report.numbers import count, milliseconds, percent

ROWS_MAX = 60
ROWS_OPEN_MAX = 12  # longer ones are opened by who wants them
_KINDS = {
    "answer_lost": "The broker had stored it; its answer was lost, or came late",
    "stored_unsafe": "The broker had said it stored it, but not safely enough",
    "hopeless": "The broker had refused the message itself",
    "oneway": "One-way sends have one attempt",
}


@dataclass(frozen=True, slots=True)
class Cell:
    text: str
    css: str = ""


def table(columns: Sequence[str], rows: Iterable[Sequence[str | Cell]], *, texts: int = 1) -> str:
    """The first `texts` columns are of text, the others of numbers."""
    rows = list(rows)
    head = "".join(
        f"<th{' class=text' if index < texts else ''}>{escape(name)}</th>"
        for index, name in enumerate(columns)
    )
    body = "".join(
        "<tr>"
        + "".join(_cell(value, name, index < texts) for index, (name, value) in enumerate(pairs))
        + "</tr>"
        for pairs in (zip(columns, row, strict=True) for row in rows[:ROWS_MAX])
    )
    more = f"<p class=about>and {len(rows) - ROWS_MAX} more</p>" if len(rows) > ROWS_MAX else ""
    content = (
        f'<div class="scroll"><table class="stack"><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>{more}"
    )
    if len(rows) <= ROWS_OPEN_MAX:
        return content
    return f"<details><summary>{len(rows)} rows</summary>{content}</details>"


def _cell(value: str | Cell, name: str, is_text: bool) -> str:
    cell = value if isinstance(value, Cell) else Cell(value)
    css = " ".join(filter(None, (cell.css, "text" if is_text else "")))
    kind = f' class="{css}"' if css else ""
    return f'<td{kind} data-name="{escape(name)}">{escape(cell.text)}</td>'


def reconciliation(rows: Sequence[Reconciled]) -> str:
    """What was sent against what is stored, topic by topic, with ids."""
    # Of the rarer kinds only those that occur.
    rare: list[tuple[str, Callable[[Reconciled], int]]] = [
        ("failed", lambda row: row.failed),
        ("one-way", lambda row: row.oneway),
        ("one-way, missing", lambda row: row.oneway_missing),
        ("waiting", lambda row: row.waiting),
        ("not committed", lambda row: row.uncommitted),
        ("expired", lambda row: row.expired),
        ("of others", lambda row: row.others),
        ("rows twice", lambda row: row.rows_twice),
    ]
    rare = [(name, read) for name, read in rare if any(map(read, rows))]
    columns = ["topic", "sent", "acknowledged", "stored", "lost", "stored twice", "never told"]
    cells: list[list[str | Cell]] = [
        [
            row.topic,
            *(count(number) for number in (row.sent, row.acknowledged, row.stored)),
            Cell(count(row.lost), "bad" if row.lost else "good"),
            *(count(number) for number in (row.repeated, row.unacknowledged)),
        ]
        for row in rows
    ]
    more = table(
        ["and besides", *(name for name, _ in rare)],
        [[row.topic, *(count(read(row)) for _, read in rare)] for row in rows],
    )
    ids = "".join(
        _ids(f"{name} in {row.topic}", found, number)
        for row in rows
        for name, found, number in (
            ("Lost", row.lost_ids, row.lost),
            ("Stored more than once", row.repeated_ids, row.repeated),
            ("Stored, but no producer was told", row.unacknowledged_ids, row.unacknowledged),
        )
        if found
    )
    return (
        f'<div class="card">{table(columns, cells)}{more if rare else ""}'
        f'<p class="reading">{escape(readings.reconciliation(rows))}</p>{ids}</div>'
    )


def _ids(title: str, ids: Sequence[str], number: int) -> str:
    more = f"\nand {number - len(ids)} more, in the tables" if number > len(ids) else ""
    text = escape("\n".join(ids) + more)
    return f"<details><summary>{escape(title)}: ids</summary><pre>{text}</pre></details>"


def brokers(facts: ReportFacts) -> str:
    if not facts.brokers:
        return ""
    rows: list[list[str | Cell]] = [
        [
            row.broker or "unknown",
            *(count(number) for number in (row.attempts, row.stored)),
            Cell(count(row.failed), "bad" if row.failed else ""),
            count(row.retries),
            *(milliseconds(each) for each in (row.p50_ms, row.p90_ms, row.p99_ms, row.max_ms)),
        ]
        for row in facts.brokers
    ]
    names = ["broker", "attempts", "stored", "failed", "retries", "p50", "p90", "p99", "max"]
    return f'<div class="card"><h3>Brokers</h3>{table(names, rows)}</div>'


def moved(facts: ReportFacts) -> str:
    """What policies moved away from brokers."""
    if not facts.moved:
        return ""
    rows = [
        [
            row.policy,
            row.broker,
            count(row.expected),
            count(row.sends),
            f"{row.moved:+,.0f}".replace("+0", "0").replace("-0", "0"),
            percent(row.moved / row.expected) if row.moved > 0 and row.expected else "–",
            count(row.isolated),
        ]
        for row in facts.moved
    ]
    names = ["policy", "broker", "even choice", "sent there", "moved away", "share", "by isolation"]
    return (
        '<div class="card"><h3>What the policy moved away</h3><p class="about">First attempts that '
        "an even choice among all queues would have sent to a broker, and those that went there. "
        "By isolation: so many of them came while the broker was known to be sick.</p>"
        f'{table(names, rows, texts=2)}<p class="reading">{escape(moved_reading(facts.moved))}</p>'
        "</div>"
    )


def moved_reading(rows: Sequence[Moved]) -> str:
    most = max(rows, key=lambda row: row.moved)
    if most.moved < 1:
        return "No broker got less than its even share."
    share = percent(most.moved / most.expected)
    return (
        f"{most.policy} moved {count(most.moved)} sends ({share} of an even share) away from "
        f"{most.broker}, {count(most.isolated)} of them while it was isolated."
    )


def needless_retries(facts: ReportFacts) -> str:
    rows = facts.needless_retries
    if not facts.totals.retries and not rows:
        return ""
    content = (
        table(
            ["what came before", "retries", "for instance"],
            [
                [_KINDS.get(row.kind, row.kind), count(row.retries), ", ".join(row.sample[:1])]
                for row in rows
            ],
        )
        if rows
        else ""
    )
    return (
        f'<div class="card"><h3>Retries that should not have been</h3>{content}'
        f'<p class="reading">{escape(needless_reading(facts, rows))}</p></div>'
    )


def needless_reading(facts: ReportFacts, rows: Sequence[NeedlessRetries]) -> str:
    needless = sum(row.retries for row in rows)
    if not needless:
        return f"Each of {count(facts.totals.retries)} retries had a reason."
    return (
        f"{count(needless)} of {count(facts.totals.retries)} retries followed an attempt that had "
        "stored the message already, or could never be stored."
    )


def skew(facts: ReportFacts) -> str:
    """The test of every topic, where the picture shows only one."""
    if len({(row.topic, row.policy) for row in facts.skew}) < 2 and len(facts.skew) < 3:
        return ""
    rows = [
        [
            row.topic,
            row.broker or "all",
            row.policy,
            *(count(number) for number in (row.queues, row.sends, row.least, row.most)),
            f"{row.chi_square:.4g}",
            readings.p_value(row.p_value).removeprefix("= "),
        ]
        for row in facts.skew
    ]
    names = ["topic", "broker", "chosen by", "queues", "sends", "least", "most", "χ²", "p"]
    return (
        "<details class=card><summary>Was each queue chosen as often as the others? χ² tests"
        f"</summary>{table(names, rows, texts=3)}</details>"
    )
