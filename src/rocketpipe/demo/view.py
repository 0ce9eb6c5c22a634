"""What one sees of a run while it goes on: a picture in a terminal, lines anywhere else."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, Self, TextIO

from rocketpipe.demo.scenario import Event
from rocketpipe.demo.tally import BrokerNow

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

LINE_SECONDS = 5.0  # between two lines where there is no terminal
BAR_WIDTH = 16
_STYLES = {"available": "green", "slow": "yellow", "busy": "yellow", "unused": "dim"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineNow:
    """How far Spark is."""

    messages: int = 0  # rows in the table
    behind: int = 0  # stored, and not read so far
    attempts: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A run at one moment."""

    title: str
    phase: str
    elapsed: float = 0.0
    seconds: float = 0.0
    brokers: Sequence[BrokerNow] = ()
    sends: int = 0
    acknowledged: int = 0
    failed: int = 0  # of sends that any broker could take
    retried: int = 0
    on_their_way: int = 0
    waiting: int = 0  # for the queue of their customer
    resent: int = 0
    pipeline: PipelineNow = field(default_factory=PipelineNow)
    events: Sequence[Event] = ()


class View(AbstractContextManager["View"], Protocol):
    """Shows one moment after another."""

    def show(self, snapshot: Snapshot) -> None:
        """Call it several times a second."""

    def say(self, text: str) -> None:
        """A line that stays."""


class Lines(View):
    """A line every few seconds, and one for whatever happens."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._next = 0.0
        self._phase = ""
        self._under_way: set[Event] = set()

    def show(self, snapshot: Snapshot) -> None:
        if snapshot.phase != self._phase:
            self._phase = snapshot.phase
            self._next = snapshot.elapsed + LINE_SECONDS
            self.say(snapshot.phase)
        under_way = {each for each in snapshot.events if each.at <= snapshot.elapsed < each.until}
        for event in sorted(under_way - self._under_way):
            self.say(f"{event.at:4.0f} s  {event.broker} {event.what}")
        for event in sorted(self._under_way - under_way):
            self.say(f"{event.until:4.0f} s  {event.broker} is itself again")
        self._under_way = under_way
        if snapshot.sends and snapshot.elapsed >= self._next:
            self._next += LINE_SECONDS
            self.say(line(snapshot))

    def say(self, text: str) -> None:
        print(text, file=self._file, flush=True)

    def __exit__(self, *error: object) -> None:
        pass


class Picture(View):
    """A picture that is drawn anew in place, and gone at the end."""

    def __init__(self, console: "Console") -> None:
        from rich.live import Live

        self._console = console
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._live.stop()

    def show(self, snapshot: Snapshot) -> None:
        self._live.update(draw(snapshot, self._console.width), refresh=True)

    def say(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


def line(snapshot: Snapshot) -> str:
    """A moment in one line."""
    shares = ", ".join(
        f"{each.name} {each.share:.0%} {show_latency(each.p50)} {each.state}"
        for each in snapshot.brokers
    )
    return (
        f"{snapshot.elapsed:4.0f} s  sent {snapshot.sends:,}, acknowledged "
        f"{snapshot.acknowledged:,}, failed {snapshot.failed:,} | {shares} | "
        f"{snapshot.pipeline.messages:,} in the table, {snapshot.pipeline.behind:,} behind"
    )


def draw(snapshot: Snapshot, width: int) -> "RenderableType":
    """A moment as a picture."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    parts: list[RenderableType] = [_head(snapshot, width)]
    if snapshot.events:
        parts.append(_script(snapshot, width))
    if snapshot.brokers:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        table.add_column("BROKER", no_wrap=True)
        table.add_column("SHARE", no_wrap=True)
        for name in ("MSG/S", "P50", "P99"):
            table.add_column(name, justify="right", no_wrap=True)
        table.add_column("STATE", overflow="fold")
        for each in snapshot.brokers:
            filled = round(each.share * BAR_WIDTH)
            bar = Text("█" * filled + "░" * (BAR_WIDTH - filled) + f" {each.share:4.0%}")
            table.add_row(
                each.name,
                bar,
                f"{each.per_second:,.0f}",
                show_latency(each.p50),
                show_latency(each.p99),
                Text(each.state, style=_STYLES.get(each.state.split(",")[0], "red")),
            )
        parts += [Text(), table, Text()]
    pipeline = snapshot.pipeline
    facts = [
        ("senders", [(snapshot.sends, "sent"), (snapshot.acknowledged, "acknowledged")]),
        ("", [(snapshot.on_their_way, "on their way"), (snapshot.failed, "failed")]),
        ("", [(snapshot.retried, "retried"), (snapshot.resent, "sent again by the shop")]),
        ("", [(snapshot.waiting, "wait for their queue")]),
        ("Spark", [(pipeline.messages, "messages in the table"), (pipeline.behind, "behind")]),
        ("", [(pipeline.attempts, "attempts in the table")]),
    ]
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), show_header=False)
    table.add_column(style="bold", width=8)
    for _ in range(2):
        table.add_column(justify="right", min_width=8)
        table.add_column(min_width=22)
    for name, values in facts:
        table.add_row(name, *(cell for count, what in values for cell in (f"{count:,}", what)))
    parts.append(table)
    return Group(*parts)


def _head(snapshot: Snapshot, width: int) -> "RenderableType":
    from rich.console import Group
    from rich.text import Text

    clock = f"{snapshot.elapsed:.0f} of {snapshot.seconds:.0f} s" if snapshot.seconds else ""
    head = Text(snapshot.title, style="bold", no_wrap=True)
    head.truncate(max(0, width - len(clock) - 2), overflow="ellipsis", pad=True)
    head.append("  " + clock)
    share = min(1.0, snapshot.elapsed / snapshot.seconds) if snapshot.seconds else 0.0
    bar = Text("━" * round(width * share), style="green")
    bar.append("━" * (width - len(bar)), style="dim")
    return Group(head, bar, Text(snapshot.phase))


def _script(snapshot: Snapshot, width: int) -> "Text":
    """What goes on now, and what comes next."""
    from rich.text import Text

    now = [each for each in snapshot.events if each.at <= snapshot.elapsed < each.until]
    coming = [each for each in snapshot.events if each.at > snapshot.elapsed]
    if now:
        text = "; ".join(
            f"{each.broker} {each.what} ({each.until - snapshot.elapsed:.0f} s more)"
            for each in now
        )
    else:
        text = "all is well"
    result = Text(text, style="bold red" if now else "green", no_wrap=True, overflow="ellipsis")
    if coming:
        event = coming[0]
        wait = event.at - snapshot.elapsed
        result.append(f"\nnext, in {wait:.0f} s: {event.broker} {event.what}", style="dim")
    else:
        result.append("\nthat was all" if not now else "\n", style="dim")
    return result


def show_latency(seconds: float | None) -> str:
    """`0.8 ms`, `12 ms`, `1.2 s`; a dash for none."""
    if seconds is None:
        return "-"
    if seconds >= 1:
        return f"{seconds:.1f} s"
    return f"{seconds * 1000:.1f} ms" if seconds < 0.01 else f"{seconds * 1000:.0f} ms"
