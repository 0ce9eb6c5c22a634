"""What a command prints: tables for people, or JSON, one object a line, for programs."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from rocketpipe.cli.texts import harmless, show_body, show_queue, show_time
from rocketpipe.errors import ClientError
from rocketpipe.message import MessageQueue, StoredMessage

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

# When nobody looks, no line is folded: a program may read it line by line.
UNSEEN_WIDTH = 10_000


def print_json(value: Mapping[str, Any]) -> None:
    print(json.dumps(value, ensure_ascii=False), flush=True)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table whose columns of numbers are aligned to the right.

    In a terminal that is too narrow for it the words of a heading stand one above the other; where
    that does not help, the facts of each row follow, a line each, instead of a table.
    """
    cells = [[_Cell(value) for value in row] for row in rows]
    for between_words in (" ", "\n"):
        headings = [column.upper().replace(" ", between_words) for column in columns]
        table = _table(headings, cells)
        if _fits(table):
            _print(table)
            return
    for number, row in enumerate(cells):
        if number:
            print()
        print_facts({column: cell.text for column, cell in zip(columns, row, strict=True)})


def _table(headings: Sequence[str], cells: "Sequence[Sequence[_Cell]]") -> "Table":
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for index, heading in enumerate(headings):
        are_numbers = {row[index].is_number for row in cells} - {None} == {True}
        justify: Literal["left", "right"] = "right" if are_numbers else "left"
        table.add_column(heading, justify=justify, vertical="bottom", no_wrap=True)
    for row in cells:
        table.add_row(*(Text(cell.text) for cell in row))
    return table


def print_facts(facts: Mapping[str, object]) -> None:
    """Names and values, a line each."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts.items():
        table.add_row(Text(name), Text(_Cell(value).text))
    _print(table)


def print_title(text: str) -> None:
    """Above a table, where a command prints several."""
    from rich.text import Text

    print()
    _print(Text(text, style="bold underline"))


def print_text(text: str) -> None:
    """As it is in a pipe, and harmless in a terminal."""
    print(harmless(text) if sys.stdout.isatty() else text, flush=True)


def say(text: str) -> None:
    """What is no data: how it went, or that there is nothing."""
    print(text, file=sys.stderr)


def require_rich() -> None:
    """ClientError where tables can't be drawn, before anything is done."""
    try:
        import rich  # noqa: F401
    except ImportError:
        raise ClientError(
            "tables and progress need rich: pip install 'rocketpipe[cli]', or give --json"
        ) from None


def queue_json(queue: MessageQueue) -> dict[str, Any]:
    return {"topic": queue.topic, "broker": queue.broker_name, "queue": queue.queue_id}


def message_json(message: StoredMessage) -> dict[str, Any]:
    try:
        body = {"body": message.body.decode("utf-8")}
    except UnicodeDecodeError:
        body = {"body_hex": message.body.hex()}
    return {
        **queue_json(message.queue),
        "offset": message.queue_offset,
        "message_id": message.message_id,
        "offset_message_id": message.offset_message_id,
        "tags": message.tags,
        "keys": list(message.keys),
        "born_ms": message.born_timestamp_ms,
        "stored_ms": message.store_timestamp_ms,
        "born_host": message.born_host,
        "store_host": message.store_host,
        "reconsume_times": message.reconsume_times,
        "properties": dict(message.properties),
        **body,
    }


def print_message(message: StoredMessage) -> None:
    """All of a message, its body last."""
    print_facts(
        {
            "message id": message.message_id,
            "offset message id": message.offset_message_id,
            "topic": message.topic,
            "queue": show_queue(message.queue),
            "offset": message.queue_offset,
            "tags": message.tags,
            "keys": " ".join(message.keys) or None,
            "born": f"{show_time(message.born_timestamp_ms)} at {message.born_host}",
            "stored": f"{show_time(message.store_timestamp_ms)} at {message.store_host}",
            "reconsumed": f"{message.reconsume_times} times" if message.reconsume_times else None,
            **{f"property {name}": value for name, value in sorted(message.properties.items())},
            "body": f"{len(message.body)} bytes",
        }
    )
    print_text(show_body(message.body))


class _Cell:
    def __init__(self, value: object) -> None:
        self.is_number: bool | None = isinstance(value, int | float)
        if value is None or value == "":
            self.text = "-"
            self.is_number = None  # it goes with whatever else is in its column
        elif isinstance(value, bool):
            self.text = "yes" if value else "no"
        elif isinstance(value, float):
            self.text = f"{value:.1f}"
        else:
            # A line break would break the table.
            self.text = harmless(" ".join(str(value).split()))


def _print(what: "Table | Text") -> None:
    console = _console()
    with console.capture() as capture:
        console.print(what)
    # Without the blanks that fill up the last column.
    print("\n".join(map(str.rstrip, capture.get().splitlines())), flush=True)


def _fits(table: "Table") -> bool:
    console = _console()
    return console.measure(table, options=console.options.update(width=UNSEEN_WIDTH)).maximum <= (
        console.width
    )


def _console() -> "Console":
    from rich.console import Console

    width = None if sys.stdout.isatty() else UNSEEN_WIDTH
    return Console(highlight=False, width=width)
