"""A figure: a picture in its widths, its legend, and the one line that says what is to be seen."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from rocketpipe.report.facts import Event, ReportFacts
from rocketpipe.report.numbers import moment
from rocketpipe.report.svg import HALF, NARROW, WIDE, Size, Svg, TimeAxis

RIGHT = 10  # room at the right edge
EVENTS_DRAWN_MAX = 40
_CHARACTER = 0.58  # of the font size: how wide a letter is, about

Draw = Callable[[Size, str], Svg]  # with what is read aloud


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    title: str
    reading: str
    draw: Draw
    legend: Sequence[tuple[str, str]] = ()  # class of a colour, and what it stands for
    about: str = ""  # what is drawn, for those who see such a picture for the first time
    sizes: Sequence[Size] = (WIDE, NARROW)
    after: str = ""  # more HTML

    def render(self) -> str:
        label = f"{self.title}. {self.reading}"
        pictures = "".join(self.draw(size, label).render() for size in self.sizes)
        keys = "".join(
            f'<li><i class="key {css}"></i>{escape(text)}</li>' for css, text in self.legend
        )
        legend = f'<ul class="legend">{keys}</ul>' if keys else ""
        about = f'<p class="about">{escape(self.about)}</p>' if self.about else ""
        css = "figure half" if HALF in self.sizes else "figure"
        return (
            f'<figure class="{css}"><h3>{escape(self.title)}</h3>{about}{pictures}{legend}'
            f'<figcaption class="reading">{escape(self.reading)}</figcaption>{self.after}</figure>'
        )


def time_axis(facts: ReportFacts, size: Size, until_ms: int = 0) -> TimeAxis:
    """From the first send to the last, or to a later time."""
    return TimeAxis(
        facts.started_ms,
        max(facts.ended_ms, facts.started_ms + 1, until_ms),
        size.left,
        size.width - RIGHT,
    )


# Faults, drawn into every picture over time.


def drawn_events(facts: ReportFacts) -> list[tuple[int, Event]]:
    """Events in order, with their numbers; of very many only the first."""
    ordered = sorted(facts.events, key=lambda event: (event.at_ms, event.broker or ""))
    return list(enumerate(ordered[:EVENTS_DRAWN_MAX], 1))


def draw_faults(
    svg: Svg, facts: ReportFacts, axis: TimeAxis, top: float, colour: Mapping[str, str]
) -> float:
    """A bar for each fault, above a picture, so that none covers another; where they end."""
    size = svg.size
    height = size.font + 7
    lanes: list[float] = []  # where each is free again
    for number, event in drawn_events(facts):
        x = axis.x(event.at_ms)
        width = max(axis.x(_end(event, facts)) - x, height)
        text = f"{number}  {described(event)}"
        fits = len(text) * size.font * _CHARACTER < width - 8
        lane = next((index for index, free in enumerate(lanes) if free <= x + 0.5), len(lanes))
        lanes[lane : lane + 1] = [x + width]
        y = top + lane * (height + 3)
        css = colour.get(event.broker or "", "rest")
        svg.rect(x + 1, y, width - 2, height, f"fault {css}", more=' rx="3"')
        svg.tip(text)
        svg.text(x + 6, y + height - 6, text if fits else str(number), "fault-label")
    return top + len(lanes) * (height + 3) + (6 if lanes else 0)


def shade_faults(
    svg: Svg,
    facts: ReportFacts,
    axis: TimeAxis,
    top: float,
    bottom: float,
    colour: Mapping[str, str],
) -> None:
    """The times of faults as bands behind a picture."""
    for _, event in drawn_events(facts):
        x = axis.x(event.at_ms)
        css = colour.get(event.broker or "", "rest")
        svg.rect(x, top, axis.x(_end(event, facts)) - x, bottom - top, f"shade {css}")


def list_of_faults(facts: ReportFacts, colour: Mapping[str, str]) -> str:
    """The legend of the numbers."""
    span = facts.ended_ms - facts.started_ms
    items = []
    for number, event in drawn_events(facts):
        since = moment(event.at_ms, facts.started_ms, span)
        until = moment(_end(event, facts), facts.started_ms, span)
        css = colour.get(event.broker or "", "rest")
        items.append(
            f'<li><b class="number {css}">{number}</b> {since}–{until} {escape(described(event))}'
            "</li>"
        )
    left_out = len(facts.events) - len(items)
    if left_out > 0:
        items.append(f"<li>and {left_out} more</li>")
    return f'<ol class="faults">{"".join(items)}</ol>' if items else ""


def described(event: Event) -> str:
    return f"{event.broker}: {event.what}" if event.broker else event.what


def _end(event: Event, facts: ReportFacts) -> int:
    return event.until_ms if event.until_ms is not None else facts.ended_ms
