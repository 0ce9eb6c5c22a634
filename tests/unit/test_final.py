"""What `scripts/test` may run again when it fails, and what it may not."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import LOST

ROOT = Path(__file__).parents[2]
MAY_RUN_AGAIN = 1  # so scripts/test says

FINAL = """
@pytest.mark.final
def test_that_loses_a_message():
    raise ExceptionGroup("of tasks", [TimeoutError(), AssertionError("lost")])
"""
NOT_FINAL = """
@pytest.mark.final
def test_that_waits_too_long():
    raise TimeoutError

@pytest.mark.final
def test_that_can_not_tell():
    pytest.fail("the machine is slow")

def test_of_something_else():
    assert False
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tests", "code"), [(FINAL, LOST), (NOT_FINAL, MAY_RUN_AGAIN)], ids=["final", "not final"]
)
def test_an_assertion_that_fails_in_a_final_test_is_final(
    tests: str, code: int, tmp_path: Path
) -> None:
    (tmp_path / "test_it.py").write_text(f"import pytest\n{tests}")
    options = ("--rootdir", ROOT, "-c", ROOT / "pyproject.toml", "-p", "tests.conftest")
    finished = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "-p", "no:cacheprovider", tmp_path],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == code, finished.stdout
    assert ("LOST, and not run again: " in finished.stdout) == (code == LOST)
