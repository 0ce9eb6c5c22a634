"""The examples of documents are really run: what does not work is found."""

import os
import time
from pathlib import Path

import pytest

from tests.docs.documents import Example, examples
from tests.docs.session import Session


def document(tmp_path: Path, text: str) -> list[Example]:
    file = tmp_path / "page.md"
    file.write_text(text)
    return examples(file)


def followed(tmp_path: Path, text: str) -> list[str]:
    """What each example printed, of those that run."""
    folder = tmp_path / "folder"
    folder.mkdir()
    with Session(folder) as session:
        return [session.follow(each) for each in document(tmp_path, text) if each.is_run]


def example(language: str, text: str, note: str = "") -> str:
    return (f"<!-- {note} -->\n" if note else "") + f"```{language}\n{text}\n```\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    "wrong",
    [
        example("python", "raise SystemExit(3)"),
        example("python", "import warnings; warnings.warn('old')"),
        example("python", "def test_it():\n    assert 1 == 2"),
        example("python", "print(1)", "exit code 1"),
        example("sh", "false\necho it went on"),
        example("sh", "cat no-such-file | sort"),
        example("sh", "echo $never_set"),
        example("sh", "true", "exit code 1"),
        example("sh", "exit 0", "exit code 2"),
    ],
)
def test_an_example_that_does_not_do_what_it_should_is_found(tmp_path: Path, wrong: str) -> None:
    (found,) = document(tmp_path, wrong)
    folder = tmp_path / "folder"
    folder.mkdir()
    with Session(folder) as session, pytest.raises(AssertionError, match=r"page\.md:\d"):
        session.follow(found)


@pytest.mark.slow
def test_a_shell_remembers_and_files_are_kept(tmp_path: Path) -> None:
    text = (
        example("sh", "name=rocket; export more=pipe; mkdir sub; cd sub")
        + example("python", "print('saved')", "file: saved.py")
        + example("sh", "echo $name$more; pwd; python ../saved.py")
        + example("text", "this is not run")
        + example("sh", "rm -rf /nowhere", "not run: only to be seen")
        + example("sh", "exit_code() { return 4; }; exit_code", "exit code 4")
    )
    outputs = followed(tmp_path, text)
    assert outputs[2].split() == ["rocketpipe", str(tmp_path / "folder" / "sub"), "saved"]
    assert len(outputs) == 4


@pytest.mark.slow
def test_what_an_example_leaves_running_ends_with_the_document(tmp_path: Path) -> None:
    (output,) = followed(tmp_path, example("sh", "sleep 600 &\necho $!"))
    process = int(output)
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    pytest.fail("it still runs")


def test_where_an_example_stands_and_what_is_said_of_it(tmp_path: Path) -> None:
    text = "# Title\n\n" + example("sh", "echo 1", "not run: of no use") + example("json", "{}")
    shell, json = document(tmp_path, text)
    assert (shell.line, shell.text, shell.is_run) == (5, "echo 1\n", False)
    assert (json.language, json.note, json.is_run) == ("json", None, False)
