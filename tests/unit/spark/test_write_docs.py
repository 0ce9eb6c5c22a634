"""docs/spark-writing.md tells of every option and column of the sink."""

from pathlib import Path

import pytest

from rocketpipe.spark.options import OptionParser
from rocketpipe.spark.sink_columns import COLUMNS
from rocketpipe.spark.write_options import WriteOptions

DOCS = (Path(__file__).parents[3] / "docs" / "spark-writing.md").read_text()


def options() -> list[str]:
    parser = OptionParser({"namesrv": "127.0.0.1:9876"})
    WriteOptions.read(parser)
    return sorted({*parser.known})


@pytest.mark.parametrize("name", [*options(), *COLUMNS])
def test_it_is_documented(name: str) -> None:
    assert f"`{name}`" in DOCS
