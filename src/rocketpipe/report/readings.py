"""One line for each picture, computed from the data: what there is to see in it."""

from collections.abc import Iterable, Sequence
from statistics import median

from rocketpipe.report.facts import BUCKETS_PER_DECADE, Reconciled, ReportFacts, Skew
from rocketpipe.report.numbers import count, duration, milliseconds, moment, percent, plural
from rocketpipe.report.shares import Effect, broker_names, effects

NOTHING = "Nothing was sent."
SLOW_MS = 100.0
_CLAUSES_MAX = 3
_MOMENT_MS = 100  # what is shorter is not told apart
_EFFECTS_MAX = 4
_UNLIKELY = 0.01  # below it, chance is no explanation


def shares(facts: ReportFacts) -> str:
    total = sum(row.attempts for row in facts.brokers)
    if not total:
        return NOTHING
    told = [each for each in effects(facts) if each.during is not None]
    if told:
        # The largest changes, in the order of time.
        largest = sorted(told, key=_change, reverse=True)[:_EFFECTS_MAX]
        return _sentence(_effect(each) for each in told if each in largest)
    parts = sorted(facts.brokers, key=lambda row: -row.attempts)
    even = percent(1 / len(parts))
    if len(parts) == 1:
        return f"All {plural(total, 'attempt')} went to {parts[0].broker}."
    most, least = parts[0], parts[-1]
    return (
        f"{most.broker} got {percent(most.attempts / total)} of {plural(total, 'attempt')}, "
        f"{least.broker} {percent(least.attempts / total)}; an even share is {even}."
    )


def _change(effect: Effect) -> float:
    return abs((effect.before or 0.0) - (effect.during or 0.0))


def _effect(effect: Effect) -> str:
    event = effect.event
    during = "no traffic" if effect.during == 0 else f"{percent(effect.during or 0)} of the traffic"
    before = "" if effect.before is None else f" ({percent(effect.before)} before)"
    return f"{event.broker} took {during} while it {event.what}{before}"


def availability(facts: ReportFacts) -> str:
    if not facts.windows:
        return NOTHING
    clauses = []
    for broker in broker_names(facts):
        own = [each for each in facts.isolations if each.broker == broker]
        failed = sum(row.failed for row in facts.brokers if row.broker == broker)
        parts = []
        if own:
            took = sum(each.end_ms - each.start_ms for each in own)
            stretches = "" if len(own) == 1 else f" in {len(own)} stretches"
            # A dead broker soon leaves the route, and is then not there to be passed over.
            time = duration(took) if took >= _MOMENT_MS else "a moment"
            parts.append(f"was isolated for {time}{stretches}")
        if failed:
            parts.append(f"failed {plural(failed, 'attempt')}")
        if parts:
            clauses.append((failed, f"{broker} {' and '.join(parts)}"))
    if not clauses:
        return "No attempt failed, and no broker was isolated."
    worst = sorted(clauses, key=lambda clause: -clause[0])[:_CLAUSES_MAX]
    more = len(clauses) - len(worst)
    text = [clause for clause in (each[1] for each in clauses) if clause in {w[1] for w in worst}]
    return _sentence([*text, f"{more} more had failures or were isolated"] if more else text)


def latency(facts: ReportFacts) -> str:
    totals = facts.totals
    rows = [row for row in facts.latency if row.p99_ms is not None]
    if totals.p50_ms is None or not rows:
        return NOTHING
    worst = max(rows, key=lambda row: row.p99_ms or 0)
    at = moment(worst.start_ms or 0, facts.started_ms, facts.ended_ms - facts.started_ms)
    cause = _event_at(facts, worst.start_ms or 0)
    return (
        f"Of all sends, retries included, half took up to {milliseconds(totals.p50_ms)} and 99 of "
        f"100 up to {milliseconds(totals.p99_ms)}; the worst window was at {at}, with a p99 of "
        f"{milliseconds(worst.p99_ms)}{f', {cause}' if cause else ''}."
    )


def heat(facts: ReportFacts) -> str:
    total = sum(cell.attempts for cell in facts.heat)
    if not total:
        return NOTHING
    by_bucket: dict[int, int] = {}
    for cell in facts.heat:
        by_bucket[cell.bucket] = by_bucket.get(cell.bucket, 0) + cell.attempts
    usual = max(by_bucket, key=lambda bucket: by_bucket[bucket])
    limits = [milliseconds(10 ** ((usual + upper) / BUCKETS_PER_DECADE)) for upper in (0, 1)]
    slow = [
        cell for cell in facts.heat if 10 ** (cell.bucket / BUCKETS_PER_DECADE) >= SLOW_MS * 0.999
    ]
    text = f"{percent(by_bucket[usual] / total)} of the attempts took {limits[0]} to {limits[1]}"
    if not slow:
        return f"{text}, and none {milliseconds(SLOW_MS)} or more."
    slow_count = sum(cell.attempts for cell in slow)
    text += f"; {count(slow_count)} ({percent(slow_count / total)}) took {milliseconds(SLOW_MS)}"
    text += " or more"
    if facts.events:
        during = sum(cell.attempts for cell in slow if _event_at(facts, cell.start_ms))
        text += f", {percent(during / slow_count)} of these during a fault"
    return f"{text}."


def attempts_per_send(facts: ReportFacts) -> str:
    totals = facts.totals
    if not totals.sends:
        return NOTHING
    once = sum(row.sends for row in facts.attempts_per_send if row.attempts == 1)
    failed = plural(totals.failed, "send") + " failed" if totals.failed else "no send failed"
    if once == totals.sends:
        return f"Every send needed one attempt; {failed}."
    most = max(row.attempts for row in facts.attempts_per_send)
    return (
        f"{percent(once / totals.sends)} of {plural(totals.sends, 'send')} needed one attempt, "
        f"{count(totals.sends - once)} needed more, {most} at most; {failed}."
    )


def main_topic(facts: ReportFacts) -> str:
    """The one with most attempts."""
    attempts: dict[str, int] = {}
    for row in facts.queues:
        if row.topic is not None:
            attempts[row.topic] = attempts.get(row.topic, 0) + row.attempts
    return max(attempts, key=lambda topic: (attempts[topic], topic), default="")


def skew(facts: ReportFacts) -> str:
    topic = main_topic(facts)
    rows = [row for row in facts.queues if row.topic == topic]
    if not rows:
        return NOTHING
    least, most = min(row.attempts for row in rows), max(row.attempts for row in rows)
    text = f"The {plural(len(rows), 'queue')} got {count(least)} to {count(most)} attempts"
    tests = [each for each in facts.skew if each.topic == topic]
    whole = next((each for each in tests if each.broker is None), None)
    if whole is None or whole.queues < 2:
        return f"{text}."
    text += f"; {_judged(whole)}"
    inside = [each for each in tests if each.broker is not None and each.policy == whole.policy]
    if whole.p_value < _UNLIKELY and inside:
        uneven = [each for each in inside if each.p_value < _UNLIKELY]
        text += (
            f". Within {', '.join(str(each.broker) for each in uneven[:3])} too"
            if uneven
            else ". Within each broker the queues were chosen evenly"
        )
    return f"{text}."


def _judged(test: Skew) -> str:
    figures = f"χ² = {test.chi_square:.4g}, p {p_value(test.p_value)}"
    if test.p_value < _UNLIKELY:
        return f"that is more uneven than chance makes it ({figures})"
    return f"chance alone makes it as uneven as that ({figures})"


def p_value(value: float) -> str:
    return "< 0.0001" if value < 0.0001 else f"= {value:.2g}"


def pipeline(facts: ReportFacts) -> str:
    rows = facts.pipeline
    if not rows:
        return "No pipeline ran."
    busy = [each.rows_per_second for each in rows if each.rows]
    if not busy:
        return "The pipeline had nothing to read."
    clauses = []
    for query in sorted({each.query for each in rows}):
        read = sum(each.rows for each in rows if each.query == query)
        clauses.append(f"{count(read)} rows of {query}")
    text = (
        f"Spark read {' and '.join(clauses)}, {count(median(busy))} a second in the median "
        f"micro-batch and {count(max(busy))} at best"
    )
    lags = [each.lag for each in rows if each.lag is not None]
    if lags:
        text += f"; at most {plural(max(lags), 'message')} waited when a micro-batch began"
    return f"{text}."


def reconciliation(rows: Sequence[Reconciled]) -> str:
    acknowledged = sum(row.acknowledged for row in rows)
    lost = sum(row.lost for row in rows)
    gone = sum(row.waiting + row.uncommitted + row.expired for row in rows)
    if lost:
        text = (
            f"{plural(lost, 'acknowledged message')} of {count(acknowledged)} {_are(lost)} missing"
        )
    elif not acknowledged:
        text = "No message was acknowledged, so none can be missing"
    elif gone:
        text = (
            f"No acknowledged message is missing, of {count(acknowledged)}; {count(gone)} of them "
            "wait, were rolled back or are deleted"
        )
    else:
        text = f"All {count(acknowledged)} acknowledged messages are stored"
    repeated = sum(row.repeated for row in rows)
    silent = sum(row.unacknowledged for row in rows)
    twice = (
        f"{count(repeated)} {_are(repeated)} stored more than once" if repeated else "none twice"
    )
    untold = f"{count(silent)} {_are(silent)} stored though no producer was told so"
    return f"{text}; {twice}{f'; {untold}' if silent else ''}."


def _are(number: int) -> str:
    return "is" if number == 1 else "are"


def _event_at(facts: ReportFacts, ms: int) -> str:
    """What was wrong in the window that begins then."""
    for event in facts.events:
        until = event.until_ms if event.until_ms is not None else facts.ended_ms
        if event.at_ms < ms + facts.window_ms and ms < until:
            return f"while {event.broker or 'the cluster'} {event.what}"
    return ""


def _sentence(clauses: Iterable[str]) -> str:
    text = "; ".join(clauses)
    return f"{text}." if text else ""
