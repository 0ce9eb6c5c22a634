"""Pictures of how long attempts took, and of the pipeline that read the messages meanwhile."""

from rocketpipe.report import readings
from rocketpipe.report.facts import BUCKETS_PER_DECADE, ReportFacts
from rocketpipe.report.figure import Figure, draw_faults, shade_faults, time_axis
from rocketpipe.report.numbers import count, milliseconds, moment, short_count
from rocketpipe.report.shares import colours
from rocketpipe.report.svg import Axis, Size, Svg, decades, nice_ticks

QUANTILES = (("p50_ms", "half"), ("p90_ms", "90 %"), ("p99_ms", "99 %"), ("max_ms", "slowest"))
_MS_MIN = 0.1
HEAT_LEVELS = 8


def latency_figure(facts: ReportFacts) -> Figure:
    rows = [row for row in facts.latency if row.start_ms is not None and row.p50_ms is not None]
    colour = colours(facts)

    def draw(size: Size, label: str) -> Svg:
        svg = Svg(size, 0, label)
        axis = time_axis(facts, size)
        top = draw_faults(svg, facts, axis, 4, colour) + 6
        bottom = top + (190 if size.is_narrow else 240)
        shade_faults(svg, facts, axis, top, bottom, colour)
        values = [
            max(getattr(row, name), _MS_MIN)
            for row in rows
            for name, _ in QUANTILES
            if getattr(row, name) is not None
        ]
        ticks = decades(min(values, default=1), max(values, default=10))
        scale = Axis(ticks[0], ticks[-1], top, bottom, is_log=True)
        scale.draw(svg, axis.left, axis.right, [(tick, milliseconds(tick)) for tick in ticks])
        axis.draw(svg, top, bottom)
        for name, _ in reversed(QUANTILES):
            line: list[tuple[float, float]] = []
            last = None
            for row in rows:
                start = row.start_ms or 0
                if last is not None and start - last > 3 * facts.window_ms:
                    svg.path(line, f"line {name}")
                    line = []
                last = start
                x = axis.x(start + facts.window_ms / 2)
                line.append((x, scale.y(max(getattr(row, name) or _MS_MIN, _MS_MIN))))
            if len(line) == 1:
                svg.rect(line[0][0] - 2, line[0][1] - 2, 4, 4, f"dot {name}")
            svg.path(line, f"line {name}")
        svg.height = bottom + size.font + 12
        return svg

    return Figure(
        title="How long attempts took",
        about="Quantiles of each window, on a logarithmic scale.",
        reading=readings.latency(facts),
        draw=draw,
        legend=[(f"key-{name}", text) for name, text in QUANTILES],
    )


def heat_figure(facts: ReportFacts) -> Figure:
    colour = colours(facts)
    cells = facts.heat
    most = max((cell.attempts for cell in cells), default=1)

    def draw(size: Size, label: str) -> Svg:
        svg = Svg(size, 0, label)
        axis = time_axis(facts, size)
        top = draw_faults(svg, facts, axis, 4, colour) + 6
        low = min((cell.bucket for cell in cells), default=0)
        low -= low % BUCKETS_PER_DECADE
        high = max((cell.bucket + 1 for cell in cells), default=BUCKETS_PER_DECADE)
        high += -high % BUCKETS_PER_DECADE
        row = 12.0 if size.is_narrow else 14.0
        bottom = top + (high - low) * row
        labels = [
            (float(bucket), milliseconds(10 ** (bucket / BUCKETS_PER_DECADE)))
            for bucket in range(low, high + 1, BUCKETS_PER_DECADE)
        ]
        Axis(low, high, top, bottom).draw(svg, axis.left, axis.right, labels)
        axis.draw(svg, top, bottom)
        span = facts.ended_ms - facts.started_ms
        for cell in cells:
            x1, x2 = axis.x(cell.start_ms), axis.x(cell.start_ms + facts.window_ms)
            y = bottom - (cell.bucket - low + 1) * row
            svg.rect(x1, y, max(x2 - x1, 0.8), row, f"heat h{heat_level(cell.attempts, most)}")
            limits = [
                milliseconds(10 ** ((cell.bucket + upper) / BUCKETS_PER_DECADE)) for upper in (0, 1)
            ]
            at = moment(cell.start_ms, facts.started_ms, span)
            svg.tip(f"{at}: {count(cell.attempts)} attempts took {limits[0]} to {limits[1]}")
        svg.height = bottom + size.font + 12
        return svg

    levels = (1, HEAT_LEVELS // 2, HEAT_LEVELS)
    return Figure(
        title="The same as a heat map",
        about="Each cell counts the attempts of a window that took so long; darker is more.",
        reading=readings.heat(facts),
        draw=draw,
        legend=[
            (f"heat h{level}", f"{count(max(1, most ** (level / HEAT_LEVELS)))} attempts")
            for level in levels
        ],
    )


def heat_level(attempts: int, most: int) -> int:
    """1 to HEAT_LEVELS, by the logarithm: single slow attempts must be seen beside thousands."""
    level = 1
    while level < HEAT_LEVELS and attempts > most ** (level / HEAT_LEVELS):
        level += 1
    return level


def pipeline_figure(facts: ReportFacts) -> Figure:
    queries = sorted({each.query for each in facts.pipeline})
    css = {query: f"b{number % 7}" for number, query in enumerate(queries)}
    colour = colours(facts)

    def draw(size: Size, label: str) -> Svg:
        svg = Svg(size, 0, label)
        last = max(each.time_ms for each in facts.pipeline)  # what was sent last is read later
        axis = time_axis(facts, size, last)
        top = draw_faults(svg, facts, axis, 4, colour) + size.font + 8
        bottom = top + 110
        shade_faults(svg, facts, axis, top, bottom, colour)
        ticks = nice_ticks(max((each.rows_per_second for each in facts.pipeline), default=0), 3)
        rate = Axis(0, ticks[-1], top, bottom)
        svg.text(axis.left, top - 7, "rows per second", "label")
        rate.draw(svg, axis.left, axis.right, [(tick, short_count(tick)) for tick in ticks])
        lag_top = bottom + size.font + 20
        lag_bottom = lag_top + 80
        lags = [each.lag for each in facts.pipeline if each.lag is not None]
        for query in queries:
            rows = sorted(
                (each for each in facts.pipeline if each.query == query),
                key=lambda each: each.time_ms,
            )
            points = [(axis.x(each.time_ms), rate.y(each.rows_per_second)) for each in rows]
            svg.path(points, f"line {css[query]}")
            for (x, y), each in zip(points, rows, strict=True):
                svg.rect(x - 2, y - 2, 4, 4, f"dot {css[query]}")
                svg.tip(f"{query}: {count(each.rows)} rows in a micro-batch")
        if lags:
            ticks = nice_ticks(max(lags), 2)
            lag = Axis(0, ticks[-1], lag_top, lag_bottom)
            svg.text(
                axis.left,
                lag_top - 7,
                "lag when a micro-batch began",
                "label",
            )
            lag.draw(svg, axis.left, axis.right, [(tick, short_count(tick)) for tick in ticks])
            for query in queries:
                steps = [
                    (axis.x(each.time_ms), lag.y(each.lag))
                    for each in sorted(facts.pipeline, key=lambda each: each.time_ms)
                    if each.query == query and each.lag is not None
                ]
                svg.path(steps, f"line {css[query]}")
        else:
            lag_bottom = bottom
        axis.draw(svg, top, lag_bottom)
        svg.height = lag_bottom + size.font + 12
        return svg

    return Figure(
        title="The pipeline behind it",
        about="Micro-batches of Spark while all this happened.",
        reading=readings.pipeline(facts),
        draw=draw,
        legend=[(css[query], query) for query in queries],
    )
