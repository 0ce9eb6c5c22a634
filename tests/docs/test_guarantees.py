"""docs/guarantees.md names tests: they are there."""

import ast
import re

import pytest

from tests.docs.documents import ROOT

NAMED = sorted(
    set(re.findall(r"`(tests/[\w/.]+)(?:::(\w+))?`", (ROOT / "docs" / "guarantees.md").read_text()))
)


@pytest.mark.parametrize(("file", "test"), NAMED, ids=lambda each: each.split("/")[-1])
def test_a_test_that_proves_a_promise_exists(file: str, test: str) -> None:
    tree = ast.parse((ROOT / file).read_text())
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    found = {node.name for node in ast.walk(tree) if isinstance(node, functions)}
    assert not test or test in found, f"docs/guarantees.md: {file} has no {test}"
    assert any(name.startswith("test_") for name in found)
