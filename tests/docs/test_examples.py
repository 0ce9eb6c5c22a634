"""The examples in the docs run as they stand, each in a process of its own."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketpipe.testing import EmbeddedCluster

ROOT = Path(__file__).parents[2]
EXAMPLES = [
    pytest.param(example, id=f"{document.stem}-{number}")
    for document in (ROOT / "docs" / "producing.md", ROOT / "docs" / "consuming.md")
    for number, example in enumerate(
        re.findall(r"```python\n(.*?)```", document.read_text(), re.DOTALL)
    )
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=1) as cluster:
        yield cluster


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_runs_as_it_stands(cluster: EmbeddedCluster, example: str) -> None:
    assert "127.0.0.1:9876" in example
    finished = subprocess.run(
        [sys.executable, "-W", "error", "-c", example.replace("127.0.0.1:9876", cluster.namesrv)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert finished.returncode == 0, finished.stderr
    assert finished.stderr == ""
