"""SQL92 filters against what Apache's rocketmq-filter 5.5.0 says of the same."""

import json
import re
from pathlib import Path

import pytest

from rocketpipe.broker.sql92.parser import compile_filter, parse
from rocketpipe.errors import InvalidSetting

GOLDEN = json.loads(Path(__file__).with_name("sql92.json").read_text("utf-8"))
LETTERS = {True: "T", False: "F", None: "N"}


def answers(expression: str) -> str:
    """As tests/apache/java/SqlFilters.java prints them."""
    try:
        evaluate = parse(expression).evaluate
    except InvalidSetting as error:
        place = re.fullmatch(r"Encountered .* (at line \d+, column \d+)\.", str(error))
        return f"wrong {place[1]}" if place else "wrong"
    letters = ""
    for properties in GOLDEN["properties"]:
        try:
            value = evaluate(properties)
            assert value is None or isinstance(value, bool)
            letters += LETTERS[value]
        except ValueError:
            letters += "E"
    return letters


@pytest.mark.parametrize("case", GOLDEN["cases"], ids=lambda case: case["expression"][:60])
def test_a_filter_says_what_java_says(case: dict[str, str]) -> None:
    expression, expected = case["expression"], case["answers"]
    assert answers(expression) == expected
    if expected.startswith("wrong"):
        with pytest.raises(InvalidSetting):
            compile_filter(expression)
    else:
        matches = compile_filter(expression)
        wanted = [matches(properties) for properties in GOLDEN["properties"]]
        assert wanted == [letter == "T" for letter in expected]
