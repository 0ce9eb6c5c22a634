"""docs/command-line.md tells of every command and of every option."""

import argparse
import re
from pathlib import Path

import pytest

from rocketpipe.cli.connecting import cluster_options
from rocketpipe.cli.jobs import job_options
from rocketpipe.cli.program import parser
from tests.cli.command_tree import commands, options

DOCS = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text()
SECTIONS: dict[str, str] = dict(
    re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", DOCS, re.MULTILINE | re.DOTALL)
)
COMMON = SECTIONS["Options of every command that talks to a cluster"]


JOBS = ("archive", "publish", "replay", "audit")


def section(command: str) -> str:
    (text,) = [text for title, text in SECTIONS.items() if command in title.split(", ")]
    return text


@pytest.mark.parametrize(
    ("name", "command"),
    list(commands(parser())),
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_every_command_and_option_is_told(name: str, command: argparse.ArgumentParser) -> None:
    told = set(re.findall(r"--[a-z][\w-]*", section(name)))
    if name == "serve":
        return  # its options have a page of their own, and a test there
    common = options(job_options() if name in JOBS else cluster_options())
    missing = options(command) - told - (common if name != "completion" else {"--debug"})
    assert not missing, f"docs/command-line.md does not tell of {missing} of {name}"


def test_the_common_options_are_told() -> None:
    told = set(re.findall(r"`(--[a-z][\w-]*)", COMMON))
    assert told == options(cluster_options())
    told = set(re.findall(r"`(--[a-z][\w-]*)", SECTIONS["Options of every Spark job"]))
    assert told >= options(job_options()) - options(cluster_options())


def test_no_option_is_told_that_does_not_exist() -> None:
    program = parser()
    known = {text for _, command in commands(program) for text in options(command)}
    known |= options(program) | {"--help"}
    assert set(re.findall(r"--[a-z][\w-]*", DOCS)) <= known
