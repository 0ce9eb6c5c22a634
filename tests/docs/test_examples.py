"""The examples of every document run as they stand, in the order in which a reader meets them."""

import re
from pathlib import Path

import pytest

from tests.docs.documents import DOCUMENTS, READ, ROOT, RUN, examples, name_of
from tests.docs.session import Session
from tests.spark.conftest import require_java


def followed(document: Path) -> list[object]:
    """A parameter for a document that has anything to run here, marked with what it needs."""
    here = [each for each in examples(document) if each.is_run and not each.needs_session]
    if not here:
        return []
    marks = [pytest.mark.slow]
    if any(each.starts_spark for each in here):
        marks.append(pytest.mark.spark)
    return [pytest.param(document, id=name_of(document), marks=marks)]


@pytest.mark.parametrize("document", [each for one in DOCUMENTS for each in followed(one)])
def test_a_document_can_be_followed(
    document: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if request.node.get_closest_marker("spark"):
        require_java()
    with Session(tmp_path) as session:
        for example in examples(document):
            if example.is_run and not example.needs_session:
                session.follow(example)


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_every_example_says_what_it_is(document: Path) -> None:
    for example in examples(document):
        assert example.language in RUN | READ, (
            f"{example.place}: the language is {example.language!r}; "
            f"say sh or python, which are run, or one of {sorted(READ)}"
        )
        if example.note is not None:
            assert re.fullmatch(
                r"not run: .{10,}|run by tests/\S+|in the background|file: \S+|exit code [1-9]\d*",
                example.note,
            ), f"{example.place}: tests/docs/documents.py does not know {example.note!r}"
            if example.note.startswith("run by "):
                test = ROOT / example.note.removeprefix("run by ")
                assert document.name in test.read_text(), f"{example.place}: {test} does not run it"


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_no_example_hides_in_an_indented_block(document: Path) -> None:
    prose = re.sub(r"^```.*?^```$", "", document.read_text(), flags=re.MULTILINE | re.DOTALL)
    before = ""
    for line in filter(str.strip, prose.splitlines()):
        is_in_list = before.startswith(("-", "*", " ")) or before[:1].isdigit()
        assert is_in_list or not line.startswith("    "), (
            f"{name_of(document)}: {line.strip()!r} is indented code, which no test runs: "
            "fence it, and say whether it is sh, python or text"
        )
        before = line


def slug(heading: str) -> str:
    """GitHub's anchor of a heading."""
    text = re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower())
    return text.strip().replace(" ", "-")


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_every_link_leads_somewhere(document: Path) -> None:
    prose = re.sub(r"^```.*?^```$", "", document.read_text(), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", prose):
        if target.startswith(("http://", "https://")):
            continue
        path, _, anchor = target.partition("#")
        file = (document.parent / path).resolve() if path else document
        assert file.exists(), f"{name_of(document)} links to {target}, which is not there"
        if anchor:
            headings = re.findall(r"^#+ (.*)$", file.read_text(), re.MULTILINE)
            assert anchor in map(slug, headings), f"{document.name}: no heading for {target}"


def test_the_map_names_every_document() -> None:
    told = (ROOT / "docs" / "README.md").read_text()
    for document in (ROOT / "docs").glob("*.md"):
        assert document.name == "README.md" or f"({document.name})" in told, (
            f"docs/README.md does not tell of {document.name}"
        )
