"""The progress of a job in a terminal: rows, rows per second, and how much waits."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rocketpipe.spark.jobs.progress import Progress


@contextmanager
def progress_bar(title: str, *, is_shown: bool = True) -> "Iterator[Callable[[Progress], None]]":
    """What to tell progress to. It is drawn on stderr, if that is a terminal."""
    if not is_shown or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("[bold]{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[rows]}"),
        TimeElapsedColumn(),
    )
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None, rows="starting Spark")

        def tell(progress: "Progress") -> None:
            facts = f"{progress.rows:,} rows, {progress.rows_per_second:,.0f} a second"
            if progress.lag is not None:
                facts += f", {progress.lag:,} waiting"
            total = progress.total
            if total is None and progress.lag is not None:
                total = progress.rows + progress.lag
            bar.update(task, completed=progress.rows, total=total, rows=facts)

        yield tell
