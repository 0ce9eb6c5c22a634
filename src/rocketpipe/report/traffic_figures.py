"""Pictures of where attempts went: each broker's share over time, and who was available."""

from collections import defaultdict

from rocketpipe.report import readings
from rocketpipe.report.facts import ReportFacts, Traffic
from rocketpipe.report.figure import (
    RIGHT,
    Figure,
    draw_faults,
    list_of_faults,
    shade_faults,
    time_axis,
)
from rocketpipe.report.numbers import count, milliseconds, moment, percent, short_count
from rocketpipe.report.shares import OTHERS, broker_names, by_window, colours, stacked
from rocketpipe.report.svg import HALF, NARROW, Axis, Size, Svg, TimeAxis, nice_ticks


def share_figure(facts: ReportFacts) -> Figure:
    colour = colours(facts)
    own = [name for name in broker_names(facts) if colour[name] != "rest"]
    names = [*own, OTHERS] if len(own) < len(colour) else own
    legend = [(colour.get(name, "rest"), name) for name in names]
    if any(row.failed for row in facts.windows):
        legend.append(("failed", "attempts that failed"))

    def draw(size: Size, label: str) -> Svg:
        svg = Svg(size, 0, label)
        axis = time_axis(facts, size)
        top = draw_faults(svg, facts, axis, 4, colour) + 8
        bottom = top + (170 if size.is_narrow else 230)
        draw_shares(svg, facts, axis, top, bottom)
        per_second = bottom + 14 + (60 if size.is_narrow else 80)
        _draw_rate(svg, facts, axis, bottom + 14, per_second)
        axis.draw(svg, top, per_second)
        svg.height = per_second + size.font + 12
        return svg

    return Figure(
        title="Where messages went",
        about="Each broker's share of what was stored, window by window, and below it the attempts "
        "per second. Bars above are the faults that were made on purpose."
        if facts.events
        else "Each broker's share of what was stored, window by window, and below it the attempts "
        "per second.",
        reading=readings.shares(facts),
        draw=draw,
        legend=legend,
        after=list_of_faults(facts, colour),
    )


def draw_shares(svg: Svg, facts: ReportFacts, axis: TimeAxis, top: float, bottom: float) -> None:
    """Stacked shares of all brokers; those without a colour of their own are one."""
    colour = colours(facts)
    merged: dict[int, dict[str, int]] = {}
    for start, counts in by_window(facts.windows).items():
        together: defaultdict[str, int] = defaultdict(int)
        for name, attempts in counts.items():
            together[name if colour[name] != "rest" else OTHERS] += attempts
        merged[start] = together
    names = [*(name for name in broker_names(facts) if colour[name] != "rest"), OTHERS]
    shares = Axis(0, 1, top, bottom)
    shares.draw(svg, axis.left, axis.right, [(0, "0 %"), (0.5, "50 %"), (1, "100 %")])
    edges = stacked(merged, names)
    starts = list(merged)
    for index, name in enumerate(names):
        lower = edges[name]
        following = edges[names[index + 1]] if index + 1 < len(names) else None
        points: list[tuple[float, float]] = []
        back: list[tuple[float, float]] = []
        for number, start in enumerate(starts):
            total = sum(merged[start].values())
            upper = following[number] if following else (1.0 if total else 0.0)
            x1, x2 = axis.x(start), axis.x(start + facts.window_ms)
            points += [(x1, shares.y(upper)), (x2, shares.y(upper))]
            back += [(x1, shares.y(lower[number])), (x2, shares.y(lower[number]))]
            gap = number + 1 < len(starts) and starts[number + 1] > start + facts.window_ms
            if gap:
                svg.path(
                    [*points, *reversed(back)], f"area {colour.get(name, 'rest')}", closed=True
                )
                points, back = [], []
        svg.path([*points, *reversed(back)], f"area {colour.get(name, 'rest')}", closed=True)
        if points:
            svg.tip(name)


def _draw_rate(svg: Svg, facts: ReportFacts, axis: TimeAxis, top: float, bottom: float) -> None:
    rows: defaultdict[int, list[int]] = defaultdict(lambda: [0, 0])
    for row in facts.windows:
        if row.start_ms is not None:
            rows[row.start_ms][0] += row.attempts
            rows[row.start_ms][1] += row.failed
    seconds = facts.window_ms / 1000
    most = max((attempts / seconds for attempts, _ in rows.values()), default=0)
    ticks = nice_ticks(most, 2)
    rate = Axis(0, ticks[-1], top, bottom)
    rate.draw(svg, axis.left, axis.right, [(tick, f"{short_count(tick)}/s") for tick in ticks])
    for start, (attempts, failed) in sorted(rows.items()):
        x1, x2 = axis.x(start), axis.x(start + facts.window_ms)
        width = max(x2 - x1 - (0.6 if x2 - x1 > 3 else 0), 0.5)
        y = rate.y(attempts / seconds)
        svg.rect(x1, y, width, bottom - y, "bar")
        span = facts.ended_ms - facts.started_ms
        svg.tip(
            f"{moment(start, facts.started_ms, span)}: {count(attempts)} attempts, {failed} failed"
        )
        if failed:
            y = rate.y(failed / seconds)
            svg.rect(x1, min(y, bottom - 1.5), width, max(bottom - y, 1.5), "failed")


# Availability and isolation.


def availability_figure(facts: ReportFacts) -> Figure:
    colour = colours(facts)
    names = broker_names(facts)

    def draw(size: Size, label: str) -> Svg:
        svg = Svg(size, 0, label)
        axis = time_axis(facts, size)
        top = draw_faults(svg, facts, axis, 4, colour) + 4
        many = len(names) > 12
        row = 16.0 if many else 26.0
        heading = 0.0 if many else size.font + 5
        y = top
        bottom = top + len(names) * (heading + row + (4 if many else 7))
        shade_faults(svg, facts, axis, top, bottom, colour)
        rows = {name: [each for each in facts.windows if each.broker == name] for name in names}
        for name in names:
            if not many:
                svg.text(axis.left, y + size.font, name, "label")
            else:
                svg.text(axis.left - 6, y + 12, name[-7:], "tick", anchor="end")
            y += heading
            _draw_states(svg, facts, axis, rows[name], y, row)
            for each in facts.isolations:
                if each.broker == name:
                    x1, x2 = axis.x(each.start_ms), axis.x(each.end_ms)
                    svg.rect(x1, y + row * 0.62, max(x2 - x1, 2), row * 0.38, "isolated")
                    svg.tip(f"{each.policy} passed {name} over: {each.why}")
            y += row + (4 if many else 7)
        axis.draw(svg, top, bottom)
        svg.height = bottom + size.font + 12
        return svg

    return Figure(
        title="Who was available",
        about="A row for each broker. The lower band is the time in which producers knew it to be "
        "sick and sent elsewhere.",
        reading=readings.availability(facts),
        draw=draw,
        legend=[
            ("ok", "took messages"),
            ("some", "some attempts failed"),
            ("failed", "all failed"),
            ("none", "nothing was sent there"),
            ("isolated", "isolated by producers"),
        ],
    )


def _draw_states(
    svg: Svg, facts: ReportFacts, axis: TimeAxis, rows: list[Traffic], y: float, height: float
) -> None:
    svg.rect(axis.left, y, axis.right - axis.left, height, "none")
    last: tuple[str, float, float] | None = None  # windows of one state are one rectangle
    for row in rows:
        if row.start_ms is None or not row.attempts:
            continue
        state = "ok" if not row.failed else "failed" if row.failed >= row.attempts else "some"
        x1, x2 = axis.x(row.start_ms), axis.x(row.start_ms + facts.window_ms)
        if last is not None and last[0] == state and x1 - last[2] < 0.1:
            last = (state, last[1], x2)
            continue
        if last is not None:
            svg.rect(last[1], y, last[2] - last[1], height, last[0])
        last = (state, x1, x2)
    if last is not None:
        svg.rect(last[1], y, last[2] - last[1], height, last[0])


# Attempts per send, and queues.


def attempts_figure(facts: ReportFacts) -> Figure:
    rows = facts.attempts_per_send
    total = sum(row.sends for row in rows)

    def draw(size: Size, label: str) -> Svg:
        height = size.font + 14
        svg = Svg(size, len(rows) * (height + 8) + 6, label)
        left = size.font * 6.2
        right = size.width - size.font * 9.5
        most = max((row.sends for row in rows), default=1)
        for number, row in enumerate(rows):
            y = 4 + number * (height + 8)
            word = "attempt" if row.attempts == 1 else "attempts"
            svg.text(left - 8, y + height - 9, f"{row.attempts} {word}", "label", anchor="end")
            width = max(row.sends / most * (right - left), 2)
            svg.rect(left, y, width, height, "bar", more=' rx="2"')
            lost = (row.sends - row.acknowledged) / most * (right - left)
            if row.sends > row.acknowledged:
                svg.rect(left + width - max(lost, 2), y, max(lost, 2), height, "failed")
            text = f"{count(row.sends)} ({percent(row.sends / total)})"
            svg.text(left + width + 7, y + height - 9, text, "value")
        return svg

    legend = [("bar", "sends")]
    if facts.totals.failed or facts.totals.oneway:
        legend.append(("failed", "not acknowledged (failed, or one-way)"))
    return Figure(
        title="Attempts per send",
        reading=readings.attempts_per_send(facts),
        draw=draw,
        legend=legend,
        sizes=(HALF, NARROW),
    )


QUEUES_DRAWN_MAX = 96


def skew_figure(facts: ReportFacts) -> Figure:
    """The queues of the topic with most traffic."""
    topic = readings.main_topic(facts)
    rows = [row for row in facts.queues if row.topic == topic and row.queue_id is not None]
    rows = sorted(rows, key=lambda row: (row.broker or "", row.queue_id or 0))[:QUEUES_DRAWN_MAX]
    colour = colours(facts)

    def draw(size: Size, label: str) -> Svg:
        svg = Svg(size, 236, label)
        left, right, top, bottom = size.left, size.width - RIGHT, 10, 196
        ticks = nice_ticks(max((row.attempts for row in rows), default=0))
        axis = Axis(0, ticks[-1], top, bottom)
        axis.draw(svg, left, right, [(tick, short_count(tick)) for tick in ticks])
        width = (right - left) / max(len(rows), 1)
        for number, row in enumerate(rows):
            x, y = left + number * width, axis.y(row.attempts)
            css = colour.get(row.broker or "", "rest")
            svg.rect(x + width * 0.1, y, width * 0.8, bottom - y, f"area {css}")
            svg.tip(
                f"{row.broker} queue {row.queue_id}: {count(row.attempts)} attempts, "
                f"p99 {milliseconds(row.p99_ms)}"
            )
            if len(rows) <= 24:
                svg.text(
                    x + width / 2,
                    bottom + size.font + 4,
                    str(row.queue_id),
                    "tick",
                    anchor="middle",
                )
        if rows:
            y = axis.y(sum(row.attempts for row in rows) / len(rows))
            svg.line(left, y, right, y, "mean")
        svg.text((left + right) / 2, 232, "queue", "tick", anchor="middle")
        return svg

    brokers = dict.fromkeys(row.broker or "" for row in rows)
    return Figure(
        title=f"Queues of {topic}",
        reading=readings.skew(facts),
        draw=draw,
        legend=[*((colour.get(name, "rest"), name) for name in brokers), ("mean-key", "mean")],
        sizes=(HALF, NARROW),
    )
