"""docs/spark.md tells of every option and column."""

import re
from pathlib import Path

from rocketpipe.spark.options import ConnectionOptions, OptionParser
from rocketpipe.spark.read_options import ReadOptions
from rocketpipe.spark.schema import COLUMNS

DOCS = (Path(__file__).parents[3] / "docs" / "spark.md").read_text()
GIVEN = {"namesrv": "h:1", "topic": "t"}


def first_column(title: str) -> set[str]:
    section = DOCS.split(f"### {title}\n")[1].split("\n##")[0]
    cells = re.findall(r"^\| (`.*?`) \|", section, re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`([\w.]+)`", cell)}


def known(read: type[ConnectionOptions | ReadOptions]) -> set[str]:
    parser = OptionParser(GIVEN)
    if issubclass(read, ReadOptions):
        read.read(parser)
    else:
        read.parse(parser)
    return set(parser.known)


def test_every_option_is_told() -> None:
    connection = known(ConnectionOptions)
    assert first_column("Options of the connection") == connection
    assert first_column("Options of reading") == known(ReadOptions) - connection


def test_every_column_is_told() -> None:
    assert first_column("Columns") == set(COLUMNS)
