"""docs/errors.md tells of every error: when it comes, what it carries, and whether to try again."""

import inspect
import re

import pytest

from rocketpipe import errors
from rocketpipe.errors import MQError
from tests.docs.documents import ROOT

DOCS = (ROOT / "docs" / "errors.md").read_text()
SECTIONS: dict[str, str] = dict(
    re.findall(r"^### `(\w+)`\n(.*?)(?=^##|\Z)", DOCS, re.MULTILINE | re.DOTALL)
)
CLASSES = {
    name: each
    for name, each in vars(errors).items()
    if isinstance(each, type) and issubclass(each, MQError)
}


def test_every_error_is_told_and_no_other() -> None:
    assert SECTIONS.keys() == CLASSES.keys()


def facts(kind: type[MQError]) -> set[str]:
    """What an error of this kind carries besides its sentence."""
    own = {name for name, value in vars(kind).items() if isinstance(value, property)}
    if "__init__" in vars(kind):
        own |= set(inspect.signature(kind).parameters)
    return own


@pytest.mark.parametrize("name", CLASSES)
def test_a_reader_learns_its_attributes_and_whether_to_try_again(name: str) -> None:
    section = SECTIONS[name]
    assert "**Try again:**" in section
    told = re.search(r"\*\*Attributes:\*\*(.*?)\*\*Try again", section, re.DOTALL)
    attributes = set(re.findall(r"`(\w+)`[,;. ]", told[1])) if told else set()
    missing = facts(CLASSES[name]) - attributes
    assert not missing, f"docs/errors.md does not tell of {missing} of {name}"
