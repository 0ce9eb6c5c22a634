"""The golden file of header declarations is what Apache's jars say."""

import json
from pathlib import Path

import pytest

from tests.apache.programs import java_program

TESTS = Path(__file__).parents[1]


@pytest.mark.parametrize("apache_version", ["5.5.0"], indirect=True)
def test_the_golden_declarations_are_those_of_the_release(apache_version: str) -> None:
    finished = java_program(apache_version, TESTS / "apache" / "java" / "HeaderFields.java")
    assert finished.exit_code == 0, finished.output
    golden = json.loads((TESTS / "golden" / "header_fields.json").read_text())["cases"]
    lines = {
        f"{case['class']}\t{case['code'] or ''}\t"
        f"{{{', '.join(f'{name}={kind}' for name, kind in case['fields'].items())}}}"
        for case in golden
    }
    assert set(finished.output.splitlines()) == lines
