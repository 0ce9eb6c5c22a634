"""Vector graphics by hand: shapes, scales and axes, in two widths.

A picture is drawn twice, for wide and for narrow screens, and the page's style shows one of them:
so texts keep their size and stay legible. Colours are the page's own (`style.py`), by class, which
makes dark mode and print a matter of style. Whatever is text is escaped here.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape

from rocketpipe.report.numbers import moment

TICK_STEPS_MS = [
    *(1000 * step for step in (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800)),
    *(3_600_000 * step for step in (1, 2, 3, 6, 12, 24, 48, 96, 168, 336, 720)),
]


@dataclass(frozen=True, slots=True)
class Size:
    """How large a picture is drawn, in units that are about pixels."""

    name: str
    width: int
    font: float
    left: int  # room for the labels of the left axis
    ticks: int  # about so many on a time axis

    @property
    def is_narrow(self) -> bool:
        return self.name != "wide"


WIDE = Size("wide", 1000, 14, 64, 10)
NARROW = Size("narrow", 380, 13.5, 62, 4)
HALF = Size("half", 480, 13, 56, 6)  # two beside each other


@dataclass(slots=True)
class Svg:
    """The elements of one picture."""

    size: Size
    height: float
    label: str  # read aloud to those who don't see it
    parts: list[str] = field(default_factory=list)

    def rect(
        self, x: float, y: float, width: float, height: float, css: str, *, more: str = ""
    ) -> None:
        box = f'x="{_n(x)}" y="{_n(y)}" width="{_n(max(0, width))}" height="{_n(max(0, height))}"'
        self.parts.append(f'<rect {box} class="{css}"{more}/>')

    def line(self, x1: float, y1: float, x2: float, y2: float, css: str) -> None:
        self.parts.append(
            f'<line x1="{_n(x1)}" y1="{_n(y1)}" x2="{_n(x2)}" y2="{_n(y2)}" class="{css}"/>'
        )

    def path(
        self, points: Iterable[tuple[float, float]], css: str, *, closed: bool = False
    ) -> None:
        text = "L".join(f"{_n(x)} {_n(y)}" for x, y in points)
        if text:
            self.parts.append(f'<path d="M{text}{"Z" if closed else ""}" class="{css}"/>')

    def text(self, x: float, y: float, text: str, css: str = "", *, anchor: str = "start") -> None:
        self.parts.append(
            f'<text x="{_n(x)}" y="{_n(y)}" class="{css}" text-anchor="{anchor}">'
            f"{escape(text)}</text>"
        )

    def tip(self, text: str) -> None:
        """Say more of the last shape to whoever points at it."""
        last = self.parts[-1]
        assert last.endswith("/>")
        name = last[1 : last.index(" ")]
        self.parts[-1] = f"{last[:-2]}><title>{escape(text)}</title></{name}>"

    def render(self) -> str:
        size = self.size
        return (
            f'<svg class="{size.name}" viewBox="0 0 {size.width} {_n(self.height)}" role="img" '
            f'aria-label="{escape(self.label)}" font-size="{size.font}">'
            f"{''.join(self.parts)}</svg>"
        )


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """Times from left to right."""

    start_ms: int
    end_ms: int
    left: float
    right: float

    @property
    def span_ms(self) -> int:
        return max(1, self.end_ms - self.start_ms)

    def x(self, ms: float) -> float:
        """Where a time stands; what lies outside stands at the edge."""
        inside = min(max(ms, self.start_ms), self.end_ms)
        return self.left + (inside - self.start_ms) / self.span_ms * (self.right - self.left)

    def ticks(self, about: int) -> list[int]:
        step = next((each for each in TICK_STEPS_MS if self.span_ms / each <= about), None)
        if step is None:
            step = math.ceil(self.span_ms / about / TICK_STEPS_MS[-1]) * TICK_STEPS_MS[-1]
        # Since the start where times are shown so; else at whole hours and days.
        first = self.start_ms if self.span_ms < 3_600_000 else -(-self.start_ms // step) * step
        return list(range(first, self.end_ms + 1, step))

    def draw(self, svg: Svg, top: float, bottom: float) -> None:
        """Ticks and their labels below; lines up to the top."""
        for ms in self.ticks(svg.size.ticks):
            x = self.x(ms)
            svg.line(x, top, x, bottom, "grid")
            anchor = "start" if x < self.left + 8 else "end" if x > self.right - 12 else "middle"
            text = moment(ms, self.start_ms, self.span_ms)
            svg.text(x, bottom + svg.size.font + 5, text, "tick", anchor=anchor)


@dataclass(frozen=True, slots=True)
class Axis:
    """Values from bottom to top, on a linear scale or a logarithmic one."""

    low: float
    high: float
    top: float
    bottom: float
    is_log: bool = False

    def y(self, value: float) -> float:
        low, high, at = self.low, self.high, min(max(value, self.low), self.high)
        if self.is_log:
            low, high, at = math.log10(low), math.log10(high), math.log10(at)
        share = (at - low) / (high - low) if high > low else 0.0
        return self.bottom - share * (self.bottom - self.top)

    def draw(
        self, svg: Svg, left: float, right: float, labels: Sequence[tuple[float, str]]
    ) -> None:
        for value, text in labels:
            y = self.y(value)
            svg.line(left, y, right, y, "grid")
            svg.text(left - 7, y + svg.size.font * 0.35, text, "tick", anchor="end")


def nice_ticks(high: float, about: int = 4) -> list[float]:
    """Round numbers from 0 to the first that is not below `high`."""
    if high <= 0:
        return [0, 1]
    raw = high / about
    magnitude = 10 ** math.floor(math.log10(raw))
    step = next(m * magnitude for m in (1, 2, 2.5, 5, 10) if m * magnitude >= raw * 0.999)
    return [step * number for number in range(math.ceil(high / step - 1e-9) + 1)]


def decades(low: float, high: float) -> list[float]:
    """Powers of ten that enclose both."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    return [10.0**power for power in range(first, max(last, first + 1) + 1)]


def _n(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")
