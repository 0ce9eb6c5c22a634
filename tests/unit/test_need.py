"""A tool that is missing or too old is named in one line, with the way to get it."""

import os
import subprocess
from pathlib import Path

import pytest

NEED = Path(__file__).parents[2] / "scripts" / "need"


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A folder with nothing in it but what the script itself runs on."""
    for name in ("bash", "sed", "env"):
        found = next(
            path for folder in os.defpath.split(":") if (path := Path(folder) / name).exists()
        )
        (tmp_path / name).symlink_to(found)
    return tmp_path


def add(tools: Path, name: str, script: str) -> None:
    (tools / name).write_text(f"#!{tools}/bash\n{script}\n")
    (tools / name).chmod(0o755)


def need(tools: Path, *names: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [NEED, *names], env={"PATH": str(tools)}, capture_output=True, text=True, timeout=10
    )


def assert_refused(finished: subprocess.CompletedProcess[str], *words: str) -> None:
    assert finished.returncode == 1
    assert finished.stdout == ""
    (line,) = finished.stderr.splitlines()
    assert line.startswith("rocketpipe: ")
    for word in words:
        assert word in line


@pytest.mark.parametrize("name", ["python", "java", "mvn"])
def test_a_missing_tool_is_named(tools: Path, name: str) -> None:
    assert_refused(need(tools, name), f"{name}", "is missing: install")


def test_the_first_missing_tool_is_enough(tools: Path) -> None:
    assert_refused(need(tools, "java", "mvn"), "java is missing")


@pytest.mark.parametrize("version", ["1.8", "11", "16", ""])
def test_an_old_java_is_named_with_its_version(tools: Path, version: str) -> None:
    add(tools, "java", f'echo "    java.specification.version = {version}" >&2')
    assert_refused(need(tools, "java"), f"java is version {version or 'unknown'}", "JDK 17")


@pytest.mark.parametrize("version", ["17", "21"])
def test_a_java_that_is_new_enough_passes(tools: Path, version: str) -> None:
    add(tools, "java", f'echo "    java.specification.version = {version}" >&2')
    add(tools, "mvn", "exit 1")
    finished = need(tools, "java", "mvn")
    assert (finished.returncode, finished.stderr) == (0, "")


def test_an_old_python_is_named_with_its_version(tools: Path) -> None:
    add(tools, "python3", '[ "$1" = --version ] && echo "Python 3.9.1" || exit 1')
    assert_refused(need(tools, "python"), "Python 3.9.1 is too old", "3.11")


def test_a_python_without_venv_is_named(tools: Path) -> None:
    add(tools, "python3", '[[ "$2" != *venv* ]]')
    assert_refused(need(tools, "python"), "no venv module")
